"""Write the Grafana dashboard: ``python scripts/dashboard.py``.

The table below has the panels; the rest is the JSON around them.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.docs import registry

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "deploy" / "grafana" / "classad-hydrator.json"
SITE = 'site=~"$site"'
CYCLES = "sum by (instance) (increase(hydrator_cycles_total[1h]))"
INSTANCE = 'instance=~"$instance"'
_METRIC = re.compile(r"\b((?:hydrator|process)_\w+)(\{)?")
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Panel = tuple[str, str, str, Sequence[tuple[str, str]]]
"""Title, unit, kind of panel, and expressions with the legend of each."""


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


def _quantile(metric: str, by: str) -> str:
    return f"histogram_quantile(0.95, sum by (le, {by}) (rate({metric}_bucket[$__rate_interval])))"


ROWS: Sequence[tuple[str, Sequence[Panel]]] = (
    ("Do jobs find their data?", (
        ("Slots with the current ad", "percentunit", "stat",
         [('sum(hydrator_slots{coverage="current", site!="unknown"}) / (sum(hydrator_slots{site!="unknown"}) > 0)', "")]),
        ("Jobs that started beside their data", "percentunit", "stat",
         [(('sum(increase(hydrator_job_starts_total{start="local"}[$__range]))'
           ' / (sum(increase(hydrator_job_starts_total{start!="no_datasets"}[$__range])) > 0)'), "")]),
        ("Since the last cycle", "s", "stat", [("time() - hydrator_last_cycle_timestamp_seconds", "")]),
        ("Sites with a held change", "short", "stat", [("sum(hydrator_held_sites)", "")]),
        ("Version", "string", "stat", [("hydrator_build_info", "{{version}}")]),
        ("Starts of jobs that name datasets", "short", "timeseries",
         [('sum by (start) (increase(hydrator_job_starts_total{start!="no_datasets"}[1d]))', "{{start}}")]),
        ("Wait for the first start, 95 %", "s", "timeseries",
         [(_quantile("hydrator_job_wait_seconds", "datasets"), "{{datasets}}")]),
        ("Datasets that jobs did not find", "short", "timeseries",
         [('sum by (site) (increase(hydrator_missed_datasets_total{site=~"$site|unknown"}[$__rate_interval]))',
           "{{site}}")]),
    )),
    ("Age of the facts", (
        ("Age of the published facts", "s", "timeseries",
         [(f"time() - hydrator_site_as_of_timestamp_seconds{{{SITE}}}", "{{site}}")]),
        ("Polls by outcome", "ops", "timeseries",
         [(_rate("hydrator_catalogue_reads_total", "catalogue, outcome"), "{{catalogue}} {{outcome}}")]),
        ("Time of a poll, 95 %", "s", "timeseries",
         [(_quantile("hydrator_catalogue_read_seconds", "catalogue"), "{{catalogue}}"),
          ("hydrator_catalogue_pending_seconds", "{{catalogue}} under way")]),
        ("Cycles by outcome, and bugs", "ops", "timeseries",
         [(_rate("hydrator_cycles_total", "outcome"), "{{outcome}}"),
          (_rate("hydrator_bugs_total", "part"), "bug in {{part}}")]),
        ("Time of a cycle, 95 %", "s", "timeseries", [
            ("histogram_quantile(0.95, sum by (le) (rate(hydrator_cycle_seconds_bucket[$__rate_interval])))", "cycle"),
        ]),
        ("Unseen datasets", "short", "timeseries", [("hydrator_unseen_datasets", "unseen")]),
    )),
    ("Published data", (
        ("Datasets by state", "short", "timeseries",
         [(f"sum by (state) (hydrator_site_datasets{{{SITE}}})", "{{state}}")]),
        ("Datasets in demand", "short", "timeseries", [("hydrator_demanded_datasets", "{{origin}}")]),
        ("Slots by their copy of the ad", "short", "timeseries",
         [('sum by (coverage) (hydrator_slots{site=~"$site|unknown"})', "{{coverage}}")]),
        ("Storage without a site", "short", "timeseries", [("hydrator_unmapped_storage_elements", "{{catalogue}}")]),
        ("Size of an ad", "bytes", "timeseries", [(f"hydrator_site_ad_bytes{{{SITE}}}", "{{site}}")]),
        ("Jobs that the size budget left out", "short", "timeseries",
         [(f"hydrator_site_left_out_jobs{{{SITE}}}", "{{site}}")]),
        ("Sites with a held change", "short", "timeseries", [("hydrator_held_sites", "{{cause}}")]),
    )),
    ("Delivery to the pool", (
        ("Ads sent", "ops", "timeseries",
         [(_rate("hydrator_ads_sent_total", "publisher, action"), "{{publisher}} {{action}}")]),
        ("Sent, and not read back", "short", "timeseries", [("hydrator_unconfirmed_ads", "{{publisher}}")]),
        ("Failures to merge", "ops", "timeseries",
         [(_rate("hydrator_merge_errors_total", "collector"), "{{collector}}")]),
        ("Failures to publish", "ops", "timeseries",
         [(_rate("hydrator_publish_errors_total", "publisher"), "{{publisher}}")]),
        ("Requests by status", "reqps", "timeseries",
         [(_rate("hydrator_http_requests_total", "route, status"), "{{route}} {{status}}")]),
        ("Connections cut", "ops", "timeseries",
         [(_rate("hydrator_http_connections_cut_total", "reason"), "{{reason}}")]),
    )),
    ("The daemon's process", (
        ("Memory", "bytes", "timeseries", [
            ("process_resident_memory_bytes", "resident"),
            ("process_virtual_memory_bytes", "virtual"),
        ]),
        ("CPU time a second", "s", "timeseries", [("rate(process_cpu_seconds_total[$__rate_interval])", "{{instance}}")]),
        ("Open files", "short", "timeseries", [("process_open_fds", "open"), ("process_max_fds", "limit")]),
        ("Since the start", "s", "timeseries", [("time() - process_start_time_seconds", "{{instance}}")]),
    )),
    ("Credentials and health", (
        ("Until credentials end", "s", "timeseries", [
            ("hydrator_credential_expiry_timestamp_seconds - time()", "{{credential}}"),
        ]),
        ("HTCondor child replaced", "short", "timeseries",
         [("increase(hydrator_condor_child_restarts_total[$__rate_interval])", "times")]),
        ("State on disk", "short", "timeseries", [("hydrator_state_saved", "saved")]),
    )),
    ("Reads from other sites", (
        ("Reads are paced", "short", "timeseries", [("hydrator_paced", "paced")]),
        ("Idle jobs beside their data", "short", "timeseries", [(f"hydrator_site_backlog{{{SITE}}}", "{{site}}")]),
        ("Readers of a site's data", "short", "timeseries", [(f"hydrator_site_readers{{{SITE}}}", "{{site}}")]),
    )),
    ("Requests of data", (
        ("Requests that have not ended", "short", "timeseries",
         [(f"sum by (site, kind) (hydrator_staging_open_requests{{{SITE}}})", "{{site}} {{kind}}")]),
        ("Bytes on their way", "bytes", "timeseries",
         [(f"hydrator_staging_in_flight_bytes{{{SITE}}}", "{{site}}")]),
        ("Requests by outcome", "short", "timeseries",
         [("sum by (outcome) (increase(hydrator_staging_requests_total[$__rate_interval]))", "{{outcome}}")]),
        ("Bytes asked for, staged, and unused", "bytes", "timeseries",
         [("sum by (outcome) (increase(hydrator_staging_bytes_total[1d]))", "{{outcome}}")]),
        ("Refusals and failures", "short", "timeseries",
         [("sum by (kind) (increase(hydrator_staging_refusals_total[$__rate_interval]))", "{{kind}}")]),
        ("Limits", "percentunit", "timeseries", [("hydrator_staging_limit_used_ratio", "{{limit}}")]),
        ("Stuck requests, and jobs whose data is not asked for", "short", "timeseries", [
            (f"hydrator_staging_stuck_requests{{{SITE}}}", "stuck: {{site}}"),
            ("hydrator_staging_unserved_jobs", "jobs"),
        ]),
        ("Problems", "short", "timeseries", [("hydrator_staging_problems", "problems")]),
    )),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Build the whole dashboard, as Grafana 9 and later import it."""
    return {
        "title": "classad-hydrator",
        "uid": "classad-hydrator",
        "description": "Data locality for an HTCondor pool: how many jobs find their data, how old the facts are, and whether the pool has them.",
        "tags": ["htcondor", "data-locality"],
        "schemaVersion": 37,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "timezone": "",
        "templating": {"list": [
            {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
            {
                "name": "site", "label": "Site", "type": "query", "datasource": _SOURCE, "multi": True,
                "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "refresh": 2,
                "query": {"query": "label_values(hydrator_site_datasets, site)", "refId": "site"},
            },
            {
                "name": "instance", "label": "Daemon", "type": "query", "datasource": _SOURCE, "multi": True,
                "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "refresh": 2,
                "query": {"query": "label_values(hydrator_build_info, instance)", "refId": "instance"},
            },
        ]},
        "panels": list(_panels()),
    }  # fmt: skip


def _panels() -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for title, panels in ROWS:
        number += 1
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
               "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}}  # fmt: skip
        x, y, height = 0, y + 1, 0
        for name, unit, kind, targets in panels:
            wide, tall = (4, 4) if kind == "stat" else (8, 8)
            if x + wide > 24 or (height and height != tall):
                x, y = 0, y + height
            number += 1
            yield _panel(number, name, unit, kind, targets) | {
                "gridPos": {"x": x, "y": y, "w": wide, "h": tall}
            }
            x, height = x + wide, tall
        y += height


def _panel(
    number: int, title: str, unit: str, kind: str, targets: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    return {
        "id": number,
        "type": kind,
        "title": title,
        "description": _description(expressions := [text for text, _ in targets]),
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"textMode": "name"} if unit == "string" else {},
        "targets": [
            {"refId": chr(ord("A") + n), "datasource": _SOURCE, "expr": text, "legendFormat": legend}
            for n, (text, (_, legend)) in enumerate(zip(map(_of_instance, expressions), targets, strict=True))
        ],
    }


def _of_instance(expression: str) -> str:
    """Restrict *expression* to the chosen daemons."""
    return _METRIC.sub(lambda found: f"{found[1]}{{{INSTANCE}{', ' if found[2] else '}'}", expression)


def _description(expressions: Sequence[str]) -> str:
    """Return the description of a panel: the help texts of its metrics."""
    helps = {}
    for each in registry().collect():
        helps[f"{each.name}_total" if each.type == "counter" else each.name] = each.documentation
    names = dict.fromkeys(
        found[1].removesuffix("_bucket") for one in expressions for found in _METRIC.finditer(one)
    )
    return "\n\n".join(helps[name] for name in names)


def text() -> str:
    """Return the dashboard as text for its file."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the file; the chart has a link to it."""
    PLACE.write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

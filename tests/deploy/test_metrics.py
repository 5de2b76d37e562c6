"""Metrics and alerts, checked by promtool."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.routing import Route

from hydrator.daemon.metrics import DaemonProcessCollector, Metrics
from hydrator.domain.model import Site
from hydrator.domain.text import link_to_page as links_to
from hydrator.server.middleware import HttpMetrics, build_cut_counter
from testbed.debs import promtool
from tests.factories import CAM, replica, settings_with, view_of
from tests.pages import blocks, script
from tests.parts import needs
from tests.unit.reconcile.test_reconciler import World

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
PAGE = (ROOT / "docs" / "operators" / "monitoring.md").read_text()
DASHBOARD = ROOT / "deploy" / "grafana" / "classad-hydrator.json"
VARIABLES = {"$site": ".*", "$instance": ".*", "$__rate_interval": "1m", "$__range": "5m"}

pytestmark = pytest.mark.timeout(900)  # the first run downloads Prometheus


def registry() -> CollectorRegistry:
    """Return everything that the daemon exports."""
    made = CollectorRegistry()
    metrics = Metrics(made, "0")
    build_cut_counter(made)
    HttpMetrics(made, [Route("/", lambda request: None)])
    metrics.record_cycle(view_of(World().run()), 0.5)
    return made


def names() -> set[str]:
    """Return the names of metrics as in expressions, without the parts of a histogram."""
    return {
        f"{family.name}_total" if family.type == "counter" else family.name for family in registry().collect()
    }


def checked(*arguments: str | Path, given: bytes = b"") -> tuple[int, str]:
    with needs("Prometheus"):
        program, _ = promtool()
    done = subprocess.run([program, *map(str, arguments)], input=given, capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def accepted_rules(folder: Path, rules: list[dict]) -> str:
    """Return what promtool says of *rules*, which it accepts."""
    (folder / "rules.yml").write_text(json.dumps({"groups": [{"name": "x", "rules": rules}]}))
    status, said = checked("check", "rules", folder / "rules.yml")
    assert status == 0, said
    return said


def test_promtool_accepts_the_metrics():
    assert checked("check", "metrics", given=generate_latest(registry())) == (0, "")


def test_each_alert_fires_on_its_problem_and_none_without_one():
    status, said = checked("test", "rules", ALERTS.with_name("alerts_test.yml"))
    assert status == 0, said
    assert "SUCCESS" in said


def test_alerts_use_only_exported_metrics():
    asked = set(re.findall(r"\bhydrator_\w+", ALERTS.read_text()))
    assert asked
    assert asked <= names()


def test_each_alert_is_tested_and_links_to_its_paragraph():
    text = ALERTS.read_text()
    alerts = re.findall(r"- alert: (\w+)", text)
    links = re.findall(r"runbook_url: (\S+)", text)
    assert [links_to(f"operators/monitoring.md#{alert.lower()}") for alert in alerts] == links
    assert [name for name in alerts if f"\n### {name}\n" not in PAGE] == []
    tested = ALERTS.with_name("alerts_test.yml").read_text()
    assert [name for name in alerts if f'alertname="{name}"' not in tested] == []


def test_process_metrics_work_where_systemd_hides_proc_stat(tmp_path):
    """ProcSubset=pid in deploy/systemd/hydrator.service."""
    (tmp_path / "self").symlink_to("/proc/self")
    made = CollectorRegistry()
    DaemonProcessCollector(proc=str(tmp_path), registry=made)
    start = made.get_sample_value("process_start_time_seconds")
    assert start is not None
    assert abs(time.time() - start) < 86_400
    assert made.get_sample_value("process_resident_memory_bytes") > 1e6


def test_each_replaced_child_process_is_counted_once():
    made = CollectorRegistry()
    metrics = Metrics(made, "0")
    for restarts in (0, 2, 2, 3):
        metrics.count_child_restarts(restarts)
    assert made.get_sample_value("hydrator_condor_child_restarts_total") == 3


def test_metric_labels_contain_no_dataset():
    labels = {label for family in registry().collect() for one in family.samples for label in one.labels}
    assert labels - {"le"} <= {
        *("version", "outcome", "catalogue", "site", "state", "origin", "cause", "publisher"),
        *("action", "method", "route", "status", "reason", "source", "announced"),
        *("start", "datasets", "credential", "coverage", "schedd", "part"),
        *("kind", "limit"),
    }
    assert CAM in generate_latest(registry()).decode()


def series(sites: int, datasets: int) -> int:
    """Return the number of series for this number of sites, and of datasets at each."""
    made = CollectorRegistry()
    names = [Site(f"S{n}") for n in range(sites)]
    held = [replica(f"lofar:M{n}", site) for n in range(datasets) for site in names]
    pins = frozenset(one.did for one in held)
    Metrics(made, "0").record_cycle(
        view_of(World(*held, sites=names, rules=settings_with(pins=pins)).run()), 0.5
    )
    return sum(len(family.samples) for family in made.collect())


def test_a_site_adds_some_twenty_series_and_a_dataset_none():
    assert (series(12, 3) - series(2, 3)) / 10 <= 25
    assert series(2, 50) == series(2, 3)


def panels() -> dict[str, str]:
    """Return each expression of the dashboard, as Grafana would query it, by its panel's title and letter."""
    found = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            assert "$" not in text
            found[f"{panel['title']} {target['refId']}"] = text
    return found


def test_dashboard_uses_only_exported_metrics_and_their_labels():
    exported = registry()._names_to_collectors
    for title, text in panels().items():
        used = re.findall(r"\bhydrator_\w+", text)
        assert exported.keys() >= {*used}, title
        assert names() >= {*re.findall(r"\bprocess_\w+", text)}, title
        known = {label for name in used for label in getattr(exported[name], "_labelnames", ())}
        asked = [
            *re.findall(r"(\w+)!?=~?\"", text),
            *", ".join(re.findall(r"by \(([^)]*)\)", text)).split(", "),
        ]
        assert {*asked} - {"", "instance", "le"} <= known, title


def test_every_expression_of_the_dashboard_is_valid(tmp_path):
    rules = [{"record": "x", "expr": text, "labels": {"panel": title}} for title, text in panels().items()]
    assert f"{len(rules)} rules found" in accepted_rules(tmp_path, rules)


def expressions(text: str) -> list[str]:
    """Return the expressions of a block: one a line, where an indented line continues the one before."""
    return re.sub(r"\n +", " ", text).strip().splitlines()


@pytest.mark.parametrize("block", blocks("text promql"), ids=str)
def test_expressions_on_pages_are_valid_and_use_exported_metrics(block, tmp_path):
    rules = [{"record": "x", "expr": text} for text in expressions(block.text)]
    accepted_rules(tmp_path, rules)
    asked = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\bhydrator_\w+", block.text)}
    assert asked
    assert asked <= names()


def test_prometheus_configuration_on_the_page_is_valid(tmp_path):
    [block] = blocks("yaml prometheus")
    (tmp_path / "alerts.yml").write_text((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    (tmp_path / "prometheus.yml").write_text(block.text)
    status, said = checked("check", "config", tmp_path / "prometheus.yml")
    assert status == 0, said


def test_dashboard_file_equals_the_output_of_its_script():
    # else: python scripts/dashboard.py
    module = script("dashboard")
    assert module.PLACE.read_text() == module.text()

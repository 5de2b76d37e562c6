"""Metrics and alerts, checked by promtool."""

import importlib.util
import json
import re
import subprocess
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.routing import Route

from hydrator.daemon.metrics import DaemonProcessCollector, Metrics
from hydrator.daemon.metrics.staging import StagingMetrics
from hydrator.domain.model import Site
from hydrator.domain.text import link_to_page as links_to
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.server.metrics import HttpMetrics
from testbed.prometheus import promtool
from tests.deploy.panels import DASHBOARD, panels
from tests.factories import CAM, replica
from tests.pages import blocks
from tests.parts import NO_PROMETHEUS, needs
from tests.unit.reconcile.test_reconciler import World

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()

pytestmark = pytest.mark.timeout(900)  # the first run downloads Prometheus


def registry() -> CollectorRegistry:
    """Return everything that the daemon exports."""
    made = CollectorRegistry()
    metrics = Metrics(made, "0")
    HttpMetrics(made, [Route("/", lambda request: None)])
    StagingMetrics(made)
    metrics.record_cycle(World().run(), 0.5)
    return made


def names() -> set[str]:
    """Return the names of metrics as in expressions, without the parts of a histogram."""
    return {
        f"{family.name}_total" if family.type == "counter" else family.name for family in registry().collect()
    }


def checked(*arguments: str | Path, given: bytes = b"") -> tuple[int, str]:
    with needs(NO_PROMETHEUS):
        program = promtool()
    done = subprocess.run([program, *map(str, arguments)], input=given, capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_promtool_accepts_the_metrics():
    assert checked("check", "metrics", given=generate_latest(registry())) == (0, "")


def test_promtool_rejects_a_counter_without_help():
    status, said = checked("check", "metrics", given=b"# TYPE x counter\nx 1\n")
    assert status == 3
    assert "no help text" in said


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
    assert [links_to(f"reference/metrics.md#{alert.lower()}") for alert in alerts] == links
    assert [name for name in alerts if f"\n### {name}\n" not in PAGE] == []
    tested = ALERTS.with_name("alerts_test.yml").read_text()
    assert [name for name in alerts if f'alertname="{name}"' not in tested] == []


def test_metrics_page_lists_exactly_the_exported_metrics():
    told = set(re.findall(r"^\| `((?:hydrator|process)_\w+)`", PAGE, re.MULTILINE))
    assert told == names()


def test_metric_names_follow_prometheus_conventions():
    """Units and ``_ratio`` come last, only counters have ``_total``; no series has creation times."""
    made = registry()
    for family in made.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name.endswith("_total") == (family.type == "counter"), name
        if re.search("second|byte", name) or "share of" in family.documentation.lower()[:20]:
            assert re.search(r"_(seconds|bytes|ratio)(_total)?$", name), name
    shares = {one.name for one in made.collect() if "share of" in one.documentation.lower()}
    assert shares
    assert all(name.endswith("_ratio") for name in shares), shares
    assert "_created" not in generate_latest(made).decode()


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
    for restarts in (0, 2, 2, 3, 1):  # 1: of another child, after a reload
        metrics.count_child_restarts(restarts)
    assert made.get_sample_value("hydrator_condor_child_restarts_total") == 4


def test_each_alert_is_defined_once_and_in_one_file():
    alerts = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    assert len(alerts) == len(set(alerts))
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "deploy").rglob("*.md")]
    assert [page.name for page in pages if re.search(r"- alert: \w", page.read_text())] == []


def test_each_panel_has_a_description_and_selects_the_chosen_daemons():
    board = json.loads(DASHBOARD.read_text())
    assert {one["name"] for one in board["templating"]["list"]} == {"datasource", "site", "instance"}
    shown = [one for one in board["panels"] if one["type"] != "row"]
    assert [one["title"] for one in shown if len(one["description"]) < 20] == []
    for each in shown:
        for target in each["targets"]:
            metrics = re.findall(r"\b(?:hydrator|process)_\w+", target["expr"])
            assert target["expr"].count('instance=~"$instance"') == len(metrics), target["expr"]


def test_metric_labels_contain_no_dataset():
    labels = {label for family in registry().collect() for one in family.samples for label in one.labels}
    assert labels - {"le"} <= {
        *("version", "outcome", "catalogue", "site", "state", "origin", "cause", "publisher"),
        *("action", "method", "route", "status", "reason", "source", "announced"),
        *("locality", "place", "datasets", "credential", "coverage", "schedd", "part"),
        *("kind", "limit"),
    }
    assert CAM in generate_latest(registry()).decode()


def series(sites: int, datasets: int) -> int:
    """Return the number of series for this number of sites, and of datasets at each."""
    made = CollectorRegistry()
    names = [Site(f"S{n}") for n in range(sites)]
    held = [replica(f"lofar:M{n}", site) for n in range(datasets) for site in names]
    pins = frozenset(one.did for one in held)
    Metrics(made, "0").record_cycle(World(*held, sites=names, rules=ReconcilePolicy(pins=pins)).run(), 0.5)
    return sum(len(family.samples) for family in made.collect())


def test_a_site_adds_some_twenty_series_and_a_dataset_none():
    assert (series(12, 3) - series(2, 3)) / 10 <= 25
    assert series(2, 50) == series(2, 3)


def test_every_metric_is_in_an_alert_or_on_the_dashboard():
    shown = "\n".join(panels().values()) + ALERTS.read_text()
    assert {name for name in names() if not re.search(rf"\b{name}(_bucket)?\b", shown)} == set()


def test_dashboard_uses_only_exported_metrics():
    asked = {
        name.removesuffix("_bucket")
        for text in panels().values()
        for name in re.findall(r"\b(?:hydrator|process)_\w+", text)
    }
    assert len(asked) > 20
    assert asked <= names()


def test_every_expression_of_the_dashboard_is_valid(tmp_path):
    rules = [{"record": "x", "expr": text, "labels": {"panel": title}} for title, text in panels().items()]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    status, said = checked("check", "rules", tmp_path / "rules.yml")
    assert f"{len(rules)} rules found" in said
    assert status == 0, said


def expressions(text: str) -> list[str]:
    """Return the expressions of a block: one a line, where an indented line continues the one before."""
    return re.sub(r"\n +", " ", text).strip().splitlines()


@pytest.mark.parametrize("block", blocks("text promql"), ids=str)
def test_expressions_on_pages_are_valid_and_use_exported_metrics(block, tmp_path):
    rules = [{"record": "x", "expr": text} for text in expressions(block.text)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "page", "rules": rules}]}))
    status, said = checked("check", "rules", tmp_path / "rules.yml")
    assert status == 0, said
    asked = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\bhydrator_\w+", block.text)}
    assert asked
    assert asked <= names()


def test_one_command_changes_every_runbook_link_to_a_web_server(tmp_path):
    [block] = blocks("sh alerts")
    alerts = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
    (tmp_path / "alerts.yml").write_text(alerts)
    subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], cwd=tmp_path, check=True)
    changed = (tmp_path / "alerts.yml").read_text()
    links = re.findall(r"runbook_url: \S+", alerts)
    assert links
    on_the_web = r"runbook_url: .?https://docs\.example\.org/reference/metrics\.html#"
    assert len(re.findall(on_the_web, changed)) == len(links)


def test_prometheus_configuration_on_the_page_is_valid(tmp_path):
    [block] = blocks("yaml prometheus")
    (tmp_path / "alerts.yml").write_text((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    (tmp_path / "prometheus.yml").write_text(block.text)
    status, said = checked("check", "config", tmp_path / "prometheus.yml")
    assert status == 0, said


def test_promtool_rejects_an_invalid_expression(tmp_path):
    rules = [{"record": "x", "expr": "sum by (site (hydrator_slots)"}]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert checked("check", "rules", tmp_path / "rules.yml")[0] == 1


def test_dashboard_file_equals_the_output_of_its_script():
    # else: python scripts/dashboard.py
    spec = importlib.util.spec_from_file_location("dashboard", ROOT / "scripts" / "dashboard.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PLACE.read_text() == module.text()


def test_dashboard_panels_do_not_overlap():
    taken = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells

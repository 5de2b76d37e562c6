"""Metrics and alerts, judged by promtool."""

import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.routing import Route

from hydrator.hearing import EventMetrics
from hydrator.telemetry import Metrics
from hydrator.traffic import Traffic
from testbed.prometheus import promtool
from tests.factories import CAM
from tests.unit.test_cycle import World

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
PAGE = (ROOT / "docs" / "metrics.md").read_text()

pytestmark = pytest.mark.timeout(300)  # the first run downloads Prometheus


def registry() -> CollectorRegistry:
    """Everything the daemon exports."""
    made = CollectorRegistry()
    metrics = Metrics(made, "0")
    Traffic(made, [Route("/", lambda request: None)])
    EventMetrics(made).events.labels("webhook", "heeded")
    metrics.record(World().run(), 0.5)
    return made


def names() -> set[str]:
    """By what a family is called in an expression, without the parts of a histogram."""
    return {
        f"{family.name}_total" if family.type == "counter" else family.name for family in registry().collect()
    }


def checked(*arguments: str | Path, given: bytes = b"") -> tuple[int, str]:
    done = subprocess.run([promtool(), *map(str, arguments)], input=given, capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_promtool_finds_nothing_wrong_with_the_metrics():
    assert checked("check", "metrics", given=generate_latest(registry())) == (0, "")


def test_promtool_would_say_so_if_a_counter_had_no_help():
    status, said = checked("check", "metrics", given=b"# TYPE x counter\nx 1\n")
    assert status == 3
    assert "no help text" in said


def test_each_alert_fires_when_it_should_and_none_when_all_is_well():
    status, said = checked("test", "rules", ALERTS.with_name("alerts_test.yml"))
    assert status == 0, said
    assert "SUCCESS" in said


def test_alerts_ask_only_for_what_is_exported():
    asked = set(re.findall(r"\bhydrator_\w+", ALERTS.read_text()))
    assert asked
    assert asked <= names()


def test_each_alert_is_tested_and_leads_to_its_paragraph():
    text = ALERTS.read_text()
    alerts = re.findall(r"- alert: (\w+)", text)
    links = re.findall(r"runbook_url: docs/metrics\.md#(\w+)", text)
    assert [alert.lower() for alert in alerts] == links
    assert [name for name in alerts if f"\n### {name}\n" not in PAGE] == []
    tested = ALERTS.with_name("alerts_test.yml").read_text()
    assert [name for name in alerts if f'alertname="{name}"' not in tested] == []


def test_the_page_names_every_metric_and_no_other():
    told = set(re.findall(r"^\| `(hydrator_\w+)`", PAGE, re.MULTILINE))
    assert told == names()


def test_labels_name_no_dataset():
    labels = {label for family in registry().collect() for one in family.samples for label in one.labels}
    assert labels - {"le"} <= {
        *("version", "outcome", "catalogue", "site", "state", "origin", "cause", "publisher"),
        *("action", "by", "verdict", "route", "status", "why", "source", "told"),
        *("found", "at", "datasets", "credential"),
    }
    assert CAM in generate_latest(registry()).decode()

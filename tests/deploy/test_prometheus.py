"""A real Prometheus scrapes a real daemon over a real pool; the dashboard's expressions give data."""

import re
from pathlib import Path

import pytest

from testbed.installation import Installation, ListedCatalogue, wait_for
from testbed.pool import Pool
from testbed.prometheus import scraping, server
from tests.deploy.panels import panels
from tests.parts import NO_PROMETHEUS, needs

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
QUIET = {
    "Held changes B": "no change is held",
    "Slots without a hook A": "no merge is configured",
    "Merges, and failures A": "no merge is configured",
    "Merges, and failures B": "no merge is configured",
    "Share of their time that merges covered A": "no merge is configured",
    "Until credentials end A": "the test pool's token does not end",
    "Since a transfer was measured A": "no transfer was measured",
    "Requests that have not ended A": "staging is off",
    "Bytes on their way A": "staging is off",
    "Proposed, or waiting for approval A": "staging is off",
    "Stuck requests, and jobs whose data is not asked for A": "staging is off",
}
"""Expressions without data while all is well."""

SETTINGS = """
[network.uplinks.UK]
gbit_per_second = 1
"""


def value(series: list[dict]) -> float | None:
    return float(series[0]["value"][1]) if series else None


@pytest.fixture(scope="module", autouse=True)
def prometheus_itself() -> None:
    with needs(NO_PROMETHEUS):
        server()


def test_dashboard_shows_a_pool_that_runs_jobs(own_pool: Pool, tmp_path: Path):
    catalogue = ListedCatalogue(tmp_path)
    catalogue.hold({"lofar:L1": {"UK": "available"}})
    with (
        Installation(own_pool, catalogue, settings=SETTINGS) as installed,
        scraping(installed.url.removeprefix("http://"), tmp_path, ALERTS) as prometheus,
    ):
        wait_for(lambda: prometheus.query('up{job="classad-hydrator"} == 1'), 30, "a scrape")
        coverage = panels()["Slots with the current ad A"]
        wait_for(lambda: value(prometheus.query(coverage)) == 1, 60, "every slot to have the current ad")
        sizes = "+RequiredBytes = [ 'lofar:L1' = 3000 ]"
        cluster = installed.submit(["lofar:L1"], mode="require", count=2, more=sizes)
        assert set(installed.ran_at(cluster, jobs=2)) == {"UK"}
        found = panels()["Jobs that found all their data A"]
        wait_for(lambda: value(prometheus.query(found)) == 1, 60, "ended jobs to be counted")
        for title, expression in panels().items():
            if title not in QUIET:
                wait_for(
                    lambda text=expression: prometheus.query(text), 30, f"data for {title}: {expression}"
                )
        assert [title for title in QUIET if prometheus.query(panels()[title])] == []
        alerts = re.findall(r"- alert: (\w+)", ALERTS.read_text("utf-8"))
        wait_for(lambda: prometheus.rules() == dict.fromkeys(alerts, "ok"), 30, "every alert to be evaluated")
        assert prometheus.query('ALERTS{alertstate="firing"}') == []

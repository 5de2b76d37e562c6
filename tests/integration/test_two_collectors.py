"""A pool with two collectors: the daemon publishes to each and reads each back by itself."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from testbed.collectors import second_collector
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool, SiteSpec
from testbed.ports import free_port

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

SITE_ADS = 'MyType == "DataLocality"'


class Two:
    """A daemon beside a pool whose HTCondor configuration names two collectors."""

    def __init__(self, pool: Pool, port: int) -> None:
        self.pool = pool
        self.first, self.second = pool.collector, f"127.0.0.1:{port}"
        self.catalogue = ListedCatalogue(pool.home, ("UK",))
        self.installed = Installation(pool, self.catalogue, demand='pins = ["lofar:L1"]')

    def generations(self, collector: str) -> dict[str, int]:
        """Return the generations of the ads that one collector has, by name."""
        asked = ("-any", "-constraint", SITE_ADS, "-attributes", "Name,DataLocalityGeneration", "-json")
        output = self.pool.run("condor_status", "-pool", collector, *asked).stdout
        ads = json.loads(output) if output.strip() else []
        return {ad["Name"]: ad["DataLocalityGeneration"] for ad in ads}

    def troubles(self) -> dict[str, str | None]:
        """Return by publisher the error that `hydrator status` shows of its last cycle."""
        rows = self.installed.status()["cycle"]["publishers"]
        return {row["name"]: row["error"] for row in rows if row["name"].startswith("collector")}

    def failing(self) -> set[str]:
        """Return the subjects that `hydrator check` reports as failed."""
        rows = json.loads(self.installed.run("check", "--json", check=False).stdout)
        return {row["subject"] for row in rows if row["level"] == "fail"}

    def signal_second(self, number: signal.Signals) -> None:
        """Send a signal to the second collector; the master starts a killed one again."""
        for pid in self.pool.pids("collector"):
            if "COLLECTOR_B" in self.pool.processes().get(pid, ""):
                os.kill(pid, number)

    @contextmanager
    def second_is_deaf(self) -> Iterator[None]:
        """Stop the second collector without ending it."""
        self.signal_second(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal_second(signal.SIGCONT)


@pytest.fixture(scope="module")
def two(htcondor_release: str) -> Iterator[Two]:
    port = free_port()
    extra = {"all": second_collector(port)}
    with Pool.start(htcondor_release, (SiteSpec("UK", cpus=1),), extra) as pool:
        made = Two(pool, port)
        with pool.client("hydrator").open("a") as config:
            config.write(f"COLLECTOR_HOST = {made.first}, {made.second}\n")
        made.catalogue.hold({"lofar:L1": {"UK": "available"}})
        made.installed.install()
        made.installed.start_daemon()
        try:
            yield made
        finally:
            made.installed.stop_daemon()


def filled(two: Two) -> bool:
    there = [two.generations(one) for one in (two.first, two.second)]
    return there[0] == there[1] and there[0].keys() == {"UK"}


def test_a_deaf_collector_is_named_and_the_other_one_follows_the_catalogue(two):
    two.pool.wait(lambda: filled(two), "both collectors to have the ad")
    before = two.generations(two.first)["UK"]
    first, second = f"collector {two.first}", f"collector {two.second}"
    with two.second_is_deaf():
        two.catalogue.hold({"lofar:L1": {"UK": "staging"}})
        two.pool.wait(lambda: two.generations(two.first)["UK"] > before, "the first collector to follow")
        two.pool.wait(lambda: bool(two.troubles()[second]), "status to name the second collector")
        # the first collector itself hangs now and then, when it advertises itself to the deaf one
        two.pool.wait(lambda: two.troubles()[first] is None, "status to find the first collector well")
        assert two.installed.metric(f'hydrator_publish_errors_total{{publisher="{second}"}}') > 0
        assert second in two.failing()
        page = httpx.get(two.installed.url, trust_env=False, timeout=60).text
        assert f"publisher {second}" in page
    two.pool.wait(lambda: filled(two), "the second collector to have the new ad")

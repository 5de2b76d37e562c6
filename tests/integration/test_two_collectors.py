"""A pool with two collectors: publication and slot merges look after each by itself."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from adapters.condor.bindings.client import CondorClient
from adapters.condor.bindings.process import CondorSettings
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool, SiteSpec
from testbed.ports import free_port
from tests.integration.test_slot_merge import MAY_MERGE, ads_of, merger_of

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

SITE_ADS = 'MyType == "DataLocality"'
SECOND = """
COLLECTOR_B = $(COLLECTOR)
COLLECTOR_B_ARGS = -f -p {port} -local-name COLLECTOR_B
COLLECTOR_B.COLLECTOR_LOG = $(LOG)/CollectorLog.B
COLLECTOR_B.COLLECTOR_ADDRESS_FILE = $(LOG)/.collector_address.B
COLLECTOR_B.ADDRESS_FILE = $(LOG)/.collector_address.B
DAEMON_LIST = $(DAEMON_LIST) COLLECTOR_B
DC_DAEMON_LIST = + COLLECTOR_B
COLLECTOR_HOST = $(COLLECTOR_HOST),127.0.0.1:{port}
"""
"""The configuration of a second collector, to which all daemons advertise, too."""


class Two:
    """A daemon beside a pool whose HTCondor configuration names two collectors."""

    def __init__(self, pool: Pool, port: int) -> None:
        self.pool = pool
        self.first, self.second = pool.collector, f"127.0.0.1:{port}"
        self.catalogue = ListedCatalogue(pool.home, ("UK",))
        self.installed = Installation(pool, self.catalogue, demand='pins = ["lofar:L1"]')

    def generations(self, collector: str) -> dict[str, int]:
        """Return the generations of the ads that one collector has, by name."""
        ads = self.pool.ads(SITE_ADS, "Name", "DataLocalityGeneration", collector=collector)
        return {ad["Name"]: ad["DataLocalityGeneration"] for ad in ads}

    def troubles(self) -> dict[str, str | None]:
        """Return by publisher the error that `hydrator status` shows of its last cycle."""
        rows = self.installed.status()["cycle"]["publishers"]
        return {row["name"]: row["error"] for row in rows if row["name"].startswith("collector")}

    def failing(self) -> set[str]:
        """Return the subjects that `hydrator check` reports as failed."""
        return {row["subject"] for row in self.installed.findings() if row["level"] == "fail"}

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
    extra = {"all": SECOND.format(port=port), "collector": MAY_MERGE}
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


@pytest.mark.older
def test_each_collector_gets_its_own_merges_and_a_dead_one_blocks_no_other(two):
    nowhere, both = f"127.0.0.1:{free_port()}", (two.first, two.second)
    settings = CondorSettings(
        f"{nowhere},{two.first},{two.second}", token_directory=two.pool.token("hydrator")
    )
    with CondorClient(settings) as client:
        merger = merger_of(client)
        done: dict = {}

        def everywhere() -> bool:
            done.update(merger.run_once(ads_of("UK"), lambda _: False))
            slots = [two.pool.slots("DataLocalitySource", collector=one) for one in both]
            return slots == [[{"DataLocalitySource": "merge"}]] * 2

        two.pool.wait(everywhere, "both collectors to show the merge")
    assert {one for one, merged in done.items() if merged.error is None} == set(both)
    assert nowhere in done[nowhere].error

"""Incidents of similar systems, by name, which do not happen here.

All had one cause: a read that failed or was cut short was taken as complete, and the objects that it lacked
were withdrawn. Each test has the incident's mechanism, translated to a catalogue and site ads.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from hydrator.domain.model import to_unix
from hydrator.state.store import Store
from testbed.faults import FAULTS, Fault, FaultProxy, status
from testbed.patience import PATIENCE
from testbed.rucio_standin import RucioStandIn

from .process import SITES, Daemon
from .sources import ListedSource, RucioSource, rucio_catalogue, rucio_settings
from .watched import CAM, CONFIRMATIONS, DIDS, FULL, RAL, Watched


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with RucioStandIn({"CAM-DISK": CAM, "RAL-DISK": RAL}) as server, FaultProxy(server.url) as proxy:
        proxy.server = server
        yield proxy


@pytest.fixture
def rucio(proxy, tmp_path) -> Iterator[Watched]:
    """Start a daemon on a stand-in for Rucio, and publish its data."""
    yield from settled(RucioSource(proxy, proxy.server, tmp_path))


@pytest.fixture
def patient_rucio(proxy, tmp_path) -> Iterator[Watched]:
    """The same with long time limits, for faults without silence."""
    source = RucioSource(proxy, proxy.server, tmp_path)
    source.patience = PATIENCE
    yield from settled(source)


def settled(source: RucioSource) -> Iterator[Watched]:
    watched = Watched(source)
    watched.hold(FULL)
    settle(watched)
    yield watched
    watched.faulty.close()


def settle(watched: Watched) -> None:
    """Poll until all is read and published; a busy machine may need several polls."""
    assert any(watched.run().is_complete and watched.shows(watched.truth) for _ in range(10))


def restarted(watched: Watched, folder) -> None:
    """End the daemon of *watched*, and start another one from the state on disk."""
    with Store.open_to_write(folder / "state") as store:
        store.save(watched.cycle.state)
    with Store.open_to_write(folder / "state") as store:
        watched.cycle = watched.started(store.load())


def ads(watched: Watched) -> dict:
    return {site: watched.collector.ads[site] for site in (CAM, RAL)}


def test_external_dns_414_an_empty_list_after_a_restart_during_an_upgrade(tmp_path):
    """The cluster was upgraded, a new process started, and its list was empty for a moment.

    The records were deleted in bulk and created again in bulk.
    """
    source = ListedSource(tmp_path, (CAM, RAL))
    watched = Watched(source)
    watched.hold(FULL)
    settle(watched)
    before = ads(watched)
    restarted(watched, tmp_path)
    source._write(b'{"sites": ["CAM", "RAL"], "datasets": {}}')
    for _ in range(CONFIRMATIONS):
        report = watched.run()
        assert set(report.held_reasons) == {CAM, RAL}, "nobody is told"
        assert {site: ad.content for site, ad in ads(watched).items()} == {
            site: ad.content for site, ad in before.items()
        }
    source.heal()
    settle(watched)
    assert {site: ad.generation for site, ad in ads(watched).items()} == {
        site: ad.generation for site, ad in before.items()
    }


def test_external_dns_2858_every_lookup_behind_a_list_that_works_times_out(rucio):
    """The list of objects was read, and each object's gateway timed out.

    The error was only logged: without endpoints all records were deleted.
    """
    seen_at = to_unix(rucio.clock.now)
    rucio.source.proxy.fault = FAULTS["timeout in mid-poll"]
    for _ in range(2):
        assert rucio.run().evaluation.snapshot.unseen_reasons.keys() == set(DIDS)
        assert rucio.published(CAM) == dict.fromkeys(DIDS, "AVAILABLE")
        assert set(rucio.ages(CAM).values()) == {seen_at}
    rucio.source.heal()
    settle(rucio)


def test_external_dns_3997_the_source_times_out_right_after_a_restart(rucio, tmp_path):
    """A new process had a request timeout and deleted the records that it did not see."""
    before = ads(rucio)
    restarted(rucio, tmp_path)
    rucio.source.break_with("timeout")
    for _ in range(2):
        assert rucio.run().catalogue_errors["faulty"]
        assert ads(rucio) == before
    rucio.source.heal()
    settle(rucio)


def test_external_dns_4023_one_faulty_item_among_many(patient_rucio):
    """One route with an error made its gateway unhealthy, and the records of all routes were deleted."""
    seen_at = to_unix(patient_rucio.clock.now)
    patient_rucio.source.proxy.fault = Fault("one route", status(500), only="/lofar/L3/")
    report = patient_rucio.run()
    assert report.evaluation.snapshot.unseen_reasons.keys() == {DIDS[3]}
    desired = patient_rucio.cycle.state.ads[CAM]
    assert patient_rucio.published(CAM) == dict.fromkeys(DIDS, "AVAILABLE")
    assert desired.as_of == patient_rucio.clock.now, "one dataset ages its site"
    assert patient_rucio.ages(CAM)[DIDS[3]] == seen_at
    patient_rucio.source.heal()
    settle(patient_rucio)


def test_node_feature_discovery_1752_who_reports_goes_away_and_comes_back(tmp_path):
    """Labels belonged to the process that reported them: its restart removed them, and workloads moved."""
    daemon = Daemon(tmp_path)
    daemon.hold({"lofar:L1": dict.fromkeys(SITES, "available")})
    try:
        daemon.start()
        assert daemon.stop() == 0
        before = {site: daemon.file(site) for site in SITES}
        assert all("'lofar:L1'=\"AVAILABLE\"" in (ad or "") for ad in before.values()), "an ad went with it"
        (tmp_path / "catalogue.json").unlink()  # and its catalogue is late
        daemon.start()
        assert same(daemon, before)
        assert all(claims(daemon.served(site)) == claims(before[site]) for site in SITES)
    finally:
        daemon.stop()


def same(daemon: Daemon, before: dict[str, str | None]) -> bool:
    """Return whether every ad is unchanged except for its age: one more poll may have ended meanwhile."""
    return all(claims(daemon.file(site)) == claims(before[site]) for site in SITES)


def claims(ad: str | None) -> list[str]:
    return [line for line in (ad or "").splitlines() if not line.startswith("DataLocalityAsOf = ")]


def test_node_feature_discovery_2408_a_long_list_breaks_off_after_a_restart(proxy, tmp_path):
    """With thousands of nodes the paged list expired half-way at the start of the master.

    Nodes that were not in the cache counted as without features, and labels were removed and added again.
    """
    dids = [f"lofar:many{number:03}" for number in range(300)]
    proxy.server.holdings = {did: {"CAM-DISK": "available"} for did in dids}
    patient = {"timeout": timedelta(seconds=30), "deadline": timedelta(seconds=60), "batch": 50}

    class Many(RucioSource):
        def catalogue(self, clock):
            return rucio_catalogue(rucio_settings(proxy.url, tmp_path, **patient), clock)

    class Other(Watched):
        def judge(self, ad, report):
            """Judge the ads with another truth for these datasets."""

    watched = Other(Many(proxy, proxy.server, tmp_path), dids=dids)
    assert watched.run().is_complete
    before = watched.collector.ads[CAM]
    assert len(watched.published(CAM)) == 300
    restarted(watched, tmp_path)
    proxy.fault = Fault("the list expired", status(410), only="/dids/bulkmeta|/replicas", after=3)
    for _ in range(2):
        assert watched.run().evaluation.snapshot.unseen_reasons
        ad = watched.collector.ads[CAM]
        assert len(watched.published(CAM)) == 300
        assert ad.generation >= before.generation
        assert "UNKNOWN" not in watched.published(CAM).values()
    proxy.fault = None
    assert watched.run().is_complete
    assert len(watched.published(CAM)) == 300
    watched.faulty.close()


def test_wmcore_11674_an_error_about_the_one_location_of_an_input(rucio):
    """The update of one block's location failed.

    The block lost its only location; its workflow was stuck for weeks.
    """
    did = DIDS[0]  # at CAM only
    words = {"ExceptionClass": "DataIdentifierNotFound"}
    rucio.source.proxy.fault = Fault("not found, they say", status(404, **words), only="/replicas/lofar/L0/")
    for _ in range(3):
        report = rucio.run()
        assert did in report.evaluation.snapshot.unseen_reasons
        assert rucio.published(CAM)[did] == "AVAILABLE"
    rucio.source.heal()
    settle(rucio)

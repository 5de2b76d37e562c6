"""What the commands read of the state that the daemon saved."""

from dataclasses import replace
from pathlib import Path

import pytest

from hydrator.config import Settings, parse
from hydrator.daemon.background import MaintenanceTasks
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.overview import facts
from hydrator.diagnostics.overview.saved import (
    RELOAD_REPORT,
    STAGING_REPORT,
    Reload,
    load_status,
    load_view,
)
from hydrator.domain.ads import contract
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import OPENINGS_REPORT, Opening, Openings, PacedCycle, write_openings
from hydrator.domain.model import DatasetState, Fact, SiteFacts, Snapshot, to_unix
from hydrator.domain.staging_ports import StagingKind
from hydrator.reconcile.result import PublishResult
from hydrator.reconcile.view import CYCLE_REPORT, build_view
from hydrator.staging.overview import StagingOverview
from hydrator.staging.table import Request
from hydrator.state.store import Store
from tests.factories import (
    CAM,
    HOUR,
    L1,
    L2,
    L3,
    MINUTE,
    NOON,
    RAL,
    ad,
    demand,
    published,
    replica,
    report_of,
    view_of,
    want,
)
from tests.unit.daemon.contexts import context_with
from tests.unit.reconcile.test_reconciler import World, queue

REQUEST = Request(L1, CAM, "rucio", StagingKind.PIN, 1, "batch", NOON, 1)


@pytest.fixture
def store(tmp_path):
    with Store.open_to_write(tmp_path) as made:
        yield made


def test_saved_view_is_that_of_the_cycle(store):
    cycle = World(replica(L1, CAM), replica(L2, RAL)).restarted(store=store)
    for _ in range(2):
        cycle.run()
        assert load_view(store) == cycle.view
    assert {site.site for site in cycle.view.sites} == {CAM, RAL}


@pytest.mark.parametrize(
    ("changes", "without_room"),
    [({contract.SETS: "[]", contract.TRUNCATED: "true"}, {L1}), ({contract.TRUNCATED: "true"}, set())],
    ids=["no answer", "answer"],
)
@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open to read"])
def test_datasets_without_room_are_those_of_the_last_ad(store, changes, without_room, is_open):
    """A new draft of the ads of thousands of datasets would cost a second."""
    world = World(replica(L1, CAM))
    world.queues.queues = {"ap1": queue(L1), "ap2": queue(L2)}
    cycle = world.restarted(store=store)
    cycle.refresh_demand()
    cycle.run()
    one = cycle.state.ads[CAM]
    content = tuple((name, changes.get(name, text)) for name, text in one.content)
    openings = write_openings({set_key([L1]): Opening(60, RAL, 1)}, 0) if is_open else ()
    open_until = NOON + HOUR if is_open else None
    changed = replace(one, content=content, openings=openings, open_until=open_until)
    store.save(replace(cycle.state, ads={CAM: changed}))
    settings = parse({"catalogue": [{"type": "file", "path": "c.toml"}]}, folder=Path("/"), origin="test")
    assert facts.load_facts(store, settings, NOON).knowledge.dids_without_room == {CAM: without_room}


@pytest.mark.parametrize(("waiting", "without_room"), [({set_key([L1])}, {L1}), (set(), set())])
def test_set_of_a_part_has_no_room_only_if_jobs_wait_for_it(store, waiting, without_room):
    world = World(replica(L1, CAM, DatasetState.PARTIAL, 0.5))
    world.queues.queues = {"ap1": queue(L1)}
    cycle = world.restarted(store=store)
    cycle.refresh_demand()
    cycle.run()
    one = cycle.state.ads[CAM]
    content = {**dict(one.content), contract.SETS: "[]", contract.TRUNCATED: "true"}
    ads = {CAM: replace(one, content=tuple(content.items()))}
    store.save(replace(cycle.state, ads=ads))
    store.save_reports({OPENINGS_REPORT: PacedCycle(waiting=frozenset(waiting))})
    settings = parse({"catalogue": [{"type": "file", "path": "c.toml"}]}, folder=Path("/"), origin="test")
    assert facts.load_facts(store, settings, NOON).knowledge.dids_without_room == {CAM: without_room}


def test_reasons_why_ads_do_not_change_are_those_of_the_last_cycle(store):
    reasons = {CAM: "its state was lost", RAL: "3 of 5 datasets would leave it"}
    store.save_reports({CYCLE_REPORT: view_of(report_of(Snapshot({}), demand(), held_reasons=reasons))})
    assert facts.load_facts(store, Settings(), NOON).knowledge.held_reasons == reasons


def test_view_of_another_version_is_none(store):
    store.save_reports({CYCLE_REPORT: {"at": 1, "of": "another version"}})
    assert load_view(store) is None


def test_status_has_the_credentials_and_the_refused_reload(store):
    credentials = (
        Credential("catalogue rucio: client_cert", "x509", NOON + HOUR, NOON),
        Credential("a token", "tokens", NOON + 24 * HOUR),
    )
    MaintenanceTasks(context_with(store=store))._check_credentials(lambda: list(credentials))
    store.save_reports({RELOAD_REPORT: Reload(to_unix(NOON), ("a bad line",))})
    status = load_status(store, NOON, "7", 60)
    assert status.credentials == credentials
    assert status.reload == Reload(to_unix(NOON), ("a bad line",))
    assert (status.cycle, status.staging, status.daemon_problem) == (None, None, None)
    store.save_reports({RELOAD_REPORT: None})
    assert load_status(store, NOON, "7", 60).reload is None


def test_daemon_that_executes_itself_again_counts_as_running_for_a_minute(store):
    store.save_reports({RELOAD_REPORT: Reload(to_unix(NOON), ())})
    during, after = (load_status(store, NOON + age, None, 60) for age in (MINUTE, 2 * MINUTE))
    assert (during.reload, during.daemon_problem) == (None, None)
    set_back = load_status(store, NOON - 365 * 24 * HOUR, None, 60)
    assert after.daemon_problem == set_back.daemon_problem == "no daemon runs here; no cycle has ended yet"


def test_status_does_without_rows_that_cannot_be_decoded(store):
    store.save_reports({"credentials": [{"name": 7}]})
    store.save_reports({"reload": {"at": "yesterday"}})
    status = load_status(store, NOON, "7", 60)
    assert (status.credentials, status.reload) == ((), None)


@pytest.mark.parametrize("requests", [(), (REQUEST,)], ids=["without", "with"])
def test_status_shows_staging_that_is_off_only_with_its_last_requests(requests, store):
    overview = StagingOverview(NOON, "off", requests=requests)
    store.save_reports({STAGING_REPORT: overview})
    assert load_status(store, NOON, "7", 60).staging == (overview if requests else None)


def test_failure_keeps_its_begin_and_is_remembered_after_its_end():
    world = World(replica(L1, CAM))
    times = []
    for is_broken in (True, True, False):
        world.catalogue.is_broken = is_broken
        world.run(HOUR)
        (one,) = [each for each in world.cycle.view.catalogues if each.name == "rucio"]
        times.append((one.error is None, one.failing_since, one.last_error_at))
    begin = to_unix(NOON + HOUR)
    assert times == [
        (False, begin, begin),
        (False, begin, begin + 3600),
        (True, None, begin + 3600),
    ]


def test_a_publisher_that_fails_shows_what_it_showed_last_and_another_what_it_shows():
    def results(**published):
        report = report_of(Snapshot({CAM: SiteFacts(NOON, {}), RAL: SiteFacts(NOON, {})}), demand())
        shown = tuple(
            PublishResult(name, published=ads or {}, error=None if ads else "it is down")
            for name, ads in published.items()
        )
        return replace(report, results=shown)

    both = published(ad(L1), ad(L1, site=RAL))
    before = view_of(results(collector=both, file=both))
    view = build_view(results(collector=None, file=published(ad(L1))), before, confirming_polls=20)
    assert {site.site: set(site.read_back) for site in view.sites} == {
        CAM: {"collector", "file"},
        RAL: {"collector"},
    }
    assert {one.name: one.ads for one in view.publishers} == {"collector": 2, "file": 1}


def test_backlog_and_readers_are_those_of_the_openings():
    made = Openings({CAM: {"a:b": Opening(60, RAL, 9), "c:d~1": Opening(60, RAL, 9)}}, 90.0, {RAL: 3})
    view = view_of(report_of(Snapshot({}), demand(), paced=PacedCycle(made, readers={RAL: 2})))
    (site,) = view.sites
    assert (site.site, site.backlog, site.readers) == (CAM, 0, 0)
    assert (view.pacing.sets, view.pacing.backlog, view.pacing.open_until) == (2, 3, 90)


@pytest.mark.parametrize(("age", "oldest"), [(None, NOON), (HOUR, NOON - HOUR)])
def test_site_has_counts_and_the_time_of_its_oldest_fact(age, oldest):
    at = None if age is None else NOON - age
    rows = {L1: Fact(DatasetState.AVAILABLE), L2: Fact(DatasetState.STAGING, at, 0.5)}
    view = view_of(report_of(Snapshot({CAM: SiteFacts(NOON, rows)}), demand(L1, L2)))
    (site,) = view.sites
    assert (site.states, site.oldest_at) == ({"AVAILABLE": 1, "STAGING": 1}, to_unix(oldest))
    assert (view.demand.jobs_with_site, view.demand.jobs) == (1, 2)


def test_jobs_with_site_are_those_whose_datasets_are_all_complete_at_one_site():
    states = {CAM: {L1: "AVAILABLE", L2: "AVAILABLE"}, RAL: {L1: "STAGING", L2: "AVAILABLE", L3: "AVAILABLE"}}
    rows = {
        site: SiteFacts(NOON, {did: Fact(DatasetState(state)) for did, state in states[site].items()})
        for site in states
    }
    with_site = [want(L1, jobs=1), want(L2, L1, jobs=2), want(L2, L3, jobs=4), want(L3, jobs=8)]
    without = [want(L1, L3, jobs=16), want(L1, L2, L3, jobs=32)]
    view = view_of(report_of(Snapshot(rows), demand(*without, *with_site)))
    assert (view.demand.jobs_with_site, view.demand.jobs) == (15, 63)

"""Inputs of the pacing, and what becomes of its openings: lines of ads, the saved row."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.config import Settings
from hydrator.domain.ads.dataset_sets import SetKey, set_key
from hydrator.domain.ads.openings import (
    MAX_LINE_BYTES,
    OPENINGS_REPORT,
    Opening,
    Openings,
    Outlook,
    PacedCycle,
    Reason,
    write_openings,
)
from hydrator.domain.model import DatasetState, Fact, Site, SiteFacts, Snapshot, Unseen, to_unix
from hydrator.domain.ports import (
    MAX_LOAD_AGE,
    IdleJobs,
    PoolLoad,
    Resources,
    RunningJobs,
    ScheddLoad,
    SlotGroup,
)
from hydrator.reconcile.evaluate import evaluate
from hydrator.reconcile.paced_pool import JobGroup, RunningRead, SetBytes
from hydrator.reconcile.pacer import (
    Pacer,
    read_reads,
    read_sets,
    read_waiting,
)
from hydrator.reconcile.pacing import pace
from hydrator.reconcile.site_ads import add_openings
from hydrator.reconcile.state import ReconcileState
from hydrator.state.store import Store
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, RAL, ad, demand, want

UK, DE, PL = Site("UK"), Site("DE"), Site("PL")
GB = 10**9
ONE, BOTH = set_key([L1]), set_key([L1, L2])
ALL = {ONE, BOTH}
WANTED = demand(want(L1), want(L1, L2))


def snapshot(sites: Mapping[Site, Mapping], sizes=None, **more) -> Snapshot:
    facts = {
        site: SiteFacts(NOON, {did: Fact(state, NOON, part) for did, (state, part) in rows.items()})
        for site, rows in sites.items()
    }
    return Snapshot(facts, bytes_total={L1: GB, L2: 3 * GB} if sizes is None else sizes, **more)


HERE = (DatasetState.AVAILABLE, None)
WHOLE = {L1: HERE, L2: HERE}
ABSENT = SetBytes({(UK,): GB, (): 3 * GB})
MOVING = ABSENT._replace(is_moving=True)


# ---- the bytes of sets


@pytest.mark.parametrize(
    ("sites", "bytes_of_both"),
    [
        ({UK: {L1: HERE, L2: HERE}, DE: {L1: HERE}}, SetBytes({(DE, UK): GB, (UK,): 3 * GB})),
        ({UK: {L1: HERE}, DE: {L2: (DatasetState.PARTIAL, 0.5)}}, ABSENT),
        ({UK: WHOLE, DE: {L2: (DatasetState.PARTIAL, 0.5)}}, SetBytes({(UK,): 4 * GB}, {DE: 1.5 * GB})),
        ({UK: WHOLE, DE: {L2: (DatasetState.STAGING, 0.5)}}, SetBytes({(UK,): 4 * GB}, {DE: 1.5 * GB})),
        ({UK: {L1: HERE}, DE: {L2: (DatasetState.STAGING, 0.5)}}, MOVING),
        ({UK: {L1: HERE}, DE: {L2: (DatasetState.UNKNOWN, None)}}, MOVING),
        ({UK: {L1: HERE}, DE: {L2: (DatasetState.UNAVAILABLE, None)}}, MOVING),
        ({UK: {L1: HERE}, DE: {L2: (DatasetState.NEARLINE, None)}}, ABSENT),
        ({UK: {}}, SetBytes({(): 4 * GB})),
    ],
    ids=[
        "shared",
        "nowhere whole",
        "partial",
        "staging",
        "on its way",
        "unknown",
        "unreadable",
        "on tape",
        "at no site",
    ],
)  # fmt: skip
def test_bytes_of_a_set_are_those_on_disk_by_their_sites(sites, bytes_of_both):
    """A dataset that is nowhere, on its way or unknown has no holders."""
    assert read_sets(snapshot(sites), WANTED, ALL).get(BOTH) == bytes_of_both


def test_sets_that_no_job_waits_for_and_unusable_datasets_are_left_out():
    view = snapshot({UK: {L1: HERE, L2: HERE}})
    assert read_sets(view, WANTED, {ONE}).keys() == {ONE}
    assert read_sets(replace(view, unread_dids=frozenset({L2})), WANTED, ALL).keys() == {ONE}
    assert read_sets(replace(view, case_collisions=((L2, L3),)), WANTED, ALL)[BOTH] == ABSENT
    assert read_sets(view, demand(replace(want(L1), key=None)), ALL) == {}


def test_dataset_of_unknown_size_counts_as_a_typical_one():
    view = snapshot({UK: {L1: HERE, L2: HERE}}, {L1: 7, L3: 9})
    assert read_sets(view, WANTED, ALL)[BOTH].on_disk == {(UK,): 7 + 8}


# ---- jobs


def rates(source, destination) -> float:
    """1 Gb/s, but 10 from PL, and none from the site that is not there."""
    if source in {destination, "GONE"}:
        return 0.0
    return 1.25e9 if source == PL else 125e6


def load(*running: RunningJobs, idle: tuple[IdleJobs, ...] = (), slots=(), at=NOON, ahead=0) -> PoolLoad:
    return PoolLoad(at, {"ap1": ScheddLoad(idle, running, ahead), "ap2": Unseen("timeout")}, slots)


def test_running_jobs_read_as_their_slots_offered():
    jobs = (
        RunningJobs((10, 20), DE, str(ONE), offer="read 8 s from UK"),
        RunningJobs((30,), UK, str(ONE), offer="local"),
        RunningJobs((40,), None, str(ONE), offer="read 8 s from UK"),
        RunningJobs((50,), DE, None, offer="read 8 s from UK"),
        RunningJobs((60,), DE, str(ONE), offer="read 8 s from GONE"),
        RunningJobs((to_unix(NOON) + 1000,), DE, str(ONE), offer="read 8 s from UK"),  # a wrong clock
    )
    reads = read_reads(load(*jobs, ahead=3), {ONE: SetBytes({(UK,): GB})}, rates)
    assert reads == [RunningRead(ONE, UK, DE, 8, 7), RunningRead(ONE, UK, DE, 8, 17)]


@pytest.mark.parametrize(("key", "seconds"), [(ONE, [8]), (BOTH, []), ("t:forged", [])])
def test_offer_that_a_user_wrote_keeps_a_link_busy_for_the_job_s_own_set_at_most(key, seconds):
    """A job of 1 core that sleeps would close a link for the jobs of all others, for as long as it runs.

    Nobody reads bytes that no site has.
    """
    jobs = RunningJobs((10,), DE, str(key), offer="read 9999999 s from UK")
    reads = read_reads(load(jobs), {ONE: SetBytes({(UK,): GB, (): 5 * GB})}, rates)
    assert [read.seconds for read in reads] == seconds


@pytest.mark.parametrize("offer", [None, "", "read 8 s", "read 999999999 s from UK", "oops"])
def test_job_without_an_offer_reads_what_its_site_lacks_from_the_fastest_source(offer):
    for partial, seconds in (({}, 0.8), ({DE: GB // 4}, 0.6)):
        sets = {BOTH: SetBytes({(UK, PL): GB, (DE,): 5 * GB}, partial)}
        (read,) = read_reads(load(RunningJobs((10,), DE, str(BOTH), offer=offer)), sets, rates)
        assert (read.source, read.seconds) == (PL, pytest.approx(seconds))


def test_waiting_jobs_are_grouped_by_set_request_and_mode():
    big = Resources(8.0, 16_000.0)
    idle = (
        IdleJobs(3, "t:a", lane=0),
        IdleJobs(1, "t:a", "run", lane=2),
        IdleJobs(2, "t:a", request=big),
        IdleJobs(4, "t:a", is_auto=False),
        IdleJobs(5),
    )
    assert read_waiting(load(idle=idle)) == {
        JobGroup(SetKey("t:a")): {0: 3, 2: 1},
        JobGroup(SetKey("t:a"), big): {0: 2},
        JobGroup(SetKey("t:a"), is_auto=False): {0: 4},
    }


# ---- rounds


VIEW = snapshot({UK: {L1: HERE, L2: HERE}, DE: {}})
SLOTS = (SlotGroup(UK, Resources(1), Resources(0.0), 2), SlotGroup(DE, Resources(4), Resources(4), 2))
IDLE = (IdleJobs(20, str(ONE)),)


def pacer_of(find_rate=rates, poll_seconds=30, **network) -> Pacer:
    return Pacer(Settings(daemon={"poll_seconds": poll_seconds}, network=network), find_rate)


def paced(given: PoolLoad, now=NOON, **policy) -> Pacer:
    pacer = pacer_of(**policy)
    pacer.update_load(given)
    pacer.make(VIEW, WANTED, now)
    return pacer


def test_set_whose_site_is_full_opens_where_slots_are_free():
    made = paced(load(idle=IDLE, slots=SLOTS)).last.openings
    assert made.openings == {UK: {}, DE: {ONE: Opening(8, UK, GB)}}
    assert (made.backlog, made.outlooks[ONE]) == ({UK: 20}, Outlook(Reason.OPEN, (DE,), 1))


def test_nothing_is_read_from_an_excluded_source():
    made = paced(load(idle=IDLE, slots=SLOTS), excluded_sources=frozenset({UK})).last.openings
    assert made.openings == {UK: {}, DE: {}}


@pytest.mark.parametrize(
    ("given", "later", "reason"),
    [
        (load(idle=IDLE), timedelta(), "no slots that take jobs"),
        (load(idle=IDLE, slots=SLOTS), MAX_LOAD_AGE + MINUTE, "the last answer about jobs and slots is from"),
        (PoolLoad(NOON, {"ap1": Unseen("timeout")}, SLOTS), timedelta(), "schedd ap1: timeout"),
    ],
)
def test_without_jobs_or_slots_nothing_is_opened_and_the_reason_is_named(given, later, reason):
    last = paced(given, now=NOON + later).last
    assert last.openings is None
    assert reason in last.none_reason


def test_daemon_that_asks_no_schedd_opens_nothing():
    pacer = Pacer(Settings(demand={"ask_schedds": False}))
    assert pacer.make(VIEW, WANTED, NOON).openings is None
    assert "ask_schedds" in pacer.last.none_reason


def test_pool_without_an_answer_has_the_last_one_until_it_is_old():
    pacer = paced(load(idle=IDLE, slots=SLOTS))
    pacer.update_load(Unseen("the collector is down"))
    assert pacer.make(VIEW, WANTED, NOON + MINUTE).openings.backlog == {UK: 20}
    assert pacer.make(VIEW, WANTED, NOON + MAX_LOAD_AGE + MINUTE).openings is None
    assert pacer.last.none_reason.endswith("the collector is down")


def test_wait_for_data_that_no_site_has_goes_on_after_a_restart(tmp_path):
    """A daemon that is restarted each night would keep jobs whose data is on a broken disk for ever."""
    view = snapshot({UK: {L1: (DatasetState.UNAVAILABLE, None)}, DE: {L2: HERE}})
    pacer, opened = pacer_of(), []
    for hours in (0, 20, 23, 25):
        now = NOON + hours * HOUR
        pacer.update_load(load(idle=IDLE, slots=SLOTS, at=now))
        opened.append(any(pacer.make(view, WANTED, now).openings.openings.values()))
        pacer.update_load(Unseen("the collector is down"))
        pacer.make(view, WANTED, now + HOUR / 2)
        with Store.open_to_write(tmp_path) as store:
            store.save_reports({"openings": pacer.last})
            pacer = Pacer(pacer._settings, last=store.load_report("openings", PacedCycle))
    assert opened == [False, False, False, True]


def test_set_is_waited_for_until_an_hour_after_its_last_idle_job():
    pacer = pacer_of()
    assert pacer.last.waiting is None
    for minutes, idle in ((0, IDLE), (10, ()), (60, ()), (61, ())):
        now = NOON + minutes * MINUTE
        pacer.update_load(load(idle=idle, slots=SLOTS, at=now))
        pacer.make(VIEW, WANTED, now)
        pacer.update_load(Unseen("the collector is down"))
        pacer.make(VIEW, WANTED, now + MAX_LOAD_AGE + MINUTE)
        assert pacer.last.openings is None
        assert pacer.last.waiting == ({ONE} if minutes <= 60 else set())


def test_second_cycle_with_the_same_jobs_is_no_second_round():
    pacer = paced(load(idle=IDLE, slots=SLOTS))
    first = pacer.last
    assert pacer.make(VIEW, WANTED, NOON + MINUTE) is first


def test_bug_in_the_pacing_costs_the_openings_alone():
    pacer = pacer_of(lambda *_: 1 / 0)
    pacer.update_load(load(idle=IDLE, slots=SLOTS))
    assert pacer.make(VIEW, WANTED, NOON).openings is None
    assert "ZeroDivisionError" in pacer.last.none_reason


def test_bug_that_comes_of_the_memory_ends_with_the_next_round(monkeypatch):
    def break_at_leases(pool, memory, **more):
        return 1 / 0 if memory.leases else pace(pool, memory, **more)

    monkeypatch.setattr("hydrator.reconcile.pacer.pace", break_at_leases)
    pacer = pacer_of()
    has_openings = []
    for minutes in range(3):
        pacer.update_load(load(idle=IDLE, slots=SLOTS, at=NOON + minutes * MINUTE))
        has_openings.append(pacer.make(VIEW, WANTED, NOON + minutes * MINUTE).openings is not None)
    assert has_openings == [True, False, True]


def test_lateness_is_measured_from_the_openings_to_the_first_starts():
    pacer = pacer_of()
    unmeasured = {interval: pacer._figures.find_lateness(interval) for interval in (2, 30, 600)}
    assert unmeasured == {2: 10, 30: 120, 600: 300}
    for number in range(8):
        now = NOON + number * 2 * MINUTE
        started = (to_unix(now) - 90,) if number % 2 else ()
        jobs = (RunningJobs(started, DE, str(ONE), offer="read 8 s from UK"),) if started else ()
        pacer.update_load(load(*jobs, idle=IDLE, slots=SLOTS, at=now))
        pacer.make(VIEW, WANTED, now)
    assert pacer._figures.find_lateness(600) == 30.0


def test_mean_run_time_is_that_of_the_last_ended_jobs():
    pacer = pacer_of()
    start = to_unix(NOON)
    for minutes, starts in ((1, (start, start, 0)), (11, (start,)), (21, ())):  # no job started in 1970
        pacer.update_load(load(RunningJobs(starts, DE, str(ONE)), at=NOON + minutes * MINUTE, slots=SLOTS))
        pacer.make(VIEW, WANTED, NOON + minutes * MINUTE)
    assert pacer._figures.find_run_seconds() == (660 + 1260) / 2


# ---- ads


def made(until: float = 600.0, seconds: int = 240, backlog: int = 5) -> Openings:
    return Openings({CAM: {ONE: Opening(seconds, RAL, GB)}}, to_unix(NOON) + until, {CAM: backlog})


def test_openings_are_no_new_generation_and_keep_their_end_while_they_stay_the_same():
    plain = {CAM: ad(L1)}
    first = add_openings(plain, {}, made(), NOON)
    assert (first[CAM].generation, first[CAM].content) == (plain[CAM].generation, plain[CAM].content)
    assert dict(first[CAM].openings)["DataLocalityOpen"] == f"['{ONE}'=240]"
    same = add_openings(plain, first, made(660), NOON + MINUTE)
    assert same[CAM].open_until == first[CAM].open_until
    ending = add_openings(plain, first, made(1000), NOON + 7 * MINUTE)
    assert ending[CAM].open_until == NOON + timedelta(seconds=1000)
    other = add_openings(plain, first, made(660, seconds=300), NOON + MINUTE)
    assert other[CAM].open_until == NOON + timedelta(seconds=660)


def test_openings_without_a_new_round_stay_until_their_end():
    first = add_openings({CAM: ad(L1)}, {}, made(), NOON)
    assert add_openings({CAM: ad(L1)}, first, None, NOON + 9 * MINUTE)[CAM].openings == first[CAM].openings
    over = add_openings({CAM: ad(L1)}, first, None, NOON + 10 * MINUTE)[CAM]
    assert (over.openings, over.open_until) == ((), None)


def test_end_of_openings_after_a_clock_that_was_ahead_is_replaced():
    ahead = add_openings({CAM: ad(L1)}, {}, made(5000), NOON)
    assert add_openings({CAM: ad(L1)}, ahead, made(), NOON)[CAM].open_until == NOON + 10 * MINUTE


def test_small_changes_in_a_busy_pool_change_no_line():
    """Else each round would be an update of every slot."""
    assert write_openings({ONE: Opening(243, UK, 1)}, 130) == write_openings({ONE: Opening(248, UK, 2)}, 140)
    assert dict(write_openings({ONE: Opening(243, UK, 1)}, 130)) == {
        "DataLocalityOpen": f"['{ONE}'=250]",
        "DataLocalityReadFrom": f"['{ONE}'=\"UK\"]",
        "DataLocalityBacklog": "128",
    }
    assert [dict(write_openings({}, jobs))["DataLocalityBacklog"] for jobs in (0, 1, 3)] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "name", ["Jülich", 'RAL"', "RAL\\", "R" * 201], ids=["umlaut", "quote", "backslash", "long"]
)
def test_source_with_a_name_that_hooks_reject_is_left_out(name):
    """A hook rejects an ad with this name as a whole, at every site that reads from there."""
    lines = dict(write_openings({ONE: Opening(240, Site(name), 1)}, 0))
    assert (lines["DataLocalityOpen"], lines["DataLocalityReadFrom"]) == (f"['{ONE}'=240]", "[]")


def test_openings_that_have_no_room_are_those_with_the_longest_reads():
    by_name = {f"x:{number:0100}": Opening(number, Site("R" * 100), 1) for number in range(1, 400)}
    lines = dict(write_openings(by_name, 0))
    assert all(len(line) <= MAX_LINE_BYTES for line in lines.values())
    assert f"{1:0100}" in lines["DataLocalityOpen"]
    assert f"{399:0100}" not in lines["DataLocalityOpen"]


def thought(state=None, openings=None, now=NOON):
    return evaluate(
        state or ReconcileState(),
        {},
        WANTED,
        published_generations={},
        settings=Settings(),
        now=now,
        make_openings=lambda _: PacedCycle(openings),
    )


def test_site_that_no_catalogue_lists_has_an_ad_with_openings_until_its_slots_have_gone_for_long():
    """P3: half of the slots of DUNE and OSG belong to no storage."""
    first = thought(openings=made())
    lines = dict(first.ads[CAM].attributes)
    assert (lines["AvailableDatasets"], lines["DataLocalityOpen"]) == ("{}", f"['{ONE}'=240]")
    kept = thought(first.state, now=NOON + 5 * HOUR)
    assert (kept.ads.keys(), kept.gone_sites) == ({CAM}, frozenset())
    gone = thought(kept.state, now=NOON + 7 * HOUR)
    assert (gone.ads.keys(), gone.gone_sites) == (set(), {CAM})


# ---- the saved row


def test_saved_openings_come_back(tmp_path):
    whole = replace(made(), outlooks={ONE: Outlook(Reason.TURN, (UK,), 3)})
    with Store.open_to_write(tmp_path) as store:
        assert store.load_report(OPENINGS_REPORT, PacedCycle) is None
        for saved in (PacedCycle(whole, readers={UK: 2}), PacedCycle(None, "why")):
            store.save_reports({OPENINGS_REPORT: saved})
            assert store.load_report(OPENINGS_REPORT, PacedCycle) == saved
        store.save_reports({OPENINGS_REPORT: {"openings": {"outlooks": {"k": ["oops", [], 1]}}}})
        assert store.load_report(OPENINGS_REPORT, PacedCycle) is None

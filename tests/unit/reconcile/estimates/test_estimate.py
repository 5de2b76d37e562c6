"""Estimates of small pools against numbers computed by hand: reads, queues, readers, staging, no estimate."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS, Estimates
from hydrator.domain.model import DatasetState, Did, Fact, to_unix
from hydrator.domain.ports import IdleJobs, PoolLoad, RunningJobs, ScheddLoad, SiteSlots
from hydrator.reconcile.estimates.estimate import EstimatePolicy, Estimation, estimate
from tests.factories import MINUTE, NOON
from tests.unit.reconcile.estimates.worlds import (
    DE,
    FAST,
    GB,
    PL,
    UK,
    Rates,
    World,
    at,
    idle,
    key,
    made,
    numbers,
    running,
    staging,
)

FULL = (SiteSlots(UK, 1, 0, 4), SiteSlots(DE, 1, 1, 4))
"""Four busy slots at UK, four free ones at DE."""
BASE = World({UK: ["t:a"], DE: [], PL: []}, FULL, (idle(10, "t:a"),), sizes={"t:a": 10 * GB})


def test_read_and_queue_of_a_pool_computed_by_hand() -> None:
    """10 GB at 100 MB/s is 100 s; with half a portion (1 job) 200 s. 11 jobs of 100 s on 4 slots: 275 s."""
    got = BASE.estimate()
    assert at(got, DE).lone_read_seconds == 100
    assert numbers(got, DE) == (256, 256)
    assert numbers(got, UK) == (0, 256)
    assert at(got, DE).queue_site == UK
    assert at(got, DE).source == UK
    assert at(got, DE).missing_bytes == 10 * GB
    assert made(got).valid_until == NOON + 10 * MINUTE


def test_a_free_slot_beside_the_data_gives_a_queue_of_0() -> None:
    free = BASE.with_(slots=(SiteSlots(UK, 1, 1, 12), SiteSlots(DE, 1, 1, 4)))
    assert at(free.estimate(), DE).queue_seconds == 0
    one_less = BASE.with_(slots=(SiteSlots(UK, 1, 1, 10), SiteSlots(DE, 1, 1, 4)))
    assert at(one_less.estimate(), DE).queue_seconds == 128  # the 11th job waits for one run of 100 s


def test_waiting_jobs_start_after_the_reaction_of_the_pool_at_the_earliest() -> None:
    free = BASE.with_(slots=(SiteSlots(UK, 1, 1, 12), SiteSlots(DE, 1, 1, 4)))
    assert at(free.estimate(reaction=timedelta(seconds=60)), DE).queue_seconds == 64
    assert at(free.with_(idle=()).estimate(reaction=timedelta(seconds=60)), DE).queue_seconds == 0
    assert at(BASE.estimate(reaction=timedelta(seconds=60)), DE).queue_seconds == 256


def test_one_megabyte_never_waits_and_500_gb_over_1_gbit_do() -> None:
    small = BASE.with_(sizes={"t:a": 10**6}).estimate(Rates(FAST * 1.25))
    assert numbers(small, DE) == (0, 256)
    large = BASE.with_(sizes={"t:a": 500 * GB}).estimate(Rates(FAST * 1.25))
    assert numbers(large, DE) == (8192, 256)


@pytest.mark.parametrize(
    ("jobs", "busy", "queue"),
    [(0, 0, 0), (3, 0, 0), (4, 0, 128), (0, 4, 32), (10, 4, 256), (100, 4, 2048)],
)
def test_a_site_that_fills_up_and_drains(jobs: int, busy: int, queue: int) -> None:
    """4 slots, runs of 100 s. 4 idle on 4 free: 100 s. None idle on 4 busy at unknown ages: 100 / 4 s."""
    slots = (SiteSlots(UK, 1, 0 if busy else 1, 4), SiteSlots(DE, 1, 1, 4))
    waiting = (idle(jobs, "t:a"),) if jobs else ()
    world = BASE.with_(slots=slots, idle=waiting)
    assert at(world.estimate(default_run=timedelta(seconds=100)), DE).queue_seconds == queue


def test_a_site_whose_slots_die_has_no_queue() -> None:
    dead = BASE.with_(slots=(SiteSlots(DE, 1, 1, 4),)).estimate()
    assert at(dead, DE).queue_seconds == NO_QUEUE_SECONDS
    assert at(dead, DE).queue_site is None
    assert at(dead, DE).read_seconds == 256


def test_a_set_in_parts_at_several_sites_has_no_slot_beside_it() -> None:
    parts = World(
        {UK: ["t:a"], DE: ["t:b"]}, FULL, sizes={"t:a": 10 * GB, "t:b": GB}, sets=(("t:a", "t:b"),)
    ).estimate()
    assert numbers(parts, DE, "t:a", "t:b") == (256, NO_QUEUE_SECONDS)
    assert numbers(parts, UK, "t:a", "t:b") == (16, NO_QUEUE_SECONDS)


def test_the_ages_of_running_jobs_give_the_first_completions() -> None:
    """Four jobs of 100 s that began 90, 84, 50 and 10 s ago: slots are free after 10, 16, 50 and 90 s."""
    jobs = (running(UK, "t:a", ages=[90, 84, 50, 10]),)
    queues = [
        at(BASE.with_(running=jobs, idle=(idle(n, "t:a"),) if n else ()).estimate(), DE).queue_seconds
        for n in (0, 1, 2, 3, 4)
    ]
    assert queues == [8, 16, 64, 64, 128]  # the last: 10 s + another run of 100 s


def test_an_overdue_job_runs_for_a_tenth_of_its_age_longer() -> None:
    jobs = (running(UK, "t:a", ages=[1000] * 4),)
    assert at(BASE.with_(running=jobs, idle=()).estimate(), DE).queue_seconds == 128  # 100 s


def test_jobs_of_other_sets_at_the_home_lengthen_the_queue_and_its_own_queue() -> None:
    world = BASE.with_(
        data={UK: ["t:a", "t:b"], DE: []},
        idle=(idle(10, "t:b"),),
        sets=(("t:a",), ("t:b",)),
        sizes={"t:a": GB, "t:b": GB},
    )
    got = world.estimate()
    assert at(got, DE).queue_seconds == 256
    assert made(got).sites[UK].own_queue_seconds == 256
    assert made(got).sites[DE].own_queue_seconds == 0
    assert made(got).sites[UK].queue.idle_jobs == 10
    assert made(got).sites[UK].queue.total_cpus == 4


def test_a_set_with_two_homes_uses_the_shorter_queue_and_loads_both() -> None:
    two = World(
        {UK: ["t:a"], DE: ["t:a"], PL: []},
        (SiteSlots(UK, 1, 0, 4), SiteSlots(DE, 1, 1, 4)),
        (idle(20, "t:a"),),
    ).estimate(default_run=timedelta(seconds=100))
    idle_jobs = [made(two).sites[site].queue.idle_jobs for site in (UK, DE)]
    assert idle_jobs == [pytest.approx(8, abs=0.1), pytest.approx(12, abs=0.1)]
    only_uk = World({UK: ["t:a"], DE: []}, FULL, (idle(20, "t:a"),)).estimate()
    assert made(only_uk).sites[UK].queue.idle_jobs == 20


def test_jobs_of_several_cores_need_a_slot_with_enough_of_them() -> None:
    slots = (SiteSlots(UK, 16, 3, 10),)
    free = World({UK: ["t:a"], DE: []}, slots, (idle(1, "t:a", cpus=2),), sizes={"t:a": GB}).estimate()
    assert at(free, DE).queue_seconds == 0
    large = World({UK: ["t:a"], DE: []}, slots, (idle(1, "t:a", cpus=4),), sizes={"t:a": GB}).estimate()
    assert at(large, DE).queue_seconds == 4  # 10 x 16 cores: 8 of them come free within 5 s
    huge = World({UK: ["t:a"], DE: []}, slots, (idle(1, "t:a", cpus=32),), sizes={"t:a": GB}).estimate()
    assert at(huge, DE).queue_seconds == NO_QUEUE_SECONDS


def test_readers_share_the_rate_and_a_full_source_is_closed() -> None:
    young = BASE.with_(running=(running(DE, "t:a", ages=[1, 150, 350]),))
    got = young.estimate()  # a lone read is 100 s, so two readers (and one more) have read after 300 s
    assert at(got, PL).source_readers == 2
    assert numbers(got, PL) == (512, 256)  # 100 s x (2 + 1 + 1)
    closed = young.estimate(max_readers_per_source=2)
    assert numbers(closed, PL) == (None, 256)
    assert at(closed, PL).source == UK


@pytest.mark.parametrize(("ages", "readers"), [([99], 1), ([100], 0), ([99, 199], 2), ([150, 199], 0)])
def test_jobs_read_as_long_as_the_readers_beside_them_make_them(ages: list[int], readers: int) -> None:
    world = BASE.with_(running=(running(DE, "t:a", ages=ages),))
    assert at(world.estimate(), PL).source_readers == readers


def test_a_closed_source_opens_when_half_of_its_readers_have_left() -> None:
    def busy(readers: int, previous: Estimation | None) -> Estimation:
        world = BASE.with_(running=(running(DE, "t:a", ages=[1] * readers),))
        return world.estimate(previous=previous, max_readers_per_source=4)

    estimation, is_open = None, []
    for readers in (3, 4, 3, 2, 3):
        estimation = busy(readers, estimation)
        is_open.append(numbers(estimation, PL)[0] is not None)
    assert is_open == [True, False, False, True, True]


def test_readers_count_at_the_source_that_the_ad_named_at_their_start() -> None:
    """UK and DE have the set, UK is nearer. When UK is full, the ads name DE, and new readers count there."""
    rates = Rates(FAST, {(DE, PL): FAST / 10})
    world = World({UK: ["t:a"], DE: ["t:a"], PL: []}, FULL, (idle(10, "t:a"),), sizes={"t:a": 100 * GB})
    estimation: Estimation | None = None
    starts: list[int] = []
    shown = []
    for minute, count in enumerate((3, 4, 5, 6, 7, 8, 9)):
        when = NOON + minute * MINUTE
        starts += [to_unix(when) - 1] * (count - len(starts))
        jobs = replace(running(PL, "t:a", ages=[]), started_at=tuple(starts))
        estimation = world.with_(running=(jobs,)).estimate(
            rates, estimation, at=when, max_readers_per_source=4
        )
        one = at(estimation, PL)
        shown.append((one.source, one.read_seconds is not None, dict(estimation.readers)))
    assert shown == [
        (UK, True, {UK: 3}),
        (DE, True, {UK: 4}),
        (DE, True, {UK: 4, DE: 1}),
        (DE, True, {UK: 4, DE: 2}),
        (DE, True, {UK: 4, DE: 3}),
        (UK, False, {UK: 4, DE: 4}),
        (UK, False, {UK: 5, DE: 4}),
    ]


def test_jobs_in_slots_that_drain_do_not_free_a_slot_for_others() -> None:
    """Four jobs with 3,900 s left have the four slots that count; jobs of 50 s end in slots that drain."""
    long = running(UK, "t:a", ages=[100] * 4, seconds=4000)
    brief = replace(running(UK, "t:a", ages=[50] * 4), is_leaving=True)
    queues = [at(BASE.with_(running=jobs).estimate(), DE).queue_seconds for jobs in ((long,), (long, brief))]
    assert queues == [4096, 4096]
    assert at(BASE.with_(running=(replace(brief, site=DE),)).estimate(), PL).source_readers == 4, "they read"


def test_a_slot_that_begins_to_drain_does_not_end_its_job() -> None:
    jobs = running(UK, "t:a", ages=[50, 50])
    first = BASE.with_(running=(jobs,)).estimate()
    one = replace(jobs, started_at=jobs.started_at[:1])
    parts = (one, replace(one, is_leaving=True))
    later = BASE.with_(running=parts).estimate(previous=first, at=NOON + MINUTE)
    assert dict(later.history.samples) == {}
    ended = BASE.with_(running=parts[1:]).estimate(previous=later, at=NOON + 2 * MINUTE)
    assert set(ended.history.samples.values()) == {(140.0,)}


@pytest.mark.parametrize("ahead", [0, 600, -600])
def test_a_clock_of_a_schedd_that_is_wrong_changes_no_run_time(ahead: int) -> None:
    """Jobs without a stated time ran for 400 s; then jobs of the same age run, and four wait."""
    estimation = None
    for seconds in (0, 200, 380, 420):
        when = NOON + timedelta(seconds=seconds)
        jobs = replace(running(UK, "t:a", ages=[0] * 4, seconds=None))
        jobs = replace(jobs, started_at=tuple(start + ahead for start in jobs.started_at))
        queue = ScheddLoad((idle(4, "t:a", seconds=None),), (jobs,) if seconds < 400 else (), ahead)
        load = PoolLoad(when, {"ap1": queue}, FULL)
        world = BASE.snapshot(), BASE.demand(), load, Rates()
        estimation = estimate(*world, estimation, when, EstimatePolicy())
    assert set(estimation.history.samples.values()) == {(400.0,) * 4}


CYCLE = timedelta(seconds=30)


def read_by(readers: int, now: datetime) -> World:
    """Return a pool in which this number of jobs began to read from UK just before *now*."""
    began = -round((now - NOON).total_seconds())
    return BASE.with_(running=(running(DE, "t:a", ages=[began] * readers),))


def busy_spell() -> tuple[Estimation, datetime]:
    """Return an estimation whose site PL has used up its changes, and its time; PL's ad has 4096.

    A lone read takes 1,000 s. Without readers it is published as 2048, with three readers as 4096.
    """
    estimation, now = None, NOON
    for readers in (0, 3) * 20:
        now += CYCLE
        estimation = read_by(readers, now).estimate(Rates(FAST / 10), estimation, now)
    assert estimation is not None
    assert estimation.memory.read_stocks[PL].changes_left < 1
    assert numbers(estimation, PL)[0] == 4096
    return estimation, now


@pytest.mark.parametrize(("factor", "read"), [(2, 1024), (3, 512), (0.25, 8192), (0.1, 16384)])
def test_a_link_that_changes_after_a_busy_spell_is_followed_at_once(factor: float, read: int) -> None:
    """10 GB at FAST / 10 takes 1,000 s alone, and 2,000 s without readers. Three times as fast: 667 s."""
    estimation, now = busy_spell()
    calm = BASE.estimate(Rates(FAST / 10), estimation, now + CYCLE)
    assert numbers(calm, PL)[0] == 4096
    changed = BASE.estimate(Rates(FAST / 10 * factor), calm, now + 2 * CYCLE)
    assert numbers(changed, PL)[0] == read


def test_bytes_that_arrive_after_a_busy_spell_are_followed_at_once() -> None:
    estimation, now = busy_spell()
    most = BASE.with_(facts={PL: {"t:a": Fact(DatasetState.PARTIAL, NOON, 0.6)}})
    assert numbers(most.estimate(Rates(FAST / 10), estimation, now + CYCLE), PL)[0] == 1024


def test_readers_that_are_gone_for_some_minutes_are_followed() -> None:
    estimation, now = busy_spell()
    reads = []
    for _ in range(25):
        now += CYCLE
        estimation = BASE.estimate(Rates(FAST / 10), estimation, now)
        reads.append(numbers(estimation, PL)[0])
    assert reads == [4096] * 19 + [2048] * 6, "10 minutes"


def test_jobs_beside_their_data_are_no_readers() -> None:
    got = BASE.with_(running=(running(UK, "t:a", ages=[1, 1]),)).estimate()
    assert at(got, DE).source_readers == 0


def test_the_fastest_source_is_used_and_an_open_one_before_a_closed_one() -> None:
    world = BASE.with_(data={UK: ["t:a"], DE: ["t:a"], PL: []})
    rates = Rates(pairs={(UK, PL): FAST, (DE, PL): FAST / 2})
    assert at(world.estimate(rates), PL).source == UK
    third = world.with_(
        data={UK: ["t:a", "t:c"], DE: ["t:a"], PL: []},
        sets=(("t:a",), ("t:c",)),
        sizes={"t:a": 10 * GB, "t:c": 10 * GB},
        running=(running(DE, "t:c", ages=[1]),),
    )
    assert at(third.estimate(rates, max_readers_per_source=1), PL).source == DE


def test_bytes_on_disk_in_part_need_no_read() -> None:
    half = BASE.with_(facts={DE: {"t:a": Fact(DatasetState.PARTIAL, NOON, 0.5)}}).estimate()
    assert at(half, DE).missing_bytes == 5 * GB
    assert at(half, DE).read_seconds == 128


def test_staging_here_is_the_read_if_it_ends_sooner() -> None:
    soon = BASE.with_(facts={DE: {"t:a": staging(1)}}).estimate()
    assert at(soon, DE).read_seconds == 64
    assert at(soon, DE).ready_at == NOON + MINUTE
    late = BASE.with_(facts={DE: {"t:a": staging(60)}}).estimate()
    assert at(late, DE).read_seconds == 256
    assert at(late, DE).ready_at is None


def test_a_site_that_stages_is_beside_the_data_after_the_staging() -> None:
    got = BASE.with_(facts={DE: {"t:a": staging(1)}}).estimate()  # DE has free slots: 60 s instead of 275 s
    assert at(got, PL).queue_seconds == 64
    assert at(got, PL).queue_site == DE


def test_a_set_that_only_is_being_staged_cannot_be_read_elsewhere() -> None:
    got = BASE.with_(data={UK: [], DE: [], PL: []}, facts={DE: {"t:a": staging(10)}}).estimate()
    assert numbers(got, PL) == (None, 512)
    assert numbers(got, DE) == (512, 512)


def test_a_set_on_disk_nowhere_has_no_estimate() -> None:
    got = BASE.with_(data={UK: [], DE: [], PL: []}).estimate()
    assert all(not site.by_key for site in made(got).sites.values())


def test_an_unknown_size_or_rate_gives_no_estimate_for_the_set_there() -> None:
    unknown_size = BASE.with_(sizes={}).estimate()
    assert key("t:a") not in made(unknown_size).sites[DE].by_key
    assert key("t:a") in made(unknown_size).sites[UK].by_key
    one_rate = BASE.estimate(Rates(None, {(UK, PL): FAST}))
    assert key("t:a") not in made(one_rate).sites[DE].by_key
    assert key("t:a") in made(one_rate).sites[PL].by_key


def test_a_rate_of_0_means_that_the_source_is_unreachable() -> None:
    assert at(BASE.estimate(Rates(pairs={(UK, DE): 0.0})), DE).read_seconds is None


def test_colliding_datasets_have_no_estimate() -> None:
    got = BASE.with_(collisions=((Did("t:a"), Did("t:A")),)).estimate()
    assert not made(got).sites[UK].by_key


# no estimates


def none_reason(load: PoolLoad | str | None, rates: Rates | None = Rates(), **policy) -> str | None:  # noqa: B008
    got = estimate(BASE.snapshot(), BASE.demand(), load, rates, None, NOON, EstimatePolicy(**policy))
    assert (got.estimates is None) == (got.none_reason is not None)
    return got.none_reason


def test_no_estimate_without_load_or_rates_or_slots() -> None:
    load = BASE.load()
    assert none_reason(load) is None
    assert none_reason(None) == "the jobs and slots of the pool were not queried yet"
    assert none_reason("collector: no answer") == "collector: no answer"
    assert none_reason(load, None) == "no transfer rates are known"
    assert none_reason(load, Rates(None)) == "no transfer rate between two sites is known"
    assert none_reason(replace(load, slots=())) == "the pool has no slots that take jobs"
    assert none_reason(load, is_enabled=False) == "estimates are switched off ([estimates] enabled)"
    old = replace(load, as_of=NOON - 6 * MINUTE)
    assert none_reason(old) == "the last answer about jobs and slots is from 2026-11-21 11:54:00 UTC"


@pytest.mark.parametrize("rates", [None, Rates(None)])
def test_without_rates_there_are_only_the_own_queues(rates: Rates | None) -> None:
    """Jobs without data keep off UK's slots; for jobs with data all is as without estimates."""
    got = BASE.estimate(rates)
    assert got.estimates is None
    assert got.queues is not None
    assert {site: one.own_queue_seconds for site, one in got.queues.sites.items()} == {UK: 256, DE: 0, PL: 0}
    assert not any(one.by_key for one in got.queues.sites.values())
    assert got.queues.valid_until == NOON + 10 * MINUTE
    shorter = BASE.with_(idle=(idle(6, "t:a"),)).estimate(rates, got)
    assert shorter.queues is not None
    assert shorter.queues.sites[UK].own_queue_seconds == 256, "175 s: the class stays"
    again = BASE.estimate(Rates(), shorter)
    assert numbers(again, DE) == (256, 256)
    assert again.queues is None


def test_no_estimate_without_rates_if_no_size_is_known_either() -> None:
    """No read needed a rate then; but without rates a pool is as before, also after a restart."""
    unsized = BASE.with_(sizes={})
    assert unsized.estimate(Rates(None)).none_reason == "no transfer rate between two sites is known"
    assert unsized.estimate(Rates(FAST)).none_reason is None


# learned run times


UNTIMED = BASE.with_(idle=(idle(10, "t:a", seconds=None),))
"""Ten idle jobs without a stated run time."""


def queue_after(*jobs: RunningJobs) -> int:
    """Return the queue of 10 idle jobs 20 s after *jobs* ran; they ended meanwhile."""
    first = UNTIMED.with_(running=jobs).estimate()
    return at(UNTIMED.estimate(previous=first, at=NOON + timedelta(seconds=20)), DE).queue_seconds


def test_run_times_are_learned_from_jobs_that_ended() -> None:
    """Two jobs ran for 390 s when last seen, and were gone 20 s later: 400 s. 11 x 400 / 4 = 1100 s."""
    jobs = running(UK, "t:a", ages=[390, 390], seconds=None)
    assert queue_after(jobs) == 1024
    assert at(UNTIMED.estimate(), DE).queue_seconds == 8192  # default 1 h


@pytest.mark.parametrize(
    ("run", "user", "queue"),
    [("r1", "ann", 1024), (None, "ann", 2048), ("r2", "ann", 2048), ("r1", "bob", 2048)],
)
def test_run_times_of_the_same_run_come_before_those_of_the_user(run: str, user: str, queue: int) -> None:
    """Ann's step of run r1 took 400 s, five other jobs 800 s. 11 x 400 / 4 = 1,100 s, and 11 x 800 / 4."""
    world = BASE.with_(
        data={UK: ["t:a", "t:b"], DE: []}, sets=(("t:a",), ("t:b",)), sizes={"t:a": GB, "t:b": GB}
    )
    steps = (
        replace(running(UK, "t:b", ages=[390], seconds=None), run="r1"),
        running(UK, "t:b", ages=[790] * 5, seconds=None),
    )
    waiting = (IdleJobs(10, key("t:a"), user, 1.0, None, run),)
    first = world.with_(idle=waiting, running=steps).estimate()
    later = world.with_(idle=waiting).estimate(previous=first, at=NOON + timedelta(seconds=20))
    assert at(later, DE).queue_seconds == queue


def test_run_times_of_jobs_that_read_from_elsewhere_come_second() -> None:
    remote = running(DE, "t:a", ages=[3990, 3990], seconds=None)
    local = running(UK, "t:a", ages=[390], seconds=None)
    assert queue_after(remote, local) == 1024


def test_run_times_come_from_ages_if_no_job_ended() -> None:
    """Four jobs of a mean age of 200 s run 400 s; the first slots come free after 200, 200, 200, 200 s."""
    jobs = running(UK, "t:a", ages=[200] * 4, seconds=None)
    assert at(UNTIMED.with_(running=(jobs,)).estimate(), DE).queue_seconds == 1024


def test_an_estimation_that_failed_keeps_what_was_learned() -> None:
    jobs = running(UK, "t:a", ages=[390, 390], seconds=None)
    first = UNTIMED.with_(running=(jobs,)).estimate()
    soon = NOON + timedelta(seconds=20)
    later = UNTIMED.estimate(previous=first, at=soon)
    failed = UNTIMED.estimate(None, later, soon)
    assert failed.estimates is None
    assert isinstance(failed, Estimation)
    again = UNTIMED.estimate(previous=failed, at=soon + MINUTE)
    assert isinstance(again.estimates, Estimates)
    assert at(again, DE).queue_seconds == 1024


def test_jobs_that_read_from_elsewhere_keep_their_slot_longer() -> None:
    """The jobs at UK read t:b from DE for 256 s, then run 100 s: those of 150 s ago end in 206 s."""
    world = BASE.with_(
        data={UK: ["t:a"], DE: ["t:b"], PL: []},
        sets=(("t:a",), ("t:b",)),
        sizes={"t:a": 10 * GB, "t:b": 10 * GB},
        idle=(),
        running=(running(UK, "t:b", ages=[150] * 4),),
    )
    before = world.with_(running=()).estimate()
    assert at(before, UK, "t:b").read_seconds == 256
    assert at(world.estimate(previous=before), DE).queue_seconds == 256
    beside = world.with_(running=(running(UK, "t:a", ages=[150] * 4),))
    assert at(beside.estimate(previous=before), DE).queue_seconds == 16  # overdue: a tenth of 150 s

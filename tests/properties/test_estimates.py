"""Laws of the estimates: no number acts the wrong way, and a pool at rest has ads at rest."""

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.model import DatasetState, Fact, Site, Unseen
from hydrator.domain.ports import PoolLoad, RunningJobs, SiteSlots
from hydrator.reconcile.estimates.changes import ReadStock
from hydrator.reconcile.estimates.estimate import EstimatePolicy, Estimation, estimate
from tests.factories import NOON
from tests.unit.reconcile.estimates.worlds import DE, FAST, GB, PL, UK, Rates, World, at, idle, key, running

SITES = (UK, DE, PL)
A, B, AB = ("t:a",), ("t:b",), ("t:a", "t:b")
"""``t:a`` is at UK, ``t:b`` at DE, so no site has both."""
SETS = (A, B, AB)

sites = st.sampled_from(SITES)
speeds = st.floats(1e5, 1e10)
rates = st.dictionaries(st.tuples(sites, sites), speeds).map(lambda pairs: Rates(FAST, pairs))
slots = st.lists(
    st.builds(
        lambda site, total, used, count: SiteSlots(site, total, max(0, total - used), count),
        sites, st.integers(1, 8), st.integers(0, 8), st.integers(1, 20),
    ), min_size=1, max_size=6,
)  # fmt: skip
waiting = st.lists(
    st.builds(lambda jobs, dids: idle(jobs, *dids), st.integers(1, 500), st.sampled_from(SETS)), max_size=5
)
busy = st.lists(
    st.builds(
        lambda site, dids, ages: running(site, *dids, ages=ages),
        sites, st.sampled_from((*SETS, ())), st.lists(st.integers(0, 300), max_size=5),
    ), max_size=5,
)  # fmt: skip
worlds = st.builds(
    lambda groups, idle_jobs, running_jobs, size: World(
        {UK: ["t:a"], DE: ["t:b"], PL: []},
        tuple(groups),
        tuple(idle_jobs),
        tuple(running_jobs),
        {"t:a": size, "t:b": GB},
        SETS,
    ),
    slots, waiting, busy, st.integers(1, 10**13),
)  # fmt: skip


RUN = timedelta(seconds=100)
"""The run time of all jobs, also the default: a shorter job may shorten a queue, which is no error."""


def queue(world: World, *dids: str) -> int:
    return at(world.estimate(default_run=RUN), UK, *(dids or A)).queue_seconds


def read(world: World, dids: tuple[str, ...], lookup: Rates, **more) -> float:
    seconds = at(world.estimate(lookup, **more), PL, *dids).read_seconds
    return float("inf") if seconds is None else seconds


def classes(estimation: Estimation) -> dict[str, object]:
    """Return, by site, all numbers that an ad would have."""
    assert estimation.estimates is not None
    return {
        site: (
            one.own_queue_seconds,
            {name: (each.read_seconds, each.queue_seconds) for name, each in one.by_key.items()},
        )
        for site, one in estimation.estimates.sites.items()
    }


@given(worlds, rates, st.sampled_from(SETS), st.floats(0, 1), st.floats(0, 1))
def test_more_local_bytes_never_lengthen_the_read(
    world: World, lookup: Rates, dids: tuple[str, ...], one: float, other: float
) -> None:
    less, more = sorted((one, other))
    parts = [
        world.with_(facts={PL: {"t:a": Fact(DatasetState.PARTIAL, NOON, fraction)}})
        for fraction in (less, more)
    ]
    assert read(parts[1], dids, lookup) <= read(parts[0], dids, lookup)
    whole = world.with_(data={UK: ["t:a"], DE: ["t:b"], PL: list(dids)})
    assert read(whole, dids, lookup) == 0


@given(worlds, st.sampled_from(SETS), speeds, speeds, st.integers(1, 10))
def test_a_faster_link_never_lengthens_the_read(
    world: World, dids: tuple[str, ...], one: float, other: float, limit: int
) -> None:
    slow, fast = sorted((one, other))
    reads = [
        read(world, dids, Rates(FAST, {(UK, PL): speed}), max_readers_per_source=limit)
        for speed in (slow, fast)
    ]
    assert reads[1] <= reads[0]


@given(
    worlds,
    speeds,
    st.lists(st.integers(0, 6), min_size=1, max_size=8),
    st.floats(2, 50).flatmap(lambda factor: st.sampled_from([factor, 1 / factor])),
)
def test_no_earlier_readers_hold_back_a_link_that_changes(
    world: World, speed: float, readers: list[int], factor: float
) -> None:
    """Whatever was published before, the reads follow as if no change had been used up."""
    previous = None
    for count in readers:
        crowd = world.with_(running=(*world.running, running(PL, "t:a", ages=[0] * count)))
        previous = crowd.estimate(Rates(speed), previous, max_readers_per_source=100)
        empty = {site: ReadStock(-1.0, stock.link_seconds) for site, stock in stocks(previous).items()}
        previous = replace(previous, memory=replace(previous.memory, read_stocks=empty))
    changed = world.estimate(Rates(speed * factor), previous, max_readers_per_source=100)
    fresh = replace(previous, memory=replace(previous.memory, read_stocks={}))
    expected = world.estimate(Rates(speed * factor), fresh, max_readers_per_source=100)
    for site, one in classes(expected).items():
        assert classes(changed)[site] == one


def stocks(estimation: Estimation) -> Mapping[Site, ReadStock]:
    return estimation.memory.read_stocks


@given(worlds, rates, st.sampled_from(SETS), st.integers(1, 5))
def test_another_reader_never_shortens_the_read(
    world: World, lookup: Rates, dids: tuple[str, ...], more: int
) -> None:
    crowd = world.with_(running=(*world.running, running(PL, "t:a", ages=[0] * more)))
    assert read(world, dids, lookup) <= read(crowd, dids, lookup)


@given(worlds, st.integers(1, 500), st.sampled_from([A, B]))
def test_a_longer_queue_at_home_never_shortens_its_seconds(
    world: World, jobs: int, dids: tuple[str, ...]
) -> None:
    longer = world.with_(idle=(*world.idle, idle(jobs, *dids)))
    for each in (A, B):
        assert queue(world, *each) <= queue(longer, *each)
    before, after = world.estimate(default_run=RUN), longer.estimate(default_run=RUN)
    assert before.estimates is not None
    assert after.estimates is not None
    for site in SITES:
        assert before.estimates.sites[site].own_queue_seconds <= after.estimates.sites[site].own_queue_seconds


@given(worlds, sites)
def test_one_more_free_slot_never_lengthens_the_queue(world: World, site) -> None:
    more = world.with_(slots=(*world.slots, SiteSlots(site, 1, 1)))
    for dids in (A, B):
        assert queue(more, *dids) <= queue(world, *dids)


@given(worlds, st.data())
def test_a_slot_that_becomes_free_never_lengthens_the_queue(world: World, data) -> None:
    number = data.draw(st.integers(0, len(world.slots) - 1))
    group = world.slots[number]
    freed = replace(group, free_cpus=min(group.total_cpus, group.free_cpus + 1))
    more = world.with_(slots=(*world.slots[:number], freed, *world.slots[number + 1 :]))
    for dids in (A, B):
        assert queue(more, *dids) <= queue(world, *dids)


@given(worlds, st.lists(st.integers(0, 90), min_size=1, max_size=20), st.integers(1, 90))
def test_jobs_that_began_later_never_shorten_the_queue(world: World, ages: list[int], later: int) -> None:
    """No job is overdue: jobs run 100 s."""
    old = world.with_(running=(running(UK, "t:a", ages=ages),))
    young = world.with_(running=(running(UK, "t:a", ages=[max(0, age - later) for age in ages]),))
    assert queue(old) <= queue(young)


@given(worlds, rates, st.randoms(use_true_random=False))
def test_the_order_of_jobs_and_slots_does_not_matter(world: World, lookup: Rates, shuffle) -> None:
    def shuffled(items):
        return tuple(shuffle.sample(items, len(items)))

    other = world.with_(idle=shuffled(world.idle), slots=shuffled(world.slots))
    assert classes(other.estimate(lookup)) == classes(world.estimate(lookup))


@given(worlds)
def test_no_estimate_without_rates_or_load(world: World) -> None:
    def made(load: PoolLoad | str | None, lookup: Rates | None) -> Estimation:
        return estimate(world.snapshot(), world.demand(), load, lookup, None, NOON, EstimatePolicy())

    load = world.load()
    half = replace(load, schedds={**load.schedds, "ap2": Unseen("timeout")})
    for one in (made(None, Rates()), made("timeout", Rates()), made(load, None), made(load, Rates(None))):
        assert one.estimates is None
        assert one.none_reason
    assert made(half, Rates()).estimates is None


@given(worlds, rates)
def test_the_next_cycle_without_a_change_keeps_every_class(world: World, lookup: Rates) -> None:
    first = world.estimate(lookup)
    second = world.estimate(lookup, first)
    third = world.estimate(lookup, second)
    assert third.estimates is not None
    assert second.estimates is not None
    assert third.estimates.sites == second.estimates.sites


def steady_pool(noise: random.Random, cycle: int) -> tuple[World, Rates]:
    """Return a pool at rest with the noise of real ones: 10 % in queue lengths and rates, ages at random."""

    def about(value: float) -> float:
        return value * noise.uniform(0.9, 1.1)

    names = [f"t:{number}" for number in range(20)]
    homes = {UK: names[:12], DE: names[12:18], PL: names[18:]}
    jobs = tuple(idle(max(1, round(about(40))), name, seconds=None) for name in names)
    busy_jobs = tuple(
        RunningJobs(
            tuple(sorted(round(NOON.timestamp()) + 30 * cycle - noise.randrange(3600) for _ in range(10))),
            site, key(name), (), "ann",
        )
        for site, held in homes.items() for name in held
    )  # fmt: skip
    world = World(
        homes,
        tuple(SiteSlots(site, 1, 0, 10 * len(held)) for site, held in homes.items()),
        jobs,
        busy_jobs,
        dict.fromkeys(names, 30 * GB),
        tuple((name,) for name in names),
    )
    return world, Rates(None, {(one, other): about(FAST) for one in SITES for other in SITES})


READS = ((UK, DE), (UK, PL), (DE, UK), (PL, UK))
NAMES = {UK: "t:0", DE: "t:12", PL: "t:18"}
STEP = 30
"""Seconds between two cycles."""


def add_readers(
    noise: random.Random, live: list[tuple[int, int, Site, str]], now: int, mean: float
) -> list[RunningJobs]:
    """Begin new reads at random, about *mean* at a time on each link; return all jobs that read or compute.

    *live* has the start and end of each job, its site and its dataset. A read lasts as long as its link,
    which all its readers share, needs on average; the job then computes for an hour.
    """
    for source, site in READS:
        rate = mean / (300 * (mean + 2)) / (2 if source == UK else 1)
        for _ in range(10):
            if noise.random() < rate * STEP / 10:
                end = now + round(300 * (mean + 2)) + 3600
                live.append((now - noise.randrange(STEP), end, site, NAMES[source]))
    live[:] = [job for job in live if job[1] > now]
    groups: dict[tuple[Site, str], list[int]] = {}
    for start, _, site, name in live:
        groups.setdefault((site, name), []).append(start)
    return [
        RunningJobs(tuple(sorted(starts)), site, key(name), (), "ann")
        for (site, name), starts in groups.items()
    ]


@pytest.mark.outside
@pytest.mark.parametrize(("mean", "seed"), [(1, 15), (3, 15), (3, 16)])
def test_readers_that_come_and_go_rewrite_at_most_one_ad_in_a_hundred(mean: int, seed: int) -> None:
    """A steady pool for 1,000 cycles, with the same noise; no source has as many readers as it may have."""
    noise, previous = random.Random(seed), None
    changes = ads = most = 0
    content: dict[str, object] = {}
    live: list[tuple[int, int, Site, str]] = []
    for cycle in range(1_000):
        world, lookup = steady_pool(noise, cycle)
        jobs = add_readers(noise, live, round(NOON.timestamp()) + STEP * cycle, mean)
        world = world.with_(running=(*world.running, *jobs))
        at_time = NOON + timedelta(seconds=STEP * cycle)
        previous = world.estimate(lookup, previous, at_time, max_readers_per_source=100)
        most = max(most, *previous.readers.values(), 0)
        for site, now in classes(previous).items():
            if cycle:
                ads += 1
                changes += content[site] != now
            content[site] = now
    assert most > 3 * mean, "readers come and go"
    assert changes
    assert changes / ads <= 0.01

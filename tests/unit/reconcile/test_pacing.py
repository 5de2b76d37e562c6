"""Pacing: cases from real pools, each a few numbers, and the sets that are open after some rounds."""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.openings import Openings, Reason, describe_outlook, write_openings
from hydrator.domain.model import Site
from hydrator.domain.ports import ONE_CORE, Resources, SlotGroup
from hydrator.reconcile.paced_pool import JobGroup, PacedPool, RunningRead, SetBytes
from hydrator.reconcile.pacing import PacingMemory, pace

UK, DE, PL, NL, CLOUD = (Site(name) for name in ("UK", "DE", "PL", "NL", "CLOUD"))
GB = 10**9
GBIT = 125e6
FULL = Resources(0.0)
SMALL, BIG = Resources(1.0, 1000.0), Resources(1.0, 8000.0)
BIG_JOB = Resources(1.0, 2000.0)
NODE, GPU_JOB = Resources(64.0, gpus=1.0), Resources(gpus=1.0)
X, Y, Z = SetKey("t:x"), SetKey("t:y"), SetKey("t:z")
BUSY = RunningRead(Y, UK, PL, 600.0, 0.0)
"""A read that the link of UK is busy with for ten minutes."""


Slots = tuple[Resources, Resources, int] | tuple[Resources, Resources, int, bool]


def slots(free: int = 0, busy: int = 0, each: Resources = ONE_CORE) -> list[Slots]:
    return [(each, each, free), (each, FULL, busy)]


def pool(
    sites: Mapping[Site, Sequence[Slots]],
    jobs: Mapping[SetKey, int],
    sets: Mapping[SetKey, SetBytes],
    *,
    now: float = 0.0,
    reads: Sequence[RunningRead] = (),
    rates: Mapping[tuple[Site, Site], float] | None = None,
    run: float = 3600.0,
    request: Resources = ONE_CORE,
    others: Mapping[JobGroup, Mapping[int, int]] = {},
) -> PacedPool:
    """Return a pool with links of 1 Gb/s, but for *rates*; the jobs of a set have the lanes of a cluster."""
    waiting = {**others}
    for key, count in jobs.items():
        lanes = [((n + 1) & -(n + 1)).bit_length() - 1 for n in range(count)]
        waiting[JobGroup(key, request)] = {lane: lanes.count(lane) for lane in lanes}
    groups = [SlotGroup(site, *each) for site, found in sites.items() for each in found]
    return PacedPool(now, waiting, sets, groups, reads, lambda *link: (rates or {}).get(link, GBIT), run)


def at(*sizes: tuple[Site, int]) -> SetBytes:
    return SetBytes({(site,): size for site, size in sizes})


USUAL = {
    "sites": {UK: slots(0, 1), DE: slots(4)},
    "jobs": {X: 1},
    "sets": dict.fromkeys((X, Y, Z), at((UK, 75 * GB))),
}
"""A set waits at a full site; elsewhere are free slots, and a read takes 600 s."""


def play(steps: Iterable[Mapping[str, Any]], interval: float = 60.0, **world) -> Iterator[Openings]:
    """Make a round with each of *steps*: what differs in it from *world*, as that differs from USUAL."""
    memory = PacingMemory()
    for number, step in enumerate(steps):
        given = pool(**{**USUAL, **world, "now": interval * number, **step})
        made, memory = pace(given, memory, now=given.as_of, interval_seconds=interval, lateness_seconds=30)
        yield made


def rounds(count: int, **world) -> Openings:
    """Return the last of *count* rounds, one a minute, in which no job starts."""
    return list(play([{}] * count, **world))[-1]


def opened(made: Openings) -> dict[Site, set[str]]:
    return {site: set(names) for site, names in made.openings.items() if names}


CASES = {
    "P1: free slots at home hold a set for one round": (
        1, {UK: slots(4), DE: slots(4)}, {X: 1}, {X: at((UK, 75 * GB))}, {}, {},
    ),
    "P1: free slots at home that refuse its jobs hold it no longer": (
        2, {UK: slots(4), DE: slots(4)}, {X: 1}, {X: at((UK, 75 * GB))}, {}, {DE: {X}},
    ),
    "free slots that are too small are not opened": (
        2, {UK: slots(0, 2, BIG), DE: slots(8, each=SMALL)}, {X: 9}, {X: at((UK, 75 * GB))},
        {"request": BIG_JOB}, {},
    ),
    "P3: sites with longer reads are not opened if the first takes all jobs": (
        1, {UK: slots(0, 2), DE: slots(4), CLOUD: slots(24)}, {X: 20}, {X: at((UK, 5 * GB))},
        {"rates": {(UK, CLOUD): 10 * GBIT}}, {CLOUD: {X}},
    ),
    "P4: the big read is allowed if the slots beside most bytes do not take the job": (
        4, {UK: slots(2), DE: slots(2)}, {X: 1}, {X: at((DE, 500 * GB), (UK, GB // 100))}, {},
        {DE: {X}, UK: {X}},
    ),
    "P4: a site that lacks a small dataset is opened, though jobs at home end before a read of all": (
        1, {UK: slots(0, 2), DE: slots(16)}, {X: 10}, {X: SetBytes({(UK, DE): 500 * GB, (UK,): GB // 100})},
        {"run": 600.0}, {DE: {X}},
    ),
    "P4: a site that has most of a dataset is, too": (
        1, {UK: slots(0, 2), DE: slots(16)}, {X: 10}, {X: SetBytes({(UK,): 500 * GB}, {DE: 499 * GB})},
        {"run": 600.0}, {DE: {X}},
    ),
    "P4: the big read is not allowed while slots beside most bytes may come free": (
        1, {UK: slots(2), DE: slots(0, 2)}, {X: 1}, {X: at((DE, 500 * GB), (UK, GB // 100))}, {}, {DE: {X}},
    ),
    "one long read at a time is open": (
        1, {UK: slots(0, 1), DE: slots(4)}, {X: 1, Y: 1}, dict.fromkeys((X, Y), at((UK, 75 * GB))), {},
        {DE: {Y}},
    ),
    "the set with the longest backlog at home is first": (
        1, {UK: slots(0, 1), NL: slots(0, 9), DE: slots(4)}, {X: 1, Y: 1},
        {X: at((UK, 75 * GB)), Y: SetBytes({(UK, NL): 75 * GB})}, {"rates": {(NL, DE): 0.0}, "run": 36000.0},
        {DE: {X}},
    ),
    "a long read that was allowed keeps the link until the opening has arrived": (
        2, {UK: slots(0, 1), DE: slots(4)}, {X: 1, Y: 1}, dict.fromkeys((X, Y), at((UK, 75 * GB))), {},
        {DE: {Y}},
    ),
    "short reads wait while the link is busy for longer than a round": (
        1, {UK: slots(0, 1), DE: slots(64)}, {X: 64}, {X: at((UK, 5 * GB))},
        {"rates": {(UK, DE): 10 * GBIT}, "reads": [BUSY]}, {},
    ),
    "short reads over a link that has its fill wait, though another site could read over a free one": (
        1, {UK: slots(0, 1), NL: slots(0, 1), DE: slots(4), PL: slots(4)}, {X: 1, Y: 2},
        {X: SetBytes({(UK, NL): 6 * GB}), Y: at((UK, 6 * GB))}, {"rates": {(NL, DE): 0.0}},
        {DE: {Y}, PL: {X, Y}},
    ),
    "free slots are left to jobs whose data is there": (
        1, {UK: slots(0, 1), DE: slots(2)}, {X: 1, Y: 2}, {X: at((UK, 75 * GB)), Y: at((DE, 75 * GB))},
        {}, {},
    ),
    "free slots that refuse the jobs whose data is there are not": (
        2, {UK: slots(0, 1), DE: slots(2)}, {X: 1, Y: 2}, {X: at((UK, 75 * GB)), Y: at((DE, 75 * GB))}, {},
        {DE: {X}},
    ),
    "a large set is open by the lane with the fewest jobs": (
        1, {UK: slots(0, 1), DE: slots(4)}, {X: 7}, {X: at((UK, 75 * GB))}, {}, {DE: {"t:x~2"}},
    ),
    "a lane with more jobs than there are free slots is open, if the link has room for those that fit": (
        1, {UK: slots(0, 1), DE: slots(4)}, {X: 7}, {X: at((UK, GB // 2))},
        {"reads": [RunningRead(Y, UK, PL, 65.0, 0.0)]}, {DE: {X}},
    ),
    "no more lanes are open than free slots take": (
        1, {UK: slots(0, 1), DE: slots(3)}, {X: 7}, {X: at((UK, GB // 2))},
        {"reads": [RunningRead(Y, UK, PL, 65.0, 0.0)]}, {DE: {"t:x~2", "t:x~1"}},
    ),
    "a set reserves its link for no more jobs than free slots take": (
        1, {UK: slots(0, 1), DE: slots(4)}, {Y: 1, Z: 64}, dict.fromkeys((Y, Z), at((UK, GB))), {},
        {DE: {Y, Z}},
    ),
    "a read that runs leaves no room for the next": (
        1, {UK: slots(0, 1), DE: slots(4)}, {X: 1}, {X: at((UK, 75 * GB))}, {"reads": [BUSY]}, {},
    ),
    "a read that ends before the next opening arrives leaves room": (
        1, {UK: slots(0, 1), DE: slots(4)}, {X: 1}, {X: at((UK, 75 * GB))},
        {"reads": [RunningRead(Y, UK, PL, 600.0, -530.0)]}, {DE: {X}},
    ),
    "the copy whose link has room is read": (
        1, {UK: slots(0, 1), NL: slots(0, 1), DE: slots(4)}, {X: 1}, {X: SetBytes({(UK, NL): 75 * GB})},
        {"reads": [BUSY]}, {DE: {X}},
    ),
    "the tail of a queue stays": (
        1, {UK: slots(0, 8), DE: slots(4)}, {X: 1}, {X: at((UK, 75 * GB))}, {"run": 3600.0}, {},
    ),
    "a backlog that takes longer than the read at the fastest site does not": (
        1, {UK: slots(0, 12), PL: slots(1), DE: slots(1)}, {X: 1}, {X: at((UK, 75 * GB))},
        {"rates": {(UK, PL): 10 * GBIT}}, {PL: {X}},
    ),
    "a backlog that takes longer than the read does not": (
        1, {UK: slots(0, 1), DE: slots(4)}, {X: 1}, {X: at((UK, 75 * GB))}, {"run": 3600.0}, {DE: {X}},
    ),
    "a busy site without a backlog is opened before its slots are free": (
        1, {UK: slots(0, 1), DE: slots(0, 4)}, {X: 1}, {X: at((UK, 75 * GB))}, {}, {DE: {X}},
    ),
    "a busy site with a backlog is not": (
        2, {UK: slots(0, 1), DE: slots(0, 1)}, {X: 1, Y: 1}, {X: at((UK, 75 * GB)), Y: at((DE, 75 * GB))},
        {}, {},
    ),
    "a job that may start at three busy sites is a backlog of none of them": (
        1, {UK: slots(0, 1), DE: slots(0, 1), PL: slots(0, 1), NL: slots(0, 1)}, {X: 1, Y: 1},
        {X: at((UK, 75 * GB)), Y: SetBytes({(DE, PL, NL): 75 * GB})}, {}, {DE: {X}, PL: {X}, NL: {X}},
    ),
    "for a short read it is, if its own jobs have started when the opening arrives": (
        1, {UK: slots(0, 1), DE: slots(0, 8)}, {X: 1, Y: 1}, {X: at((UK, GB)), Y: at((DE, GB))},
        {"run": 120.0}, {DE: {X}},
    ),
    "it is not, if they start later": (
        1, {UK: slots(0, 1), DE: slots(0, 8)}, {X: 1, Y: 1}, {X: at((UK, GB)), Y: at((DE, GB))},
        {"run": 360.0}, {},
    ),
    "a source that must not be read is not": (
        1, {DE: slots(4)}, {X: 1}, {X: at((UK, GB))}, {"rates": {(UK, DE): 0.0}}, {},
    ),
    "free slots that refuse jobs which insist on their data are not left to them": (
        2, {UK: slots(0, 1), DE: slots(2)}, {X: 1}, {X: at((UK, 75 * GB)), Y: at((DE, 75 * GB))},
        {"others": {JobGroup(Y, is_auto=False): {0: 2}}}, {DE: {X}},
    ),
    "free slots are left to as many jobs as they have cores for": (
        1, {UK: slots(0, 1, NODE), DE: slots(1, 0, NODE)}, {X: 1},
        {X: at((UK, 75 * GB)), Y: at((DE, 75 * GB))},
        {"request": Resources(8.0), "others": {JobGroup(Y): {0: 10}}, "run": 36000.0}, {DE: {X}},
    ),
    "a slot is left to a job that needs a part of its cores": (
        1, {UK: slots(0, 1, NODE), DE: slots(1, 0, NODE)}, {X: 1},
        {X: at((UK, 75 * GB)), Y: at((DE, 75 * GB))},
        {"request": NODE, "others": {JobGroup(Y): {0: 1}}}, {},
    ),
    "free slots at two homes are left to jobs by halves": (
        1, {UK: slots(0, 1), DE: slots(2), PL: slots(2)}, {X: 1, Y: 2},
        {X: at((UK, 75 * GB)), Y: SetBytes({(DE, PL): 75 * GB})}, {}, {DE: {X}, PL: {X}},
    ),
    "free slots are left to jobs with all the cores that they ask for": (
        1, {UK: slots(0, 1), DE: slots(1, 0, NODE)}, {X: 1},
        {X: at((UK, 75 * GB)), Y: at((DE, 75 * GB))}, {"others": {JobGroup(Y, NODE): {0: 1}}}, {},
    ),
    "a static slot takes one job, of any size": (
        1, {UK: slots(0, 1), DE: [(NODE, NODE, 2, True)]}, {X: 1, Y: 2},
        {X: at((UK, 75 * GB)), Y: at((DE, 75 * GB))}, {}, {},
    ),
    "free cores are not left to jobs that wait for a GPU": (
        1, {UK: slots(0, 1), DE: slots(1, 0, NODE)}, {X: 1},
        {X: at((UK, 75 * GB)), Y: at((DE, 75 * GB))}, {"others": {JobGroup(Y, GPU_JOB): {0: 99}}},
        {DE: {X}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_pacing_opens(case):
    count, sites, jobs, sets, others, expected = case
    assert opened(rounds(count, sites=sites, jobs=jobs, sets=sets, **others)) == expected


SHORT, LONG, LONGER = (
    RunningRead(key, UK, DE, seconds, start)
    for key, seconds, start in ((Y, 10, -40), (X, 185, -50), (X, 195, -50))
)
"""The short one takes 10 s of the link: after a round the others need 85 and 95 s more."""
LANES = {
    count: {"jobs": {}, "others": {JobGroup(X): dict(enumerate(count))}}
    for count in ((1,), (2,), (3,), (4,), (1, 1), (1, 5), (2, 4, 1), (2, 4))
}
"""Steps in which jobs of X wait: so many in each lane, from lane 0."""
STEPS = {
    "slots that others took did not refuse a set, so it reserves its link": (
        [{}, {}, {"sites": {UK: slots(0, 1), DE: slots(0, 4)}}], {"jobs": {X: 1, Y: 1}}, {DE: {X}},
    ),
    "a lease of a set that was refused before leaves room": (
        [{}, {}, {}, {"jobs": {X: 1, Y: 1}}], {"jobs": {Y: 1}}, {DE: {X, Y}},
    ),
    "a lease leaves the room of those of its jobs that have read": (
        [LANES[4,], {**LANES[1,], "jobs": {Y: 1}, "reads": [RunningRead(X, UK, DE, 20.0, 10.0)] * 3}],
        {"sets": dict.fromkeys((X, Y), at((UK, 5 * GB // 2)))}, {DE: {X, Y}},
    ),
    "a set that is refused again does not double what others are given": (
        [{}, {}, {}, {}, {"jobs": {Y: 1, Z: 1}}], {"jobs": {Y: 1}}, {DE: {Z}},
    ),
    "a link that reads has no room for more, though a lease was not used": (
        [{}, {}, {"reads": [RunningRead(Z, UK, PL, 600.0, 100.0)]}], {"jobs": {Y: 1}}, {},
    ),
    "a job that read from another copy, by an older opening, has started: slots did not refuse its set": (
        [LANES[3,], *[{**LANES[2,], "jobs": {Y: 1}}] * 2],
        {
            "sites": {UK: slots(0, 1), NL: slots(0, 1), DE: slots(4)},
            "sets": dict.fromkeys((X, Y), SetBytes({(UK, NL): 75 * GB})),
            "reads": [RunningRead(Z, UK, PL, 600.0, 0.0), RunningRead(X, UK, DE, 600.0, 20.0)],
        },
        {DE: {Y}},
    ),
    "a refused lane is no longer behind the others once it started a job": (
        [LANES[2,], LANES[2,], LANES[2,], {**LANES[1,], "reads": [RunningRead(X, UK, DE, 100.0, 150.0)]},
         {**LANES[1, 5], "reads": [RunningRead(X, UK, DE, 100.0, 150.0)]}],
        {"sets": {X: at((UK, 25 * GB // 2))}}, {DE: {"t:x~0"}},
    ),
    "a lane whose jobs started at home makes room for the next": (
        [LANES[2, 4, 1], LANES[2, 4]], {}, {DE: {"t:x~0"}},
    ),
    "jobs that started elsewhere long ago do not hide those that start at home": (
        [{"jobs": {X: 5}}, {"jobs": {X: 4}}],
        {"sites": {UK: slots(9), DE: slots(4)}, "reads": [RunningRead(X, UK, DE, 100.0, -900.0)]}, {},
    ),
    "jobs that start beside most bytes, with a small read, are not stuck there": (
        [{"jobs": {X: 5}}, {"jobs": {X: 4}, "reads": [RunningRead(X, UK, DE, 0.1, 30.0)]}],
        {"sites": {UK: slots(2), DE: slots(0, 9)}, "sets": {X: at((DE, 500 * GB), (UK, GB // 100))}},
        {DE: {X}},
    ),
    "a lease whose jobs started at home was not refused, so the link has room for one set": (
        [LANES[1, 1], LANES[1, 1], {"others": {JobGroup(X): {1: 1}}, "jobs": {Y: 1}}], {}, {DE: {Y}},
    ),
    "an opening at a busy site follows the free slots": (
        [{}, {"sites": {UK: slots(0, 1), DE: slots(0, 1), PL: slots(1)}}],
        {"sites": {UK: slots(0, 1), DE: slots(0, 1)}}, {DE: {X}, PL: {X}},
    ),
    "a read of a job that has ended has delayed the others of its link: its room is 90 s": (
        [{"reads": [LONGER, SHORT], "jobs": {}}, {"reads": [LONGER]}], {"jobs": {Z: 1}}, {},
    ),
    "a read of a job that has ended has delayed them for no longer than it ran": (
        [{"reads": [LONG, SHORT], "jobs": {}}, {"reads": [LONG]}], {"jobs": {Z: 1}}, {DE: {Z}},
    ),
    "reads of jobs that run leave no room, though others of their link have ended": (
        [{"reads": [RunningRead(X, UK, DE, 600, -10)] * 5, "jobs": {}},
         {"reads": [RunningRead(X, UK, DE, 600, -10)]}], {"jobs": {Z: 1}}, {},
    ),
    "reads of jobs that have all ended leave their link free: it is faster than the daemon believes": (
        [{"reads": [RunningRead(X, UK, DE, 600, -10)] * 5, "jobs": {}}, {}], {"jobs": {Z: 1}}, {DE: {Z}},
    ),
    "jobs that started before an opening, or where it is not, did not use it": (
        [{}, {"reads": [RunningRead(Y, UK, DE, 9.0, -90.0), RunningRead(Y, UK, PL, 9.0, 9.0)]}],
        {"jobs": {X: 1, Y: 1}}, {DE: {Y}},
    ),
    "free slots at home are given a negotiation, if rounds are shorter": (
        [{}, {}, {}], {"interval": 20.0, "sites": {UK: slots(4), DE: slots(4)}, "jobs": {X: 1}}, {},
    ),
    "free slots at home that took no job at the negotiation refuse it": (
        [{}, {}, {}, {}], {"interval": 20.0, "sites": {UK: slots(4), DE: slots(4)}, "jobs": {X: 1}},
        {DE: {X}},
    ),
    "free slots at home that took half of the jobs in a round hold the others": (
        [{"jobs": {X: 8}}, {"jobs": {X: 4}}], {"sites": {UK: slots(99), DE: slots(9)}}, {},
    ),
    "those that take one a round do not hold jobs for longer than their read": (
        [{"jobs": {X: 20}}, {"jobs": {X: 19}}], {"sites": {UK: slots(99), DE: slots(9)}}, {DE: {"t:x~3"}},
    ),
    "they are not left to more jobs than they took": (
        [{"jobs": {X: 1, Y: 9}}, {"jobs": {X: 1, Y: 8}}],
        {"sites": {UK: slots(0, 1), DE: slots(8)}, "sets": {X: at((UK, 75 * GB)), Y: at((DE, 75 * GB))}},
        {DE: {X}},
    ),
    "a slot that comes free after a while is left to jobs that insist on their data": (
        [{"sites": {UK: slots(0, 1), DE: slots(free, 2)}} for free in (1, 0, 0, 1)],
        {
            "sets": {X: at((UK, 75 * GB)), Y: at((DE, 75 * GB))},
            "others": {JobGroup(Y, is_auto=False): {0: 2}},
        },
        {},
    ),
    "data that no site has again is waited for again": (
        [*[{"sets": {X: SetBytes({(): GB})}}] * 5, {}, *[{"sets": {X: SetBytes({(): GB})}}] * 6], {}, {},
    ),
    "free slots elsewhere that took one job in a lease leave the others to sites with longer reads": (
        [{"jobs": {X: 9}}, *[{"jobs": {X: 8}, "reads": [RunningRead(X, UK, DE, 0.1, 9.0)]}] * 2],
        {
            "sites": {UK: slots(0, 1), DE: slots(99), PL: slots(9)},
            "sets": {X: at((UK, GB // 10))}, "rates": {(UK, DE): 10 * GBIT},
        },
        {DE: {X}, PL: {X}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS.keys())
def test_pacing_opens_at_last(case):
    steps, others, expected = case
    *_, made = play(steps, **others)
    assert opened(made) == expected


@pytest.mark.parametrize(
    ("world", "outlook"),
    [
        ({"sites": {UK: slots(4), DE: slots(4)}}, (Reason.BESIDE, (UK,), 1, ())),
        ({}, (Reason.OPEN, (DE,), 1, ())),
        ({"request": BIG_JOB, "sites": {UK: slots(0, 2, SMALL)}}, (Reason.NOWHERE, (), 0, ())),
        ({"reads": [BUSY]}, (Reason.TURN, (UK,), 1, ())),
        ({"reads": [BUSY, BUSY._replace(key=Z, destination=DE)]}, (Reason.TURN, (UK,), 2, ())),
        # Y has ended
        ({"reads": [BUSY._replace(started_at=-9000.0), BUSY._replace(key=Z)]}, (Reason.TURN, (UK,), 1, ())),
        # the link of the nearest slots is full, and they may come free before a longer read over another ends
        (
            {
                "sites": {DE: slots(4), PL: slots(4)}, "sets": {X: SetBytes({(UK, NL): 75 * GB})},
                "rates": {(NL, DE): 0.0, (NL, PL): GBIT / 10}, "reads": [BUSY],
            },
            (Reason.TURN, (UK,), 1, ()),
        ),
        ({"reads": [BUSY._replace(key=X)]}, (Reason.TURN, (UK,), 1, ())),
        ({"reads": [BUSY, BUSY._replace(key=Z, source=NL)]}, (Reason.TURN, (UK,), 1, ())),
        ({"jobs": {X: 7}, "reads": [RunningRead(Y, UK, PL, 60.0, 0.0)]}, (Reason.OPEN, (DE,), 2, (2,))),
    ],
)  # fmt: skip
def test_outlook_names_one_reason_and_counts_the_sets_whose_jobs_read_now(world, outlook):
    assert rounds(1, **world).outlooks == {X: outlook}


@pytest.mark.parametrize("order", [1, -1])
def test_jobs_that_are_too_large_do_not_hide_the_turn_of_others_of_their_set(order):
    others = dict([(JobGroup(X), {0: 1}), (JobGroup(X, Resources(9.0)), {0: 1})][::order])
    made = rounds(1, jobs={}, others=others, reads=[BUSY])
    assert made.outlooks == {X: (Reason.TURN, (UK,), 1, ())}


def test_set_whose_sources_are_excluded_and_have_no_slots_is_nowhere_and_names_them():
    world = {"sites": {DE: slots(4)}, "jobs": {X: 1}, "sets": {X: SetBytes({(NL, UK): GB})}}
    made = rounds(3, **world, rates={(UK, DE): 0.0, (NL, DE): -1.0})
    assert (opened(made), made.outlooks) == ({}, {X: (Reason.NOWHERE, (NL, UK), 0, ())})
    parts = {"sites": {UK: slots(4)}, "jobs": {X: 1}, "sets": {X: at((UK, GB), (NL, GB))}}
    assert rounds(1, **parts, rates={(NL, UK): 0.0}).outlooks == {X: (Reason.NOWHERE, (NL,), 0, ())}


@pytest.mark.parametrize(("size", "rate"), [(75 * GB, 1e-300), (75 * GB, 1e-9), (10**25, GBIT)])
def test_read_of_any_length_is_one_that_a_slot_can_offer(size, rate):
    made = rounds(1, jobs={X: 9}, sets={X: at((UK, size))}, rates={(UK, DE): rate}, run=1e30)
    assert [one.read_seconds for one in made.openings[DE].values()] == [10**7]


def test_outlook_of_a_set_in_turn_counts_the_sets_before_it():
    sets = {SetKey(f"t:{n}"): at((UK, 75 * GB)) for n in range(5)}
    made = rounds(1, jobs=dict.fromkeys(sets, 1), sets=sets)
    turns = [outlook for outlook in made.outlooks.values() if outlook.reason is Reason.TURN]
    assert sorted(turns) == [(Reason.TURN, (UK,), before, ()) for before in (1, 2, 3, 4)]


def test_outlook_beside_the_data_counts_all_jobs_that_wait_there():
    """Jobs of the same set, of others, and of other modes; at the better of two homes."""
    others = {JobGroup(X): {0: 3}, JobGroup(Y): {0: 6}, JobGroup(Z, is_auto=False): {0: 2}}
    sets = {X: SetBytes({(UK, DE): 75 * GB}), Y: at((UK, 75 * GB)), Z: at((DE, 75 * GB))}
    made = rounds(1, sites={UK: slots(0, 1), DE: slots(0, 1)}, jobs={}, sets=sets, others=others)
    assert made.outlooks[X] == (Reason.BESIDE, (UK, DE), 5, ())
    assert made.backlog == {UK: 9, DE: 5}


def test_opening_says_how_long_what_and_from_where_jobs_read():
    sets = {X: SetBytes({(UK,): 100 * GB}, {DE: 25 * GB})}
    made = rounds(1, sets=sets)
    assert made.openings[DE][X] == (600, UK, 75 * GB)
    assert made.backlog == {UK: 1}
    made = rounds(1, sites={DE: slots(4)}, sets={X: at((NL, 5 * GB), (UK, 75 * GB))})
    assert made.openings[DE][X] == (640, UK, 80 * GB)


@pytest.mark.parametrize("run", [6.0, 3600.0])
def test_openings_are_valid_for_the_next_jobs_of_a_claimed_slot_for_ten_minutes(run):
    assert rounds(1, sets={X: at((UK, GB))}, run=run).open_until == 2 * 60 + 30 + 600


def rounds_until_x_joins(sets: dict[SetKey, SetBytes], x: SetBytes, count: int) -> Iterator[Openings]:
    """Make *count* rounds in which no slot takes the jobs of *sets*; X joins in the last two."""
    before, after = ({"jobs": dict.fromkeys(keys, 1)} for keys in (sets, [*sets, X]))
    return play([before] * (count - 2) + [after] * 2, sets={**sets, X: x})


def test_room_at_home_is_waited_for_again_after_a_backlog_there():
    """Jobs at home end soon, then late, then soon again; meanwhile the link of UK is busy."""
    soon, late = {"run": 100.0}, {"run": 3600.0, "reads": [RunningRead(Y, UK, PL, 600.0, 60.0)]}
    reasons = [made.outlooks[X].reason for made in play([soon, late, soon])]
    assert reasons == [Reason.BESIDE, Reason.TURN, Reason.BESIDE]


def test_set_that_was_open_is_behind_one_that_was_not():
    """Y is first by chance, and still has jobs when its read has ended."""
    steps = [{}, {"reads": [RunningRead(Y, UK, DE, 600.0, 30.0)]}, {"now": 660.0}]
    assert [*map(opened, play(steps, jobs={X: 1, Y: 1}))] == [{DE: {Y}}, {}, {DE: {X}}]


def test_sets_that_no_slot_takes_delay_a_set_by_few_rounds():
    """Nobody takes 300 sets; the last one joins when they have been open, and is open in the round after."""
    sets = {SetKey(f"t:{n}"): at((UK, 75 * GB)) for n in range(300)}
    made = rounds_until_x_joins(sets, at((UK, 75 * GB)), 24)
    assert set().union(*(opened(each).get(DE, set()) for each in made)) == {*sets, X}


NONE, SOME = SetBytes({(): GB}), SetBytes({(UK,): 75 * GB, (): GB})
TINY = SetBytes({(UK,): 1, (): GB})
"""Read at DE in a second, the shortest read of an ad, which is also that of UK, where nothing is read."""


@pytest.mark.parametrize(
    ("sites", "size", "count", "reason", "where"),
    [
        ({UK: slots(0, 1, BIG), DE: slots(4, 0, BIG)}, NONE, 10, Reason.ABSENT, {}),
        ({UK: slots(0, 1, BIG), DE: slots(4, 0, BIG)}, NONE, 11, Reason.OPEN, {UK: {X}, DE: {X}}),
        ({UK: slots(4, each=SMALL), DE: slots(4, each=BIG)}, NONE, 11, Reason.OPEN, {DE: {X}}),
        ({UK: slots(4, each=SMALL)}, NONE, 11, Reason.NOWHERE, {}),
        ({UK: slots(4, each=BIG)}, SOME, 10, Reason.ABSENT, {}),
        ({UK: slots(4, each=BIG)}, SOME, 11, Reason.OPEN, {UK: {X}}),
        ({UK: slots(4, each=BIG), DE: slots(4, each=BIG)}, SOME, 11, Reason.OPEN, {UK: {X}}),
        ({UK: slots(0, 1, BIG), DE: slots(4, each=BIG)}, SOME, 11, Reason.OPEN, {UK: {X}, DE: {X}}),
        ({UK: slots(0, 1, BIG), DE: slots(4, each=BIG)}, SOME, 14, Reason.OPEN, {UK: {X}, DE: {X}}),
        ({UK: slots(0, 1, BIG), DE: slots(4, each=BIG)}, TINY, 11, Reason.OPEN, {UK: {X}, DE: {X}}),
        ({UK: slots(4, each=SMALL), DE: slots(4, each=BIG)}, SOME, 11, Reason.OPEN, {DE: {X}}),
    ],
)
def test_jobs_with_data_at_no_site_may_run_anywhere_after_ten_minutes(sites, size, count, reason, where):
    made = rounds(count, sites=sites, sets={X: size}, request=BIG_JOB)
    assert (made.outlooks[X].reason, opened(made)) == (reason, where)
    assert made.backlog == {}
    assert describe_outlook(X, made)


def test_jobs_with_data_that_is_on_its_way_may_run_anywhere_after_a_day():
    sets = {X: SetBytes({(UK,): GB, (): GB}, is_moving=True)}
    times = ({"now": 0.0}, {"now": 86_399.0}, {"now": 86_400.0})
    *early, late = play(times, sites={UK: slots(4)}, sets=sets)
    assert [opened(made) for made in early] == [{}, {}]
    assert describe_outlook(X, early[1]) == (
        "some of its data can be read at no site; it may run anywhere 1 d after the daemon saw it"
    )
    assert opened(late) == {UK: {"t:x"}}


def make_any_pool(choose: Random, now: float) -> PacedPool:
    """Return a pool that has nothing to do with the last one."""
    places, keys = [UK, DE, PL], [X, Y, Z]
    sites = {one: choose.choice([slots(0, 1), slots(4), slots(4, each=SMALL)]) for one in places}
    sizes = [at((UK, 75 * GB)), at((UK, GB), (DE, 75 * GB)), NONE, SOME, SetBytes({(UK, PL): GB}, {DE: 1})]
    jobs = {JobGroup(key, is_auto=choose.random() < 0.8): {0: 4, choose.randrange(3): 2} for key in keys}
    read = RunningRead(choose.choice(keys), choose.choice(places), choose.choice(places), 300.0, now - 60)
    return pool(
        {one: sites[one] for one in places if choose.random() < 0.7},
        {},
        {key: choose.choice(sizes) for key in keys if choose.random() < 0.9},
        now=now,
        reads=[read] * choose.randrange(3),
        others={group: lanes for group, lanes in jobs.items() if choose.random() < 0.8},
    )


@pytest.mark.parametrize("seed", range(50))
def test_any_pool_may_follow_any_other(seed):
    choose, memory = Random(seed), PacingMemory()
    for now in (0.0, 60.0, 90.0, 30.0, 600.0, 660.0, 720.0, 780.0):
        given_pool = make_any_pool(choose, now)
        made, memory = pace(given_pool, memory, now=now, interval_seconds=60, lateness_seconds=30)
        assert opened(made).keys() <= {each.site for each in given_pool.slots}


@pytest.mark.parametrize("others", [{}, {PL: slots(4)}])
def test_a_site_whose_slots_are_gone_ends_no_pacing(others):
    """The last glidein of DE ends while a set is open there."""
    gone = {"sites": {UK: slots(0, 1), **others}}
    sites = {UK: slots(0, 1), DE: slots(4), **others}
    first, second, *_, last = play([{}, gone, gone, gone, {}], sites=sites, sets={X: at((UK, 75 * GB))})
    assert DE in opened(first)
    assert opened(second).keys() == others.keys()
    assert opened(last)


def test_a_clock_that_was_set_back_lets_no_job_wait_for_absent_data_longer_than_ten_minutes():
    ahead, *later = play([{"now": 1e7}, {"now": 0.0}, {"now": 600.0}], sites={UK: slots(4)}, sets={X: NONE})
    assert [opened(made) for made in (ahead, *later)] == [{}, {}, {UK: {"t:x"}}]


def test_lanes_whose_jobs_no_slot_takes_leave_the_next_lease_to_the_others():
    """Four of the jobs, by their requirements, run only at UK; they have the lane with the fewest jobs."""
    others = {JobGroup(X): {2: 4, 0: 10, 1: 5}}
    seen = [opened(made)[DE] for made in play([{}] * 10, jobs={}, others=others)]
    assert seen[::2] == [{"t:x~2"}, {"t:x~1"}, {"t:x~0"}, {"t:x~2"}, {"t:x~1"}]


def test_link_that_stood_idle_has_twice_as_many_sets_when_their_leases_are_over():
    """Not more: a link would be flooded if the slots only see openings later than the daemon assumes."""
    sets = {SetKey(f"t:{n}"): at((UK, 75 * GB)) for n in range(300)}
    world = {"jobs": dict.fromkeys(sets, 1), "sets": sets}
    tried: set[str] = set()
    for number in range(1, 10, 2):
        before, tried = tried, tried | opened(rounds(number, **world))[DE]
        assert len(tried - before) == 2 ** (number // 2)


@pytest.mark.parametrize("size", [0, GB // 1000, 75 * GB])
def test_sets_that_no_slot_takes_never_fill_the_ad_of_a_site(size):
    """Each of 1,000 sets with long names has its turn, and then X, although an ad has room for 250."""
    sets = {SetKey(f"t:{n:0100}"): at((UK, size)) for n in range(1000)}
    tried: set[str] = set()
    for made in rounds_until_x_joins(sets, at((UK, 100 * GB)), 34):
        line = dict(write_openings(made.openings[DE], 0))["DataLocalityOpen"]
        assert line.count("=") == len(made.openings[DE])
        tried |= opened(made).get(DE, set())
    assert tried == {*sets, X}


def test_sets_of_one_link_leave_the_ad_of_a_site_room_for_a_set_of_another():
    """The sets of UK, where more jobs wait, are first, and are open until an ad has no more room for them."""
    sets = {SetKey(f"t:{n:0100}"): at((UK, 0)) for n in range(300)}
    world = {"jobs": dict.fromkeys([*sets, X], 1), "sets": {**sets, X: at((NL, GB))}}
    names = opened(rounds(1, sites={UK: slots(0, 1), NL: slots(0, 1), DE: slots(4)}, **world))[DE]
    assert X in names
    assert len(names) < len(sets)


def test_sets_that_slots_refused_have_room_in_an_ad_that_others_fill():
    """A third of the sets was open first, and refused; those that were not open yet fill the ad."""
    sets = {SetKey(f"t:{n:0100}"): at((UK, 0)) for n in range(400)}
    world = {"jobs": dict.fromkeys(sets, 1), "sets": sets}
    first, last = (opened(rounds(count, **world))[DE] for count in (1, 3))
    assert len(last - first) == len(first)
    assert last & first


def test_sets_whose_data_no_site_has_do_not_fill_the_ad_of_a_site():
    sets = {SetKey(f"t:{n:0100}"): NONE for n in range(300)}
    names = opened(rounds(11, sites={DE: slots(4)}, jobs=dict.fromkeys(sets, 1), sets=sets))[DE]
    assert len(names) < len(sets)


def test_round_leaves_no_jobs_to_the_garbage_collector():
    sets = {SetKey(f"t:{n}"): at((UK, 75 * GB)) for n in range(200)}
    given = pool({UK: slots(0, 1), DE: slots(4)}, dict.fromkeys(sets, 1), sets)
    gc.collect()
    gc.disable()
    try:
        pace(given, PacingMemory(), now=0.0, interval_seconds=60, lateness_seconds=30)
        assert gc.collect() < len(sets)
    finally:
        gc.enable()

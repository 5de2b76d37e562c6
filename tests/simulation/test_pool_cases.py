"""Cases that users of pools reported, by their numbers: the daemon, hooks and jobs of one pool together.

P5 is the schedd's own doing (tests/integration/test_starving.py), and P8 is about records of ended jobs
(tests/unit/diagnostics/test_outcomes.py). What ``why`` says of P1 to P6 is in tests/unit/diagnostics.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from hydrator.domain.model import Did, QueuedJobs, ScheddDemand, Site, to_unix
from hydrator.domain.ports import (
    ONE_CORE,
    IdleJobs,
    PoolSnapshot,
    Resources,
    RunningJobs,
    ScheddLoad,
    ScheddQueue,
    SlotGroup,
)
from tests.simulation.jobs import CYCLE_SECONDS, Job, Pool, Slot
from tests.simulation.parts import SimulatedPool, key_of
from tests.simulation.truth import Truth
from tests.simulation.world import EPOCH, UPDATE_SECONDS, Hook, World

UK, DE, PL, NL, CLOUD = map(Site, ("UK", "DE", "PL", "NL", "CLOUD"))
BIG, CALIBRATION = Did("x:big"), Did("x:cal")
GB = 10**9
POLL_SECONDS = HOOK_SECONDS = 60.0
STARTS_WITHIN_SECONDS = 2 * POLL_SECONDS + HOOK_SECONDS + CYCLE_SECONDS + 10
"""Two intervals of the daemon until the set is open, then the hook, the negotiator and some latency."""


@dataclass(frozen=True)
class Slots:
    """Slots of the size ``each``: ``kind`` says why they take no job, if they do not."""

    count: int
    kind: str = ""
    each: Resources = ONE_CORE

    @property
    def is_shown(self) -> bool:
        """Return False for slots that take no jobs, which the pool's reader leaves out."""
        return self.kind not in {"broken", "draining"}

    def group(self, site: Site) -> SlotGroup:
        free = Resources(0, self.each.memory_mib) if self.kind == "busy" else self.each
        return SlotGroup(site, self.each, free, self.count)


class CountedPool(SimulatedPool):
    """The jobs and slots as they are, in place of a free slot at each site."""

    groups: Sequence[SlotGroup] = ()
    request = ONE_CORE

    def read_snapshot(self, *, waits: bool = False) -> PoolSnapshot:
        self._step()
        pool, now = self._world.pool, self._world.loop.now
        assert pool is not None
        waiting = [job for job in pool.jobs if job.started_at is None and job.submitted_at <= now]
        counts = Counter(job.dids for job in waiting)
        jobs = tuple(QueuedJobs(tuple(dids), count, key_of(dids)) for dids, count in counts.items())
        self._world.laws.note_demand("ap1", jobs)
        idle = tuple(IdleJobs(one.job_count, one.key, request=self.request) for one in jobs)
        queue = ScheddQueue(ScheddDemand(self._world.clock(), jobs), ScheddLoad(idle))
        self.last = PoolSnapshot(self._world.clock(), {"ap1": queue}, {}, tuple(self.groups))
        return self.last


@dataclass(frozen=True)
class Case:
    """A pool: its slots by site, the site and bytes of each dataset, and the jobs that need all of them."""

    slots: Mapping[Site, Sequence[Slots]]
    held: Mapping[Did, tuple[Site, int]]
    expected: Site
    jobs: int = 1
    links: Mapping[Site, float] = field(default_factory=dict)
    request: Resources = ONE_CORE
    excluded_sources: Sequence[Site] = ()
    within_seconds: float = STARTS_WITHIN_SECONDS

    def run(self) -> list[Job]:
        """Run the pool for ten minutes; return its jobs."""
        world = self.build()
        world.run(600.0)
        assert world.laws.broken == []
        assert world.pool is not None
        return world.pool.jobs

    def build(self) -> World:
        """Return the pool before it runs."""
        dids, sites = tuple(self.held), frozenset({UK, DE, PL, NL} & self.slots.keys())
        truth = Truth(
            {"rucio": sites},
            {did: size for did, (_, size) in self.held.items()},
            {"rucio": {did: {site: 1.0} for did, (site, _) in self.held.items()}},
            {"ap1": {dids: self.jobs}},
        )
        links = [
            {"source": UK, "destination": site, "gbit_per_second": rate} for site, rate in self.links.items()
        ]
        settings = {
            "daemon": {"poll_seconds": int(POLL_SECONDS)},
            "removal_guard": {"confirm_polls": 4},
            "publish": {"http": {"enabled": True}},
            "demand": {"pins": [], "patterns": []},
            "network": {"links": links, "excluded_sources": list(self.excluded_sources)},
        }
        world = World(1, truth, (), (), [settings])
        world.hooks = [Hook(world, site, "http", HOOK_SECONDS) for site in self.slots]
        groups = [each.group(site) for site, all_ in self.slots.items() for each in all_ if each.is_shown]
        world.pool_part = type("PoolOfCase", (CountedPool,), {"groups": groups, "request": self.request})
        slots = [
            Slot(
                *(hook.site, hook, 1e9 if each.kind == "busy" else 0.0),
                takes_jobs=each.kind in {"", "busy"} and bool(self.request.count_in(each.each)),
            )
            for hook in world.hooks
            for each in self.slots[hook.site]
            for _ in range(each.count)
        ]
        world.pool = Pool(world, [Job(dids, "auto", 0.0, 10**6, 1e9) for _ in range(self.jobs)], slots)
        return world


CASES = {
    "P1: START of the free slots beside the data refuses the job": Case(
        {UK: [Slots(4, "refusing")], DE: [Slots(4)]}, {BIG: (UK, 75 * GB)}, DE
    ),
    **{
        f"P1: the free slots beside the data have too little {name}": Case(
            {UK: [Slots(4, each=small)], DE: [Slots(8, each=large)]},
            {BIG: (UK, 75 * GB)},
            DE,
            request=asked,
        )
        for name, small, large, asked in (
            ("memory", Resources(1, 1000.0), Resources(1, 8000.0), Resources(1, 2000.0)),
            ("disk", Resources(1, 0, 10**5), Resources(1, 0, 10**7), Resources(1, 0, 10**6)),
            ("of all cores", Resources(2), Resources(8), Resources(4)),
            ("GPUs", Resources(8), Resources(8, 0, 0, 1), Resources(1, 0, 0, 1)),
        )
    },
    "P1: a slot beside the data takes no job of its set, one that is busy would": Case(
        {UK: [Slots(2, "refusing"), Slots(1, "busy")], DE: [Slots(4)]}, {BIG: (UK, 75 * GB)}, DE
    ),
    "P1: the nearest slots elsewhere refuse the job": Case(
        {UK: [Slots(1, "busy")], DE: [Slots(4, "refusing")], PL: [Slots(1)]},
        {BIG: (UK, 75 * GB)},
        PL,
        links={DE: 10.0},
        within_seconds=2 * STARTS_WITHIN_SECONDS + 300,
    ),
    "P2: the slots beside the data drain": Case(
        {NL: [Slots(4, "draining")], DE: [Slots(8)]}, {BIG: (NL, 200 * GB)}, DE
    ),
    "P2: the nearest slots elsewhere are broken": Case(
        {UK: [Slots(1, "busy")], DE: [Slots(4, "broken")], PL: [Slots(1)]},
        {BIG: (UK, 75 * GB)},
        PL,
        links={DE: 10.0},
    ),
    "P2: the only slot beside the data is broken": Case(
        {NL: [Slots(1, "broken")], DE: [Slots(8)]}, {BIG: (NL, 200 * GB)}, DE
    ),
    "P2: a broken slot beside busy cores changes nothing": Case(
        {NL: [Slots(2, "busy"), Slots(1, "broken")], DE: [Slots(8)]}, {BIG: (NL, 200 * GB)}, DE, jobs=4
    ),
    "P3: a site that no catalogue lists is nearer than those with a storage": Case(
        {UK: [Slots(2, "busy")], DE: [Slots(4)], PL: [Slots(2)], CLOUD: [Slots(24)]},
        {BIG: (UK, 10 * GB)},
        CLOUD,
        jobs=20,
        links={CLOUD: 10.0},
    ),
    "P3: only a site that no catalogue lists has free slots": Case(
        {UK: [Slots(2, "busy")], CLOUD: [Slots(1)]}, {BIG: (UK, 500 * GB)}, CLOUD
    ),
    "P3: the data is at a site without slots": Case(
        {DE: [Slots(1, "busy")], CLOUD: [Slots(4)]}, {BIG: (UK, 10 * GB)}, CLOUD, jobs=4, links={CLOUD: 10.0}
    ),
    "P4: a small file at another site decides nothing": Case(
        {UK: [Slots(4)], DE: [Slots(4)]}, {BIG: (DE, 500 * GB), CALIBRATION: (UK, GB // 100)}, DE
    ),
    "P7: 64 short reads of one set": Case(
        {UK: [Slots(1, "busy")], DE: [Slots(64)]}, {BIG: (UK, 5 * GB)}, DE, jobs=64, links={DE: 10.0}
    ),
    "P7: 64 reads of 1 MB": Case({UK: [Slots(1, "busy")], DE: [Slots(64)]}, {BIG: (UK, 10**6)}, DE, jobs=64),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_jobs_of_a_case_start_together_where_they_should(case):
    jobs = case.run()
    assert {job.site for job in jobs} == {case.expected}
    (started_at,) = {job.started_at for job in jobs}
    assert started_at is not None
    assert started_at <= case.within_seconds


def test_p3_nothing_is_read_from_a_site_that_is_excluded_as_a_source():
    """Its jobs wait for its own slots, which come free at 400 s."""
    slots = {UK: [Slots(1)], CLOUD: [Slots(8)]}
    world = Case(slots, {BIG: (UK, GB)}, UK, excluded_sources=[UK]).build()
    (home,) = (slot for slot in world.pool.slots if slot.site == UK)
    home.busy_until = 400.0
    world.run(600.0)
    assert world.laws.broken == []
    (job,) = world.pool.jobs
    assert (job.site, job.started_at) == (UK, 420.0)


OVER = "a job started without its data because its time was over"


@pytest.mark.parametrize(
    ("mode", "site", "why"),
    [("wait", DE, OVER), ("auto", DE, OVER), ("require", UK, "a job (require) started beside its data")],
)
def test_p6_a_wait_that_ended_while_the_job_was_on_hold_is_over(mode, site, why):
    """UK is full until 400 s. The job's wait of 40 s began before its release at 300 s.

    The daemon knows of no other job with this set, so it does not pace that of the mode auto.
    """
    world = Case({UK: [Slots(1)], DE: [Slots(8)]}, {BIG: (UK, 500 * GB)}, UK).build()
    (home,) = (slot for slot in world.pool.slots if slot.site == UK)
    home.busy_until = 400.0
    job = Job((BIG,), mode, 300.0, 40, 1e9, any_after=to_unix(EPOCH) + 40)
    world.pool = replace(world.pool, jobs=[job])
    world.run(600.0)
    assert "jobs" not in {
        law for law, _ in world.laws.broken
    }  # the daemon asks about no job that has started
    assert (job.site, world.laws.events[why]) == (site, 1)


def test_jobs_of_two_users_whose_datasets_differ_in_letter_case_only_start_after_ten_minutes():
    """No ad can show where either is, so they are treated like data that no site has."""
    held = {BIG: (UK, GB), Did(BIG.upper().replace("X:", "x:")): (UK, GB)}
    world = Case({UK: [Slots(4)], DE: [Slots(8)]}, held, UK).build()
    jobs = [Job((did,), "auto", 0.0, 10**6, 100.0, any_after=to_unix(EPOCH) + 10**6) for did in held]
    world.pool = replace(world.pool, jobs=jobs)
    world.run(900.0)
    assert all(job.started_at and 600 <= job.started_at <= 800 for job in jobs), jobs


def test_p9_a_slot_is_updated_once_a_change_and_one_of_23_9_at_its_interval():
    """25.14 sends the ad when the hook says ``update:true``; 23.9 ignores that, but its own ad has it."""
    case = Case({UK: [Slots(1, "busy")]}, {BIG: (UK, GB), CALIBRATION: (UK, GB)}, UK)
    world, changed_at = case.build(), 310.0
    whole, partly = world.truth, world.truth.with_share("rucio", CALIBRATION, UK, 0.5)
    world = World(1, partly, [(changed_at, "x:cal is whole", lambda _: whole)], (), world.configurations)
    new, old = world.hooks = [Hook(world, UK, "file", HOOK_SECONDS) for _ in range(2)]
    old.is_obeyed = False
    seen = {}

    def look(at: float) -> None:
        ads = (new.shown, new.collected, old.shown, old.collected)
        seen[at] = [CALIBRATION in ad.values["AvailableDatasets"] for ad in ads]

    times = (changed_at - 1, changed_at + POLL_SECONDS + HOOK_SECONDS + 10, changed_at + UPDATE_SECONDS + 10)
    world.at_times([(at, lambda at=at: look(at)) for at in times])
    world.run(900.0)
    assert world.laws.broken == []
    assert list(seen.values()) == [[False] * 4, [True, True, True, False], [True] * 4]
    first, second = new.updates
    assert first < changed_at < second <= times[1]
    assert old.updates == pytest.approx(new.updates, abs=HOOK_SECONDS)


class SilentPool(CountedPool):
    """The schedd of the jobs, ap1, answers for ``seen_seconds`` only; then it is silent, or not listed.

    The other one has ``others`` running jobs of the same set.
    """

    seen_seconds = 0.0
    others = 0

    def read_snapshot(self, *, waits: bool = False) -> PoolSnapshot:
        shown = super().read_snapshot(waits=waits)
        key, started_at = key_of((BIG,)), (to_unix(EPOCH),) * self.others
        queued = ScheddDemand(self._world.clock(), (QueuedJobs((BIG,), self.others, key),) * self.others)
        running = (RunningJobs(started_at, UK, key, offer="local"),) * self.others
        other = ScheddQueue(queued, ScheddLoad((), running))
        queues, silent = {"ap2": other}, {}
        if self.seen_seconds:
            is_seen = self._world.loop.now < self.seen_seconds
            self._kept = shown.queues["ap1"] if is_seen else self._kept
            queues["ap1"], silent = self._kept, {} if is_seen else {"ap1": "no answer in time"}
        self.last = replace(shown, queues=queues, silent=silent)
        return self.last


@pytest.mark.parametrize(
    ("seen_seconds", "pins", "others"),
    [(100.0, [], 0), (0.0, [BIG], 0), (0.0, [], 1)],
    ids=["silent", "not listed, but a pin", "not listed, but a running job"],
)
def test_auto_job_of_a_schedd_that_the_daemon_does_not_see_starts_elsewhere(seen_seconds, pins, others):
    """Its data is at a full site, a slot elsewhere is free after its wait, and another schedd answers."""
    world = Case({UK: [Slots(1, "busy")], DE: [Slots(1)]}, {BIG: (UK, 500 * GB)}, DE).build()
    world.configurations[0]["demand"]["pins"] = pins
    if not seen_seconds:
        world.truth.queues["ap1"].clear()  # nobody can see it
    assert world.pool is not None
    parts = {"groups": world.pool_part.groups, "request": world.pool_part.request}
    world.pool_part = type(
        "ThisPool", (SilentPool,), {**parts, "seen_seconds": seen_seconds, "others": others}
    )
    job = Job((BIG,), "auto", 0.0, 600, 1e9, any_after=to_unix(EPOCH) + 600)
    world.pool = replace(world.pool, jobs=[job])
    for slot in world.pool.slots:
        slot.busy_until = 900.0 if slot.site == DE else slot.busy_until
    world.run(1800.0)
    assert world.laws.broken == []
    assert job.site == DE

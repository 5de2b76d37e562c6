"""Laws of pacing over random pools, in virtual time: no link rests or is flooded, and no job is trapped."""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.openings import Openings
from hydrator.domain.model import Site
from hydrator.domain.ports import ONE_CORE, Resources, SlotGroup
from hydrator.reconcile.paced_pool import JobGroup, PacedPool, RunningRead, SetBytes
from hydrator.reconcile.pacing import PacingMemory, pace

INTERVAL = 60.0
NO_SLOT = Resources(0.0)


@dataclass(frozen=True)
class Job:
    """A job of one core; slots at sites that it ``refuses`` look free but do not take it."""

    key: SetKey
    run: float = 900.0
    at: float = 0.0
    lane: int = 0
    priority: int = 0
    refuses: frozenset[Site] = frozenset()


@dataclass(frozen=True)
class World:
    """Jobs, sets (bytes by holders), slots by site, and bytes/s that all readers of a source share."""

    jobs: Sequence[Job]
    sets: Mapping[SetKey, Mapping[tuple[Site, ...], int]]
    slots: Mapping[Site, int]
    links: Mapping[Site, float]

    def parts(self, job: Job, site: Site, chosen: Site | None = None) -> list[tuple[Site, float]]:
        """Return the reads of *job* at *site*, in order: source (*chosen*, else the fastest), bytes."""
        missing = [(holders, size) for holders, size in self.sets[job.key].items() if site not in holders]
        speeds = {source: (source == chosen, rate) for source, rate in self.links.items()}
        return [(max(holders, key=lambda one: speeds[one]), float(size)) for holders, size in missing]


@dataclass
class Run:
    """A running job: when it started, what is left to read, and when it ends computing."""

    job: Job
    slot: int
    start: float
    parts: list[tuple[Site, float]]
    left: list[tuple[Site, float]]
    ends: float = inf


@dataclass
class Model:
    """A pool in virtual time. Slots take jobs beside their data first, then open ones; unpaced, the first."""

    world: World
    is_paced: bool = True
    lateness: float = 60.0
    rate_error: float = 1.0
    snapshot_age: float = 0.0
    now: float = 0.0
    waiting: list[Job] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    turnarounds: list[float] = field(default_factory=list)
    longest_wait: float = 0.0
    most_asked_seconds: float = 0.0

    def simulate(self, limit: float = inf) -> "Model":
        world, memory = self.world, PacingMemory()
        self.sites = [site for site, count in world.slots.items() for _ in range(count)]
        self.free_at = [0.0] * len(self.sites)
        arrivals = sorted(world.jobs, key=lambda job: job.at)
        arriving: list[tuple[float, Openings]] = []
        snapshots: list[PacedPool] = []
        shown: Openings | None = None
        next_round = 0.0
        self.usable_since: dict[SetKey, float] = {}
        while len(self.turnarounds) < len(world.jobs) and self.now < limit:
            while arrivals and arrivals[0].at <= self.now:
                self.waiting.append(arrivals.pop(0))
                self.waiting.sort(key=lambda job: (-job.priority, job.at))
            if self.is_paced and self.now >= next_round:
                snapshots.append(self.look())
                seen = [each for each in snapshots if each.as_of <= self.now - self.snapshot_age]
                pool = seen[-1] if seen else replace(snapshots[0], waiting={})
                times = {"interval_seconds": INTERVAL, "lateness_seconds": self.lateness}
                made, memory = pace(pool, memory, now=self.now, **times)
                next_round = self.now + INTERVAL
                arriving.append((self.now + self.lateness, made))
            while arriving and arriving[0][0] <= self.now:
                shown = arriving.pop(0)[1]
            for slot, site in enumerate(self.sites):
                job = self.choose(site, shown) if self.free_at[slot] <= self.now else None
                if job is not None:
                    names = shown.openings.get(site, {}) if shown is not None else {}
                    opening = names.get(job.key) or names.get(f"{job.key}~{job.lane}")
                    self.start(job, slot, opening.source if opening is not None else None)
            users = Counter(run.left[0][0] for run in self.runs if run.left)
            self.measure(Counter(source for run in self.runs for source, _ in run.left))
            times_ahead = [next_round] if self.is_paced else []
            times_ahead += [run.ends for run in self.runs if not run.left] + [job.at for job in arrivals[:1]]
            times_ahead += [at for at in self.free_at if self.now < at < inf] + [at for at, _ in arriving[:1]]
            for run in self.runs:
                if run.left:
                    source, size = run.left[0]
                    times_ahead.append(self.now + size * users[source] / world.links[source])
            self.advance(min(times_ahead), users)
        return self

    def look(self) -> PacedPool:
        lanes: defaultdict[SetKey, Counter[int]] = defaultdict(Counter)
        for job in self.waiting:
            lanes[job.key][job.lane] += 1
        free = Counter(site for slot, site in enumerate(self.sites) if self.free_at[slot] <= self.now)
        slots = [SlotGroup(site, ONE_CORE, ONE_CORE, free[site]) for site in self.world.slots]
        slots += [SlotGroup(site, ONE_CORE, NO_SLOT, n - free[site]) for site, n in self.world.slots.items()]
        rates = {source: rate * self.rate_error for source, rate in self.world.links.items()}
        reads = [
            RunningRead(run.job.key, source, self.sites[run.slot], size / rates[source], run.start)
            for run in self.runs
            for source, size in run.parts
        ]
        sets = {key: SetBytes(on_disk) for key, on_disk in self.world.sets.items()}
        jobs = {JobGroup(key): each for key, each in lanes.items()}
        mean = fmean(job.run for job in self.world.jobs)
        return PacedPool(self.now, jobs, sets, slots, reads, lambda source, _: rates[source], mean)

    def choose(self, site: Site, shown: Openings | None) -> Job | None:
        takers = [job for job in self.waiting if site not in job.refuses]
        if not self.is_paced:
            return takers[0] if takers else None
        is_valid = shown is not None and self.now <= shown.open_until
        names = shown.openings.get(site, {}) if shown is not None and is_valid else {}
        local = (job for job in takers if not self.world.parts(job, site))
        opened = (job for job in takers if job.key in names or f"{job.key}~{job.lane}" in names)
        return next(local, None) or next(opened, None)

    def start(self, job: Job, slot: int, chosen: Site | None) -> None:
        self.waiting.remove(job)
        self.usable_since.pop(job.key, None)
        self.free_at[slot] = inf
        parts = self.world.parts(job, self.sites[slot], chosen)
        run = Run(job, slot, self.now, parts, list(parts), inf if parts else self.now + job.run)
        self.runs.append(run)
        for source, size in parts:
            seconds = sum(size for each in self.runs for by, size in each.left if by == source)
            self.most_asked_seconds = max(self.most_asked_seconds, seconds / self.world.links[source])

    def measure(self, users: Counter[Site]) -> None:
        """Note how long a set has waited for a start, while it could read over idle links on a free slot.

        A link is idle if no running job has still to read from its source: nobody sees in which order a job
        reads its parts.
        """
        free = {site for slot, site in enumerate(self.sites) if self.free_at[slot] <= self.now}
        usable = {
            job.key
            for job in self.waiting
            for site in free - job.refuses
            if not any(users[source] for source, _ in self.world.parts(job, site))
        }
        self.usable_since = {key: self.usable_since.get(key, self.now) for key in usable}
        self.longest_wait = max(self.longest_wait, *(self.now - at for at in self.usable_since.values()), 0)

    def advance(self, until: float, users: Counter[Site]) -> None:
        for run in self.runs:
            if run.left:
                source, size = run.left[0]
                size -= (until - self.now) * self.world.links[source] / users[source]
                run.left[0] = source, size
                if size < 1:
                    run.left.pop(0)
                    if not run.left:
                        run.ends = until + run.job.run
        self.now = until
        for run in [run for run in self.runs if run.ends <= until]:
            self.runs.remove(run)
            self.free_at[run.slot] = until + 1
            self.turnarounds.append(until - run.job.at)


SITES = tuple(Site(name) for name in "ABCD")
SHARES = {"62/32/6": (0.62, 0.32), "even": (1 / 3, 1 / 3)}
GB = 10**9
OFTEN_LONG, SHORT = (70.0, 150.0, 400.0, 1500.0), (1.0, 5.0, 20.0)


def lane_of(number: int) -> int:
    return (number & -number).bit_length() - 1


@st.composite
def worlds(
    draw: st.DrawFn, lone: st.SearchStrategy[float], sizes: tuple[int, ...], *, refusing: bool = False
) -> World:
    """Draw a pool; *lone* are the seconds in which a link gives one dataset, *sizes* the jobs of a set.

    The last site has slots and, like half of the others, no data.
    """
    sites = SITES[: draw(st.integers(2, 4))]
    holders = st.lists(st.sampled_from(sites[:-1]), min_size=1, max_size=2, unique=True).map(tuple)
    slots = {site: draw(st.integers(site in sites[-1:], 4)) for site in sites}
    sets, jobs = {}, []
    for number in range(draw(st.integers(1, 6))):
        key = SetKey(f"s{number}")
        sets[key] = dict.fromkeys(draw(st.lists(holders, min_size=1, max_size=2, unique=True)), GB)
        refuses = frozenset(draw(st.sets(st.sampled_from(sites)))) if refusing else frozenset()
        takers = [site for site in sites if slots[site] and site not in refuses]
        alike = draw(st.integers(1, 3))  # 2, 3: each second, or third, of the jobs is refused
        times = (
            draw(st.sampled_from([100.0, 600.0, 3000.0])),
            draw(st.sampled_from([0.0, 0.0, 500.0, 2000.0])),
        )
        jobs += [
            Job(
                *(key, *times, lane_of(n + 1), draw(st.integers(0, 1))),
                refuses if takers and n % alike == 0 else frozenset(),
            )
            for n in range(draw(st.sampled_from(sizes)))
        ]
    return World(jobs, sets, slots, {site: GB / draw(lone) for site in sites})


rate_errors = st.sampled_from([0.1, 1.0, 10.0])
latenesses = st.sampled_from([0.0, 20.0, 60.0, 300.0])
long_reads = st.sampled_from(OFTEN_LONG)
reads = st.sampled_from(OFTEN_LONG + SHORT)


def sum_lane(world: World) -> float:
    """Return the most seconds that a link needs for the jobs of one lane."""
    lanes = Counter((job.key, job.lane) for job in world.jobs)
    longest = max(len(world.sets[job.key]) * GB / rate for job in world.jobs for rate in world.links.values())
    return max(lanes.values()) * longest


@given(worlds(reads, (1, 1, 2, 16)), latenesses, rate_errors)
def test_no_set_waits_beside_an_idle_link_and_a_free_slot(world, lateness, rate_error):
    """A set waits for two rounds and the lateness, and once more if its opening was lost.

    An opening is lost if another open set took the slot, or if its job started beside its data and kept
    the link reserved for nothing. A link that is believed slower than it is seems busy for longer.
    """
    model = Model(world, lateness=lateness, rate_error=rate_error).simulate()
    room = INTERVAL + lateness
    seems_busy = room + sum_lane(world) / rate_error if rate_error < 1 else 0.0
    assert model.longest_wait <= 2 * INTERVAL + lateness + room + seems_busy


@given(worlds(long_reads, (1, 1, 2, 16)), latenesses, st.sampled_from([0.1, 1.0]))
def test_no_link_is_given_more_than_its_room_and_one_set(world, lateness, rate_error):
    """A link that is believed faster than it is gets more, as long as slots take the jobs."""
    model = Model(world, lateness=lateness, rate_error=rate_error).simulate()
    assert model.most_asked_seconds <= INTERVAL + lateness + sum_lane(world)


@given(
    worlds(reads, (1, 1, 2, 16), refusing=True), latenesses, rate_errors, st.sampled_from([0.0, 3600.0])
)  # fmt: skip
def test_no_job_waits_for_ever(world, lateness, rate_error, snapshot_age):
    """Slots refuse, rates are wrong by ten, the snapshot is an hour old, one user is always first."""
    longest = sum(GB / rate for rate in world.links.values())
    work = sum(job.run + 2 * longest * max(1.0, 1 / rate_error) for job in world.jobs)
    rounds = (2 + len(world.jobs)) * 4 * (INTERVAL + lateness + snapshot_age)
    model = Model(world, True, lateness, rate_error, snapshot_age).simulate(2000 + work + rounds)
    assert not model.waiting


def benefit(layout: str, x: float, *, is_stream: bool, seed: int) -> World:
    """Return 120 jobs of 900 s on 12 slots; each reads one of 120 datasets, alone x times as long."""
    random_ = random.Random(f"{layout} {seed}")
    counts = [round(120 * share) for share in SHARES[layout]]
    homes = [SITES[0]] * counts[0] + [SITES[1]] * counts[1] + [SITES[2]] * (120 - sum(counts))
    jobs, at = [], 0.0
    for number in range(120):
        at += random_.expovariate(12 * 0.8 / 900) if is_stream else 0.0
        jobs.append(Job(SetKey(f"d{random_.randrange(120)}"), at=at, lane=lane_of(number + 1)))
    sets = {SetKey(f"d{number}"): {(home,): GB} for number, home in enumerate(homes)}
    return World(jobs, sets, dict.fromkeys(SITES[:3], 4), dict.fromkeys(SITES[:3], GB / (x * 900)))


@dataclass
class AtOnce(Model):
    """Each set is open everywhere as soon as an opening can arrive: the best that openings by name can do."""

    is_paced: bool = False

    def choose(self, site: Site, _: Openings | None) -> Job | None:
        local = (job for job in self.waiting if not self.world.parts(job, site))
        arrived = (job for job in self.waiting if job.at + self.lateness <= self.now)
        return next(local, None) or next(arrived, None)

    def advance(self, until: float, users: Counter[Site]) -> None:
        due = (job.at + self.lateness for job in self.waiting)
        super().advance(min([until, *(at for at in due if at > self.now)]), users)


@pytest.mark.parametrize("layout", SHARES)
@pytest.mark.parametrize("lateness", [60.0, 150.0, 300.0])
def test_short_reads_in_a_stream_are_open_almost_at_once(layout, lateness):
    """Turnarounds are 12 % longer than without us if openings arrive a third of a job late.

    No set can be open before its first job was seen.
    """
    worlds_ = [benefit(layout, 0.02, is_stream=True, seed=seed) for seed in (1, 2, 3)]
    ours, best = (
        [kind(world, lateness=lateness).simulate() for world in worlds_] for kind in (Model, AtOnce)
    )
    mean = [fmean(t for each in models for t in each.turnarounds) for models in (ours, best)]
    assert mean[0] <= 1.02 * mean[1]


@pytest.mark.parametrize(
    ("layout", "rate_error", "least"),
    [
        ("62/32/6", 1.0, 0.97),
        ("even", 1.0, 0.97),
        ("62/32/6", 10.0, 0.97),
        ("62/32/6", 0.1, 0.8),  # short reads seem long, until three of them were measured
    ],
)
@pytest.mark.parametrize("x", [0.02, 0.05, 0.5, 2.0])
@pytest.mark.parametrize("is_stream", [False, True])
def test_pool_is_not_slower_than_without_us(layout, rate_error, least, x, is_stream):
    worlds_ = [benefit(layout, x, is_stream=is_stream, seed=seed) for seed in (1, 2)]
    ours = [Model(world, rate_error=rate_error).simulate() for world in worlds_]
    theirs = [Model(world, is_paced=False).simulate() for world in worlds_]
    assert sum(each.now for each in theirs) / sum(each.now for each in ours) >= least
    mean = [fmean(t for each in models for t in each.turnarounds) for models in (theirs, ours)]
    assert mean[0] / mean[1] >= least - (0.02 if rate_error >= 1 else 0.15) * is_stream

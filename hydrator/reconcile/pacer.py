"""Openings of a cycle: what :func:`hydrator.reconcile.pacing.pace` needs, from the snapshot and the pool.

:class:`Pacer` keeps what one round tells the next. The functions are pure.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import chain
from statistics import fmean, median
from typing import Final

from hydrator.config import Settings
from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.openings import PacedCycle, parse_offer
from hydrator.domain.bugs import BugReporter
from hydrator.domain.model import DatasetState, Demand, Did, Site, Snapshot, Unseen, from_unix, to_unix
from hydrator.domain.network import FindRate
from hydrator.domain.ports import MAX_LOAD_AGE, PoolLoad
from hydrator.domain.text import group_pairs
from hydrator.domain.untrusted import MAX_CLOCK_SKEW
from hydrator.reconcile.paced_pool import JobGroup, PacedPool, RunningRead, SetBytes, find_reads, find_sources
from hydrator.reconcile.pacing import PacingMemory, pace
from hydrator.reconcile.rates import RateTable

DEFAULT_RUN_SECONDS: Final = 3600.0
DEFAULT_BYTES: Final = 10**9
"""The size of a set of which no catalogue says the size, in a pool without any known size."""
LATENESS_INTERVALS: Final = 4
"""The intervals until an opening is used, before this time was measured: a period of the hook, a negotiation.

A test pool with an interval of seconds has all other times shorter, too, also its jobs and reads.
"""
MIN_LATENESS_SECONDS, MAX_LATENESS_SECONDS = 10.0, 300.0
"""The bounds of the measured time; a startd of HTCondor 23 shows an opening after UPDATE_INTERVAL, 300 s."""
MAX_INTERVAL_SECONDS: Final = 600.0
KEEP_WAITING: Final = timedelta(hours=1)
"""A set counts as waited for so long after its last idle job: ads shall not change with each job."""
_MIN_SAMPLES, _MAX_SAMPLES = 3, 50
_MAX_RUN_SECONDS: Final = 365 * 86400.0
"""A job whose start is further back did not start then."""
_MOVING = frozenset({DatasetState.STAGING, DatasetState.UNAVAILABLE, DatasetState.UNKNOWN})
"""States of a dataset that may soon be readable: a set with such a dataset waits longer for it."""


def read_sets(snapshot: Snapshot, demand: Demand, keys: Collection[str]) -> dict[SetKey, SetBytes]:
    """Return the bytes of the demanded sets with these *keys*, by the sites that have them on disk.

    Left out are sets with a dataset that no catalogue has answered for. One whose DID collides in letter case
    is nowhere, as no ad can show where it is. A dataset of unknown size counts as a typical one.
    """
    sets = {
        entry.key: entry.dids
        for entry in reversed(demand.entries)
        if entry.key is not None and entry.key in keys and snapshot.unread_dids.isdisjoint(entry.dids)
    }
    holders, parts, moving = _find_copies(snapshot, frozenset(did for each in sets.values() for did in each))
    known = snapshot.bytes_total
    typical = round(median(known.values())) if known else DEFAULT_BYTES
    found = {}
    for key, dids in sets.items():
        on_disk: defaultdict[tuple[Site, ...], int] = defaultdict(int)  # quicker than a Counter
        partial: defaultdict[Site, int] = defaultdict(int)
        for did in dids:
            size, sites = known.get(did, typical), tuple(holders.get(did, ()))
            on_disk[sites] += size
            for site, part in parts.get(did, {}).items() if sites else ():
                partial[site] += round(part * size)
        found[key] = SetBytes(on_disk, partial, not moving.isdisjoint(dids))
    return found


def _find_copies(
    snapshot: Snapshot, dids: AbstractSet[Did]
) -> tuple[Mapping[Did, list[Site]], Mapping[Did, Mapping[Site, float]], AbstractSet[Did]]:
    """Return the sites with each of *dids* on disk, the shares at others, and those that are on their way."""
    holders: defaultdict[Did, list[Site]] = defaultdict(list)
    parts: defaultdict[Did, dict[Site, float]] = defaultdict(dict)
    moving: set[Did] = set()
    for site, facts in sorted(snapshot.sites.items()):
        for did, fact in facts.facts.items():
            if did not in dids:
                continue
            if fact.state is DatasetState.AVAILABLE:
                holders[did].append(site)
                continue
            if fact.fraction:
                parts[did][site] = min(1.0, fact.fraction)
            if fact.state in _MOVING:
                moving.add(did)
    for did in chain.from_iterable(snapshot.case_collisions):
        holders.pop(did, None)
    return holders, parts, moving - holders.keys()


def read_reads(load: PoolLoad, sets: Mapping[SetKey, SetBytes], find_rate: FindRate) -> list[RunningRead]:
    """Return the running jobs that started with a read, as their slots offered it.

    A job that did not wait for an offer reads what its site lacks, from the fastest sources. A user can write
    any offer into a job. So it counts only for a demanded set, and for no longer than the whole set takes.
    """
    reads = []
    latest = to_unix(load.as_of + MAX_CLOCK_SKEW)
    parse = cache(parse_offer)
    for schedd in load.answers.values():
        for jobs in schedd.running:
            key, site, offer = SetKey(jobs.key or ""), jobs.site, parse(jobs.offer)
            if key not in sets or site is None or (offer and offer.is_local):
                continue
            parts: Iterable[tuple[Site, float]] = ()
            if offer is None or offer.source is None:
                parts = _find_parts(sets[key], site, find_rate)
            elif rate := find_rate(offer.source, site):
                most = sum(size for holders, size in sets[key].on_disk.items() if holders)
                seconds = min(float(offer.read_seconds), most / rate)
                parts = ((offer.source, seconds),)
            reads += [
                RunningRead(key, source, site, seconds, started_at - schedd.clock_ahead)
                for source, seconds in parts
                for started_at in jobs.started_at
                if started_at - schedd.clock_ahead <= latest
            ]
    return reads


def _find_parts(one: SetBytes, site: Site, find_rate: FindRate) -> Iterable[tuple[Site, float]]:
    """Return the seconds that a job at *site* reads from each source."""
    sources = {part: find_sources(find_rate, part, site) for part in one.on_disk if site not in part}
    (read,) = find_reads(one, [(site, {part: rates for part, rates in sources.items() if rates})])
    return read.by_source.items()


def read_waiting(load: PoolLoad) -> Mapping[JobGroup, Mapping[int, int]]:
    """Return the idle jobs of all schedds by group and lane."""
    waiting: defaultdict[JobGroup, Counter[int]] = defaultdict(Counter)
    for jobs in load.idle:
        if jobs.key is not None:
            waiting[JobGroup(SetKey(jobs.key), jobs.request, jobs.is_auto)][jobs.lane] += jobs.job_count
    return waiting


@dataclass(slots=True)
class _Figures:
    """Figures of the pool that are measured from one query to the next: run times, and the lateness."""

    run_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_SAMPLES))
    lateness: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_SAMPLES))
    _running: Counter[tuple[str, str | None, Site | None, int]] = field(default_factory=Counter)
    _used_leases: set[tuple[JobGroup, float]] = field(default_factory=set)

    def note_ended(self, load: PoolLoad) -> None:
        """Note the run times of the jobs that ran at the last query and do not run now."""
        now, answers = to_unix(load.as_of), load.answers
        running = Counter(
            (name, jobs.key, jobs.site, started_at - each.clock_ahead)
            for name, each in answers.items()
            for jobs in each.running
            for started_at in jobs.started_at
        )
        ended = self._running - running
        seconds = (max(1.0, now - one[-1]) for one in ended.elements() if one[0] in answers)
        self.run_seconds.extend(one for one in seconds if one < _MAX_RUN_SECONDS)
        self._running = running

    def find_run_seconds(self) -> float:
        """Return the mean run time of the last ended jobs, else the default."""
        return fmean(self.run_seconds) if self.run_seconds else DEFAULT_RUN_SECONDS

    def note_starts(self, memory: PacingMemory, reads: Iterable[RunningRead]) -> None:
        """Note how long after its opening the first job of each open set started."""
        reads_of = group_pairs((read.key, read) for read in reads)
        used, self._used_leases = self._used_leases, set()
        for group, lease in memory.leases.items():
            delays = [
                read.started_at - lease.opened_at
                for read in reads_of.get(group.key, ())
                if read.destination in lease.openings and read.started_at >= lease.opened_at
            ]
            if delays:
                self._used_leases.add((group, lease.opened_at))
                if (group, lease.opened_at) not in used:
                    self.lateness.append(min(delays))

    def find_lateness(self, interval_seconds: float) -> float:
        """Return the seconds after which an opening is used: the middle one of the last."""
        is_measured = len(self.lateness) >= _MIN_SAMPLES
        seconds = median(self.lateness) if is_measured else LATENESS_INTERVALS * interval_seconds
        return min(max(seconds, MIN_LATENESS_SECONDS), MAX_LATENESS_SECONDS)


class Pacer:
    """The openings of each cycle, made from the last snapshot of the pool.

    A bug stops no cycle: its ads keep their openings, which end by themselves.

    Args:
        settings: the configuration.
        find_rate: returns the transfer rates as of now; by default those of the configuration.
        bugs: counts and logs exceptions that no part should raise.
        last: the openings that the process before saved.
    """

    def __init__(
        self,
        settings: Settings,
        find_rate: FindRate | None = None,
        bugs: BugReporter | None = None,
        last: PacedCycle | None = None,
    ) -> None:
        self._settings = settings
        configured = RateTable(now=from_unix(0), network=settings.network)
        self._find_rate = find_rate or configured.bytes_per_second
        self._bugs = bugs or BugReporter()
        self._load: PoolLoad | None = None
        self._failure: str | None = None
        self._figures = _Figures()
        self._memory = PacingMemory(absent_since=last.absent_since if last else {})
        self._paced_load: PoolLoad | None = None
        self._paced_at: datetime | None = None
        self._waited_at: dict[SetKey, datetime] = {}
        self.last = PacedCycle()

    def update_load(self, load: PoolLoad | Unseen) -> None:
        """Use *load* from now on; without one, the last stays in use until it is MAX_LOAD_AGE old."""
        self._failure = load.reason if isinstance(load, Unseen) else None
        self._load = self._load if isinstance(load, Unseen) else load

    @property
    def last_load(self) -> PoolLoad | None:
        """Return the jobs and slots behind the openings in ``last``; None without openings."""
        return self._paced_load if self.last.openings else None

    @property
    def sites(self) -> frozenset[Site]:
        """Return the sites with slots in the last answer of the pool: each may have an ad."""
        return frozenset(group.site for group in self._load.slots) if self._load else frozenset()

    @property
    def has_new_load(self) -> bool:
        """Return True if no cycle has made openings from the jobs and slots yet."""
        return self._load is not self._paced_load

    def make(self, snapshot: Snapshot, demand: Demand, now: datetime) -> PacedCycle:
        """Return the openings of the cycle at *now*; those of the last cycle without a new load."""
        made = self._bugs.attempt("the pacing", lambda: self._make(snapshot, demand, now))
        if isinstance(made, Unseen):
            absent_since = self._memory.absent_since
            made = PacedCycle(None, made.reason, waiting=self.last.waiting, absent_since=absent_since)
        self.last = made
        return made

    def _make(self, snapshot: Snapshot, demand: Demand, now: datetime) -> PacedCycle | Unseen:
        load = self._find_load(now)
        if isinstance(load, Unseen):
            return load
        return self._pace(snapshot, demand, load, now) if self.has_new_load else self.last

    def _find_load(self, now: datetime) -> PoolLoad | Unseen:
        """Return the jobs and slots, or why they cannot be used."""
        load, failure = self._load, self._failure
        if not self._settings.demand.ask_schedds:
            return Unseen("the daemon does not query the schedds ([demand] ask_schedds)")
        if load is None:
            return Unseen(failure or "the jobs and slots of the pool were not queried yet")
        if now - load.as_of > MAX_LOAD_AGE:
            at = f"the last answer about jobs and slots is from {load.as_of:%Y-%m-%d %H:%M:%S} UTC"
            return Unseen(f"{at}: {failure}" if failure else at)
        if not load.slots:
            return Unseen("the pool has no slots that take jobs")
        reason = None if load.answers else load.unseen_reason
        return Unseen(reason) if reason else load

    def _pace(self, snapshot: Snapshot, demand: Demand, load: PoolLoad, now: datetime) -> PacedCycle:
        find_rate, waiting = cache(self._find_rate), read_waiting(load)
        running = {jobs.key for schedd in load.answers.values() for jobs in schedd.running if jobs.key}
        sets = read_sets(snapshot, demand, running.union(jobs.key for jobs in waiting))
        reads = read_reads(load, sets, find_rate)
        self._figures.note_ended(load)
        self._figures.note_starts(self._memory, reads)

        def find_allowed(source: Site, destination: Site) -> float:
            is_excluded = source in self._settings.network.excluded_sources
            return 0.0 if is_excluded else find_rate(source, destination)

        run_seconds = self._figures.find_run_seconds()
        pool = PacedPool(to_unix(load.as_of), waiting, sets, load.slots, reads, find_allowed, run_seconds)
        # the last round may have been late
        since_last = (now - self._paced_at).total_seconds() if self._paced_at else 0.0
        interval = max(self._settings.daemon.poll_seconds, min(since_last, MAX_INTERVAL_SECONDS))
        memory, self._memory = self._memory, PacingMemory(absent_since=self._memory.absent_since)
        openings, self._memory = pace(  # after a bug, the next round begins without what led to it
            pool,
            memory,
            now=to_unix(now),
            interval_seconds=interval,
            lateness_seconds=self._figures.find_lateness(interval),
        )
        self._paced_load, self._paced_at = load, now
        self._waited_at.update({jobs.key: now for jobs in waiting})
        self._waited_at = {key: at for key, at in self._waited_at.items() if now - at <= KEEP_WAITING}
        readers = Counter(read.source for read in reads)
        return PacedCycle(openings, None, readers, frozenset(self._waited_at), self._memory.absent_since)

"""The pool as a round of pacing sees it: the idle jobs, and what slots, sites and links are there for them.

Nothing is decided here: see :mod:`hydrator.reconcile.pacing`. This module is pure.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, inf
from operator import attrgetter
from typing import Final, NamedTuple

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.openings import Opening
from hydrator.domain.model import Site
from hydrator.domain.network import FindRate
from hydrator.domain.ports import ONE_CORE, Resources, SlotGroup

Holders = tuple[Site, ...]
"""The sites that have the same bytes on disk."""

MAX_READ_SECONDS: Final = 10.0**7
"""Longest read in an ad, 116 days: what a slot offers to a job has up to eight digits."""


class SetBytes(NamedTuple):
    """The bytes of a set, by the sites that have them on disk in complete datasets.

    Those that no site has on disk have no holders, an empty tuple: no site is a home of the set, and nobody
    reads them; ``is_moving``: some of these are on their way, or on a disk that cannot be read now.
    ``partial`` has, by site, the bytes there of datasets that are not complete there.
    If a size is unknown, the caller gives a typical one.
    """

    on_disk: Mapping[Holders, int]
    partial: Mapping[Site, int] = {}
    is_moving: bool = False


class JobGroup(NamedTuple):
    """Idle jobs of one set that ask for the same resources, of all schedds and users.

    One round recognizes them from the last. Jobs of the modes ``require`` and ``wait`` (``is_auto`` is False)
    are never opened, but count for the backlog.
    """

    key: SetKey
    request: Resources = ONE_CORE
    is_auto: bool = True


class RunningRead(NamedTuple):
    """A running job that started with a read: its set, and the seconds that it alone reads from one source.

    ``started_at`` is the start of the job, in Unix seconds by the daemon's clock. A job that reads from two
    sources is two reads. Jobs that have read everything may be among them. A round remembers the reads of
    jobs that have ended (``has_ended``) while their link was busy.
    """

    key: SetKey
    source: Site
    destination: Site
    seconds: float
    started_at: float
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class PacedPool:
    """The pool, as its snapshot shows it.

    Attributes:
        as_of: the time of the snapshot in Unix seconds.
        waiting: the idle jobs with data: their numbers by group and ``DataLocalityLane``.
        sets: the bytes of their sets. A set without an entry is unknown, and is not opened.
        slots: the slots of all sites, also of sites that no catalogue lists.
        reads: the running jobs that started with a read.
        find_rate: returns the bytes/s from a source to a destination, of all readers together: measured,
            else configured, else one default; 0 if nothing should be read on this way.
        run_seconds: the mean run time of the pool's jobs.
    """

    as_of: float
    waiting: Mapping[JobGroup, Mapping[int, int]]
    sets: Mapping[SetKey, SetBytes]
    slots: Sequence[SlotGroup]
    reads: Sequence[RunningRead]
    find_rate: FindRate
    run_seconds: float

    def count_free(self, request: Resources) -> Mapping[Site, int]:
        """Return the jobs with *request* that free slots take, by site whose slots are large enough."""
        free: dict[Site, int] = {}
        for slots in self.slots:
            if slots.count > 0 and request.count_in(slots.total):
                free[slots.site] = free.get(slots.site, 0) + slots.count_jobs(request)
        return free

    def add_ended(self, before: Iterable[RunningRead]) -> list[RunningRead]:
        """Return the reads, and those *before* whose jobs have ended: none took longer than its job."""
        running = Counter((*read[:3], read.started_at) for read in self.reads)
        reads = [*self.reads]
        for read in before:
            job = (*read[:3], read.started_at)
            if running[job] > 0:
                running[job] -= 1
            else:
                seconds = min(read.seconds, max(0.0, self.as_of - read.started_at))
                reads.append(read._replace(seconds=seconds, has_ended=True))
        return reads


class Read(NamedTuple):
    """The read of a job at a site: seconds, in all and from each source, and bytes."""

    seconds: float
    site: Site
    by_source: Mapping[Site, float]
    missing_bytes: int

    @property
    def opening(self) -> Opening:
        source = max(self.by_source, key=lambda each: (self.by_source[each], each), default=None)
        return Opening(ceil(min(max(1, self.seconds), MAX_READ_SECONDS)), source, self.missing_bytes)


@dataclass(slots=True)
class Link:
    """The reads from one source, which all share its link.

    Attributes:
        reads: those of jobs that run or have ended.
        busy_since: the time since which it reads without a pause.
        running: the seconds that it needs for the jobs that run.
        reserved: the seconds that it needs for these and for leases.
        fed: the sets whose jobs read, or may.
        leases, unused: the numbers of leases that are open, and of those that ended without a job.
        in_turn: the sets that wait for it.
    """

    reads: list[RunningRead] = field(default_factory=list)
    busy_since: float = -inf
    running: float = 0.0
    reserved: float = 0.0
    fed: set[SetKey] = field(default_factory=set)
    leases: int = 0
    unused: int = 0
    in_turn: int = 0

    def add_up(self, now: float) -> None:
        """Find the seconds that the link still needs, and the sets that it feeds.

        They do not depend on how the reads share the link. Nothing is left of those that have ended.
        """
        end, left = -inf, 0.0
        for read in sorted(self.reads, key=attrgetter("started_at")):
            if read.started_at > end:
                self.busy_since = read.started_at
            end = max(read.started_at, end) + read.seconds
            left += 0.0 if read.has_ended else read.seconds
        self.running = self.reserved = max(0.0, min(left, end - now))
        self.busy_since = self.busy_since if self.running else now
        begun = (read for read in self.reads if read.started_at >= self.busy_since)
        self.fed = {read.key for read in begun if not read.has_ended}

    def add_lease(self, key: SetKey, seconds: float) -> None:
        """Reserve *seconds* for jobs of the set *key*."""
        self.leases += 1
        self.reserved += seconds
        self.fed.add(key)


def find_sources(find_rate: FindRate, part: Holders, site: Site) -> Mapping[Site, float]:
    """Return the rates at which *site* can read *part*, by source, fastest first."""
    rates = sorted(((find_rate(each, site), each) for each in part), reverse=True)
    return {source: rate for rate, source in rates if rate > 0}


Route = tuple[Site, Mapping[Holders, Mapping[Site, float]]]
"""A site that is no home, with the rates of the sources of the parts that it lacks, fastest first."""


class AlikeJobs:
    """Idle jobs with the same request, of sets at the same sites: they differ only in bytes and numbers.

    Attributes:
        parts: the holders of the parts of each set.
        free: the jobs that free slots take, by site; sites whose slots are too small have no entry.
        homes: the sites that have all parts on disk and slots that are large enough.
        has_free_slots: some of the homes have free slots for the request.
        idle, local: the idle jobs, and those of them for which free slots at home are kept.
    """

    def __init__(
        self,
        parts: tuple[Holders, ...],
        request: Resources,
        free: Mapping[Site, int],
        list_sources: Callable[[Holders, Site], Mapping[Site, float]],
    ) -> None:
        self.parts, self.request, self.free, self._list_sources = parts, request, free, list_sources
        self.homes = tuple(site for site in free if all(site in part for part in parts))
        self.has_free_slots = any(free[home] for home in self.homes)
        self.idle, self.local = 0, 0.0

    @cached_property
    def routes(self) -> list[Route]:
        """Return the sites that are no homes and whose slots are large enough."""
        routes: list[Route] = []
        for site in self.free:
            lacking = (part for part in self.parts if part and site not in part)
            sources = {part: self._list_sources(part, site) for part in lacking}
            if site not in self.homes and all(sources.values()):
                routes.append((site, sources))
        return routes

    @cached_property
    def _best_rates(self) -> Collection[Mapping[Holders, float]]:
        """Return the rates at which the parts are read fastest, for each choice of parts that sites lack."""
        best: dict[tuple[Holders, ...], dict[Holders, float]] = {}
        for _, sources in self.routes:
            rates = best.setdefault(tuple(sources), {})
            for part, fastest_first in sources.items():
                rates[part] = max(1.0, rates.get(part, 0.0), *fastest_first.values())
        return best.values()

    def find_shortest(self, size: SetBytes) -> float:
        """Return the seconds of the shortest read of a set, infinite without one."""
        partial = find_reads(size, [route for route in self.routes if route[0] in size.partial])
        whole = (sum(size.on_disk[part] / rate for part, rate in rates.items()) for rates in self._best_rates)
        return min([inf, *whole, *(read.seconds for read in partial)])

    def list_excluded(self) -> tuple[Site, ...]:
        """Return the sources of parts that sites with large enough slots lack and may not read."""
        lacking = ((part, site) for site in self.free for part in self.parts if site not in part)
        parts = {part for part, site in lacking if not self._list_sources(part, site)}
        return tuple(sorted({source for part in parts for source in part}))


class SiteWork:
    """The work that waits for the slots of each site: idle jobs whose data is there.

    Attributes:
        cores: the cores of all sites with slots.
        backlog: the idle jobs by home; those with two homes count at both.
    """

    def __init__(self, pool: PacedPool, kinds: Iterable[AlikeJobs]) -> None:
        self._run_seconds = pool.run_seconds
        self.cores: dict[Site, float] = {}
        for slots in pool.slots:
            if slots.count > 0:
                self.cores[slots.site] = self.cores.get(slots.site, 0.0) + slots.total.cpus * slots.count
        self.backlog: Counter[Site] = Counter()
        self._waiting_cores: defaultdict[Site, float] = defaultdict(float)
        self._local_cores: defaultdict[Site, float] = defaultdict(float)  # of free slots, kept for local jobs
        for kind in kinds:
            for home in kind.homes:
                self.backlog[home] += kind.idle
                self._waiting_cores[home] += kind.idle * kind.request.cpus / len(kind.homes)
                local = min(kind.local / len(kind.homes), kind.free[home])
                self._local_cores[home] += local * kind.request.cpus

    def compute_wait_seconds(self, kind: AlikeJobs, sites: tuple[Site, ...]) -> float:
        """Return backlog / cores x mean run time, at the best of *sites*."""
        waits = (
            (self._waiting_cores[site] - kind.free[site] * kind.request.cpus) / self.cores[site]
            for site in sites
        )
        return max(0.0, min(waits, default=inf)) * self._run_seconds

    def count_slots(self, kind: AlikeJobs, site: Site) -> int:
        """Return the free slots of *site* that its own idle jobs leave."""
        return max(0, kind.free[site] - ceil(self._local_cores[site] / kind.request.cpus - 1e-6))

    def is_useful(self, kind: AlikeJobs, site: Site, within_seconds: float) -> bool:
        """Return True if *site* has free slots, or no jobs that wait for its slots *within_seconds*."""
        if self.count_slots(kind, site) > 0 or self._waiting_cores[site] < 0.5:
            return True
        return self._waiting_cores[site] / self.cores[site] * self._run_seconds < within_seconds


def find_reads(
    size: SetBytes, routes: Iterable[Route], is_preferred: Callable[[Site], bool] = bool
) -> list[Read]:
    """Return the reads of a set on *routes*, the shortest first.

    The source of each part is the fastest that *is_preferred*, else the fastest.
    """
    reads = []
    for site, rates_by_part in routes:
        missing = sum(size.on_disk[part] for part in rates_by_part)
        share = max(0.0, 1 - size.partial.get(site, 0) / max(1, missing))
        by_source: dict[Site, float] = {}
        for part, rates in rates_by_part.items():
            source = next(filter(is_preferred, rates), next(iter(rates)))
            seconds = share * size.on_disk[part] / rates[source]
            by_source[source] = by_source.get(source, 0.0) + seconds
        reads.append(Read(sum(by_source.values()), site, by_source, round(missing * share)))
    return sorted(reads)

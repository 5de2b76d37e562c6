"""Pacing of reads: choose the sets of datasets whose ``auto`` jobs may start away from their data now.

Jobs start beside their data first. While jobs wait, each source's link feeds one set after another, at sites
whose slots could take the jobs. Nothing is predicted but the reads that have begun or were allowed.

| the set | is opened |
|---|---|
| has room at home: free slots, or backlog / cores x mean run time < its read | not now; if none of its jobs started at home by the next round, as if there were no room |
| its read is shorter than a round | whole, while the running reads of its source are shorter than a round |
| else | while the reads of its source do not fill the *room*, which is the interval and the lateness: else the link would stand idle before an opening of the next round arrives |
| has more idle jobs than fit | by lanes, those with the fewest idle jobs |

The *home* of a set are the sites that have all its bytes on disk, and slots that are large enough for its
jobs. A set without a home has *nearest* sites, those with the shortest read, which are treated alike.

An opening reserves the time of a link by a *lease*. It counts as a read that starts when the opening has
arrived. It ends when its jobs have started, when no slot is free, or when all had one interval to see it.
If no job started beside free slots, the slots *refuse* the set: it is opened again in turn, at all sites that
have room, and reserves nothing. A link that stood idle meanwhile has twice as many leases in the next round.
So sets that no slot takes delay the others by a few rounds, however many they are, and none is given up.

This module is pure. :class:`PacedPool` has the inputs, :class:`Pacing` the results.
"""  # noqa: E501

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from math import ceil, inf
from typing import Final, NamedTuple
from zlib import crc32

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.openings import Opening, Openings, Outlook, Reason
from hydrator.domain.model import Site
from hydrator.domain.ports import ONE_CORE, Resources, SlotGroup

Holders = tuple[Site, ...]
"""The sites that have the same bytes on disk."""

MAX_OPEN_SETS: Final = 300
"""Open sets up to which sets with small reads are added: 20 kB of an ad."""
ABSENT_SECONDS: Final = 600.0
"""Jobs whose data is at no site wait for it for this time; then they may run anywhere."""
CLOCK_SLACK_SECONDS: Final = 1.0
"""A round may begin this much before its time."""


@dataclass(frozen=True, slots=True)
class SetBytes:
    """The bytes of a set, by the sites that have them on disk in complete datasets.

    ``on_disk`` is empty if no site has any of them: the jobs read from no site, so all sites are alike.
    ``partial`` has, by site, the bytes there of datasets that are not complete there.
    If a size is unknown, the caller gives a typical one.
    """

    on_disk: Mapping[Holders, int]
    partial: Mapping[Site, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WaitingJobs:
    """Idle jobs of one set that ask for the same resources, of all schedds and users.

    ``lanes`` has the number of jobs by their ``DataLocalityLane``. Jobs of the modes ``require`` and ``wait``
    (``is_auto`` is False) are never opened, but count for the backlog.
    """

    key: SetKey
    lanes: Mapping[int, int]
    request: Resources = ONE_CORE
    is_auto: bool = True


@dataclass(frozen=True, slots=True)
class RunningRead:
    """A running job that started with a read: its set, and the bytes that it reads from one source.

    ``started_at`` is the start of the job, in Unix seconds by the daemon's clock. A job that reads from two
    sources is two reads. Jobs that have read everything may be among them.
    """

    key: SetKey
    source: Site
    destination: Site
    size_bytes: int
    started_at: float


@dataclass(frozen=True, slots=True)
class PacedPool:
    """The pool, as its snapshot shows it.

    Attributes:
        as_of: the time of the snapshot in Unix seconds.
        waiting: the idle jobs with data: one entry for each set, request and ``is_auto``.
        sets: the bytes of their sets. A set without an entry is unknown, and is not opened.
        slots: the slots of all sites, also of sites that no catalogue lists.
        reads: the running jobs that started with a read.
        find_rate: returns the bytes/s from a source to a destination, of all readers together: measured,
            else configured, else one default; None or 0 if nothing should be read on this way.
        run_seconds: the mean run time of the pool's jobs.
    """

    as_of: float
    waiting: Sequence[WaitingJobs]
    sets: Mapping[SetKey, SetBytes]
    slots: Sequence[SlotGroup]
    reads: Sequence[RunningRead]
    find_rate: Callable[[Site, Site], float | None]
    run_seconds: float


Group = tuple[SetKey, Resources]
"""Idle jobs, as one round recognizes them from the last."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The openings of a set since ``opened_at``, by site, for ``jobs`` jobs that are in ``lanes``.

    ``names`` are the set's key, or the key with each lane. ``by_source`` has the seconds that one job reads
    from each source.
    """

    names: tuple[str, ...]
    lanes: tuple[int, ...]
    openings: Mapping[Site, Opening]
    by_source: Mapping[Site, float]
    jobs: int
    opened_at: float


class Watch(NamedTuple):
    """The idle jobs of a set that had room at home at ``since``; ``is_stuck``: none started there."""

    idle: int
    since: float
    is_stuck: bool = False


class Turn(NamedTuple):
    """The round in which idle jobs were first seen, or last open; the lowest is next.

    ``is_refused``: no job started in the last lease, though slots were free.
    """

    round: int
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class PacingMemory:
    """The state that one round keeps for the next.

    Without it, sets that no slot at home takes lose an interval.
    """

    round: int = 0
    turns: Mapping[Group, Turn] = field(default_factory=dict)
    leases: Mapping[Group, Lease] = field(default_factory=dict)
    watches: Mapping[Group, Watch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pacing(Openings):
    """The result of a round: the openings, and the memory for the next round."""

    memory: PacingMemory = PacingMemory()


def pace(
    pool: PacedPool,
    memory: PacingMemory,
    *,
    now: float,
    interval_seconds: float,
    lateness_seconds: float,
    patience_seconds: float | None = None,
) -> Pacing:
    """Return the openings from *now* until the next round.

    Args:
        pool: the jobs, slots and links.
        memory: the memory of the last round; empty in the first.
        now: Unix seconds.
        interval_seconds: the time between two rounds.
        lateness_seconds: the time until a slot shows an opening and the negotiator has used it.
        patience_seconds: the time without a start after which free slots at home count as refusing; the
            interval by default. The negotiator must have had a cycle.
    """
    patience = interval_seconds if patience_seconds is None else patience_seconds
    return _Round(pool, memory, now, interval_seconds, lateness_seconds, patience).run()


class _Read(NamedTuple):
    """The read of a job at a site: seconds, in all and from each source, and bytes."""

    seconds: float
    site: Site
    by_source: Mapping[Site, float]
    missing_bytes: int

    @property
    def source(self) -> Site | None:
        return max(self.by_source, key=lambda source: (self.by_source[source], source), default=None)


_Routes = Sequence[tuple[Site, Mapping[Holders, Sequence[Site]]]]
"""Sites away from the data, with the sources of the parts that they lack, fastest first."""


class _Figures:
    """Figures of the pool that many sets share, each computed once."""

    def __init__(self, pool: PacedPool) -> None:
        self._slots: defaultdict[Site, list[SlotGroup]] = defaultdict(list)
        for group in pool.slots:
            if group.count > 0:
                self._slots[group.site].append(group)
        self.cores = {
            site: sum(one.total.cpus * one.count for one in all_) for site, all_ in self._slots.items()
        }
        self.rate = cache(lambda source, destination: pool.find_rate(source, destination) or 0.0)
        self.count_free = cache(self._count_free)
        self.find_homes = cache(self._find_homes)
        self.find_fastest_rate = cache(
            lambda source: max(self.rate(source, site) for site in self.cores or [source])
        )
        self.find_best_rate = cache(
            lambda part: max(1.0, max(map(self.find_fastest_rate, part), default=0.0))
        )
        self.is_large_enough = cache(self._check_size)
        self.list_routes = cache(lambda parts, request: list(self._find_routes(parts, request)))

    def _count_free(self, site: Site, request: Resources) -> int:
        """Return the jobs with *request* that the free slots of *site* have room for."""
        return sum(group.count * request.count_in(group.free) for group in self._slots[site])

    def _check_size(self, site: Site, request: Resources) -> bool:
        return any(request.count_in(group.total) for group in self._slots[site])

    def _find_homes(self, parts: tuple[Holders, ...], request: Resources) -> tuple[Site, ...]:
        """Return the sites that have all *parts* on disk and slots that are large enough."""
        whole = (site for site in self.cores if all(site in part for part in parts))
        return tuple(site for site in whole if self.is_large_enough(site, request))

    def compute_shortest(self, one: SetBytes) -> float:
        """Return the seconds of the shortest read of all of *one*, at any site."""
        return sum(size / self.find_best_rate(part) for part, size in one.on_disk.items())

    def find_reads(
        self, one: SetBytes, routes_by_site: _Routes, has_room: Callable[[Site], bool]
    ) -> list[_Read]:
        """Return the reads of *one* at the sites of *routes_by_site*, the shortest first.

        The source of each part is the fastest whose link has room, else the fastest.
        """
        reads = []
        for site, routes in routes_by_site:
            missing = sum(one.on_disk[part] for part in routes)
            share = max(0.0, 1 - one.partial.get(site, 0) / max(1, missing))
            by_source: dict[Site, float] = {}
            for part, sources in routes.items():
                source = next(filter(has_room, sources), sources[0])
                seconds = share * one.on_disk[part] / self.rate(source, site)
                by_source[source] = by_source.get(source, 0.0) + seconds
            reads.append(_Read(sum(by_source.values()), site, by_source, round(missing * share)))
        return sorted(reads)

    def _find_routes(
        self, parts: tuple[Holders, ...], request: Resources
    ) -> Iterator[tuple[Site, dict[Holders, list[Site]]]]:
        """Yield the sites away from the data, with the sources of the parts that they lack, fastest first."""
        for site in self.cores:
            routes: dict[Holders, list[Site]] = {}
            for part in parts:
                if site not in part:
                    rates = sorted(((self.rate(each, site), each) for each in part), reverse=True)
                    routes[part] = [source for rate, source in rates if rate > 0]
            if routes and all(routes.values()) and self.is_large_enough(site, request):
                yield site, routes


class _Round:
    """The steps of :func:`pace`, and the values that they share."""

    def __init__(
        self,
        pool: PacedPool,
        memory: PacingMemory,
        now: float,
        interval: float,
        lateness: float,
        patience: float,
    ) -> None:
        self._pool, self._memory, self._now = pool, memory, now
        self._interval, self._lateness, self._room = interval, lateness, interval + lateness
        self._patience = patience
        self._round = memory.round + 1
        self._figures = _Figures(pool)
        known = [jobs for jobs in pool.waiting if jobs.key in pool.sets]
        self._jobs = {(jobs.key, jobs.request): jobs for jobs in known if jobs.is_auto}
        self._idle = {group: sum(jobs.lanes.values()) for group, jobs in self._jobs.items()}
        self._homes: dict[Group, tuple[Site, ...]] = {}
        self._watches = {group: watch for group, watch in memory.watches.items() if group in self._jobs}
        self._turns: dict[Group, Turn] = {}
        self._leases: dict[Group, Lease] = {}
        self._openings: defaultdict[Site, dict[str, Opening]] = defaultdict(dict)
        self._leased_sets: defaultdict[Site, int] = defaultdict(int)  # by source
        self._backlog: defaultdict[Site, int] = defaultdict(int)
        self._waiting_cores: defaultdict[Site, float] = defaultdict(float)  # by home
        self._local_jobs: defaultdict[Site, float] = defaultdict(float)  # those that take free slots
        self._reads_of: defaultdict[SetKey, list[RunningRead]] = defaultdict(list)
        begun: defaultdict[Site, list[tuple[float, float]]] = defaultdict(list)
        for read in pool.reads:
            self._reads_of[read.key].append(read)
            if (rate := self._figures.rate(read.source, read.destination)) > 0:
                begun[read.source].append((min(read.started_at, now), read.size_bytes / rate))
        self._running, self._reserved = self._sum_seconds(begun), defaultdict(float)
        self._has_free_slots = cache(self._look_for_free_slots)
        self._unused = self._review_leases(begun)
        self._reserved = self._sum_seconds(begun)
        for jobs in known:
            self._count_backlog(jobs)
        self._load = cache(self._compute_load)
        self._wait_seconds = cache(self._compute_wait_seconds)
        self._count_slots = cache(self._count_slots_left)
        self._list_useful = cache(self._find_useful)

    def run(self) -> Pacing:
        """Open sets in turn; see :func:`pace`."""
        outlooks = {
            group[0]: Outlook(Reason.OPEN, tuple(lease.openings)) for group, lease in self._leases.items()
        }
        ahead: defaultdict[Site, int] = defaultdict(int)
        for group in sorted(self._jobs.keys() - self._leases.keys(), key=self._order):
            outlook = self._decide(group)
            if outlook.reason is Reason.TURN and outlook.sites:
                source = outlook.sites[0]
                outlook = outlook._replace(before=self._leased_sets[source] + ahead[source])
                ahead[source] += 1
            outlooks.setdefault(group[0], outlook)
        memory = PacingMemory(self._round, self._turns, self._leases, self._watches)
        until = self._now + self._lateness + 2 * self._interval
        openings = {site: self._openings.get(site, {}) for site in self._figures.cores}
        return Pacing(openings, until, self._backlog, outlooks, memory)

    def _order(self, group: Group) -> tuple[float, float, int]:
        """Return the place of *group*: by turn, then the longest backlog at home first, then by chance."""
        return self._turns[group].round, -self._load(self._homes[group]), crc32(group[0].encode())

    def _compute_load(self, homes: tuple[Site, ...]) -> float:
        return min((self._waiting_cores[home] / self._figures.cores[home] for home in homes), default=inf)

    # links

    def _sum_seconds(self, begun: Mapping[Site, Iterable[tuple[float, float]]]) -> defaultdict[Site, float]:
        """Return the seconds that each link still needs for reads that have a start and a length.

        The sum does not depend on how the reads share the link.
        """
        seconds_left: defaultdict[Site, float] = defaultdict(float)
        for source, reads in begun.items():
            end, future = -inf, 0.0
            for start, seconds in sorted(reads):
                if start > self._now:
                    future += seconds
                else:
                    end = max(end, start) + seconds
            seconds_left[source] = max(0.0, end - self._now) + future
        return seconds_left

    def _review_leases(self, begun: Mapping[Site, list[tuple[float, float]]]) -> Counter[Site]:
        """Keep or end each lease, and add the kept ones to *begun*; return by source the leases not used."""
        unused: Counter[Site] = Counter()
        for group, jobs in self._jobs.items():
            self._turns[group] = turn = self._memory.turns.get(group, Turn(self._round))
            lease = self._memory.leases.get(group)
            if lease is None:
                continue
            started = sum(
                read.started_at >= lease.opened_at and read.destination in lease.openings
                for read in self._reads_of.get(group[0], ())
                if read.source in lease.by_source
            )
            jobs_left = min(lease.jobs - started, sum(jobs.lanes.get(lane, 0) for lane in lease.lanes))
            has_slots = self._has_free_slots(tuple(lease.openings), group[1])
            is_over = self._pool.as_of - lease.opened_at >= self._room - CLOCK_SLACK_SECONDS
            if jobs_left > 0 and has_slots and not is_over:
                self._grant(group, lease)
                if not turn.is_refused:
                    for source, seconds in lease.by_source.items():
                        begun[source].append((lease.opened_at + self._lateness, seconds * jobs_left))
                continue
            is_refused = has_slots and is_over and not started
            self._turns[group] = Turn(self._round, is_refused)
            if is_refused and not turn.is_refused:
                unused.update(lease.by_source)
        return unused

    def _look_for_free_slots(self, sites: tuple[Site, ...], request: Resources) -> bool:
        return any(self._figures.count_free(site, request) for site in sites)

    def _has_room(self, source: Site) -> bool:
        """Return True if the link of *source* may have one more lease."""
        return self._reserved[source] < self._room or (
            not self._running[source] and self._leased_sets[source] < 2 * self._unused[source]
        )

    # homes

    def _count_backlog(self, jobs: WaitingJobs) -> None:
        group, count = (jobs.key, jobs.request), sum(jobs.lanes.values())
        parts = tuple(self._pool.sets[jobs.key].on_disk)
        homes = self._figures.find_homes(parts, jobs.request) if parts else ()
        has_free_slots = self._has_free_slots(homes, jobs.request)
        is_stuck = False
        if jobs.is_auto:
            self._homes[group] = homes
            is_stuck = has_free_slots and self._watch(group, homes).is_stuck
        for home in homes:
            self._backlog[home] += count
            self._waiting_cores[home] += count * jobs.request.cpus / len(homes)
            if has_free_slots and not is_stuck:
                self._local_jobs[home] += count / len(homes)

    def _watch(self, group: Group, nearest: Sequence[Site]) -> Watch:
        """Note whether a job of *group* started at its *nearest* sites since the last look."""
        idle, watch = self._idle[group], self._watches.get(group, Watch(self._idle[group], self._now))
        away = sum(
            read.started_at >= watch.since and read.destination not in nearest
            for read in self._reads_of.get(group[0], ())
        )
        if watch.idle - idle > away:
            watch = Watch(idle, self._now)
        elif self._now - watch.since >= self._patience - CLOCK_SLACK_SECONDS:
            watch = Watch(idle, self._now, is_stuck=True)
        self._watches[group] = watch
        return watch

    def _compute_wait_seconds(self, sites: tuple[Site, ...], request: Resources) -> float:
        """Return backlog / cores x mean run time, at the best of *sites*."""
        waits = (
            (self._waiting_cores[site] - self._figures.count_free(site, request) * request.cpus)
            / self._figures.cores[site]
            for site in sites
        )
        return max(0.0, min(waits, default=inf)) * self._pool.run_seconds

    # decisions

    def _decide(self, group: Group) -> Outlook:
        """Open *group* if it may be; return its outlook."""
        key, request = group
        one, homes = self._pool.sets[key], self._homes[group]
        if not one.on_disk:
            return self._open_everywhere(group)
        if not any(self._may_read(source, size) for part, size in one.on_disk.items() for source in part):
            return Outlook(Reason.TURN, next(iter(one.on_disk))[:1])
        others = min((self._backlog[home] for home in homes), default=0) - self._idle[group]
        beside = Outlook(Reason.BESIDE, homes, others)
        shortest = self._figures.compute_shortest(one)
        if homes and self._has_time(group, homes, shortest):
            return beside
        parts, is_short = tuple(one.on_disk), shortest <= self._interval
        routes = (
            self._list_useful(parts, request, is_short)
            if homes
            else self._figures.list_routes(parts, request)
        )
        reads = self._figures.find_reads(one, routes, self._has_room)
        if not reads:
            return beside if homes else Outlook(Reason.NOWHERE)
        nearest = homes or tuple(read.site for read in reads if read.seconds == reads[0].seconds)
        gains = [read.seconds - reads[0].seconds for read in reads if read.site not in nearest]
        if not homes and gains and self._has_time(group, nearest, gains[0]):
            reads = [read for read in reads if read.site in nearest]
        slots = {read.site: self._count_slots(read.site, request) for read in reads}
        reads = [
            read for read in reads if self._is_useful(read.site, request, is_short) or read.site in nearest
        ]
        if not reads:
            return beside
        best = next((read for read in reads if slots[read.site]), reads[0])
        is_refused = self._turns[group].is_refused
        is_small = not is_refused and self._is_small(best.seconds, best.by_source)
        if is_small:
            reads = [read for read in reads if self._is_small(read.seconds, read.by_source)]
        else:
            reads = [read for read in reads if all(map(self._has_room, read.by_source))]
        if not reads:
            return Outlook(Reason.TURN, tuple(best.by_source)[:1])
        found = accumulate(slots[read.site] for read in reads)
        enough = next(
            (read.seconds for read, jobs in zip(reads, found, strict=True) if jobs >= self._idle[group]), inf
        )
        reads = [read for read in reads if read.seconds <= enough or is_refused]
        self._open(group, reads, max(1, sum(slots[read.site] for read in reads)), is_whole=is_small)
        return Outlook(Reason.OPEN, tuple(read.site for read in reads))

    def _open_everywhere(self, group: Group) -> Outlook:
        """Open *group*, whose data is at no site, at all sites with slots that are large enough.

        It waits for a while: a catalogue may list its data soon.
        """
        watch = self._watches.setdefault(group, Watch(self._idle[group], self._now))
        if self._now - watch.since < ABSENT_SECONDS:
            return Outlook(Reason.ABSENT)
        sites = [site for site in self._figures.cores if self._figures.is_large_enough(site, group[1])]
        if not sites:
            return Outlook(Reason.NOWHERE)
        if len(self._leases) >= MAX_OPEN_SETS:
            return Outlook(Reason.TURN, (), len(self._leases))
        self._open(group, [_Read(0.0, site, {}, 0) for site in sites], self._idle[group], is_whole=True)
        return Outlook(Reason.OPEN, tuple(sites))

    def _may_read(self, source: Site, size: int) -> bool:
        """Return False if a read of *size* from *source* must wait for its turn, wherever the job runs."""
        seconds = size / self._figures.find_best_rate((source,))
        return self._has_room(source) or self._is_small(seconds, (source,))

    def _has_time(self, group: Group, nearest: tuple[Site, ...], read_seconds: float) -> bool:
        """Return True if *group* would start at its *nearest* sites before a longer read elsewhere ended."""
        if self._wait_seconds(nearest, group[1]) < read_seconds:
            return not self._watch(group, nearest).is_stuck
        if not self._has_free_slots(self._homes[group], group[1]):
            self._watches.pop(group, None)
        return False

    def _count_slots_left(self, site: Site, request: Resources) -> int:
        """Return the free slots of *site* that its own idle jobs leave."""
        return max(0, self._figures.count_free(site, request) - ceil(self._local_jobs[site] - 1e-6))

    def _is_useful(self, site: Site, request: Resources, is_short: bool) -> bool:
        """Return True if *site* has free slots, or no jobs that wait for its slots.

        For short reads it is enough that these have started when an opening arrives.
        """
        if self._count_slots(site, request) > 0 or self._waiting_cores[site] < 0.5:
            return True
        own_seconds = self._waiting_cores[site] / self._figures.cores[site] * self._pool.run_seconds
        return is_short and own_seconds < self._lateness

    def _find_useful(self, parts: tuple[Holders, ...], request: Resources, is_short: bool) -> _Routes:
        routes = self._figures.list_routes(parts, request)
        return [each for each in routes if self._is_useful(each[0], request, is_short)]

    def _is_small(self, seconds: float, sources: Iterable[Site]) -> bool:
        """Return True if a read is shorter than a round, so are the running reads of its sources, and those
        that are allowed leave room.
        """
        is_short = seconds <= self._interval and len(self._leases) < MAX_OPEN_SETS
        return is_short and all(
            self._running[source] < self._interval and self._reserved[source] < self._room
            for source in sources
        )

    def _open(self, group: Group, reads: Sequence[_Read], slots: int, *, is_whole: bool) -> None:
        """Open *group* for *reads*: whole, or the smallest lanes that fill *slots* and fit the room.

        One lane is opened in any case.
        """
        by_source = {source: each for read in reversed(reads) for source, each in read.by_source.items()}
        fitting = min(
            ((self._room - self._reserved[source]) / max(by_source[source], 1) for source in by_source),
            default=inf,
        )
        lanes: list[int] = []
        jobs = 0
        for count, lane in sorted((count, lane) for lane, count in self._jobs[group].lanes.items()):
            if lanes and not is_whole and (jobs >= slots or min(jobs + count, slots) > fitting):
                break
            lanes.append(lane)
            jobs += count
        key = str(group[0])
        names = (key,) if jobs == self._idle[group] else tuple(f"{key}~{lane}" for lane in lanes)
        openings = {
            read.site: Opening(max(1, ceil(read.seconds)), read.source, read.missing_bytes) for read in reads
        }
        self._grant(group, Lease(names, tuple(lanes), openings, by_source, min(jobs, slots), self._now))

    def _grant(self, group: Group, lease: Lease) -> None:
        """Publish *lease*, and reserve its reads unless slots refused its set before."""
        self._leases[group] = lease
        for site, opening in lease.openings.items():
            self._openings[site].update(dict.fromkeys(lease.names, opening))
        if not self._turns[group].is_refused:
            for source, seconds in lease.by_source.items():
                self._leased_sets[source] += 1
                self._reserved[source] += seconds * lease.jobs

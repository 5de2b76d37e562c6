"""Pacing of reads: choose the sets of datasets whose ``auto`` jobs may start away from their data now.

Jobs start beside their data first. While jobs wait, each source's link feeds one set after another, at sites
whose slots could take the jobs. Nothing is predicted but the reads that have begun or were allowed.

| the set | is opened |
|---|---|
| has room at home: free slots, or backlog / cores x mean run time < its read | not now; from the next round on only if the last rate of starts at home takes all its jobs before a read ends |
| its read is shorter than a round | whole, while the running reads of its source are shorter than a round |
| else | while the reads of its source do not fill the *room*, which is the interval and the lateness: else the link would stand idle before an opening of the next round arrives |
| has more idle jobs than fit | by lanes, those with the fewest idle jobs; after them those that slots refused |

The *home* of a set are the sites that have all its bytes on disk, and slots that are large enough for its
jobs. A set without a home has *nearest* sites, those with the shortest read, which are treated alike.

An opening reserves the time of a link by a *lease*. It counts as a read that starts when the opening has
arrived. It ends when its jobs have started, when no slot is free, or when all had one interval to see it.
If jobs are left beside free slots, these count next time as as many as jobs started, so that sites with longer
reads are opened, too. If no job started, the slots *refuse* the set: it is opened again in turn, at all sites
that have room, and reserves nothing. A link that stood idle meanwhile has twice as many leases in the next round.
So sets that no slot takes delay the others by a few rounds, and none is given up. An ad has room for some 300
sets, so those of thousands are open in turn.

This module is pure. :class:`PacedPool` has the inputs.
"""  # noqa: E501

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import ceil, inf
from operator import attrgetter
from typing import Final, NamedTuple
from zlib import crc32

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.openings import Opening, Openings, Outlook, Reason
from hydrator.domain.model import Site
from hydrator.domain.ports import ONE_CORE, Resources, SlotGroup
from hydrator.domain.text import group_pairs

Holders = tuple[Site, ...]
"""The sites that have the same bytes on disk."""

MAX_OPEN_BYTES: Final = 15_000
"""Bytes of an ad for open sets: up to this, sets are added to those that a link reads anyway.

Sets that slots refuse have half as much of their own, so neither they nor the others crowd out the rest.
"""
NAME_BYTES: Final = 16
"""Bytes of an open set in an ad, beside its name."""
ABSENT_SECONDS, MOVING_SECONDS = 600.0, 86_400.0
"""Jobs with data that no site has on disk wait for it for this time, the second if it is on its way or cannot
be read now; then they may run anywhere."""
MAX_READ_SECONDS: Final = 10.0**7
"""Longest read in an ad, 116 days: what a slot offers to a job has up to eight digits."""
MAX_REUSE_SECONDS: Final = 600.0
"""A schedd starts the next job of a slot by the ad with which it claimed the slot, if the openings in it are
still valid; else the slot waits for the negotiator. So they are valid for one more job, up to this long.
START looks at the live ad.
"""
PATIENCE_SECONDS: Final = 60.0
"""HTCondor's NEGOTIATOR_INTERVAL: free slots at home that started no job for so long count as refusing."""
CLOCK_SLACK_SECONDS: Final = 1.0
"""A round may begin this much before its time."""


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
    find_rate: Callable[[Site, Site], float]
    run_seconds: float


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
    """The idle jobs of a set that had room at home at ``since``.

    ``taken`` is the number of jobs that started there between the last two looks; infinite before these.
    """

    idle: int
    since: float
    taken: float = inf


class Turn(NamedTuple):
    """The round in which idle jobs were first seen, or last open; the lowest is next.

    ``taken`` is the number of jobs that started in the last lease beside free slots; infinite if none were
    free. Jobs of ``refused_lanes``, of which none did, are opened after the others: jobs of one set may have
    other requirements.
    """

    round: int
    taken: float = inf
    refused_lanes: frozenset[int] = frozenset()

    @property
    def is_refused(self) -> bool:
        return not self.taken


@dataclass(frozen=True, slots=True)
class PacingMemory:
    """The state that one round keeps for the next.

    Without it, sets that no slot at home takes lose an interval. ``reads`` are those of links that have not
    been idle since: the read of a job that has ended has delayed the others. ``absent_since`` has, for each
    set with a dataset at no site, the time (Unix s) of the first round that found it so.
    """

    round: int = 0
    turns: Mapping[JobGroup, Turn] = field(default_factory=dict)
    watches: Mapping[JobGroup, Watch] = field(default_factory=dict)
    leases: Mapping[JobGroup, Lease] = field(default_factory=dict)
    reads: Sequence[RunningRead] = ()
    absent_since: Mapping[SetKey, float] = field(default_factory=dict)


def pace(
    pool: PacedPool,
    memory: PacingMemory,
    *,
    now: float,
    interval_seconds: float,
    lateness_seconds: float,
) -> tuple[Openings, PacingMemory]:
    """Return the openings from *now* until the next round, and the memory for that round.

    Args:
        pool: the jobs, slots and links.
        memory: the memory of the last round; empty in the first.
        now: Unix seconds.
        interval_seconds: the time between two rounds.
        lateness_seconds: the time until a slot shows an opening and the negotiator has used it.
    """
    this_round = _Round(pool, memory, now, interval_seconds, lateness_seconds)
    result = this_round.run()
    vars(this_round).clear()  # its caches refer to it: its jobs would wait for the garbage collector
    return result


class _Read(NamedTuple):
    """The read of a job at a site: seconds, in all and from each source, and bytes."""

    seconds: float
    site: Site
    by_source: Mapping[Site, float]
    missing_bytes: int

    @property
    def opening(self) -> Opening:
        source = max(self.by_source, key=lambda each: (self.by_source[each], each), default=None)
        return Opening(ceil(min(max(1, self.seconds), MAX_READ_SECONDS)), source, self.missing_bytes)


def _add_ended(pool: PacedPool, before: Sequence[RunningRead]) -> list[RunningRead]:
    """Return the reads of *pool*, and those *before* whose jobs have ended: none took longer than its job."""
    running = Counter((*read[:3], read.started_at) for read in pool.reads)
    reads = [*pool.reads]
    for read in before:
        job = (*read[:3], read.started_at)
        if running[job] > 0:
            running[job] -= 1
        else:
            seconds = min(read.seconds, max(0.0, pool.as_of - read.started_at))
            reads.append(read._replace(seconds=seconds, has_ended=True))
    return reads


@dataclass(slots=True)
class _Link:
    """The reads from one source, which all share its link.

    Attributes:
        reads: those of jobs that run or have ended, and those that kept leases allow.
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

    def sum_seconds(self, now: float) -> float:
        """Return the seconds that the link still needs, and note the sets that it feeds.

        The sum does not depend on how the reads share the link. Nothing is left of those that have ended.
        """
        end, future, running = -inf, 0.0, 0.0
        for read in sorted(self.reads, key=attrgetter("started_at")):
            if read.started_at > now:
                future += read.seconds
                continue
            if read.started_at > end:
                self.busy_since = read.started_at
            end = max(read.started_at, end) + read.seconds
            running += 0.0 if read.has_ended else read.seconds
        left = max(0.0, min(running, end - now))
        self.busy_since = self.busy_since if left else now
        begun = (read for read in self.reads if read.started_at >= self.busy_since)
        self.fed = {read.key for read in begun if not read.has_ended}
        return left + future


_Route = tuple[Site, Mapping[Holders, Mapping[Site, float]]]
"""A site that is no home, with the rates of the sources of the parts that it lacks, fastest first."""


class _AlikeJobs:
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
        find_sources: Callable[[Holders, Site], Mapping[Site, float]],
    ) -> None:
        self.parts, self.request, self.free, self._find_sources = parts, request, free, find_sources
        self.homes = tuple(site for site in free if all(site in part for part in parts))
        self.has_free_slots = any(free[home] for home in self.homes)
        self.idle, self.local = 0, 0.0

    @cached_property
    def routes(self) -> list[_Route]:
        """Return the sites that are no homes and whose slots are large enough."""
        routes: list[_Route] = []
        for site in self.free:
            lacking = (part for part in self.parts if part and site not in part)
            sources = {part: self._find_sources(part, site) for part in lacking}
            if site not in self.homes and all(sources.values()):
                routes.append((site, sources))
        return routes

    @cached_property
    def best_rates(self) -> Collection[Mapping[Holders, float]]:
        """Return the rates at which the parts are read fastest, for each choice of parts that sites lack."""
        best: dict[tuple[Holders, ...], dict[Holders, float]] = {}
        for _, sources in self.routes:
            rates = best.setdefault(tuple(sources), {})
            for part, fastest_first in sources.items():
                rates[part] = max(1.0, rates.get(part, 0.0), *fastest_first.values())
        return best.values()

    def list_excluded(self) -> tuple[Site, ...]:
        """Return the sources of parts that sites with large enough slots lack and may not read."""
        lacking = ((part, site) for site in self.free for part in self.parts if site not in part)
        parts = {part for part, site in lacking if not self._find_sources(part, site)}
        return tuple(sorted({source for part in parts for source in part}))


@dataclass(slots=True)
class _Jobs:
    """Idle jobs of one set and mode that ask for the same resources, in one round."""

    group: JobGroup
    kind: _AlikeJobs
    size: SetBytes
    lanes: Mapping[int, int]
    idle: int
    turn: Turn
    watch: Watch | None


class _Round:
    """The steps of :func:`pace`, and the values that they share."""

    def __init__(
        self, pool: PacedPool, memory: PacingMemory, now: float, interval: float, lateness: float
    ) -> None:
        self._pool, self._now = pool, now
        self._interval, self._lateness, self._room = interval, lateness, interval + lateness
        self._patience = max(interval, PATIENCE_SECONDS)
        self._round = memory.round + 1
        self._slots = group_pairs((slots.site, slots) for slots in pool.slots if slots.count > 0)
        self._cores = {
            site: sum(each.total.cpus * each.count for each in groups) for site, groups in self._slots.items()
        }
        self._kinds: dict[tuple[tuple[Holders, ...], Resources], _AlikeJobs] = {}
        self._jobs: dict[JobGroup, _Jobs] = {}
        self._links: defaultdict[Site | None, _Link] = defaultdict(_Link)  # by source
        self._leases: dict[JobGroup, Lease] = {}
        absent = {key for key, size in pool.sets.items() if () in size.on_disk}
        self._absent_since = {key: at for key, at in memory.absent_since.items() if key in absent}
        self._openings: defaultdict[Site, dict[str, Opening]] = defaultdict(dict)
        self._open_bytes = {False: 0, True: 0}  # by is_refused
        self._closed: dict[tuple[_AlikeJobs, bool], Site] = {}  # a full link, where no route has room
        self._backlog: Counter[Site] = Counter()
        self._waiting_cores: defaultdict[Site, float] = defaultdict(float)  # by home
        self._local_cores: defaultdict[Site, float] = defaultdict(float)  # of free slots, kept for local jobs
        self._count_free = cache(self._count_free_slots)
        self._list_sources = cache(self._find_sources)
        self._wait_seconds = cache(self._compute_wait_seconds)
        self._list_useful = cache(self._find_useful)
        reads = _add_ended(pool, memory.reads)
        self._reads_of = group_pairs((read.key, read) for read in reads)
        for read in reads:
            self._links[read.source].reads.append(read)
        self._count_jobs(memory)
        for link in self._links.values():
            link.running = link.sum_seconds(now)
        self._reads = [read for read in reads if read.started_at >= self._links[read.source].busy_since]
        self._review_leases(memory.leases)
        for link in self._links.values():
            link.reserved = link.sum_seconds(now)

    def run(self) -> tuple[Openings, PacingMemory]:
        """Open sets in turn; see :func:`pace`."""
        outlooks: dict[SetKey, Outlook] = {}
        loads = {
            kind: min((self._waiting_cores[home] / self._cores[home] for home in kind.homes), default=inf)
            for kind in self._kinds.values()
        }
        queue = [jobs for group, jobs in self._jobs.items() if group.is_auto and group not in self._leases]
        # by turn, then the longest backlog at home first, then by chance
        queue.sort(key=lambda jobs: (jobs.turn.round, -loads[jobs.kind], crc32(jobs.group.key.encode())))
        for jobs in queue:
            key, outlook = jobs.group.key, self._decide(jobs)
            if key not in outlooks or outlooks[key].reason is Reason.NOWHERE:  # other jobs may ask for less
                outlooks[key] = outlook
        for (key, *_), lease in self._leases.items():
            fed = self._links[next(iter(lease.openings.values())).source].fed  # of the shortest read
            lanes = () if key in lease.names else lease.lanes
            outlooks[key] = Outlook(Reason.OPEN, tuple(lease.openings), len(fed | {key}), lanes)
        turns = {group: jobs.turn for group, jobs in self._jobs.items()}
        watches = {group: jobs.watch for group, jobs in self._jobs.items() if jobs.watch}
        memory = PacingMemory(self._round, turns, watches, self._leases, self._reads, self._absent_since)
        reuse = min(self._pool.run_seconds, MAX_REUSE_SECONDS)
        until = self._now + self._lateness + 2 * self._interval + reuse
        openings = {site: self._openings.get(site, {}) for site in self._slots}
        return Openings(openings, until, self._backlog, outlooks), memory

    # slots and links

    def _count_free_slots(self, request: Resources) -> Mapping[Site, int]:
        """Return the jobs with *request* that free slots take, by site whose slots are large enough."""
        return {
            site: sum(group.count_jobs(request) for group in groups)
            for site, groups in self._slots.items()
            if any(request.count_in(group.total) for group in groups)
        }

    def _find_sources(self, part: Holders, site: Site) -> Mapping[Site, float]:
        """Return the rates at which *site* can read *part*, by source, fastest first."""
        rates = sorted(((self._pool.find_rate(each, site), each) for each in part), reverse=True)
        return {source: rate for rate, source in rates if rate > 0}

    def _review_leases(self, leases: Mapping[JobGroup, Lease]) -> None:
        """Keep or end each lease."""
        for group, lease in leases.items():
            jobs = self._jobs.get(group)
            if jobs is None:
                continue
            was_refused, lanes = jobs.turn.is_refused, jobs.turn.refused_lanes
            started = sum(
                read.started_at >= lease.opened_at and read.destination in lease.openings
                for read in self._reads_of.get(group.key, ())
            )
            jobs_left = min(lease.jobs - started, sum(jobs.lanes.get(lane, 0) for lane in lease.lanes))
            has_slots = any(jobs.kind.free.get(site) for site in lease.openings)
            is_over = self._pool.as_of - lease.opened_at >= self._room - CLOCK_SLACK_SECONDS
            if jobs_left > 0 and has_slots and not is_over:
                self._publish(jobs, lease)
                start = lease.opened_at + self._lateness
                for source, seconds in lease.by_source.items() if not was_refused else ():
                    read = RunningRead(group.key, source, source, seconds * jobs_left, start)
                    self._links[source].reads.append(read)
                continue
            taken = started if jobs_left > 0 and has_slots else inf
            is_refused = not taken
            lanes = lanes.union(lease.lanes) if is_refused else lanes.difference(lease.lanes)
            if lanes.issuperset(jobs.lanes):
                lanes = frozenset(lease.lanes)
            jobs.turn = Turn(self._round, taken, lanes)
            for source in lease.by_source if is_refused and not was_refused else ():
                self._links[source].unused += 1

    def _has_room(self, source: Site) -> bool:
        """Return True if the link of *source* may have one more lease."""
        link = self._links[source]
        return link.reserved < self._room or (not link.running and link.leases < 2 * link.unused)

    # homes

    def _count_jobs(self, memory: PacingMemory) -> None:
        """Note the idle jobs, and add up those that wait at each home."""
        for group, lanes in self._pool.waiting.items():
            size = self._pool.sets.get(group.key)
            if size is None:
                continue
            name = tuple(size.on_disk), group.request
            if name not in self._kinds:
                self._kinds[name] = _AlikeJobs(*name, self._count_free(group.request), self._list_sources)
            kind = self._kinds[name]
            idle = sum(lanes.values())
            turn = memory.turns.get(group, Turn(self._round))
            watch = memory.watches.get(group) if group.is_auto or kind.has_free_slots else None
            jobs = self._jobs[group] = _Jobs(group, kind, size, lanes, idle, turn, watch)
            kind.idle += idle
            if kind.has_free_slots:
                kind.local += min(idle, self._count_taken(jobs, kind.homes))
        for kind in self._kinds.values():
            for home in kind.homes:
                self._backlog[home] += kind.idle
                self._waiting_cores[home] += kind.idle * kind.request.cpus / len(kind.homes)
                local = min(kind.local / len(kind.homes), kind.free[home])
                self._local_cores[home] += local * kind.request.cpus

    def _count_taken(self, jobs: _Jobs, nearest: Sequence[Site]) -> float:
        """Return the number of jobs of *jobs* that started at its *nearest* sites between the last looks."""
        idle, watch = jobs.idle, jobs.watch or Watch(jobs.idle, self._now)
        if self._now - watch.since >= self._patience - CLOCK_SLACK_SECONDS:
            elsewhere = sum(
                read.started_at >= watch.since and read.destination not in nearest
                for read in self._reads_of.get(jobs.group.key, ())
            )
            watch = Watch(idle, self._now, max(0, watch.idle - idle - elsewhere))
        jobs.watch = watch
        return watch.taken

    def _compute_wait_seconds(self, kind: _AlikeJobs, sites: tuple[Site, ...]) -> float:
        """Return backlog / cores x mean run time, at the best of *sites*."""
        waits = (
            (self._waiting_cores[site] - kind.free[site] * kind.request.cpus) / self._cores[site]
            for site in sites
        )
        return max(0.0, min(waits, default=inf)) * self._pool.run_seconds

    def _has_time(self, jobs: _Jobs, nearest: tuple[Site, ...], read_seconds: float) -> bool:
        """Return True if *jobs* would start at their *nearest* sites before a longer read elsewhere ended."""
        if self._wait_seconds(jobs.kind, nearest) < read_seconds:
            taken = self._count_taken(jobs, nearest)
            return jobs.idle * self._patience < read_seconds * taken
        if not jobs.kind.has_free_slots:
            jobs.watch = None
        return False

    def _count_slots(self, kind: _AlikeJobs, site: Site) -> int:
        """Return the free slots of *site* that its own idle jobs leave."""
        return max(0, kind.free[site] - ceil(self._local_cores[site] / kind.request.cpus - 1e-6))

    def _is_useful(self, kind: _AlikeJobs, site: Site, is_short: bool) -> bool:
        """Return True if *site* has free slots, or no jobs that wait for its slots.

        For short reads it is enough that these have started when an opening arrives.
        """
        if self._count_slots(kind, site) > 0 or self._waiting_cores[site] < 0.5:
            return True
        own_seconds = self._waiting_cores[site] / self._cores[site] * self._pool.run_seconds
        return is_short and own_seconds < self._lateness

    def _find_useful(self, kind: _AlikeJobs, *, is_short: bool) -> list[_Route]:
        return [route for route in kind.routes if self._is_useful(kind, route[0], is_short)]

    # decisions

    def _decide(self, jobs: _Jobs) -> Outlook:
        """Open *jobs* if they may be; return their outlook."""
        kind, homes = jobs.kind, jobs.kind.homes
        if () in kind.parts:  # a catalogue may list the data soon
            since = self._absent_since.setdefault(jobs.group.key, self._now)
            wait = MOVING_SECONDS if jobs.size.is_moving else ABSENT_SECONDS
            if self._now - since < wait:
                return Outlook(Reason.ABSENT, (), round(wait))
        if homes and not self._list_useful(kind, is_short=True):
            return self._describe_home(jobs)
        shortest = self._find_shortest(jobs.size, kind)
        if homes and self._has_time(jobs, homes, shortest):
            return self._describe_home(jobs)
        is_short = shortest <= self._interval
        routes = self._list_useful(kind, is_short=is_short) if homes else kind.routes
        if not routes:
            return self._describe_home(jobs) if homes else Outlook(Reason.NOWHERE, kind.list_excluded())
        alike = kind, is_short
        if alike not in self._closed and not any(map(self._is_passable, routes)):
            self._closed[alike] = self._find_full(source for part in routes[0][1].values() for source in part)
        if alike in self._closed:
            return self._describe_turn(self._closed[alike])
        if self._is_crowded(jobs):
            return Outlook(Reason.TURN, (), len(self._leases))
        return self._choose_reads(jobs, self._find_reads(jobs.size, routes), is_short)

    def _find_shortest(self, size: SetBytes, kind: _AlikeJobs) -> float:
        """Return the seconds of the shortest read of a set, from the fastest sources."""
        partial = self._find_reads(size, [route for route in kind.routes if route[0] in size.partial])
        whole = (sum(size.on_disk[part] / rate for part, rate in rates.items()) for rates in kind.best_rates)
        return min([inf, *whole, *(read.seconds for read in partial)])

    def _describe_home(self, jobs: _Jobs) -> Outlook:
        return Outlook(Reason.BESIDE, jobs.kind.homes, min(self._backlog[home] for home in jobs.kind.homes))

    def _describe_turn(self, source: Site) -> Outlook:
        """Return the outlook of jobs that wait for the full link of *source*."""
        link = self._links[source]
        link.in_turn += 1
        return Outlook(Reason.TURN, (source,), len(link.fed) + link.in_turn - 1)

    def _find_full(self, sources: Iterable[Site]) -> Site:
        return next(source for source in sources if not self._has_room(source))

    def _is_passable(self, route: _Route) -> bool:
        """Return True if links have room for a read on *route*."""
        return all(any(map(self._has_room, sources)) for sources in route[1].values())

    def _is_crowded(self, jobs: _Jobs) -> bool:
        """Return True if the ads have no more room for *jobs*; each link has room for one set."""
        is_refused, sources = jobs.turn.is_refused, [site for part in jobs.kind.parts for site in part]
        limit = MAX_OPEN_BYTES / 2 if is_refused else MAX_OPEN_BYTES
        is_extra = is_refused or not sources or any(self._links[source].leases for source in sources)
        return is_extra and self._open_bytes[is_refused] >= limit

    def _find_reads(self, size: SetBytes, routes: Sequence[_Route]) -> list[_Read]:
        """Return the reads of a set on *routes*, the shortest first.

        The source of each part is the fastest whose link has room, else the fastest.
        """
        reads = []
        for site, rates_by_part in routes:
            missing = sum(size.on_disk[part] for part in rates_by_part)
            share = max(0.0, 1 - size.partial.get(site, 0) / max(1, missing))
            by_source: dict[Site, float] = {}
            for part, rates in rates_by_part.items():
                source = next(filter(self._has_room, rates), next(iter(rates)))
                seconds = share * size.on_disk[part] / rates[source]
                by_source[source] = by_source.get(source, 0.0) + seconds
            reads.append(_Read(sum(by_source.values()), site, by_source, round(missing * share)))
        return sorted(reads)

    def _choose_reads(self, jobs: _Jobs, reads: Sequence[_Read], is_short: bool) -> Outlook:
        """Open *jobs* for those of *reads* that are useful and fit; return their outlook."""
        kind, is_refused = jobs.kind, jobs.turn.is_refused
        nearest = kind.homes or tuple(read.site for read in reads if read.seconds == reads[0].seconds)
        gains = [read.seconds - reads[0].seconds for read in reads if read.site not in nearest]
        if not kind.homes and () not in kind.parts and gains and self._has_time(jobs, nearest, gains[0]):
            reads = [read for read in reads if read.site in nearest]
        slots = {read.site: self._count_slots(kind, read.site) for read in reads}
        reads = [read for read in reads if read.site in nearest or self._is_useful(kind, read.site, is_short)]
        best = next((read for read in reads if slots[read.site]), reads[0])
        is_small = not is_refused and self._is_small(best)

        def fits(read: _Read) -> bool:
            return self._is_small(read) if is_small else all(map(self._has_room, read.by_source))

        reads = list(filter(fits, reads))
        if not reads:
            return self._describe_turn(self._find_full(best.by_source))
        reads = [  # sites with shorter reads may take all jobs
            read
            for read in reads
            if sum(min(slots[each.site], jobs.turn.taken) for each in reads if each.seconds < read.seconds)
            < jobs.idle
        ]
        self._open(jobs, reads, max(1, sum(slots[read.site] for read in reads)), is_whole=is_small)
        return Outlook(Reason.OPEN, tuple(read.site for read in reads))

    def _is_small(self, read: _Read) -> bool:
        """Return True if *read* is shorter than a round, so are the running reads of its sources, and those
        that are allowed leave room.
        """
        links = [self._links[source] for source in read.by_source]
        return read.seconds <= self._interval and all(
            link.running < self._interval and link.reserved < self._room for link in links
        )

    def _open(self, jobs: _Jobs, reads: Sequence[_Read], slots: int, *, is_whole: bool) -> None:
        """Open *jobs* for *reads*: whole, or the smallest lanes that fill *slots* and fit the room, and were
        not refused.

        One lane is opened in any case.
        """
        by_source = {source: each for read in reversed(reads) for source, each in read.by_source.items()}
        fitting = min(
            (
                (self._room - self._links[source].reserved) / max(each, 1)
                for source, each in by_source.items()
            ),
            default=inf,
        )
        lanes: list[int] = []
        count = 0
        refused = jobs.turn.refused_lanes
        for _, more, lane in sorted((lane in refused, count, lane) for lane, count in jobs.lanes.items()):
            if lanes and not is_whole and (count >= slots or min(count + more, slots) > fitting):
                break
            lanes.append(lane)
            count += more
        key = jobs.group.key
        names = (str(key),) if count == jobs.idle else tuple(f"{key}~{lane}" for lane in lanes)
        openings = {read.site: read.opening for read in reads}
        count = min(count, slots)
        self._publish(jobs, Lease(names, tuple(lanes), openings, by_source, count, self._now))
        for source, seconds in by_source.items() if not jobs.turn.is_refused else ():
            self._links[source].fed.add(key)
            self._links[source].reserved += seconds * count

    def _publish(self, jobs: _Jobs, lease: Lease) -> None:
        self._leases[jobs.group] = lease
        self._open_bytes[jobs.turn.is_refused] += sum(len(name) + NAME_BYTES for name in lease.names)
        for site, opening in lease.openings.items():
            self._openings[site].update(dict.fromkeys(lease.names, opening))
        for source in lease.by_source if not jobs.turn.is_refused else ():
            self._links[source].leases += 1

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

An opening reserves the time of a link by a *lease*, that of the reads of its jobs that have not started. It
ends when its jobs have started, when no slot is free, or when all had one interval to see it.
If jobs are left beside free slots, these slots count next time as the jobs that started, so that sites with
longer reads are opened, too. If no job started, the slots *refuse* the set: it is opened again in turn, at all sites
that have room, and reserves nothing. A link that stood idle meanwhile has twice as many leases in the next round.
So sets that no slot takes delay the others by a few rounds, and none is given up. An ad has room for some 300
sets, so those of thousands are open in turn.

This module is pure. :class:`~hydrator.reconcile.paced_pool.PacedPool` has the inputs.
"""  # noqa: E501

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf
from typing import Final, NamedTuple
from zlib import crc32

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.openings import Opening, Openings, Outlook, Reason
from hydrator.domain.model import Site
from hydrator.domain.ports import Resources
from hydrator.domain.text import group_pairs
from hydrator.reconcile.paced_pool import (
    AlikeJobs,
    Holders,
    JobGroup,
    Link,
    PacedPool,
    Read,
    Route,
    RunningRead,
    SetBytes,
    SiteWork,
    find_reads,
    find_sources,
)

MAX_OPEN_BYTES: Final = 15_000
"""Bytes of an ad for open sets: up to this, sets are added to those that a link reads anyway.

Sets that slots refuse have half as much of their own, so neither they nor the others crowd out the rest.
"""
NAME_BYTES: Final = 16
"""Bytes of an open set in an ad, beside its name."""
ABSENT_SECONDS, MOVING_SECONDS = 600.0, 86_400.0
"""Jobs with data that no site has on disk wait for it for this time, the second if it is on its way or cannot
be read now; then they may run anywhere."""
REUSE_SECONDS: Final = 600.0
"""A schedd starts the next jobs of a slot by the ad with which it claimed the slot, while the openings in it
are valid; else the slot waits for the negotiator after each job. So they outlast the next round's arrival by
this time. A set that is closed meanwhile stays closed: START looks at the live ad.
"""
PATIENCE_SECONDS: Final = 60.0
"""HTCondor's NEGOTIATOR_INTERVAL: free slots at home that started no job for so long count as refusing."""
CLOCK_SLACK_SECONDS: Final = 1.0
"""A round may begin this much before its time."""


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
    pool: PacedPool, memory: PacingMemory, *, now: float, interval_seconds: float, lateness_seconds: float
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


@dataclass(slots=True)
class _Jobs:
    """Idle jobs of one set and mode that ask for the same resources, in one round."""

    group: JobGroup
    kind: AlikeJobs
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
        self._kinds: dict[tuple[tuple[Holders, ...], Resources], AlikeJobs] = {}
        self._jobs: dict[JobGroup, _Jobs] = {}
        self._links: defaultdict[Site | None, Link] = defaultdict(Link)  # by source
        self._leases: dict[JobGroup, Lease] = {}
        absent = {key for key, size in pool.sets.items() if () in size.on_disk}
        self._absent_since = {key: min(at, now) for key, at in memory.absent_since.items() if key in absent}
        self._open_bytes = {False: 0, True: 0}  # by is_refused
        self._closed: dict[tuple[AlikeJobs, bool], Site] = {}  # a full link, where no route has room
        self._count_free = cache(pool.count_free)
        self._list_sources = cache(partial(find_sources, pool.find_rate))
        self._list_useful = cache(self._find_useful)
        reads = pool.add_ended(memory.reads)
        self._reads_of = group_pairs((read.key, read) for read in reads)
        for read in reads:
            self._links[read.source].reads.append(read)
        self._count_jobs(memory)
        self._work = SiteWork(pool, self._kinds.values())
        self._openings: dict[Site, dict[str, Opening]] = {site: {} for site in self._work.cores}
        self._wait_seconds = cache(self._work.compute_wait_seconds)
        for link in self._links.values():
            link.add_up(now)
        self._reads = [read for read in reads if read.started_at >= self._links[read.source].busy_since]
        self._review_leases(memory.leases)

    def run(self) -> tuple[Openings, PacingMemory]:
        """Open sets in turn; see :func:`pace`."""
        outlooks: dict[SetKey, Outlook] = {}
        waits = {kind: self._wait_seconds(kind, kind.homes) for kind in self._kinds.values()}
        queue = [jobs for group, jobs in self._jobs.items() if group.is_auto and group not in self._leases]
        # by turn, then the longest backlog at home first, then by chance
        queue.sort(key=lambda jobs: (jobs.turn.round, -waits[jobs.kind], crc32(jobs.group.key.encode())))
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
        valid_seconds = self._lateness + 2 * self._interval + REUSE_SECONDS
        return Openings(self._openings, self._now + valid_seconds, self._work.backlog, outlooks), memory

    # leases

    def _review_leases(self, leases: Mapping[JobGroup, Lease]) -> None:
        """Keep or end each lease."""
        for group, lease in leases.items():
            jobs = self._jobs.get(group)
            if jobs is None:
                continue
            started = sum(
                read.started_at >= lease.opened_at and read.destination in lease.openings
                for read in self._reads_of.get(group.key, ())
            )
            jobs_left = min(lease.jobs - started, sum(jobs.lanes.get(lane, 0) for lane in lease.lanes))
            free = jobs.kind.free  # a site that is gone has no entry
            openings = {site: one for site, one in lease.openings.items() if site in free}
            taken: float = started
            if jobs_left <= 0 or not any(free[site] for site in openings):
                taken = inf
            elif self._pool.as_of - lease.opened_at < self._room - CLOCK_SLACK_SECONDS:
                self._publish(jobs, replace(lease, openings=openings), jobs_left)
                continue
            for source in lease.by_source if not taken and not jobs.turn.is_refused else ():
                self._links[source].unused += 1
            before = jobs.turn.refused_lanes
            refused = before.difference(lease.lanes) if taken else before.union(lease.lanes)
            if refused.issuperset(jobs.lanes):
                refused = frozenset(lease.lanes)
            jobs.turn = Turn(self._round, taken, refused)

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
                self._kinds[name] = AlikeJobs(*name, self._count_free(group.request), self._list_sources)
            kind = self._kinds[name]
            idle = sum(lanes.values())
            turn = memory.turns.get(group, Turn(self._round))
            watch = memory.watches.get(group) if group.is_auto or kind.has_free_slots else None
            jobs = self._jobs[group] = _Jobs(group, kind, size, lanes, idle, turn, watch)
            kind.idle += idle
            if kind.has_free_slots:
                kind.local += min(idle, self._count_taken(jobs, kind.homes))

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

    def _has_time(self, jobs: _Jobs, nearest: tuple[Site, ...], read_seconds: float) -> bool:
        """Return True if *jobs* would start at their *nearest* sites before a longer read elsewhere ended."""
        if self._wait_seconds(jobs.kind, nearest) < read_seconds:
            taken = self._count_taken(jobs, nearest)
            return jobs.idle * self._patience < read_seconds * taken
        if not jobs.kind.has_free_slots:
            jobs.watch = None
        return False

    def _find_useful(self, kind: AlikeJobs, *, is_short: bool) -> list[Route]:
        """Return the routes to sites that could take jobs; for short reads, when an opening arrives."""
        within_seconds = self._lateness if is_short else 0.0
        return [route for route in kind.routes if self._work.is_useful(kind, route[0], within_seconds)]

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
        shortest = kind.find_shortest(jobs.size)
        is_short = shortest <= self._interval
        routes = self._list_useful(kind, is_short=is_short) if homes else kind.routes
        if homes and (not routes or self._has_time(jobs, homes, shortest)):
            return self._describe_home(jobs)
        if not routes:
            return Outlook(Reason.NOWHERE, kind.list_excluded())
        alike = kind, is_short
        if alike not in self._closed and not any(map(self._is_passable, routes)):
            self._closed[alike] = self._find_full(source for part in routes[0][1].values() for source in part)
        if alike in self._closed:
            return self._describe_turn(self._closed[alike])
        if self._is_crowded(jobs):
            return Outlook(Reason.TURN, (), len(self._leases))
        return self._choose_reads(jobs, find_reads(jobs.size, routes, self._has_room), is_short)

    def _describe_home(self, jobs: _Jobs) -> Outlook:
        return Outlook(
            Reason.BESIDE, jobs.kind.homes, min(self._work.backlog[home] for home in jobs.kind.homes)
        )

    def _describe_turn(self, source: Site) -> Outlook:
        """Return the outlook of jobs that wait for the full link of *source*."""
        link = self._links[source]
        link.in_turn += 1
        return Outlook(Reason.TURN, (source,), len(link.fed) + link.in_turn - 1)

    def _find_full(self, sources: Iterable[Site]) -> Site:
        return next(source for source in sources if not self._has_room(source))

    def _is_passable(self, route: Route) -> bool:
        """Return True if links have room for a read on *route*."""
        return all(any(map(self._has_room, sources)) for sources in route[1].values())

    def _is_crowded(self, jobs: _Jobs) -> bool:
        """Return True if the ads have no more room for *jobs*; each link has room for one set."""
        is_refused, sources = jobs.turn.is_refused, [site for part in jobs.kind.parts for site in part]
        is_extra = is_refused or not sources or any(self._links[source].leases for source in sources)
        return is_extra and self._open_bytes[is_refused] >= MAX_OPEN_BYTES / (1 + is_refused)

    def _choose_reads(self, jobs: _Jobs, reads: Sequence[Read], is_short: bool) -> Outlook:
        """Open *jobs* for those of *reads* that are useful and fit; return their outlook."""
        kind = jobs.kind
        nearest = kind.homes or tuple(read.site for read in reads if read.seconds == reads[0].seconds)
        gains = [read.seconds - reads[0].seconds for read in reads if read.site not in nearest]
        if not kind.homes and () not in kind.parts and gains and self._has_time(jobs, nearest, gains[0]):
            reads = [read for read in reads if read.site in nearest]
        slots = {read.site: self._work.count_slots(kind, read.site) for read in reads}
        useful = [*nearest, *(site for site, _ in self._list_useful(kind, is_short=is_short))]
        reads = [read for read in reads if read.site in useful]
        best = next((read for read in reads if slots[read.site]), reads[0])
        is_small = not jobs.turn.is_refused and self._is_small(best)
        fits = self._is_small if is_small else self._has_links
        reads = list(filter(fits, reads))
        if not reads:
            return self._describe_turn(self._find_full(best.by_source))
        takes = {site: min(count, jobs.turn.taken) for site, count in slots.items()}
        reads = [  # sites with shorter reads may take all jobs
            read
            for read in reads
            if sum(takes[each.site] for each in reads if each.seconds < read.seconds) < jobs.idle
        ]
        self._open(jobs, reads, max(1, sum(slots[read.site] for read in reads)), is_whole=is_small)
        return Outlook(Reason.OPEN, tuple(read.site for read in reads))

    def _has_links(self, read: Read) -> bool:
        return all(map(self._has_room, read.by_source))

    def _is_small(self, read: Read) -> bool:
        """Return True if *read* is shorter than a round, so are the running reads of its sources, and those
        that are allowed leave room.
        """
        links = [self._links[source] for source in read.by_source]
        return read.seconds <= self._interval and all(
            link.running < self._interval and link.reserved < self._room for link in links
        )

    def _open(self, jobs: _Jobs, reads: Sequence[Read], slots: int, *, is_whole: bool) -> None:
        """Open *jobs* for *reads*: whole, or the smallest lanes that fill *slots* and fit the room, and were
        not refused.

        One lane is opened in any case.
        """
        by_source = {source: each for read in reversed(reads) for source, each in read.by_source.items()}
        left = {source: self._room - self._links[source].reserved for source in by_source}
        fitting = min((left[source] / max(each, 1) for source, each in by_source.items()), default=inf)
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
        self._publish(jobs, Lease(names, tuple(lanes), openings, by_source, count, self._now), count)

    def _publish(self, jobs: _Jobs, lease: Lease, jobs_left: int) -> None:
        self._leases[jobs.group] = lease
        self._open_bytes[jobs.turn.is_refused] += sum(len(name) + NAME_BYTES for name in lease.names)
        for site, opening in lease.openings.items():
            self._openings[site].update(dict.fromkeys(lease.names, opening))
        for source, seconds in lease.by_source.items() if not jobs.turn.is_refused else ():
            self._links[source].add_lease(jobs.group.key, seconds * jobs_left)

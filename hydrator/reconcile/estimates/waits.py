"""Waits of one more job: *queues*, until a slot beside its data is free, and *reads*, until the data is read.

A site's slots start idle jobs one after another. With n cores of idle jobs before it, one more job starts
when n + 1 cores came free. Free cores count at once, busy cores after the remaining seconds of their jobs.
Each core then takes the next job after the mean run time.

A job elsewhere reads the datasets of its set that its site lacks. All readers of a source share its rate.
So a read takes the seconds without other readers, times the present readers and the new one, and some more
readers that start before the next estimate (half a portion).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import permutations

from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS, JobQueue, Rate, RateLookup, SetEstimate
from hydrator.domain.model import Site
from hydrator.domain.ports import SiteSlots

from .changes import to_class
from .run_times import DatasetSet, Holders, Holdings

_STEPS = 40
"""Halvings of the interval in which a queue's end is searched."""
DIGITS = 6
"""Digits of cores after the point that count: less is an error of a sum, and would be a core too many."""


@dataclass(frozen=True, slots=True)
class QueuedWork:
    """Idle jobs that wait for the same slots: the sites that have their data, and the work.

    ``cores`` and ``core_seconds`` are the sums over ``job_count`` jobs.
    """

    homes: frozenset[Site]
    job_count: float
    cores: float
    core_seconds: float


class SiteQueues:
    """The queues of the sites that have slots.

    Args:
        slots: the slots of the pool.
        work: the idle jobs, in any order.
        busy: by site, the remaining seconds and the cores of each running job.
        run_seconds: by site, the expected run time of a job there if no idle job is bound to the site.
        default_run_seconds: the same for a site without running jobs.
    """

    def __init__(
        self,
        slots: Iterable[SiteSlots],
        work: Iterable[QueuedWork],
        busy: Mapping[Site, Sequence[tuple[float, float]]],
        run_seconds: Mapping[Site, float],
        default_run_seconds: float,
    ) -> None:
        self._slots: dict[Site, list[SiteSlots]] = {}
        for group in slots:
            if group.slot_count > 0 and group.total_cpus > 0:
                self._slots.setdefault(group.site, []).append(group)
        self._busy = {site: sorted(busy.get(site, ())) for site in self._slots}
        self._typical_run_seconds = {
            site: max(1.0, run_seconds.get(site, default_run_seconds)) for site in self._slots
        }
        fitting = [replace(each, homes=self._homes_with_room(each)) for each in work]
        self._shares = assign_work(fitting, {site: self._rate_and_free(site) for site in self._slots})
        self._seconds: dict[tuple[Site, int], float] = {}

    @property
    def sites(self) -> frozenset[Site]:
        """Return the sites with slots."""
        return frozenset(self._slots)

    def describe(self, site: Site) -> JobQueue:
        """Return the numbers that explain the queue of *site*."""
        share, groups = self._shares.get(site), self._slots.get(site, ())
        return JobQueue(
            share.job_count if share else 0.0,
            sum(group.free_cpus * group.slot_count for group in groups),
            sum(group.total_cpus * group.slot_count for group in groups),
            self._run_seconds(site) if groups else 0.0,
        )

    def own_seconds(self, site: Site) -> float:
        """Return the seconds until *site* has a slot for more than its own idle jobs; 0 without idle jobs."""
        share = self._shares.get(site)
        if share is None or site not in self._slots:
            return 0.0
        return self.seconds(site, share.cores / share.job_count)

    def seconds(self, site: Site, cpus: float) -> float:
        """Return the seconds until one more job of *cpus* cores starts at *site*; infinity if it cannot."""
        cores = _whole_cores(cpus)
        if (site, cores) not in self._seconds:
            self._seconds[site, cores] = self._compute(site, cores)
        return self._seconds[site, cores]

    def _compute(self, site: Site, cores: int) -> float:
        groups = self._slots.get(site, ())
        total = sum(math.floor(group.total_cpus / cores) * cores * group.slot_count for group in groups)
        free = sum(math.floor(group.free_cpus / cores) * cores * group.slot_count for group in groups)
        if not total:
            return math.inf
        share = self._shares.get(site)
        needed = (share.cores if share else 0.0) + cores
        if needed <= free:
            return 0.0
        return _time_of_start(needed, free, total, self._busy[site], self._run_seconds(site))

    def _run_seconds(self, site: Site) -> float:
        share = self._shares.get(site)
        return max(1.0, share.core_seconds / share.cores) if share else self._typical_run_seconds[site]

    def _homes_with_room(self, jobs: QueuedWork) -> frozenset[Site]:
        """Return the homes of *jobs* with a slot that is large enough for one of them.

        Jobs that can never start at a site do not delay others there.
        """
        cores = _whole_cores(jobs.cores / jobs.job_count)
        return frozenset(
            home
            for home in jobs.homes & self._slots.keys()
            if any(group.total_cpus >= cores for group in self._slots[home])
        )

    def _rate_and_free(self, site: Site) -> tuple[float, float]:
        """Return the cores that come free each second, and the cores that are free now."""
        total = sum(group.total_cpus * group.slot_count for group in self._slots[site])
        free = sum(group.free_cpus * group.slot_count for group in self._slots[site])
        return total / self._typical_run_seconds[site], free


def _whole_cores(cpus: float) -> int:
    return max(1, math.ceil(round(cpus, DIGITS)))


def _time_of_start(
    needed: float, free: float, total: float, busy: Sequence[tuple[float, float]], run_seconds: float
) -> float:
    """Return the time when *needed* cores have come free, of *total* cores of which *free* are free now.

    *busy* has the remaining seconds and cores of running jobs, sorted. Busy cores without a known job end at
    equal distances during *run_seconds*. If the jobs have more cores than are busy, some of them run in slots
    that do not count, such as slots that drain. It is unknown which, so each job counts in part.
    """
    busy_cores, known_cores = total - free, sum(cores for _, cores in busy)
    part = min(1.0, busy_cores / known_cores) if known_cores > 0 else 0.0
    known = [(remaining, cores * part) for remaining, cores in busy] if part > 0 else []
    unknown = busy_cores - known_cores * part

    def count_starts(seconds: float) -> float:
        count = free * (1 + math.floor(seconds / run_seconds)) + max(0.0, unknown) * seconds / run_seconds
        for remaining, cores in known:
            if remaining > seconds:
                break
            count += cores * (1 + math.floor((seconds - remaining) / run_seconds))
        return count

    low, high = 0.0, (needed / total + 1) * run_seconds + (known[-1][0] if known else 0.0)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if count_starts(middle) >= needed:
            high = middle
        else:
            low = middle
    return high


def assign_work(
    work: Iterable[QueuedWork], sites: Mapping[Site, tuple[float, float]]
) -> dict[Site, QueuedWork]:
    """Return the sum of the *work* at each site; work with several homes goes where it starts first.

    Args:
        work: idle jobs; those without a home among *sites* are left out.
        sites: by site, the cores that come free each second, and the cores that are free now.
    """
    sums: dict[Site, list[float]] = {}
    several = []
    for jobs in work:
        homes = sorted(jobs.homes & sites.keys())
        if len(homes) == 1:
            _add(sums, homes[0], jobs, 1.0)
        elif homes:
            several.append((homes, jobs))
    for homes, jobs in sorted(several, key=lambda item: (len(item[0]), item[0], item[1].core_seconds)):
        for site, share in _split(jobs.cores, homes, sums, sites).items():
            _add(sums, site, jobs, share)
    shares = {}
    for site, (count, cores, core_seconds) in sums.items():
        if whole := round(cores, DIGITS):
            scale = whole / cores
            shares[site] = QueuedWork(frozenset({site}), count * scale, whole, core_seconds * scale)
    return shares


def _add(sums: dict[Site, list[float]], site: Site, jobs: QueuedWork, share: float) -> None:
    if share > 0:
        total = sums.setdefault(site, [0.0, 0.0, 0.0])
        for place, value in enumerate((jobs.job_count, jobs.cores, jobs.core_seconds)):
            total[place] += value * share


def _split(
    cores: float,
    homes: Sequence[Site],
    sums: Mapping[Site, Sequence[float]],
    sites: Mapping[Site, tuple[float, float]],
) -> dict[Site, float]:
    """Return the share of *cores* (0 to 1) that each of *homes* takes, so that all start equally late."""

    def room(site: Site, seconds: float) -> float:
        rate, free = sites[site]
        return max(0.0, free + rate * seconds - (sums[site][1] if site in sums else 0.0))

    low, high = -1.0, 1.0
    while sum(room(site, high) for site in homes) < cores:
        high *= 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if sum(room(site, middle) for site in homes) >= cores:
            high = middle
        else:
            low = middle
    rooms = {site: room(site, high) for site in homes}
    total = sum(rooms.values())
    return {site: size / total for site, size in rooms.items()}


@dataclass(frozen=True, slots=True)
class Read:
    """The read of a set's missing bytes at one site.

    ``seconds`` is None if no source takes further readers, or if no site has the bytes. ``mean_seconds`` are
    the same with the mean number of readers of the last cycles. ``lone_seconds`` are
    the seconds without other readers. ``source`` has most of the missing bytes; ``rate`` is its rate.
    ``ready_at`` is the end of staging at this site, if a job would wait for the staging.
    ``link_seconds`` are the seconds of a lone read from the fastest sources, whatever the readers; if a job
    would wait for the staging, the seconds until then. ``is_quiet`` if nothing has read from the sources for
    some minutes.
    """

    seconds: float | None
    lone_seconds: float | None = None
    source: Site | None = None
    rate: Rate | None = None
    missing_bytes: int = 0
    ready_at: datetime | None = None
    mean_seconds: float | None = None
    link_seconds: float | None = None
    is_quiet: bool = False


@dataclass(frozen=True, slots=True)
class _ReadSource:
    """The best source of datasets that several sites have; ``is_open`` if it takes further readers.

    ``best_rate`` is the rate of the fastest source, in bytes/s, whatever the readers.
    """

    site: Site
    rate: Rate
    is_open: bool
    best_rate: float


class Reads:
    """The reads of one cycle.

    Args:
        holdings: the datasets at each site.
        rates: the rates between the sites.
        readers: by source, the jobs that read from it now.
        mean_readers: by source, the mean number of readers in the last cycles.
        closed: the sources that take no further readers.
        busy: the sources that had a reader in the last minutes.
        portion: the jobs that may start to read from one source before the next estimate.
        now: aware UTC time of the cycle.
    """

    def __init__(
        self,
        holdings: Holdings,
        rates: RateLookup,
        readers: Mapping[Site, int],
        *,
        mean_readers: Mapping[Site, float],
        closed: AbstractSet[Site],
        busy: AbstractSet[Site],
        portion: float,
        now: datetime,
    ) -> None:
        self._holdings = holdings
        self._rates = rates
        self._readers = readers
        self._mean_readers = mean_readers
        self._closed = closed
        self._busy = busy
        self._portion = portion
        self._now = now
        self._known_rates: dict[tuple[Site, Site], Rate | None] = {}
        self._sources: dict[tuple[Holders, Site], _ReadSource | None] = {}

    def read(self, one: DatasetSet, site: Site) -> Read | None:
        """Return the read of *one* by a job at *site*; None if a size or all rates are unknown."""
        if site in one.homes:
            return Read(0.0, mean_seconds=0.0, link_seconds=0.0)
        ready_at = self._holdings.ready_at(one, site)
        transfer = self._transfer(one, site)
        if ready_at is None:
            return transfer
        wait = max(0.0, (ready_at - self._now).total_seconds())
        if transfer is not None and transfer.seconds is not None and transfer.seconds <= wait:
            return transfer
        missing = transfer.missing_bytes if transfer else 0
        return Read(
            wait, wait, missing_bytes=missing, ready_at=ready_at, mean_seconds=wait, link_seconds=wait
        )

    @property
    def lacks_rates(self) -> bool:
        """Return True if no rate between two sites is known."""
        if any(self._known_rates.values()):
            return False
        return not any(self._rate(*pair) for pair in permutations(self._holdings.sites, 2))

    def find_source(
        self, one: DatasetSet, site: Site, named: Site | None = None
    ) -> tuple[Site, float] | None:
        """Return the source of most bytes of *one* that *site* lacks, and the seconds of a lone read.

        The source is *named* if it is given and its rate is known.
        """
        transfer = self._transfer(one, site)
        if transfer is None or transfer.source is None or transfer.lone_seconds is None:
            return None
        if named is not None and named != transfer.source and transfer.rate is not None:
            rate = self._rate(named, site)
            if rate is not None and rate.bytes_per_second > 0:
                return named, transfer.lone_seconds * transfer.rate.bytes_per_second / rate.bytes_per_second
        return transfer.source, transfer.lone_seconds

    def _transfer(self, one: DatasetSet, site: Site) -> Read | None:
        """Return the read from other sites; None if a size is unknown, or no rate to datasets is known."""
        if one.bytes_by_holders is None:
            return None
        parts = [part for part in self._holdings.missing_bytes(one, site).items() if part[1] > 0]
        missing = round(sum(size for _, size in parts))
        if any(not holders for holders, _ in parts):
            return Read(None, missing_bytes=missing)
        lone_seconds = seconds = mean_seconds = link_seconds = most = 0.0
        best: _ReadSource | None = None
        is_open = is_quiet = True
        for holders, size in parts:
            source = self._best_source(holders, site)
            if source is None:
                return None
            if source.rate.bytes_per_second <= 0:
                return Read(None, missing_bytes=missing)
            lone = size / source.rate.bytes_per_second
            lone_seconds += lone
            others = 1 + self._portion / 2
            seconds += lone * (self._readers.get(source.site, 0) + others)
            mean_seconds += lone * (self._mean_readers.get(source.site, 0.0) + others)
            link_seconds += size / source.best_rate
            is_open = is_open and source.is_open
            is_quiet = is_quiet and source.site not in self._busy
            if best is None or size > most:
                best, most = source, size
        if best is None:
            return Read(0.0, mean_seconds=0.0, link_seconds=0.0)
        return Read(
            seconds if is_open else None,
            lone_seconds,
            best.site,
            best.rate,
            missing,
            mean_seconds=mean_seconds if is_open else None,
            link_seconds=link_seconds,
            is_quiet=is_quiet,
        )

    def _sharers(self, source: Site) -> float:
        return self._readers.get(source, 0) + 1 + self._portion / 2

    def _best_source(self, holders: Holders, site: Site) -> _ReadSource | None:
        """Return the source among *holders* with the fastest read at *site*, an open one if there is one."""
        question = holders, site
        if question not in self._sources:
            answers = ((holder, self._rate(holder, site)) for holder in holders)
            rates = [(holder, rate) for holder, rate in answers if rate is not None]
            best_rate = max((rate.bytes_per_second for _, rate in rates), default=0.0)
            sources = [
                _ReadSource(holder, rate, holder not in self._closed, best_rate) for holder, rate in rates
            ]
            self._sources[question] = max(sources, key=self._preference, default=None)
        return self._sources[question]

    def _preference(self, source: _ReadSource) -> tuple[bool, bool, float, Site]:
        rate = source.rate.bytes_per_second
        return rate > 0, source.is_open, rate / self._sharers(source.site), source.site

    def _rate(self, source: Site, destination: Site) -> Rate | None:
        question = source, destination
        if question not in self._known_rates:
            self._known_rates[question] = self._rates.rate(source, destination)
        return self._known_rates[question]


@dataclass(frozen=True, slots=True)
class CycleSets:
    """The queue and the read of a set of datasets, as of one cycle."""

    holdings: Holdings
    queues: SiteQueues
    reads: Reads
    readers: Mapping[Site, int]
    now: datetime

    def estimate_queue(
        self, one: DatasetSet, cpus: float, previous: int | None, least: float = 0.0
    ) -> tuple[int, Site | None] | None:
        """Return the class of the queue seconds of *one*, and its site; None: its data is nowhere.

        At a site that still stages datasets, a job waits for the staging and for a slot at the same time. The
        queue seconds are *least* or more.
        """
        waits = []
        for site in self.queues.sites & self.holdings.sites.keys():
            ready_at = None if site in one.homes else self.holdings.ready_at(one, site)
            if site in one.homes or ready_at is not None:
                staging = (ready_at - self.now).total_seconds() if ready_at else 0.0
                waits.append((max(staging, self.queues.seconds(site, cpus)), site))
        seconds, queue_site = min(waits, default=(float(NO_QUEUE_SECONDS), None))
        if queue_site is None and () in (one.bytes_by_holders or {}):
            return None
        seconds = max(seconds, least)
        if seconds >= NO_QUEUE_SECONDS:
            queue_site = None
        return to_class(seconds, previous), queue_site

    def build_estimate(self, read: Read, queue: tuple[int, Site | None], old_read: int | None) -> SetEstimate:
        """Build the estimate of a set at one site; *old_read* is the class of the last cycle's read."""
        return SetEstimate(
            None if read.seconds is None else to_class(read.seconds, old_read),
            queue[0],
            read.source,
            read.lone_seconds,
            self.readers.get(read.source, 0) if read.source else 0,
            read.missing_bytes,
            read.rate,
            queue[1],
            read.ready_at,
        )

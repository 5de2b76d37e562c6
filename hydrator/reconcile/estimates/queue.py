"""Queues: the seconds until a slot beside the data comes free for one more job, by site and cores.

A site's slots start idle jobs one after another. With n cores of idle jobs before it, one more job starts
when n + 1 cores came free. Free cores count at once, busy cores after the remaining seconds of their jobs.
Each core then takes the next job after the mean run time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hydrator.domain.ads.estimates import JobQueue
from hydrator.domain.model import Site
from hydrator.domain.pool_ports import SiteSlots

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

"""The best possible schedule of a workload: a lower bound, and the best schedule that a search finds. Pure.

Both leave HTCondor's own times out: a slot takes its next job at once, and all facts are known at once.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from .workload import SITES, SLOTS, BenefitJob, Workload, link_rate

READERS = (1, 2, 3, 12)
MARGINS = (0.5, 1.0, 2.0)


def lower_bound(workload: Workload, read_seconds: float) -> float:
    """Return seconds before which no schedule can end.

    For each set of sites: the jobs that have less to read there than elsewhere either run there, or leave
    over the links of their sources. Time T is possible only if what has to leave fits through the links,
    and if all slots together have T seconds for all computing and reading. Fractions of jobs are allowed,
    so the bound is below the best schedule.
    """
    rate = link_rate(read_seconds)
    alone = max(
        job.submitted_at + job.seconds + min(workload.missing_bytes(job, site) for site in SITES) / rate
        for job in workload.jobs
    )
    low, high = alone, alone
    while not _fits(workload, rate, high):
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if _fits(workload, rate, middle) else (middle, high)
    return low


def least_remote_bytes(workload: Workload, limit: float) -> float:
    """Return bytes of which every schedule that ends within *limit* seconds reads at least as many remotely.

    For each set of sites: the jobs whose data is only there need slots there, or read from elsewhere. Those
    that save most slot time for each byte leave first; fractions of jobs are allowed. Jobs whose data is at
    no site together always read.
    """
    subsets = [each for size in range(1, len(SITES)) for each in combinations(SITES, size)]
    homeless = [job for job in workload.jobs if not workload.homes(job)]
    always = sum(min(workload.missing_bytes(job, site) for site in SITES) for job in homeless)
    return always + max(_leaving_bytes(workload, limit, subset) for subset in subsets)


def _leaving_bytes(workload: Workload, limit: float, inside: Sequence[str]) -> float:
    """Return the least bytes of jobs that cannot run at the sites *inside*, which alone have their data."""
    outside = [site for site in SITES if site not in inside]
    bound = [job for job in workload.jobs if (homes := workload.homes(job)) and set(homes) <= set(inside)]
    excess, found = sum(job.seconds for job in bound) - limit * SLOTS * len(inside), 0.0
    moves = ((min(workload.missing_bytes(job, site) for site in outside), job.seconds) for job in bound)
    for count, seconds in sorted(moves, key=lambda move: move[0] / move[1]):
        part = min(1.0, max(0.0, excess) / seconds)
        excess -= part * seconds
        found += part * count
    return found


def _fits(workload: Workload, rate: float, limit: float) -> bool:
    """Return False if no schedule can end within *limit* seconds; True says nothing."""
    work = sum(
        job.seconds + min(workload.missing_bytes(job, site) for site in SITES) / rate for job in workload.jobs
    )
    subsets = [each for size in range(1, len(SITES)) for each in combinations(SITES, size)]
    return work <= limit * SLOTS * len(SITES) and all(
        _subset_fits(workload, rate, limit, subset) for subset in subsets
    )


def _subset_fits(workload: Workload, rate: float, limit: float, inside: Sequence[str]) -> bool:
    """Return False if the jobs whose data is at the sites *inside* can neither stay nor leave in time."""
    outside = [site for site in SITES if site not in inside]
    room, room_outside = limit * SLOTS * len(inside), limit * SLOTS * len(outside)
    moves, stay_seconds = [], 0.0
    for job in workload.jobs:
        stay = min(workload.missing_bytes(job, site) for site in inside) / rate
        leave = min(workload.missing_bytes(job, site) for site in outside) / rate
        if leave > stay:
            stay_seconds += job.seconds + stay
            moves.append((job.seconds + stay, leave - stay, job.seconds + leave))
        else:
            room_outside -= job.seconds + leave
    room_outside += max(0.0, room - stay_seconds)  # the other jobs may run inside too
    reads = 0.0
    for seconds, read, seconds_outside in sorted(moves, key=lambda move: move[1] / move[0]):
        part = min(1.0, max(0.0, stay_seconds - room) / seconds)
        stay_seconds -= part * seconds
        reads += part * read
        room_outside -= part * seconds_outside
    return reads <= limit * len(inside) and room_outside >= -1e-9


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule: by job its site, and its end in seconds."""

    sites: dict[int, str]
    ends: dict[int, float]

    @property
    def makespan(self) -> float:
        """Return the seconds until the last job has ended."""
        return max(self.ends.values())


@dataclass(frozen=True, slots=True)
class _Tables:
    """Missing bytes by job and site, and by job the sites with all its datasets."""

    missing: dict[int, dict[str, int]]
    homes: dict[int, tuple[str, ...]]


@dataclass(slots=True)
class _Model:
    """A pool in which a slot takes local jobs first, and others only while that pays.

    A slot takes a job of another site while fewer than *readers* read from that site, and if the read ends
    before *margin* times the wait of that site's queue.
    """

    workload: Workload
    tables: _Tables
    rate: float
    readers: int
    margin: float
    longest_first: bool
    now: float = 0.0
    free: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SITES, SLOTS))
    queue: list[BenefitJob] = field(default_factory=list)
    reading: dict[str, dict[int, float]] = field(default_factory=lambda: {site: {} for site in SITES})
    steps: dict[int, list[tuple[str, float]]] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)
    ends: list[tuple[float, int]] = field(default_factory=list)
    schedule: Schedule = field(default_factory=lambda: Schedule({}, {}))

    def run(self) -> Schedule:
        """Run all jobs."""
        jobs = {job.number: job for job in self.workload.jobs}
        arrivals = sorted(self.workload.jobs, key=lambda job: job.submitted_at)
        while arrivals or self.queue or self.places:
            while arrivals and arrivals[0].submitted_at <= self.now + 1e-9:
                self.queue.append(arrivals.pop(0))
            self._fill()
            times = [arrivals[0].submitted_at] if arrivals else []
            times += [self.ends[0][0]] if self.ends else []
            times += [
                self.now + min(left.values()) * len(left) / self.rate
                for left in self.reading.values()
                if left
            ]
            self._advance(min(times), jobs)
            while self.ends and self.ends[0][0] <= self.now + 1e-9:
                ended, number = heapq.heappop(self.ends)
                site = self.places.pop(number)
                self.free[site] += 1
                self.schedule.sites[number], self.schedule.ends[number] = site, ended
        return self.schedule

    def _advance(self, until: float, jobs: dict[int, BenefitJob]) -> None:
        """Let all readers read until the time *until*."""
        for left in self.reading.values():
            for number in left:
                left[number] -= (until - self.now) * self.rate / len(left)
        self.now = until
        for left in self.reading.values():
            for number in [number for number, rest in left.items() if rest <= 1e-3]:
                del left[number]
                self._next_step(jobs[number])

    def _next_step(self, job: BenefitJob) -> None:
        """Begin the job's next read, or its computing."""
        if self.steps[job.number]:
            source, count = self.steps[job.number].pop(0)
            self.reading[source][job.number] = count
        else:
            heapq.heappush(self.ends, (self.now + job.seconds, job.number))

    def _fill(self) -> None:
        """Give every free slot a job, while there is one for it."""
        for site in SITES:
            while self.free[site] and (job := self._choose(site)) is not None:
                self.queue.remove(job)
                self.free[site] -= 1
                self.places[job.number] = site
                self.steps[job.number] = self._reads(job, site)
                self._next_step(job)

    def _choose(self, site: str) -> BenefitJob | None:
        """Choose a job for a free slot of *site*: of its own data first, then of the longest queue."""
        local = [job for job in self.queue if not self.tables.missing[job.number][site]]
        if local:
            return min(local, key=lambda job: (len(self.tables.homes[job.number]), *self._urgency(job)))
        waits = {source: self._wait(source) for source in SITES}
        remote = [job for job in self.queue if self._pays(job, site, waits)]
        return min(remote, key=self._urgency, default=None)

    def _urgency(self, job: BenefitJob) -> tuple[float, int]:
        return (-job.seconds if self.longest_first else 0.0, job.number)

    def _wait(self, site: str) -> float:
        """Return the seconds after which the jobs whose data is at *site* leave a slot for one more."""
        queued = sum(job.seconds for job in self.queue if site in self.tables.homes[job.number])
        return 0.0 if self.free[site] else queued / SLOTS

    def _pays(self, job: BenefitJob, site: str, waits: dict[str, float]) -> bool:
        """Return True if reading at *site* ends before the job's home has a slot."""
        reads = self._reads(job, site)
        if any(len(self.reading[source]) >= self.readers for source, _ in reads):
            return False
        seconds = sum(count / self.rate * (len(self.reading[source]) + 1) for source, count in reads)
        homes = self.tables.homes[job.number]
        return not homes or seconds < self.margin * min(waits[home] for home in homes)

    def _reads(self, job: BenefitJob, site: str) -> list[tuple[str, float]]:
        """Return the reads of *job* at *site*: of each dataset from its source with the fewest readers."""
        datasets = [self.workload.datasets[each] for each in job.datasets]
        return [
            (min(each.sites, key=lambda source: len(self.reading[source])), float(each.bytes))
            for each in datasets
            if site not in each.sites
        ]


def best_found(workload: Workload, read_seconds: float) -> Schedule:
    """Return the schedule that ends first of those that a search over simple policies finds."""
    rate = link_rate(read_seconds)
    jobs = workload.jobs
    tables = _Tables(
        {job.number: {site: workload.missing_bytes(job, site) for site in SITES} for job in jobs},
        {job.number: workload.homes(job) for job in jobs},
    )
    orders = (False, True) if len({job.seconds for job in jobs}) > 1 else (False,)
    found = (
        _Model(workload, tables, rate, readers, margin, longest).run()
        for readers, margin, longest in product(READERS, MARGINS, orders)
    )
    return min(found, key=lambda schedule: schedule.makespan)

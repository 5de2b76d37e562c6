"""Outcomes of ended jobs, from their own records in the schedds' histories: starts, waits and runs.

At each start the schedd writes into the job what the slot offered (``MATCH_EXP_DataLocalityStart``), and the
job wrapper writes what it read from other sites and what it missed. So no archive of site ads is needed.

Pure: values in, values out. The owner of a job can write any value into the job's ad. So a value of the
wrong type counts as absent, and a start counts only if the schedd wrote its record (:func:`has_own_record`).
The bytes and the misses are the word of the job's wrapper.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from heapq import nlargest
from typing import Any, Final

from hydrator.diagnostics.start_record import has_own_record, parse_start_record
from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Site, Unseen, parse_did
from hydrator.domain.ports import EndedJobs
from hydrator.domain.untrusted import MAX_CLOCK_SKEW, MAX_NAME_CHARS, valid_integer, valid_time
from hydrator.reconcile.misses import MISSES_ATTRIBUTE, Miss, parse_misses

MAX_ROWS: Final = 100
"""Sites, and sets, of a summary: the owner of a job can invent names of sites."""
_COMPLETED: Final = 4  # JobStatus


class Start(StrEnum):
    """The way in which a job last started."""

    LOCAL = "local"
    """All its data was at the site."""
    READ = "read"
    """The slot told the job how long it would read data from another site."""
    UNKNOWN = "unknown"
    """The slot had no answer: it has no hook, its answer was too old, or the job's wait was over."""
    NO_DATASETS = "no_datasets"
    """The job names no datasets."""


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that left its queue.

    ``datasets`` is None if the job has no valid list of DIDs. ``read_bytes`` are those that the job wrapper
    read from other sites.
    """

    submitted_at: datetime | None = None
    first_started_at: datetime | None = None
    last_started_at: datetime | None = None
    ended_at: datetime | None = None
    is_completed: bool = False
    site: Site | None = None
    datasets: frozenset[Did] | None = None
    start: Start = Start.NO_DATASETS
    read_bytes: int = 0
    misses: tuple[Miss, ...] = ()

    @property
    def wait_seconds(self) -> float | None:
        """Return the seconds from the submission to the first start; None if one of the times is missing."""
        return _seconds_between(self.submitted_at, self.first_started_at)

    @property
    def run_seconds(self) -> float | None:
        """Return the seconds from the last start to the end; None for a job that was removed."""
        return _seconds_between(self.last_started_at, self.ended_at) if self.is_completed else None


def _seconds_between(begin: datetime | None, end: datetime | None) -> float | None:
    return (end - begin).total_seconds() if begin and end and begin <= end else None


def has_possible_times(row: Mapping[str, Any], now: datetime) -> bool:
    """Return True if the times of *row* are possible: submitted ≤ started ≤ started last ≤ ended ≤ *now*.

    An absent time is possible: a job that never started has none. A 0 is not possible.
    """
    names = ("QDate", "JobStartDate", "JobCurrentStartDate", "EnteredCurrentStatus")
    given = [_time(row.get(name)) for name in names if row.get(name) is not None]
    times = [at for at in given if at is not None]
    return (
        len(times) == len(given)
        and times == sorted(times)
        and max(times, default=now) <= now + MAX_CLOCK_SKEW
    )


def _time(value: object) -> datetime | None:
    return valid_time(value) if value else None


def parse_ended_job(row: Mapping[str, Any], default_scope: str | None = None) -> EndedJob:
    """Parse a job that left its queue.

    The keys of *row*: ``QDate``, ``JobStartDate``, ``JobCurrentStartDate`` and ``EnteredCurrentStatus``
    (Unix s), ``JobStatus``, ``site``, ``datasets`` (names, or None), ``key``, and whether it
    ``is_of_cluster``, ``asked`` (the text that the schedd expands) and ``start`` (the text that the slot
    offered), ``read_bytes``, and ``misses`` (the texts of MISSES_ATTRIBUTE).
    """
    names, site = row.get("datasets"), row.get("site")
    datasets = _parse_dids(tuple(map(str, names)), default_scope) if isinstance(names, list | tuple) else None
    is_named = isinstance(site, str) and site.strip() and site.isprintable() and len(site) <= MAX_NAME_CHARS
    first = _time(row.get("JobStartDate"))
    return EndedJob(
        submitted_at=_time(row.get("QDate")),
        first_started_at=first,
        last_started_at=_time(row.get("JobCurrentStartDate")) or first,
        ended_at=_time(row.get("EnteredCurrentStatus")),
        is_completed=row.get("JobStatus") == _COMPLETED,
        site=Site(str(site)) if is_named else None,
        datasets=datasets,
        start=_parse_start(row) if datasets else Start.NO_DATASETS,
        read_bytes=valid_integer(row.get("read_bytes")) or 0,
        misses=parse_misses({MISSES_ATTRIBUTE: row.get("misses")}),
    )


def _parse_start(row: Mapping[str, Any]) -> Start:
    record = parse_start_record(row.get("start"), row.get("asked"))
    if record is None:
        return Start.UNKNOWN
    return Start.LOCAL if record.is_local else Start.READ


@lru_cache(maxsize=10_000)  # the jobs of a set share one object
def _parse_dids(names: tuple[str, ...], default_scope: str | None) -> frozenset[Did] | None:
    """Parse all DIDs; return None if a name is invalid: a part of the list would give a wrong result."""
    try:
        return frozenset(parse_did(name, default_scope) for name in names) or None
    except BadDid:
        return None


@dataclass(frozen=True, slots=True)
class ScheddHistory:
    """The answer of one schedd.

    Attributes:
        schedd: its name.
        jobs: jobs in its history; null: it did not answer.
        is_complete: false: it did not answer, or its history has more jobs than one answer returns.
        failure: reason why it did not answer.
    """

    schedd: str
    jobs: int | None
    is_complete: bool
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class EndedJobBatch:
    """Jobs from the histories of schedds, without *left_out* ones.

    Those have impossible times, or a record of their start that no schedd wrote.
    """

    jobs: tuple[EndedJob, ...] = ()
    schedds: tuple[ScheddHistory, ...] = ()
    left_out: int = 0


def parse_histories(
    answers: Mapping[str, EndedJobs | Unseen], default_scope: str | None, now: datetime
) -> EndedJobBatch:
    """Parse the *answers* by schedd; *default_scope* is that of names without a scope."""
    jobs: list[EndedJob] = []
    schedds: list[ScheddHistory] = []
    row_count = 0
    for name, answer in sorted(answers.items()):
        if isinstance(answer, Unseen):
            schedds.append(ScheddHistory(name, None, is_complete=False, failure=answer.reason))
            continue
        schedds.append(ScheddHistory(name, len(answer.jobs), answer.is_complete))
        row_count += len(answer.jobs)
        own = (row for row in answer.jobs if has_possible_times(row, now) and has_own_record(row))
        jobs += (parse_ended_job(row, default_scope) for row in own)
    return EndedJobBatch(tuple(jobs), tuple(schedds), row_count - len(jobs))


@dataclass(slots=True)
class StartCounts:
    """Jobs of one site, of one set or of all, that named datasets and started.

    Attributes:
        local: jobs that started beside their data.
        read: jobs that started elsewhere, to read their data from another site.
        unknown: jobs whose slot had no answer for them.
        read_bytes: bytes that job wrappers reported to have read from other sites.
        jobs_with_misses: jobs that could not read datasets at the site, even if they ended at another site;
            in the counts of all sites together, each job once.
    """

    local: int = 0
    read: int = 0
    unknown: int = 0
    read_bytes: int = 0
    jobs_with_misses: int = 0

    @property
    def job_count(self) -> int:
        """Return the number of jobs that started."""
        return self.local + self.read + self.unknown

    def add(self, job: EndedJob) -> None:
        """Count the start of *job*, without its misses."""
        self.local += job.start is Start.LOCAL
        self.read += job.start is Start.READ
        self.unknown += job.start is Start.UNKNOWN
        self.read_bytes += job.read_bytes


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Seconds of jobs.

    Attributes:
        jobs: jobs with a known time.
        median: median in seconds; null: no job.
        p90: ninth decile in seconds; null: no job.
        p99: 0.99 quantile in seconds; null: no job.
    """

    jobs: int = 0
    median: float | None = None
    p90: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, seconds: Iterable[float]) -> "Quantiles":
        """Return the quantiles of *seconds*, each of which is one of them."""
        known = sorted(seconds)
        if not known:
            return cls()
        return cls(len(known), *(known[math.ceil(share * len(known)) - 1] for share in (0.5, 0.9, 0.99)))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Outcomes of many jobs.

    Attributes:
        total: the jobs of all sites.
        sites: the same by site, of the 100 sites with the most jobs.
        sets: the same by set, of the 100 sets with the most bytes and jobs; the key is the list of DIDs.
        never_started: jobs that named datasets and never started.
        missed_datasets: datasets that jobs could not read although their slot listed them, over all jobs.
        waits: times from the submission to the first start, by the way in which jobs started.
        runs: times from the last start to the end, of jobs that were not removed, by the way in which they
            started.
    """

    total: StartCounts
    sites: Mapping[Site, StartCounts]
    sets: Mapping[str, StartCounts]
    never_started: int
    missed_datasets: int
    waits: Mapping[Start, Quantiles]
    runs: Mapping[Start, Quantiles]


def summarize(jobs: Iterable[EndedJob]) -> Outcomes:
    """Count the outcomes of *jobs*."""
    total, never_started, missed_datasets = StartCounts(), 0, 0
    sites: defaultdict[Site, StartCounts] = defaultdict(StartCounts)
    sets: defaultdict[frozenset[Did], StartCounts] = defaultdict(StartCounts)
    waits: dict[Start, list[float]] = {start: [] for start in Start}
    runs: dict[Start, list[float]] = {start: [] for start in Start}
    for job in jobs:
        if job.wait_seconds is not None:
            waits[job.start].append(job.wait_seconds)
        if job.run_seconds is not None:
            runs[job.start].append(job.run_seconds)
        if job.datasets is None:
            continue
        if job.last_started_at is None:
            never_started += 1
            continue
        always = (total, sets[job.datasets])
        for counts in (*always, *([sites[job.site]] if job.site else ())):
            counts.add(job)
        missed_datasets += len(job.misses)
        if job.misses:
            for counts in (*always, *(sites[site] for site in {miss.site for miss in job.misses})):
                counts.jobs_with_misses += 1
    most_jobs = nlargest(MAX_ROWS, sites.items(), lambda row: row[1].job_count + row[1].jobs_with_misses)
    most_bytes = nlargest(MAX_ROWS, sets.items(), lambda row: (row[1].read_bytes, row[1].job_count))
    return Outcomes(
        total,
        dict(sorted(most_jobs)),
        {", ".join(sorted(dids)): counts for dids, counts in most_bytes},
        never_started,
        missed_datasets,
        {start: Quantiles.of(seconds) for start, seconds in waits.items()},
        {start: Quantiles.of(seconds) for start, seconds in runs.items()},
    )

"""Outcomes of jobs that named datasets: the share of their data at their site, and their waiting time.

A job's site is the site of the slot where the job ran last. The schedd records this site in the job
(``MachineAttrDataLocalitySite0``, see ``hydrator pool-config``). The daemon stores which
datasets each site's ad listed when. The job's local datasets are those that the ad listed at its last
start, minus the datasets that the job reported as missing. Without the site or this ad, the result is
unknown.

Pure: values in, values out. The owner of a job can write any value into the job's ad, so a value of
the wrong type counts as absent.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Site, from_unix, parse_did
from hydrator.domain.untrusted import valid_time
from hydrator.reconcile.history import AvailableSpans
from hydrator.reconcile.misses import MISSES_ATTRIBUTE, Miss, parse_misses

_MAX_BYTES = 1 << 60
MAX_CLOCK_SKEW = timedelta(minutes=5)


class LocalityResult(StrEnum):
    """The share of a job's data that was on disk at the job's site when the job started."""

    ALL = "all"
    SOME = "some"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that left its queue; ``datasets`` is None if the job has no valid list of DIDs.

    ``job_id`` is the ``GlobalJobId``.
    """

    submitted_at: datetime | None
    first_started_at: datetime | None
    last_started_at: datetime | None
    site: Site | None
    datasets: frozenset[Did] | None
    misses: tuple[Miss, ...]
    job_id: str | None = None
    ended_at: datetime | None = None

    @property
    def wait_time(self) -> timedelta | None:
        """Return the time from submission to the first start; None if one of the two times is not valid."""
        if (
            self.submitted_at is None
            or self.first_started_at is None
            or self.first_started_at < self.submitted_at
        ):
            return None
        return self.first_started_at - self.submitted_at


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The locality of one job that started. The bytes include only datasets of known size.

    ``local_dids`` are the datasets that were at the job's site.
    """

    job: EndedJob
    locality: LocalityResult
    bytes_at_site: int = 0
    bytes_elsewhere: int = 0
    datasets_without_size: int = 0
    local_dids: frozenset[Did] = frozenset()


def has_possible_times(row: Mapping[str, Any], now: datetime) -> bool:
    """Return True if the times of *row* are possible: submitted ≤ started ≤ started last ≤ ended ≤ *now*.

    An absent time is possible: a job that never started has none. A 0 is not possible.
    """
    names = ("QDate", "JobStartDate", "JobCurrentStartDate", "EnteredCurrentStatus")
    given = [_moment(row.get(name)) for name in names if row.get(name) is not None]
    times = [at for at in given if at is not None]
    return (
        len(times) == len(given)
        and times == sorted(times)
        and max(times, default=now) <= now + MAX_CLOCK_SKEW
    )


def parse_ended_job(row: Mapping[str, Any], default_scope: str | None = None) -> EndedJob:
    """Parse a job that left its queue.

    The keys of *row*: ``GlobalJobId``, ``QDate``, ``JobStartDate``, ``JobCurrentStartDate`` and
    ``EnteredCurrentStatus`` (Unix s), ``site``, ``datasets`` (names, or None),
    ``misses`` (the texts of MISSES_ATTRIBUTE), and ``Owner``.
    """
    names = row.get("datasets")
    dids = (
        _parse_dids(names, default_scope)
        if isinstance(names, Sequence) and not isinstance(names, str)
        else None
    )
    site = row.get("site")
    first = _moment(row.get("JobStartDate"))
    return EndedJob(
        submitted_at=_moment(row.get("QDate")),
        first_started_at=first,
        last_started_at=_moment(row.get("JobCurrentStartDate")) or first,
        site=Site(site) if isinstance(site, str) and site.strip() and site.isprintable() else None,
        datasets=dids,
        misses=parse_misses({MISSES_ATTRIBUTE: row.get("misses")}),
        job_id=job_id if isinstance(job_id := row.get("GlobalJobId"), str) else None,
        ended_at=_moment(row.get("EnteredCurrentStatus")),
    )


def determine_outcome(job: EndedJob, spans: AvailableSpans, sizes: Mapping[Did, int]) -> JobOutcome:
    """Determine the locality of *job*, which names datasets and started.

    *sizes* has the bytes of datasets, as far as they are known.
    """
    wanted_dids = job.datasets or frozenset()
    available_dids = (
        spans.find_listed(job.site, job.last_started_at) if job.site and job.last_started_at else None
    )
    known_sizes = {did: sizes.get(did) for did in wanted_dids}
    if available_dids is None:
        return JobOutcome(
            job,
            LocalityResult.UNKNOWN,
            datasets_without_size=sum(size is None for size in known_sizes.values()),
        )
    since = (job.last_started_at or from_unix(0)) - MAX_CLOCK_SKEW
    missed_dids = {miss.did for miss in job.misses if miss.site == job.site and miss.missed_at >= since}
    local_dids = frozenset(did for did in wanted_dids if did in available_dids) - missed_dids
    return JobOutcome(
        job,
        LocalityResult.ALL
        if local_dids == wanted_dids
        else LocalityResult.SOME
        if local_dids
        else LocalityResult.NONE,
        bytes_at_site=sum(known_sizes[did] or 0 for did in local_dids),
        bytes_elsewhere=sum(known_sizes[did] or 0 for did in wanted_dids - local_dids),
        datasets_without_size=sum(size is None for size in known_sizes.values()),
        local_dids=local_dids,
    )


@dataclass(slots=True)
class OutcomeCounts:
    """Outcomes of the jobs of one site, or of all sites.

    Attributes:
        job_counts: jobs that named datasets, by the share of their data that was at their site: all, some or
            none; unknown: the report cannot say this.
        bytes_at_site: bytes of their datasets that were there.
        bytes_elsewhere: bytes that were not there.
        jobs_with_misses: jobs that could not read datasets at the site, even if they ended at another site;
            in the counts of all sites together, each job once.
    """

    job_counts: dict[LocalityResult, int] = field(default_factory=lambda: dict.fromkeys(LocalityResult, 0))
    bytes_at_site: int = 0
    bytes_elsewhere: int = 0
    jobs_with_misses: int = 0

    def add(self, job_outcome: JobOutcome) -> None:
        self.job_counts[job_outcome.locality] += 1
        self.bytes_at_site += job_outcome.bytes_at_site
        self.bytes_elsewhere += job_outcome.bytes_elsewhere

    @property
    def share_of_jobs(self) -> float | None:
        """Return the share of jobs with all data at their site; None if no job has a known result.

        Jobs with an unknown result are left out.
        """
        known_count = sum(self.job_counts.values()) - self.job_counts[LocalityResult.UNKNOWN]
        return self.job_counts[LocalityResult.ALL] / known_count if known_count else None

    @property
    def share_of_bytes(self) -> float | None:
        """Return the share of the jobs' bytes that were at the job's site; None if no bytes are known.

        Datasets of unknown size, and jobs with an unknown result, are left out.
        """
        total = self.bytes_at_site + self.bytes_elsewhere
        return self.bytes_at_site / total if total else None


@dataclass(frozen=True, slots=True)
class LostAds:
    """The jobs that started at a site before the history of the site's ad.

    Attributes:
        job_count: these jobs; their result is unknown.
        begin: begin of the history.
    """

    job_count: int
    begin: datetime


@dataclass(frozen=True, slots=True)
class Waits:
    """Times of jobs from the submission to the first start.

    Attributes:
        jobs: jobs that started.
        median: median in seconds; null: no job.
        p90: ninth decile in seconds; null: no job.
    """

    jobs: int
    median: float | None
    p90: float | None

    @classmethod
    def of(cls, seconds: Iterable[float]) -> "Waits":
        """Summarize the waiting times of jobs."""
        ordered = sorted(seconds)
        return cls(len(ordered), median(ordered), quantile(ordered, 0.9))


@dataclass(frozen=True, slots=True)
class OutcomeSummary:
    """Outcomes of many jobs.

    Attributes:
        total: the jobs of all sites.
        sites: the same by site.
        never_started: jobs that named datasets and never started.
        datasets_without_size: datasets of unknown size, over all jobs.
        missed_datasets: datasets that jobs could not read although their slot listed them, over all jobs.
        waits: waiting times of jobs that named datasets.
        other_waits: waiting times of jobs that named none.
        lost_ads: sites with jobs whose result is unknown because the ad of their start is deleted.
    """

    total: OutcomeCounts
    sites: Mapping[Site, OutcomeCounts]
    never_started: int
    datasets_without_size: int
    missed_datasets: int
    waits: Waits
    other_waits: Waits
    lost_ads: Mapping[Site, LostAds] = field(default_factory=dict)


def tally(jobs: Iterable[EndedJob], spans: AvailableSpans, sizes: Mapping[Did, int]) -> OutcomeSummary:
    """Count the outcomes of *jobs*."""
    total, sites = OutcomeCounts(), defaultdict[Site, OutcomeCounts](OutcomeCounts)
    never_started = datasets_without_size = missed_datasets = 0
    waits: list[float] = []
    others: list[float] = []
    lost: Counter[Site] = Counter()
    for job in jobs:
        if job.wait_time is not None:
            (others if job.datasets is None else waits).append(job.wait_time.total_seconds())
        if job.datasets is None:
            continue
        if job.last_started_at is None:
            never_started += 1
            continue
        outcome = determine_outcome(job, spans, sizes)
        datasets_without_size += outcome.datasets_without_size
        missed_datasets += len(job.misses)
        total.add(outcome)
        total.jobs_with_misses += bool(job.misses)
        for site in {miss.site for miss in job.misses if miss.site in spans.begins}:
            sites[site].jobs_with_misses += 1
        if job.site and job.site in spans.begins:
            sites[job.site].add(outcome)
            lost[job.site] += spans.has_lost(job.site, job.last_started_at)
    sorted_sites = {site: sites[site] for site in sorted(sites)}
    return OutcomeSummary(
        total,
        sorted_sites,
        never_started,
        datasets_without_size,
        missed_datasets,
        Waits.of(waits),
        Waits.of(others),
        {site: LostAds(n, from_unix(spans.begins[site][0])) for site, n in sorted(lost.items()) if n},
    )


def median(values: Sequence[float]) -> float | None:
    """Return the median of sorted *values*; None without values."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the quantile of sorted *values* at *share* (0 to 1), one of the values; None without values."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else None


def _moment(value: object) -> datetime | None:
    return valid_time(value) if value else None  # 0 means that the event did not happen


def _parse_dids(names: Iterable[object], default_scope: str | None) -> frozenset[Did] | None:
    """Parse all DIDs; return None if a name is invalid: a part of the list would give a wrong result."""
    try:
        return frozenset(parse_did(str(name), default_scope) for name in names) or None
    except BadDid:
        return None

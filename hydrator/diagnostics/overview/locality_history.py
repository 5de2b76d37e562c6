"""Locality over time, from the daemon's hours: shares of jobs and of bytes, by day. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from hydrator.diagnostics.outcomes import EndedJob, EndedJobBatch, Start
from hydrator.domain.model import Snapshot
from hydrator.state.reports import LocalityHour, begin_of_hour

SHOWN_DAYS: Final = 30
"""Days of the overview, today included."""
DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(days=7)
_NO_JOBS: Final = LocalityHour(datetime.min.replace(tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class LocalitySpan:
    """The jobs with datasets that the daemon counted in a span of time that began at ``started_at``.

    A day (UTC) has a date, any other span a time. ``share_of_jobs`` is the share, 0 to 1, of the jobs that
    started beside their data; None without jobs. ``share_of_bytes`` is that of the ``byte_count`` bytes of
    their datasets which were at the site of the job; None if no size is known.
    """

    started_at: date
    job_count: int = 0
    share_of_jobs: float | None = None
    byte_count: int = 0
    share_of_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class LocalityOverview:
    """The last SHOWN_DAYS days, oldest first.

    ``last_day`` and ``last_week`` are the last 24 hours and 7 days; None before the first overview.
    ``hours`` are the hours of the last 7 days in which jobs ended, oldest first.
    """

    days: tuple[LocalitySpan, ...] = ()
    last_day: LocalitySpan | None = None
    last_week: LocalitySpan | None = None
    hours: tuple[LocalitySpan, ...] = ()


def sum_batch(batch: EndedJobBatch, snapshot: Snapshot | None, now: datetime) -> LocalityHour | None:
    """Return the sums of *batch*, which the daemon counted at *now* (UTC); None if it adds nothing.

    *snapshot* has the sizes of datasets. A job that did not start beside its data had only as much of it at
    its site as its wrapper did not read from other sites; without a report of the wrapper, nothing.
    """
    hour = begin_of_hour(now)
    started = [
        _sum_job(hour, job, snapshot.sum_bytes(tuple(job.datasets)) if snapshot else None)
        for job in batch.jobs
        if job.datasets and job.last_started_at
    ]
    return sum(started[1:], started[0]) if started else None


def _sum_job(hour: datetime, job: EndedJob, size: int | None) -> LocalityHour:
    is_local = job.start is Start.LOCAL
    if size is None:
        return LocalityHour(hour, is_local, 1)
    read = job.read_bytes or (0 if is_local else size)
    return LocalityHour(hour, is_local, 1, max(0, size - read), size)


def build_overview(hours: Iterable[LocalityHour], now: datetime) -> LocalityOverview:
    """Build the overview from *hours*; hours after *now*, because the clock was set back, do not count."""
    past = [hour for hour in hours if hour.started_at <= now]
    by_day: defaultdict[date, list[LocalityHour]] = defaultdict(list)
    for hour in past:
        by_day[hour.started_at.date()].append(hour)
    shown = [now.date() - timedelta(days=age) for age in reversed(range(SHOWN_DAYS))]
    week = [hour for hour in past if now - hour.started_at <= WEEK]
    return LocalityOverview(
        tuple(_sum_span(day, by_day[day]) for day in shown),
        _sum_span(now - DAY, [hour for hour in week if now - hour.started_at <= DAY]),
        _sum_span(now - WEEK, week),
        tuple(_sum_span(hour.started_at, [hour]) for hour in week),
    )


def _sum_span(started_at: date, hours: Sequence[LocalityHour]) -> LocalitySpan:
    total = sum(hours, _NO_JOBS)
    return LocalitySpan(
        started_at,
        total.job_count,
        total.local_count / total.job_count if total.job_count else None,
        total.byte_count,
        total.local_bytes / total.byte_count if total.byte_count else None,
    )

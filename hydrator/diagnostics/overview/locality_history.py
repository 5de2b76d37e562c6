"""Locality over time, from the daemon's hours: shares by day. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from hydrator.diagnostics.outcomes import EndedJobBatch, Start
from hydrator.state.reports import LocalityHour, begin_of_hour

SHOWN_DAYS: Final = 30
"""Days of the overview, today included."""
DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class LocalitySpan:
    """The jobs with datasets that the daemon counted in a span of time that began at ``started_at``.

    A day (UTC) has a date, any other span a time. ``share_of_jobs`` is the share, 0 to 1, of the jobs that
    started beside their data; None without jobs.
    """

    started_at: date
    job_count: int = 0
    share_of_jobs: float | None = None


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


def sum_batch(batch: EndedJobBatch, now: datetime) -> LocalityHour | None:
    """Return the sums of *batch*, which the daemon counted at *now* (UTC); None if it adds nothing."""
    counts = Counter(job.start for job in batch.jobs if job.datasets and job.last_started_at)
    if not counts:
        return None
    return LocalityHour(begin_of_hour(now), counts[Start.LOCAL], counts.total())


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
    job_count = sum(hour.job_count for hour in hours)
    local_count = sum(hour.local_count for hour in hours)
    return LocalitySpan(started_at, job_count, local_count / job_count if job_count else None)

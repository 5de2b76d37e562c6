"""Locality over time, from the daemon's hours: shares by day. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from hydrator.diagnostics.job_outcomes import JobOutcomeBatch
from hydrator.diagnostics.outcomes import LocalityResult
from hydrator.state.locality_hours import LocalityHour, begin_of_hour

SHOWN_DAYS: Final = 30
"""Days of the overview, today included."""
DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class LocalityDay:
    """The jobs with datasets that the daemon counted on one day (UTC); a share is None if it is unknown."""

    day: date
    job_count: int = 0
    share_of_jobs: float | None = None
    """Share, 0 to 1, of the jobs with all their data at their site, without the jobs of unknown result."""
    share_of_bytes: float | None = None
    """Share, 0 to 1, of the jobs' bytes that were at the job's site."""


@dataclass(frozen=True, slots=True)
class LocalitySpan:
    """The jobs with datasets that the daemon counted in a span of time; the shares are as in LocalityDay."""

    started_at: datetime
    job_count: int = 0
    share_of_jobs: float | None = None
    share_of_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class LocalityOverview:
    """The last SHOWN_DAYS days, oldest first.

    ``last_day`` and ``last_week`` are the last 24 hours and 7 days; None before the first overview.
    ``hours`` are the hours of the last 7 days in which jobs ended, oldest first.
    """

    days: tuple[LocalityDay, ...] = ()
    last_day: LocalitySpan | None = None
    last_week: LocalitySpan | None = None
    hours: tuple[LocalitySpan, ...] = ()


def sum_batch(batch: JobOutcomeBatch, now: datetime) -> LocalityHour | None:
    """Return the sums of *batch*, which the daemon counted at *now* (UTC); None if it adds nothing."""
    if not batch.outcomes:
        return None
    counts = Counter(outcome.locality for outcome in batch.outcomes)
    return LocalityHour(
        begin_of_hour(now),
        counts[LocalityResult.ALL],
        counts[LocalityResult.SOME],
        counts[LocalityResult.NONE],
        counts[LocalityResult.UNKNOWN],
        sum(outcome.bytes_at_site for outcome in batch.outcomes),
        sum(outcome.bytes_elsewhere for outcome in batch.outcomes),
    )


def build_overview(hours: Iterable[LocalityHour], now: datetime) -> LocalityOverview:
    """Build the overview from *hours*; hours after *now*, because the clock was set back, do not count."""
    past = [hour for hour in hours if hour.started_at <= now]
    by_day: defaultdict[date, list[LocalityHour]] = defaultdict(list)
    for hour in past:
        by_day[hour.started_at.date()].append(hour)
    shown = [now.date() - timedelta(days=age) for age in reversed(range(SHOWN_DAYS))]
    week = [hour for hour in past if now - hour.started_at <= WEEK]
    return LocalityOverview(
        tuple(_sum_day(day, by_day[day]) for day in shown),
        _sum_span(now - DAY, [hour for hour in week if now - hour.started_at <= DAY]),
        _sum_span(now - WEEK, week),
        tuple(_sum_span(hour.started_at, [hour]) for hour in week),
    )


def _sum_day(day: date, hours: Sequence[LocalityHour]) -> LocalityDay:
    return LocalityDay(day, *_sum_hours(hours))


def _sum_span(started_at: datetime, hours: Sequence[LocalityHour]) -> LocalitySpan:
    return LocalitySpan(started_at, *_sum_hours(hours))


def _sum_hours(hours: Sequence[LocalityHour]) -> tuple[int, float | None, float | None]:
    """Return the number of jobs, and the shares of jobs and bytes beside their data."""
    local_count = sum(hour.all_count for hour in hours)
    known_count = local_count + sum(hour.some_count + hour.none_count for hour in hours)
    bytes_at_site = sum(hour.bytes_at_site for hour in hours)
    all_bytes = bytes_at_site + sum(hour.bytes_elsewhere for hour in hours)
    return (
        known_count + sum(hour.unknown_count for hour in hours),
        local_count / known_count if known_count else None,
        bytes_at_site / all_bytes if all_bytes else None,
    )

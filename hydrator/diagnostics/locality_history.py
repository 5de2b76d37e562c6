"""Locality over time, from the daemon's hours: shares by day, and the estimates of the last 7 days. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from hydrator.domain.text import format_bytes, format_duration, format_signed
from hydrator.state.locality_hours import LocalityHour, begin_of_hour

from .counterfactual import Estimate, estimate_sum
from .job_outcomes import JobOutcomeBatch
from .outcomes import LocalityResult

SHOWN_DAYS: Final = 30
"""Days of the overview, today included."""
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
class LocalityOverview:
    """The last SHOWN_DAYS days, oldest first, and the estimates of the last 7 days; None if none was made."""

    days: tuple[LocalityDay, ...] = ()
    bytes_not_moved: Estimate | None = None
    seconds_gained: Estimate | None = None


def describe_bytes(estimate: Estimate) -> str:
    """Return *estimate*, in bytes, with its interval."""
    return _describe(estimate, format_bytes)


def describe_seconds(estimate: Estimate) -> str:
    """Return *estimate*, in seconds, with its interval."""
    return _describe(estimate, format_duration)


def _describe(estimate: Estimate, format_size: Callable[[float], str]) -> str:
    value = format_signed(estimate.value, format_size)
    if estimate.low is None or estimate.high is None:
        return value
    low, high = format_signed(estimate.low, format_size), format_signed(estimate.high, format_size)
    return f"{value} (95 %: {low} to {high})"


def sum_batch(batch: JobOutcomeBatch, now: datetime) -> LocalityHour | None:
    """Return the sums of *batch*, which the daemon counted at *now*; None if no job with datasets ended."""
    if not batch.outcomes:
        return None
    counts = Counter(outcome.locality for outcome in batch.outcomes)
    saved_bytes, seconds = batch.comparison.bytes_not_moved, batch.comparison.seconds_gained
    return LocalityHour(
        begin_of_hour(now),
        counts[LocalityResult.ALL],
        counts[LocalityResult.SOME],
        counts[LocalityResult.NONE],
        counts[LocalityResult.UNKNOWN],
        sum(outcome.bytes_at_site for outcome in batch.outcomes),
        sum(outcome.bytes_elsewhere for outcome in batch.outcomes),
        saved_bytes.value if saved_bytes else None,
        seconds.value if seconds else None,
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
        _sum_week(week, lambda hour: hour.bytes_not_moved),
        _sum_week(week, lambda hour: hour.seconds_gained),
    )


def _sum_day(day: date, hours: Sequence[LocalityHour]) -> LocalityDay:
    local_count = sum(hour.all_count for hour in hours)
    known_count = local_count + sum(hour.some_count + hour.none_count for hour in hours)
    bytes_at_site = sum(hour.bytes_at_site for hour in hours)
    all_bytes = bytes_at_site + sum(hour.bytes_elsewhere for hour in hours)
    return LocalityDay(
        day,
        known_count + sum(hour.unknown_count for hour in hours),
        local_count / known_count if known_count else None,
        bytes_at_site / all_bytes if all_bytes else None,
    )


def _sum_week(
    hours: Iterable[LocalityHour], value_of: Callable[[LocalityHour], float | None]
) -> Estimate | None:
    """Return the sum over *hours*; its interval is a bootstrap over the days."""
    days: defaultdict[date, float] = defaultdict(float)
    for hour in hours:
        value = value_of(hour)
        if value is not None:
            days[hour.started_at.date()] += value
    return estimate_sum(list(days.values())) if days else None

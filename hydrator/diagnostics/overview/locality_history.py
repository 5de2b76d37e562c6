"""Locality over time, from the daemon's hours: shares by day, and the estimates of the last 7 days. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from hydrator.diagnostics.counterfactual import Estimate, compare_placed, estimate_sum
from hydrator.diagnostics.counterfactual.placement import ComparedJobs
from hydrator.diagnostics.job_outcomes import JobOutcomeBatch
from hydrator.diagnostics.outcomes import LocalityResult
from hydrator.domain.text import format_bytes, format_duration, format_signed
from hydrator.state.locality_hours import LocalityHour, begin_of_hour

SHOWN_DAYS: Final = 30
"""Days of the overview, today included."""
MAX_HELD_JOBS: Final = 2000
"""Maximum number of jobs that one comparison holds before a batch. So many show the mix of a pool."""
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
    """The last SHOWN_DAYS days, oldest first, and the estimates of the last 7 days; None if none was made.

    ``last_day`` and ``last_week`` are the last 24 hours and 7 days; None before the first overview.
    ``hours`` are the hours of the last 7 days in which jobs ended, oldest first.
    """

    days: tuple[LocalityDay, ...] = ()
    bytes_not_moved: Estimate | None = None
    seconds_gained: Estimate | None = None
    last_day: LocalitySpan | None = None
    last_week: LocalitySpan | None = None
    hours: tuple[LocalitySpan, ...] = ()


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


class DayComparison:
    """The comparison of one day's jobs (UTC) with a stock negotiator, which grows by batches.

    The slots' turnover follows from the mix of all jobs, which a batch of a few jobs does not show. So each
    batch is compared together with those before it, and its part is what it adds to the estimates.
    """

    def __init__(self) -> None:
        self._day: date | None = None
        self._placed = ComparedJobs()
        self._sums = [0.0, 0.0]

    def add(self, placed: ComparedJobs, now: datetime) -> list[float | None]:
        """Return the bytes and the seconds that *placed* add to the estimates; None without an estimate."""
        if now.date() != self._day or len(self._placed.jobs) > MAX_HELD_JOBS:
            self._day, self._placed, self._sums = now.date(), ComparedJobs(), [0.0, 0.0]
        self._placed.extend(placed)
        found = compare_placed(self._placed)
        estimates = (found.bytes_not_moved, found.seconds_gained)
        before = self._sums
        self._sums = [each.value if each else old for each, old in zip(estimates, before, strict=True)]
        return [each.value - old if each else None for each, old in zip(estimates, before, strict=True)]


def sum_batch(batch: JobOutcomeBatch, day: DayComparison, now: datetime) -> LocalityHour | None:
    """Return the sums of *batch*, which the daemon counted at *now*; None if it adds nothing.

    Args:
        batch: newly ended jobs.
        day: gets the jobs of *batch*, those without datasets too.
        now: aware UTC time.
    """
    estimates = day.add(batch.placed, now)
    if not batch.outcomes and not any(estimates):
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
        *estimates,
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

"""Locality over time, from the daemon's hours: shares of jobs and of bytes, by day. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hydrator.diagnostics.outcomes import EndedJob, EndedJobBatch, Start
from hydrator.domain.model import Snapshot
from hydrator.domain.text import group_pairs
from hydrator.state.reports import LocalityHour, begin_of_hour

SHOWN_DAYS: Final = 30
"""Days of the overview, today included."""
DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class LocalityOverview:
    """The last SHOWN_DAYS days (UTC), oldest first, each with the sums of its hours.

    ``last_day`` and ``last_week`` are the last 24 hours and 7 days; None before the first overview.
    """

    days: tuple[LocalityHour, ...] = ()
    last_day: LocalityHour | None = None
    last_week: LocalityHour | None = None


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
    by_day = group_pairs((hour.started_at.replace(hour=0), hour) for hour in past)
    shown = [begin_of_hour(now).replace(hour=0) - age * DAY for age in reversed(range(SHOWN_DAYS))]
    week = [hour for hour in past if now - hour.started_at <= WEEK]
    return LocalityOverview(
        tuple(_sum(by_day.get(day, ()), day) for day in shown),
        _sum((hour for hour in week if now - hour.started_at <= DAY), now - DAY),
        _sum(week, now - WEEK),
    )


def _sum(hours: Iterable[LocalityHour], started_at: datetime) -> LocalityHour:
    return sum(hours, LocalityHour(started_at))

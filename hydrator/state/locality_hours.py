"""Hours of the locality: the jobs that ended in each hour, and those beside their data."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from .store import Store

MAX_AGE: Final = timedelta(days=92)
"""Age of the oldest hour: there are 2,208 at most."""
_KEY: Final = "locality hours"


@dataclass(frozen=True, slots=True)
class LocalityHour:
    """The jobs with datasets that the daemon counted in the hour that began at ``started_at``.

    ``local_count`` of them started beside their data.
    """

    started_at: datetime
    local_count: int = 0
    job_count: int = 0


def begin_of_hour(time: datetime) -> datetime:
    """Return the begin of the hour (UTC) of *time*."""
    return time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def add_hour(store: Store, hour: LocalityHour) -> None:
    """Add the sums of *hour* to the saved sums of this hour; delete old and future hours.

    Raises:
        StateError: the state cannot be read or written.
    """
    at, oldest = hour.started_at, hour.started_at - MAX_AGE
    hours = {one.started_at: one for one in load_hours(store, oldest) if oldest < one.started_at <= at}
    old = hours.get(at, LocalityHour(at))
    hours[at] = LocalityHour(at, old.local_count + hour.local_count, old.job_count + hour.job_count)
    store.save_report(_KEY, [hours[one] for one in sorted(hours)])


def load_hours(store: Store, since: datetime) -> list[LocalityHour]:
    """Return the hours since *since*, oldest first; none if the saved hours cannot be decoded.

    Raises:
        StateError: the state cannot be read.
    """
    hours = store.load_report(_KEY, list[LocalityHour]) or []
    return [hour for hour in hours if hour.started_at >= since]

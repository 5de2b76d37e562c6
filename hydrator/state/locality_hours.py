"""Hours of the locality: the jobs that ended in each hour, and those beside their data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from .saved_state import adapter

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


class LocalityHours:
    """The hours in a state; only one thread may add hours.

    Args:
        load_report: see :meth:`hydrator.state.store.Store.load_report`.
        save_report: see :meth:`hydrator.state.store.Store.save_report`.
    """

    def __init__(
        self,
        load_report: Callable[[str], Mapping[str, Any]],
        save_report: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._load_report = load_report
        self._save_report = save_report

    def add(self, hour: LocalityHour) -> None:
        """Add the sums of *hour* to the saved sums of this hour; delete old and future hours.

        Raises:
            StateError: the state cannot be written.
        """
        at = hour.started_at
        hours = {
            one.started_at: one for one in self.load(at - MAX_AGE) if at - MAX_AGE < one.started_at <= at
        }
        old = hours.get(at, LocalityHour(at))
        local_count, job_count = old.local_count + hour.local_count, old.job_count + hour.job_count
        hours[at] = replace(old, local_count=local_count, job_count=job_count)
        rows = adapter(list[LocalityHour]).dump_python([hours[one] for one in sorted(hours)], mode="json")
        self._save_report(_KEY, {"hours": rows})

    def load(self, since: datetime) -> list[LocalityHour]:
        """Return the hours since *since*, oldest first; none if the saved hours cannot be decoded.

        Raises:
            StateError: the state cannot be read.
        """
        try:
            hours = adapter(list[LocalityHour]).validate_python(self._load_report(_KEY).get("hours", []))
        except ValueError:
            return []
        return [hour for hour in hours if hour.started_at >= since]

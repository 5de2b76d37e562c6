"""Table of the hours of the locality: the jobs that ended in each hour, and those beside their data."""

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from hydrator.domain.model import from_unix

SCHEMA: Final = """
create table if not exists locality_hours (at real primary key, local integer, jobs integer) without rowid;
"""
MAX_AGE: Final = timedelta(days=92)
"""Age of the oldest hour: the table has 2,208 rows at most."""
_MAX_INTEGER: Final = 2**63 - 1


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


class LocalityHourTable:
    """The table in a state.

    Args:
        connection: the database of the state.
        transaction: begins a transaction of this thread; it raises StateError if the database fails.
    """

    def __init__(
        self, connection: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._db = connection
        self._transaction = transaction

    def add(self, hour: LocalityHour) -> None:
        """Add the sums of *hour* to those that the table has of this hour; delete old and future hours.

        Raises:
            StateError: the state cannot be written.
        """
        added = astuple(hour)[1:]
        with self._transaction():
            row = self._db.execute(f"{_SELECT} where at = ?", (hour.started_at.timestamp(),)).fetchone()
            before = row[1:] if row else (0,) * len(added)
            sums = [min(one + other, _MAX_INTEGER) for one, other in zip(before, added, strict=True)]
            row = (hour.started_at.timestamp(), *sums)
            insert = "insert or replace into locality_hours values (?, ?, ?)"
            self._db.execute(insert, row)
            oldest = (hour.started_at - MAX_AGE).timestamp()
            self._db.execute("delete from locality_hours where at <= ? or at > ?", (oldest, row[0]))

    def load(self, since: datetime) -> list[LocalityHour]:
        """Return the hours since *since*, oldest first.

        Raises:
            StateError: the state cannot be read.
        """
        with self._transaction():
            rows = self._db.execute(f"{_SELECT} where at >= ? order by at", (since.timestamp(),)).fetchall()
        return [LocalityHour(from_unix(row[0]), *row[1:]) for row in rows if _is_valid(row)]


_SELECT: Final = "select at, local, jobs from locality_hours"


def _is_valid(row: tuple[object, ...]) -> bool:
    return isinstance(row[0], float) and all(isinstance(value, int) and value >= 0 for value in row[1:])

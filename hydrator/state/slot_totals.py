"""Table of slot totals: the slots and cores of each site over time, sampled for ``hydrator report``."""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.model import Site, from_unix
from hydrator.domain.pool_ports import SlotAdVersion

from .rows import has_table

SCHEMA: Final = """
create table if not exists slot_totals (at real, site text, slots integer, cores integer,
    primary key (at, site)) without rowid;
"""
SAMPLE_INTERVAL: Final = timedelta(minutes=10)
MAX_AGE: Final = timedelta(days=31)
MAX_ROWS: Final = 200_000
"""Maximum number of rows: 31 days of 44 sites. With more sites, the period is shorter."""


@dataclass(frozen=True, slots=True)
class SlotTotal:
    """The slots of one site that were not dynamic, and their cores, at ``sampled_at``."""

    sampled_at: datetime
    site: Site
    slot_count: int
    core_count: int


def count_slots(slots: Iterable[SlotAdVersion], now: datetime) -> list[SlotTotal]:
    """Return the totals of *slots* by site at *now*; slots without a site are left out."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for slot in slots:
        if slot.site:
            counts[slot.site][0] += 1
            counts[slot.site][1] += slot.core_count
    return [
        SlotTotal(now, Site(site), slot_count, core_count)
        for site, (slot_count, core_count) in sorted(counts.items())
    ]


def cores_by_site(totals: Iterable[SlotTotal]) -> dict[datetime, dict[Site, float]]:
    """Return the cores of each site, by the time of the sample; the slots at sites without known cores."""
    samples: dict[datetime, dict[Site, float]] = {}
    for one in totals:
        samples.setdefault(one.sampled_at, {})[one.site] = float(one.core_count or one.slot_count)
    return samples


class SlotTotalTable:
    """The table of slot totals in a state.

    Args:
        connection: the database of the state.
        transaction: begins a transaction of this thread; it raises StateError if the database fails.
    """

    def __init__(
        self, connection: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._db = connection
        self._transaction = transaction

    def add(self, totals: Iterable[SlotTotal], now: datetime) -> None:
        """Save *totals* unless the last sample is younger than SAMPLE_INTERVAL; delete old rows.

        Rows from the future, because the clock was set back, are deleted too.

        Raises:
            StateError: the state cannot be written.
        """
        with self._transaction():
            self._db.execute("delete from slot_totals where at > ?", (now.timestamp(),))
            last = self._db.execute("select max(at) from slot_totals").fetchone()[0]
            if last is not None and now.timestamp() - last < SAMPLE_INTERVAL.total_seconds():
                return
            rows = [(one.sampled_at.timestamp(), one.site, one.slot_count, one.core_count) for one in totals]
            self._db.executemany("insert or replace into slot_totals values (?, ?, ?, ?)", rows)
            self._db.execute("delete from slot_totals where at < ?", ((now - MAX_AGE).timestamp(),))
            newest_first = "select at from slot_totals order by at desc limit 1 offset ?"
            if excess := self._db.execute(newest_first, (MAX_ROWS,)).fetchone():
                self._db.execute("delete from slot_totals where at <= ?", excess)

    def load(self, since: datetime) -> list[SlotTotal]:
        """Return the totals since *since*, oldest first; none if an earlier version wrote the state.

        Raises:
            StateError: the state cannot be read.
        """
        with self._transaction():
            if not has_table(self._db, "slot_totals"):
                return []
            query = "select at, site, slots, cores from slot_totals where at >= ? order by at, site"
            rows = self._db.execute(query, (since.timestamp(),)).fetchall()
        return [
            SlotTotal(from_unix(at), Site(str(site)), slots, cores)
            for at, site, slots, cores in rows
            if isinstance(slots, int) and isinstance(cores, int) and isinstance(at, float)
        ]

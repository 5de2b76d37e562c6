"""Table of the last changes of sites' ads, with their reasons.

There is no row if only ages or fractions changed.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Final

from hydrator.domain.model import Did, Site
from hydrator.domain.text import matches_any
from hydrator.reconcile.history import DatasetChange, HistoryEntry

SCHEMA: Final = """
create table if not exists site_change (number integer primary key, site text, at real, did text, before text,
    after text, reason text);
create index if not exists site_change_site on site_change (site, number);
"""
MAX_CHANGES_PER_SITE: Final = 200
MAX_AGE: Final = timedelta(days=31)


class SiteHistory:
    """The changes in a state.

    Args:
        connection: the database of the state.
        transaction: begins a transaction of this thread; it raises StateError if the database fails.
    """

    def __init__(
        self, connection: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._db = connection
        self._transaction = transaction

    def add(self, entries: Sequence[HistoryEntry]) -> None:
        """Add the changes of *entries*; delete those that are too old, or too many of their site.

        Raises:
            StateError: the state cannot be written.
        """
        if not entries:
            return
        with self._transaction():
            for entry in entries:
                self._add(entry)
            oldest = (entries[-1].decided_at - MAX_AGE).timestamp()
            self._db.execute("delete from site_change where at < ?", (oldest,))

    def _add(self, entry: HistoryEntry) -> None:
        """Add the changes of *entry*, and delete those of the site before its last MAX_CHANGES_PER_SITE."""
        site, at = entry.ad.site, entry.decided_at.timestamp()
        self._db.executemany(
            "insert into site_change (site, at, did, before, after, reason) values (?, ?, ?, ?, ?, ?)",
            [
                (site, at, one.did, one.before, one.after, one.why)
                for one in entry.changes[:MAX_CHANGES_PER_SITE]
            ],
        )
        self._db.execute(
            "delete from site_change where site = ? and number <="
            " (select number from site_change where site = ? order by number desc limit 1 offset ?)",
            (site, site, MAX_CHANGES_PER_SITE),
        )

    def forget(self, never: tuple[str, ...]) -> None:
        """Delete the changes of datasets whose DID matches one of the patterns *never*.

        Raises:
            StateError: the state cannot be written.
        """
        with self._transaction():
            dids = self._db.execute("select distinct did from site_change").fetchall()
            hidden = [(did,) for (did,) in dids if matches_any(did, never)]
            self._db.executemany("delete from site_change where did = ?", hidden)

    def load_changes(self, site: Site) -> tuple[DatasetChange, ...]:
        """Return the last changes of the ad of *site*, newest first.

        Raises:
            StateError: the state cannot be read.
        """
        with self._transaction():
            rows = self._db.execute(
                "select at, did, before, after, reason from site_change where site = ? order by number desc",
                (site,),
            ).fetchall()
        return tuple(DatasetChange(int(at), Did(did), *change) for at, did, *change in rows)

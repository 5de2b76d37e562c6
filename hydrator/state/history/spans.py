"""Table of the times in which a site's ad listed a dataset as AVAILABLE, for ``report``.

The history of generations is short on a busy pool: one new dataset a minute fills it in less than two hours.
A row here is one stay of a dataset: some 100 bytes, and no row if only ages, estimates or fractions changed.
"""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.model import DatasetState, Did, Site, SiteAd
from hydrator.domain.text import matches_any
from hydrator.reconcile.ads.site_ads import facts_of
from hydrator.reconcile.history import AvailableSpans, HistoryEntry
from hydrator.state.rows import has_table

SCHEMA: Final = """
create table if not exists available_span (site text, did text, since real, until real,
    primary key (site, did, since)) without rowid;
create index if not exists available_span_until on available_span (until);
create table if not exists available_begin (site text primary key, at real, is_lost integer) without rowid;
"""
MAX_AGE: Final = timedelta(days=31)
MAX_ROWS: Final = 500_000
"""Maximum number of rows, some 80 MB. Rows of datasets that the ads list now are never deleted."""


def find_available(ad: SiteAd) -> frozenset[Did]:
    """Return the datasets that *ad* lists as AVAILABLE."""
    return frozenset(did for did, fact in facts_of(ad).items() if fact.state is DatasetState.AVAILABLE)


def has_begun(db: sqlite3.Connection, site: Site) -> bool:
    """Return True if the table has the begin of *site*."""
    return db.execute("select 1 from available_begin where site = ?", (site,)).fetchone() is not None


def begin(db: sqlite3.Connection, site: Site, generations: Iterable[HistoryEntry], now: datetime) -> None:
    """Begin the table for *site* with the *generations* that an earlier version stored, oldest first."""
    known = list(generations)
    first = known[0].decided_at if known else now
    is_lost = db.execute("select 1 from history_begin where site = ?", (site,)).fetchone() is not None
    db.execute("insert into available_begin values (?, ?, ?)", (site, first.timestamp(), is_lost))
    for one in known:
        add(db, one)


def add(db: sqlite3.Connection, entry: HistoryEntry) -> None:
    """End the stays of datasets that the ad of *entry* does not list, and begin those of new ones."""
    site, at = entry.ad.site, entry.decided_at.timestamp()
    rows = db.execute("select did from available_span where site = ? and until is null", (site,))
    open_dids, listed = {did for (did,) in rows}, find_available(entry.ad)
    db.executemany(
        "update available_span set until = ? where site = ? and did = ? and until is null",
        [(at, site, did) for did in open_dids - listed],
    )
    db.executemany(
        "insert or replace into available_span values (?, ?, ?, null)",
        [(site, did, at) for did in sorted(listed - open_dids)],
    )


def forget_old(db: sqlite3.Connection, oldest: datetime, max_rows: int = MAX_ROWS) -> None:
    """Delete stays that ended before *oldest*, and the oldest of more than *max_rows* rows."""
    _delete_until(db, oldest.timestamp())
    count = db.execute("select count(*) from available_span").fetchone()[0]
    if count > max_rows:
        row = db.execute(
            "select until from available_span where until is not null order by until limit 1 offset ?",
            (count - max_rows - 1,),
        ).fetchone()
        limit = row or db.execute("select max(until) from available_span").fetchone()
        if limit[0] is not None:
            _delete_until(db, limit[0])


def _delete_until(db: sqlite3.Connection, limit: float) -> None:
    """Delete stays that ended at *limit* or before, and store where the table of their sites then begins."""
    rows = db.execute("select site, max(until) from available_span where until <= ? group by site", (limit,))
    for site, until in rows.fetchall():
        db.execute(
            "update available_begin set at = max(at, ?), is_lost = 1 where site = ?",
            (until, site),
        )
    db.execute("delete from available_span where until <= ?", (limit,))


def forget(db: sqlite3.Connection, never: tuple[str, ...]) -> None:
    """Delete the stays of datasets whose DID matches one of the patterns *never*."""
    dids = db.execute("select distinct did from available_span").fetchall()
    hidden = [(did,) for (did,) in dids if matches_any(did, never)]
    db.executemany("delete from available_span where did = ?", hidden)


class AvailableSpanTable:
    """The table of stays in a state.

    Args:
        connection: the database of the state.
        transaction: begins a transaction of this thread; it raises StateError if the database fails.
    """

    def __init__(
        self, connection: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._db = connection
        self._transaction = transaction

    def load(self) -> AvailableSpans:
        """Return all stays; none if an earlier version wrote the state.

        Raises:
            StateError: the state cannot be read.
        """
        with self._transaction():
            if not has_table(self._db, "available_span"):
                return AvailableSpans()
            begins = {
                Site(site): (at, bool(is_lost))
                for site, at, is_lost in self._db.execute("select site, at, is_lost from available_begin")
            }
            spans: dict[Site, dict[Did, list[tuple[float, float]]]] = {}
            rows = self._db.execute(
                "select site, did, since, until from available_span order by site, did, since"
            )
            for site, did, since, until in rows:
                stays = spans.setdefault(Site(site), {}).setdefault(Did(did), [])
                stays.append((since, float("inf") if until is None else until))
        return AvailableSpans(spans, begins)

    def load_stays(self, did: Did) -> dict[Site, list[tuple[float, float]]]:
        """Return the stays of one dataset by site, in Unix s; the end of a stay that lasts is infinite.

        Raises:
            StateError: the state cannot be read.
        """
        with self._transaction():
            if not has_table(self._db, "available_span"):
                return {}
            stays: dict[Site, list[tuple[float, float]]] = {}
            rows = self._db.execute(
                "select site, since, until from available_span where did = ?"
                " and site in (select site from available_begin) order by site, since",
                (did,),
            )
            for site, since, until in rows:
                stays.setdefault(Site(site), []).append((since, float("inf") if until is None else until))
        return stays

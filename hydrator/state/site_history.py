"""Tables of the past of sites' ads: the last changes with their reasons, and the stays of datasets.

A stay is a time in which the ad of a site listed a dataset as AVAILABLE, for ``report``. A row is some 100
bytes, and there is no row if only ages, estimates or fractions changed.
"""

import sqlite3
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.model import DatasetState, Did, Site, SiteAd, from_unix
from hydrator.domain.text import matches_any
from hydrator.reconcile.ads.site_ads import facts_of
from hydrator.reconcile.history import AvailableSpans, DatasetChange, HistoryEntry

SCHEMA: Final = """
create table if not exists available_span (site text, did text, since real, until real,
    primary key (site, did, since)) without rowid;
create index if not exists available_span_until on available_span (until);
create table if not exists site_change (number integer primary key, site text, at real, did text, before text,
    after text, reason text);
create index if not exists site_change_site on site_change (site, number);
create table if not exists available_begin (site text primary key, at real, is_lost integer) without rowid;
"""
MAX_CHANGES_PER_SITE: Final = 200
MAX_AGE: Final = timedelta(days=31)
MAX_ROWS: Final = 500_000
"""Maximum number of rows, some 80 MB. Rows of datasets that the ads list now are never deleted."""


def find_available(ad: SiteAd) -> frozenset[Did]:
    """Return the datasets that *ad* lists as AVAILABLE."""
    return frozenset(did for did, fact in facts_of(ad).items() if fact.state is DatasetState.AVAILABLE)


def add(db: sqlite3.Connection, entries: Sequence[HistoryEntry]) -> None:
    """Add *entries*, and delete what is too old."""
    for entry in entries:
        _add(db, entry)
    if entries:
        forget_old(db, entries[-1].decided_at - MAX_AGE)


def _add(db: sqlite3.Connection, entry: HistoryEntry) -> None:
    """Add the changes of *entry*; end the stays of datasets that its ad does not list, and begin new ones."""
    site, at = entry.ad.site, entry.decided_at.timestamp()
    _add_changes(db, entry)
    db.execute("insert or ignore into available_begin values (?, ?, 0)", (site, at))
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


def _add_changes(db: sqlite3.Connection, entry: HistoryEntry) -> None:
    """Add the changes of *entry*, and delete those of the site before its last MAX_CHANGES_PER_SITE."""
    site, at = entry.ad.site, entry.decided_at.timestamp()
    db.executemany(
        "insert into site_change (site, at, did, before, after, reason) values (?, ?, ?, ?, ?, ?)",
        [
            (site, at, one.did, one.state_before, one.state_after, one.reason)
            for one in entry.changes[:MAX_CHANGES_PER_SITE]
        ],
    )
    db.execute(
        "delete from site_change where site = ? and number <="
        " (select number from site_change where site = ? order by number desc limit 1 offset ?)",
        (site, site, MAX_CHANGES_PER_SITE),
    )


def forget_old(db: sqlite3.Connection, oldest: datetime, max_rows: int = MAX_ROWS) -> None:
    """Delete changes and stays that ended before *oldest*, and the oldest of more than *max_rows* stays."""
    db.execute("delete from site_change where at < ?", (oldest.timestamp(),))
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
    """Delete the changes and stays of datasets whose DID matches one of the patterns *never*."""
    dids = db.execute("select did from available_span union select did from site_change").fetchall()
    hidden = [(did,) for (did,) in dids if matches_any(did, never)]
    db.executemany("delete from available_span where did = ?", hidden)
    db.executemany("delete from site_change where did = ?", hidden)


class SiteHistory:
    """The changes and stays in a state.

    Args:
        connection: the database of the state.
        transaction: begins a transaction of this thread; it raises StateError if the database fails.
    """

    def __init__(
        self, connection: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._db = connection
        self._transaction = transaction

    def load_changes(self, site: Site) -> list[tuple[datetime, DatasetChange]]:
        """Return the last changes of the ad of *site*, newest first, each with its time.

        Raises:
            StateError: the state cannot be read.
        """
        with self._transaction():
            rows = self._db.execute(
                "select at, did, before, after, reason from site_change where site = ? order by number desc",
                (site,),
            ).fetchall()
        return [
            (from_unix(at), DatasetChange(Did(did), before, after, reason))
            for at, did, before, after, reason in rows
        ]

    def load_spans(self, dids: AbstractSet[Did]) -> AvailableSpans:
        """Return the stays of *dids*.

        Raises:
            StateError: the state cannot be read.
        """
        with self._transaction():
            begins = {
                Site(site): (at, bool(is_lost))
                for site, at, is_lost in self._db.execute("select site, at, is_lost from available_begin")
            }
            spans: dict[Site, dict[Did, list[tuple[float, float]]]] = {}
            rows = self._db.execute(
                "select site, did, since, until from available_span order by site, did, since"
            )
            for site, did, since, until in rows:
                if did in dids:
                    stays = spans.setdefault(Site(site), {}).setdefault(Did(did), [])
                    stays.append((since, float("inf") if until is None else until))
        return AvailableSpans(spans, begins)

    def load_stays(self, did: Did) -> dict[Site, list[tuple[float, float]]]:
        """Return the stays of one dataset by site, in Unix s; the end of a stay that lasts is infinite.

        Raises:
            StateError: the state cannot be read.
        """
        with self._transaction():
            rows = self._db.execute(
                "select site, since, until from available_span where did = ? order by site, since", (did,)
            ).fetchall()
        stays: dict[Site, list[tuple[float, float]]] = {}
        for site, since, until in rows:
            stays.setdefault(Site(site), []).append((since, float("inf") if until is None else until))
        return stays

"""Table of the history: one row for each generation of a site's ad, with a maximum number and age."""

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Final

from hydrator.domain.ads.contract import OBSERVE_ATTRIBUTE
from hydrator.domain.model import Did, PublishedAd, Site, SiteAd, from_unix
from hydrator.domain.text import matches_any
from hydrator.reconcile.ads.drafts import names_any
from hydrator.reconcile.history import DatasetChange, HistoryEntry
from hydrator.state.rows import DECODE_ERRORS, has_table

from . import spans

SCHEMA: Final = """
create table if not exists history (site text, generation integer, at real, as_of real, body blob,
    published text, primary key (site, generation)) without rowid;
create table if not exists history_begin (site text primary key, at real) without rowid;
create table if not exists history_minor (site text, generation integer, primary key (site, generation))
    without rowid;
"""
MAX_GENERATIONS_PER_SITE: Final = 100
MAX_GENERATIONS_IN_EXPERIMENT: Final = 400
"""Maximum generations to keep for one site. A dataset that is staging changes the ad at every percent.

The second is for an experiment, until the operator disables it: its report needs the ads of all blocks.
"""
RECENT_GENERATIONS: Final = 50
"""The newest generations of a site, which are kept whatever they changed.

Of older ones, those that neither added nor removed an AVAILABLE dataset are deleted first: the reports read
only which datasets a site had at a time. So the estimates and the staging of a busy day do not displace its
start.
"""
MAX_AGE: Final = timedelta(days=30)
_COLUMNS = "site, generation, at, as_of, body, published"


def add(
    db: sqlite3.Connection,
    new_entries: Iterable[HistoryEntry],
    previous_ads: Mapping[Site, SiteAd],
    now: datetime,
) -> None:
    """Insert *new_entries*. Update the row of each previous generation with the last ``as_of`` of its ad."""
    is_experiment = db.execute("select 1 from experiment where stopped_at is null").fetchone()
    limit = MAX_GENERATIONS_IN_EXPERIMENT if is_experiment else MAX_GENERATIONS_PER_SITE
    for one in new_entries:
        if not spans.has_begun(db, one.ad.site):
            earlier = [each for each in entries(db) if each.ad.site == one.ad.site]
            spans.begin(db, one.ad.site, earlier, one.decided_at)
        if old := previous_ads.get(one.ad.site):
            db.execute(
                "update history set as_of = ? where site = ? and generation = ?",
                (old.as_of.timestamp(), old.site, old.generation),
            )
        db.execute(
            f"insert or replace into history ({_COLUMNS}) values (?, ?, ?, ?, ?, '{{}}')",  # noqa: S608
            (
                one.ad.site,
                one.ad.generation,
                one.decided_at.timestamp(),
                one.ad.as_of.timestamp(),
                _body(one),
            ),
        )
        spans.add(db, one)
        if old and _find_listed(old) == _find_listed(one.ad):
            insert = "insert or replace into history_minor values (?, ?)"
            db.execute(insert, (one.ad.site, one.ad.generation))
        _delete_excess(db, one.ad.site, limit)
    _forget_old(db, now - MAX_AGE)
    spans.forget_old(db, now - spans.MAX_AGE)


def _find_listed(ad: SiteAd) -> tuple[frozenset[Did], bool]:
    """Return what the reports read of *ad*: its AVAILABLE datasets, and whether it is of an observe block."""
    return spans.find_available(ad), (OBSERVE_ATTRIBUTE, "true") in ad.content


def _delete_excess(db: sqlite3.Connection, site: Site, limit: int) -> None:
    """Delete entries of *site* until *limit* are left: minor ones first, then the oldest."""
    count = db.execute("select count(*) from history where site = ?", (site,)).fetchone()[0]
    if count <= limit:
        return
    first = _first_time(db, site)
    db.execute(
        "delete from history where site = ? and generation in ("
        "select generation from history left join history_minor as minor using (site, generation)"
        " where site = ? and generation not in"
        " (select generation from history where site = ? order by generation desc limit ?)"
        " order by minor.generation is null, generation limit ?)",
        (site, site, site, RECENT_GENERATIONS, count - limit),
    )
    db.execute(
        "delete from history_minor where site = ? and generation not in"
        " (select generation from history where site = ?)",
        (site, site),
    )
    if _first_time(db, site) != first:
        _set_begin(db, site)


def _first_time(db: sqlite3.Connection, site: Site) -> float | None:
    time: float | None = db.execute("select min(at) from history where site = ?", (site,)).fetchone()[0]
    return time


def _forget_old(db: sqlite3.Connection, oldest: datetime) -> None:
    """Delete the entries before *oldest*, but not the ad that a present site had at that time."""
    sites = db.execute("select distinct site from history where at < ?", (oldest.timestamp(),)).fetchall()
    for (site,) in sites:
        newest = db.execute(
            "select max(at) from history where site = ? and at <= ? and site in (select site from ads)",
            (site, oldest.timestamp()),
        ).fetchone()[0]
        limit = oldest.timestamp() if newest is None else newest
        if db.execute("delete from history where site = ? and at < ?", (site, limit)).rowcount:
            _set_begin(db, site)
            db.execute(
                "delete from history_minor where site = ? and generation not in"
                " (select generation from history where site = ?)",
                (site, site),
            )


def _set_begin(db: sqlite3.Connection, site: str) -> None:
    """Store the time of the first entry of *site* that is left: older entries were deleted."""
    db.execute("delete from history_begin where site = ?", (site,))
    db.execute(
        "insert into history_begin select site, min(at) from history where site = ? group by site", (site,)
    )


class HistoryBeginTable:
    """The table of the begins of the history: the first entry that is left of sites with deleted entries.

    Args:
        connection: the database of the state.
        transaction: begins a transaction of this thread; it raises StateError if the database fails.
    """

    def __init__(
        self, connection: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._db = connection
        self._transaction = transaction

    def load(self) -> dict[Site, datetime]:
        """Return, by site, the time before which entries were deleted; none if an earlier version wrote it.

        Raises:
            StateError: the state cannot be read.
        """
        with self._transaction():
            if not has_table(self._db, "history_begin"):
                return {}
            rows = self._db.execute("select site, at from history_begin").fetchall()
        return {Site(str(site)): from_unix(at) for site, at in rows if isinstance(at, float)}


class SiteHistoryTable:
    """The changes of one site's ad, for the page of the site; the arguments are as in HistoryBeginTable."""

    def __init__(
        self, connection: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._db = connection
        self._transaction = transaction

    def load(self, site: Site, limit: int) -> list[HistoryEntry]:
        """Return the last *limit* entries of *site*, newest first; omit entries that cannot be decoded.

        Raises:
            StateError: the state cannot be read.
        """
        with self._transaction():
            if not has_table(self._db, "history"):
                return []
            query = f"select {_COLUMNS} from history where site = ? order by generation desc limit ?"  # noqa: S608
            rows = self._db.execute(query, (site, limit)).fetchall()
        found = []
        for row in rows:
            with contextlib.suppress(*DECODE_ERRORS, zlib.error):
                found.append(_entry(row))
        return found


def mark_published(
    db: sqlite3.Connection, publisher: str, published_ads: Mapping[Site, PublishedAd], now: datetime
) -> None:
    """Store the time when the daemon first read each generation back from *publisher*."""
    for site, ad in published_ads.items():
        row = db.execute(
            "select published from history where site = ? and generation = ?", (site, ad.generation)
        ).fetchone()
        published = json.loads(row[0]) if row else None
        if published is not None and publisher not in published:
            db.execute(
                "update history set published = ? where site = ? and generation = ?",
                (json.dumps({**published, publisher: now.timestamp()}), site, ad.generation),
            )


def entries(db: sqlite3.Connection, limit: int | None = None) -> Iterator[HistoryEntry]:
    """Yield all entries, or the last *limit*, oldest first; omit entries that cannot be decoded."""
    if not has_table(db, "history"):
        return
    newest_first = f"select {_COLUMNS} from history order by at desc, site desc, generation desc limit ?"  # noqa: S608
    for row in reversed(db.execute(newest_first, (-1 if limit is None else limit,)).fetchall()):
        try:
            yield _entry(row)
        except (*DECODE_ERRORS, zlib.error):
            continue


def forget(db: sqlite3.Connection, never: tuple[str, ...]) -> None:
    """Delete the entries with a dataset whose DID matches one of the patterns *never*."""
    spans.forget(db, never)
    for one in list(entries(db)):
        if names_any(one.ad, never) or any(matches_any(change.did, never) for change in one.changes):
            db.execute(
                "delete from history where site = ? and generation = ?", (one.ad.site, one.ad.generation)
            )


def _body(entry: HistoryEntry) -> bytes:
    changes = [[c.did, c.state_before, c.state_after, c.reason] for c in entry.changes]
    return zlib.compress(json.dumps([entry.ad.content, changes]).encode())


def _entry(row: Any) -> HistoryEntry:  # noqa: ANN401 - any value of sqlite
    site, generation, at, as_of, body, published = row
    content, changes = json.loads(zlib.decompress(body))
    return HistoryEntry(
        from_unix(at),
        SiteAd(Site(site), from_unix(as_of), int(generation), tuple((n, v) for n, v in content)),
        tuple(DatasetChange(Did(did), before, after, why) for did, before, after, why in changes),
        {publisher: from_unix(when) for publisher, when in json.loads(published).items()},
    )

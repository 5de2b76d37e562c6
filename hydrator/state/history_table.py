"""Table of the history: one row for each generation of a site's ad, with a maximum number and age."""

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from hydrator.domain.model import Did, PublishedAd, Site, SiteAd, from_unix
from hydrator.reconcile.history import DatasetChange, HistoryEntry

from .rows import DECODE_ERRORS

SCHEMA: Final = """
create table if not exists history (site text, generation integer, at real, as_of real, body blob,
    published text, primary key (site, generation)) without rowid;
"""
MAX_GENERATIONS_PER_SITE: Final = 100
"""Maximum generations to keep for one site. A dataset that is staging changes the ad at every percent."""
MAX_AGE: Final = timedelta(days=30)
_COLUMNS = "site, generation, at, as_of, body, published"


def add(
    db: sqlite3.Connection,
    entries: Iterable[HistoryEntry],
    previous_ads: Mapping[Site, SiteAd],
    now: datetime,
) -> None:
    """Insert *entries*. Update the row of each previous generation with the last ``as_of`` of its ad."""
    for one in entries:
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
        db.execute(
            "delete from history where site = ? and generation not in "
            "(select generation from history where site = ? order by generation desc limit ?)",
            (one.ad.site, one.ad.site, MAX_GENERATIONS_PER_SITE),
        )
    db.execute("delete from history where at < ?", ((now - MAX_AGE).timestamp(),))


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
    if db.execute("select 1 from sqlite_master where name = 'history'").fetchone() is None:
        return
    newest_first = f"select {_COLUMNS} from history order by at desc, site desc, generation desc limit ?"  # noqa: S608
    for row in reversed(db.execute(newest_first, (-1 if limit is None else limit,)).fetchall()):
        try:
            yield _entry(row)
        except (*DECODE_ERRORS, zlib.error):
            continue


def forget(db: sqlite3.Connection, mentions_private: Callable[[str], bool]) -> None:
    """Delete the entries with an ad or a DID for which *mentions_private* returns True."""
    for one in list(entries(db)):
        if mentions_private(one.ad.text) or any(mentions_private(change.did) for change in one.changes):
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

"""Store: everything that must survive a restart, in one sqlite file.

The state, the published ads that were read back, the history, and the last report are in it. One daemon
owns a state directory at a time; its user and root can read it while the daemon runs (write-ahead log).
No other user reads these files, whatever the umask: they contain the demand of users and the answers of
catalogues.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from hydrator.domain.errors import StateError
from hydrator.domain.model import PublishedAd, Site, SiteAd
from hydrator.reconcile.history import HistoryEntry
from hydrator.reconcile.state import ReconcileState
from hydrator.state.database import (
    connect,
    connect_read_only,
    lock_folder,
    rename_damaged,
    restrict_permissions,
    transaction,
)

from . import history_table
from .rows import decode_published_ad
from .state_reader import StateReader
from .state_writer import StateWriter, insert_rows


class Store(AbstractContextManager["Store"]):
    """The state file in *folder*; open it with :meth:`open_to_write` or :meth:`open_to_read`."""

    def __init__(
        self, connection: sqlite3.Connection, lock: int | None, damage_report: str | None = None
    ) -> None:
        self._db = connection
        self._lock_fd = lock
        self._writer = StateWriter(connection)
        self._transaction = partial(transaction, connection, threading.RLock())
        self.damage_report = damage_report

    @classmethod
    def open_to_write(cls, folder: Path) -> Self:
        """Open *folder* as its owner: create missing files; raise an error if another daemon owns it.

        A database that cannot be read is renamed, beside the new one, and ``damage_report`` says so.
        Published ads are read back, and generations are Unix times, so nothing that others saw goes back.

        Raises:
            StateError: owned by another daemon, not writable, or written by a newer version.
        """
        lock = lock_folder(folder)
        path = folder / "state.sqlite"
        try:
            restrict_permissions(path)
            try:
                return cls(connect(path), lock)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                aside = rename_damaged(path)
                restrict_permissions(path)
                return cls(
                    connect(path),
                    lock,
                    damage_report=f"{path} was damaged ({error}); it now is {aside.name}",
                )
        except (sqlite3.Error, OSError) as error:
            os.close(lock)
            raise StateError(f"{path}: {error}; check that the folder can be written and has room") from error
        except StateError:
            os.close(lock)
            raise

    @classmethod
    def open_to_read(cls, folder: Path) -> Self:
        """Open the state in *folder* for reading, also while a daemon owns it.

        Raises:
            StateMissing: there is none yet.
            StateError: it cannot be read, or a newer version wrote it.
        """
        return cls(connect_read_only(folder / "state.sqlite"), None)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def load(self) -> ReconcileState:
        """Return the state as it was last saved, read in one transaction: a daemon may save meanwhile."""
        with self._transaction():
            self._db.execute("begin")
            reader = StateReader(self._db)
            state = reader.read_state()
            self._writer.set_stored_rows(reader.record_rows)
            if reader.unreadable_rows and self._lock_fd is not None:
                self._writer.set_rows_aside(reader.unreadable_rows)
                tables = ", ".join(sorted({table for table, _ in reader.unreadable_rows}))
                damage = f"{len(reader.unreadable_rows)} rows of {tables} cannot be understood"
                report = f"{damage}; they now are in the table unreadable"
                self.damage_report = "; ".join(filter(None, [self.damage_report, report]))
        return state

    def save(self, state: ReconcileState) -> None:
        """Write *state* in one transaction; rows that did not change are not written."""
        with self._transaction():
            self._writer.write(state)
        self._writer.mark_saved(state)

    def save_readback(self, publisher: str, ads: Mapping[Site, PublishedAd]) -> None:
        """Save the ads that *publisher* returned in the last read-back."""
        with self._transaction():
            self._db.execute("delete from readback where publisher = ?", (publisher,))
            rows = [
                (publisher, ad.site, ad.generation, ad.as_of.timestamp(), ad.received_at.timestamp())
                for ad in ads.values()
            ]
            insert_rows(self._db, "readback", rows)

    def load_readback(self) -> dict[str, dict[Site, PublishedAd]]:
        """Return by publisher the ads of its last read-back."""
        ads_by_publisher: dict[str, dict[Site, PublishedAd]] = {}
        columns = "publisher, site, generation, as_of, heard"
        with self._transaction():
            for publisher, ad in StateReader(self._db).read("readback", columns, decode_published_ad):
                ads_by_publisher.setdefault(publisher, {})[ad.site] = ad
        return ads_by_publisher

    def add_history(
        self, entries: Sequence[HistoryEntry], previous_ads: Mapping[Site, SiteAd], now: datetime
    ) -> None:
        """Save *entries*; *previous_ads* are the ads before them."""
        if entries:
            with self._transaction():
                history_table.add(self._db, entries, previous_ads, now)

    def mark_published(
        self, publisher: str, published_ads: Mapping[Site, PublishedAd], now: datetime
    ) -> None:
        """Store which generations *publisher* returned."""
        if published_ads:
            with self._transaction():
                history_table.mark_published(self._db, publisher, published_ads, now)

    def load_history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Return the decisions, oldest first: all, or the last *limit*."""
        with self._transaction():
            return list(history_table.entries(self._db, limit))

    def forget_history(self, mentions_private: Callable[[str], bool]) -> None:
        """Drop the entries with a name that has become private."""
        with self._transaction():
            history_table.forget(self._db, mentions_private)

    def save_report(self, key: str, body: Mapping[str, Any]) -> None:
        """Save a summary for ``hydrator status``."""
        with self._transaction():
            insert_rows(self._db, "report", [(key, json.dumps(body))])

    def load_report(self, key: str) -> dict[str, Any]:
        with self._transaction():
            row = self._db.execute("select body from report where key = ?", (key,)).fetchone()
        return dict(json.loads(row[0])) if row else {}

"""Store: everything that must survive a restart, in one sqlite file.

The state, the published ads that were read back, the history, and the last report are in it. One daemon
owns a state directory at a time; its user and root can read it while the daemon runs (write-ahead log).
No other user reads these files, whatever the umask: they contain the demand of users and the answers of
catalogues.
"""

import contextlib
import errno
import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from hydrator.domain.errors import StateError, StateMissing
from hydrator.domain.model import Did, PublishedAd, Site, SiteAd
from hydrator.reconcile.ads.site_ads import facts_of
from hydrator.reconcile.audit.ledger import Audit
from hydrator.reconcile.demand import DemandMemory
from hydrator.reconcile.history import HistoryEntry
from hydrator.reconcile.overrides import Rollback
from hydrator.reconcile.snapshot.breaker import HeldLoss
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL, CatalogueMemory, DatasetRecord, DatasetRows
from hydrator.reconcile.state import ReconcileState
from hydrator.state.database import (
    _connect,
    _decode_text,
    _lock_folder,
    _refuse_newer,
    _rename_damaged,
    _translate_errors,
)

from . import history_table as archive
from . import rows as records
from .audit_rows import audit_from_rows, audit_rows
from .rows import DECODE_ERRORS, RecordRow, decode_held_loss, encode_held_loss, encode_record

_RecordRows = dict[tuple[str, Did], RecordRow]
"""By catalogue and dataset, a row of ``known``."""


@dataclass(frozen=True, slots=True)
class _RowChanges:
    """The stored rows of the table ``known``, and the changes to them."""

    stored_rows: _RecordRows
    changed_rows: _RecordRows
    deleted_keys: list[tuple[str, Did]]

    def compare_row(self, catalogue: str, did: Did, datasets: DatasetRows, at: datetime | None) -> None:
        key, one = (catalogue, did), datasets.rows.get(did)
        if one is None:
            self.deleted_keys.extend([key] if key in self.stored_rows else [])
        elif self.stored_rows.get(key) != (
            row := encode_record(one, AT_LAST_POLL if one.read_at is AT_LAST_POLL else at)
        ):
            self.changed_rows[key] = row

    def apply(self) -> _RecordRows:
        """Return the stored rows after the changes."""
        self.stored_rows.update(self.changed_rows)
        for key in self.deleted_keys:
            self.stored_rows.pop(key, None)
        return self.stored_rows


_T = TypeVar("_T")
MAX_UNREADABLE_ROWS = 100


class Store:
    """The state file in *folder*; open it with :meth:`open_to_write` or :meth:`open_to_read`."""

    def __init__(
        self, connection: sqlite3.Connection, lock: int | None, damage_report: str | None = None
    ) -> None:
        self._db = connection
        self._lock_fd = lock
        self._stored_rows: _RecordRows | None = None
        self._saved_datasets: dict[str, DatasetRows] = {}
        self._saved_demand: DemandMemory | None = None
        self._unreadable_rows: list[tuple[str, str]] = []
        self._transaction_lock = threading.RLock()
        """One transaction at a time: a connection has one, whichever thread began it."""
        self.damage_report = damage_report

    @classmethod
    def open_to_write(cls, folder: Path) -> Self:
        """Own *folder*: create missing files, refuse if another daemon owns it.

        A database that cannot be read is renamed, beside the new one, and ``damage_report`` says so.
        Published ads are read back, and generations are Unix times, so nothing that others saw goes back.

        Raises:
            StateError: owned by another daemon, not writable, or written by a newer version.
        """
        lock = _lock_folder(folder)
        path = folder / "state.sqlite"
        try:
            _restrict_permissions(path)
            try:
                return cls(_connect(path), lock)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                aside = _rename_damaged(path)
                _restrict_permissions(path)
                return cls(
                    _connect(path),
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
        path = folder / "state.sqlite"
        try:
            path.stat()
            # without a log no daemon writes; SQLite would create one, which not every user may
            still = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
            if not os.access(path, os.R_OK, effective_ids=True):  # SQLite would not say why it cannot
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except FileNotFoundError as error:
            raise StateMissing(f"{path} does not exist: no daemon has run with this state_dir yet") from error
        except OSError as error:
            raise StateError(f"{path}: {error.strerror}; ask as the daemon's user or as root") from error
        try:
            db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{still}", uri=True)
            try:
                db.text_factory = _decode_text
                _refuse_newer(db, path)
                db.execute("select 1 from report").fetchall()
            except BaseException:
                db.close()
                raise
        except sqlite3.Error as error:
            raise StateError(f"{path}: {error}") from error
        return cls(db, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def load(self) -> ReconcileState:
        """Return the state as it was last saved, read in one transaction: a daemon may save meanwhile."""
        with self._transaction_lock, _translate_errors(), self._db:
            self._unreadable_rows = []
            self._db.execute("begin")
            ads = self._load_ads()
            audit = audit_from_rows(self._read_table("audit", "kind, key, body"))
            memories, demand = self._load_memories(ads), self._load_demand()
            state = ReconcileState(
                memories,
                demand,
                self._load_pattern_matches(),
                ads,
                self._load_held_losses(),
                audit,
                self._load_rollbacks(),
            )
            if self._unreadable_rows and self._lock_fd is not None:
                self._set_rows_aside()
        return state

    def _set_rows_aside(self) -> None:
        self._db.executemany("insert into unreadable (source, row) values (?, ?)", self._unreadable_rows)
        self._db.execute(
            "delete from unreadable where number <= (select max(number) from unreadable) - ?",
            (MAX_UNREADABLE_ROWS,),
        )
        sources = sorted({source for source, _ in self._unreadable_rows})
        damage = f"{len(self._unreadable_rows)} rows of {', '.join(sources)} cannot be understood"
        self.damage_report = "; ".join(
            filter(None, [self.damage_report, f"{damage}; they now are in the table unreadable"])
        )

    def save(self, state: ReconcileState) -> None:
        """Write *state* in one transaction; rows that did not change are not written."""
        with self._transaction_lock, _translate_errors(), self._db:
            rows = self._save_memories(state.memories)
            if self._saved_demand is not state.demand:
                self._save_demand(state.demand)
            self._db.execute("delete from found")
            self._db.executemany(
                "insert into found values (?, ?)",
                [(catalogue, json.dumps(sorted(dids))) for catalogue, dids in state.pattern_matches.items()],
            )
            self._db.execute("delete from held")
            self._db.executemany(
                "insert into held values (?, ?)",
                [(site, encode_held_loss(held)) for site, held in state.held_losses.items()],
            )
            self._db.execute("delete from rollback")
            self._db.executemany(
                "insert into rollback values (?, ?, ?, ?, ?)",
                [records.encode_rollback(site, one) for site, one in state.rollbacks.items()],
            )
            self._db.execute("delete from ads")
            self._db.executemany(
                "insert into ads values (?, ?, ?, ?)",
                [
                    (ad.site, ad.as_of.timestamp(), ad.generation, json.dumps(ad.content))
                    for ad in state.ads.values()
                ],
            )
            self._save_audit(state.audit)
        # only now: after a failed save the next one compares everything
        self._stored_rows, self._saved_demand = rows.apply(), state.demand
        self._saved_datasets = {
            name: DatasetRows.wrap(memory.records) for name, memory in state.memories.items()
        }

    def save_readback(self, publisher: str, ads: Mapping[Site, PublishedAd]) -> None:
        """Save the ads that *publisher* showed when it was read."""
        with self._transaction_lock, _translate_errors(), self._db:
            self._db.execute("delete from readback where publisher = ?", (publisher,))
            self._db.executemany(
                "insert into readback values (?, ?, ?, ?, ?)",
                [
                    (publisher, a.site, a.generation, a.as_of.timestamp(), a.received_at.timestamp())
                    for a in ads.values()
                ],
            )

    def load_readback(self) -> dict[str, dict[Site, PublishedAd]]:
        """Return by publisher the ads that it showed last."""
        found: dict[str, dict[Site, PublishedAd]] = {}
        with self._transaction_lock, _translate_errors():
            rows = self._read_table("readback", "publisher, site, generation, as_of, heard")
        for publisher, ad in self._decode_rows("readback", rows, records.decode_published_ad):
            found.setdefault(publisher, {})[ad.site] = ad
        return found

    def add_history(
        self, entries: Sequence[HistoryEntry], previous_ads: Mapping[Site, SiteAd], now: datetime
    ) -> None:
        """Save *entries*; *previous_ads* are the ads before them."""
        if entries:
            with self._transaction_lock, _translate_errors(), self._db:
                archive.add(self._db, entries, previous_ads, now)

    def mark_published(
        self, publisher: str, published_ads: Mapping[Site, PublishedAd], now: datetime
    ) -> None:
        """Note which generations *publisher* shows."""
        if published_ads:
            with self._transaction_lock, _translate_errors(), self._db:
                archive.mark_published(self._db, publisher, published_ads, now)

    def load_history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Return the decisions, oldest first: all, or the last *limit*."""
        with self._transaction_lock, _translate_errors():
            return list(archive.entries(self._db, limit))

    def forget_history(self, mentions_private: Callable[[str], bool]) -> None:
        """Drop the entries with a name that has become private."""
        with self._transaction_lock, _translate_errors(), self._db:
            archive.forget(self._db, mentions_private)

    def save_report(self, key: str, body: Mapping[str, Any]) -> None:
        """Save a summary for ``hydrator status``."""
        with self._transaction_lock, _translate_errors(), self._db:
            self._db.execute("insert or replace into report values (?, ?)", (key, json.dumps(body)))

    def load_report(self, key: str) -> dict[str, Any]:
        with self._transaction_lock, _translate_errors():
            row = self._db.execute("select body from report where key = ?", (key,)).fetchone()
        return dict(json.loads(row[0])) if row else {}

    def _decode_rows(self, source: str, rows: Iterable[Any], decode: Callable[[Any], _T]) -> Iterator[_T]:
        """Yield the decoded *rows*; note those that cannot be decoded."""
        for row in rows:
            try:
                json.dumps(
                    row, ensure_ascii=False
                ).encode()  # text that is not UTF-8 could not be saved again
                value = decode(row)
            except DECODE_ERRORS:
                self._unreadable_rows.append((source, json.dumps(row)))
            else:
                yield value

    def _read_table(self, name: str, columns: str = "*") -> list[Any]:
        """Return all rows of a table; none if an older version did not make it."""
        if self._db.execute("select 1 from sqlite_master where name = ?", (name,)).fetchone() is None:
            return []
        return self._db.execute(f"select {columns} from {name}").fetchall()  # noqa: S608 - constant names

    def _load_memories(self, ads: Mapping[Site, SiteAd]) -> dict[str, CatalogueMemory]:
        self._stored_rows = self._load_record_rows()
        ages: dict[str, dict[Site, datetime]] = {}
        for catalogue, site, at in self._decode_rows("ages", self._read_table("ages"), records.decode_age):
            ages.setdefault(catalogue, {})[site] = at
        memories = dict(self._decode_rows("memory", self._read_table("memory"), records.decode_memory))
        known: dict[str, dict[Did, DatasetRecord]] = {}
        rows = [(*key, *row) for key, row in self._stored_rows.items()]
        times = {name: memory.answered_at for name, memory in memories.items()}
        lost_before = len(self._unreadable_rows)
        for row in self._decode_rows("known", rows, partial(records.decode_dataset, times=times)):
            known.setdefault(row.catalogue, {})[row.did] = row.record
        lost = self._unreadable_rows[lost_before:]
        listed = {site: facts_of(ad) for site, ad in ads.items()} if lost else {}
        for row in records.recover_from_ads([text for _, text in lost], listed):
            known.setdefault(row.catalogue, {})[row.did] = row.record
        return {
            name: replace(
                memories.get(name) or records.recover_memory(known[name]),
                records=known.get(name, {}),
                last_read_at=ages.get(name, {}),
            )
            for name in sorted(memories.keys() | known.keys())
        }

    def _load_record_rows(self) -> _RecordRows:
        found = self._read_table("known", "catalogue, did, at, body")
        return {(catalogue, did): (at, body) for catalogue, did, at, body in found}

    def _load_demand(self) -> DemandMemory:
        rows = self._read_table("demand", "schedd, dids, jobs, last_wanted")
        wants = list(self._decode_rows("demand", rows, records.decode_demand))
        wants.sort(key=lambda want: (want.schedd, want.dids))  # by name, not by their JSON
        refused = dict(self._decode_rows("refused", self._read_table("refused"), records.decode_pair))
        return DemandMemory(tuple(wants), refused)

    def _load_pattern_matches(self) -> dict[str, frozenset[Did]]:
        rows = self._read_table("found")
        return dict(self._decode_rows("found", rows, lambda row: (row[0], frozenset(json.loads(row[1])))))

    def _load_ads(self) -> dict[Site, SiteAd]:
        rows = self._read_table("ads", "site, as_of, generation, content")
        ads = sorted(self._decode_rows("ads", rows, records.decode_ad), key=lambda ad: ad.site)
        return {ad.site: ad for ad in ads}

    def _load_rollbacks(self) -> dict[Site, Rollback]:
        rows = self._read_table("rollback", "site, since, as_of, generation, content")
        return dict(self._decode_rows("rollback", rows, records.decode_rollback))

    def _load_held_losses(self) -> dict[Site, HeldLoss]:
        rows = self._read_table("held")
        return dict(self._decode_rows("held", rows, lambda row: (Site(row[0]), decode_held_loss(row[1]))))

    def _save_audit(self, audit: Audit) -> None:
        written, rows = set(self._read_table("audit", "kind, key, body")), set(audit_rows(audit))
        self._db.executemany(
            "delete from audit where kind = ? and key = ?", [row[:2] for row in sorted(written - rows)]
        )
        self._db.executemany("insert into audit values (?, ?, ?)", sorted(rows - written))

    def _save_demand(self, demand: DemandMemory) -> None:
        self._db.execute("delete from demand")
        self._db.executemany(
            "insert into demand values (?, ?, ?, ?)",
            [(w.schedd, json.dumps(w.dids), w.jobs, w.last_demanded_at.timestamp()) for w in demand.entries],
        )
        self._db.execute("delete from refused")
        self._db.executemany("insert into refused values (?, ?)", demand.rejected_texts.items())

    def _find_row_changes(self, memories: Mapping[str, CatalogueMemory]) -> _RowChanges:
        """Return the changes to the rows of ``known``; where versions allow it, compare only changed datasets."""
        news = _RowChanges(
            self._load_record_rows() if self._stored_rows is None else self._stored_rows, {}, []
        )
        for catalogue, memory in memories.items():
            known = DatasetRows.wrap(memory.records)
            last = None if self._stored_rows is None else self._saved_datasets.get(catalogue)
            look = _dids_that_may_differ(known, last) if last else None
            if look is None:
                look = known.keys()
                news.deleted_keys.extend(
                    key for key in news.stored_rows if key[0] == catalogue and key[1] not in known
                )
            for did in look:
                news.compare_row(catalogue, did, known, memory.answered_at)
        if self._stored_rows is None or self._saved_datasets.keys() != memories.keys():
            news.deleted_keys.extend(key for key in news.stored_rows if key[0] not in memories)
        return news

    def _save_memories(self, memories: Mapping[str, CatalogueMemory]) -> _RowChanges:
        news = self._find_row_changes(memories)
        self._db.executemany("delete from known where catalogue = ? and did = ?", news.deleted_keys)
        self._db.executemany(
            "insert or replace into known values (?, ?, ?, ?)",
            [(*key, *row) for key, row in news.changed_rows.items()],
        )
        self._db.execute("delete from memory")
        self._db.executemany(
            "insert into memory values (?, ?, ?, ?, ?, ?)",
            [
                (
                    catalogue,
                    memory.answered_at.timestamp() if memory.answered_at else None,
                    json.dumps(sorted(memory.sites)),
                    json.dumps(sorted(memory.unmapped_storages)),
                    memory.failure,
                    json.dumps(memory.unseen_reasons),
                )
                for catalogue, memory in memories.items()
            ],
        )
        self._db.execute("delete from ages")
        self._db.executemany(
            "insert into ages values (?, ?, ?)",
            [
                (name, site, at.timestamp())
                for name, memory in memories.items()
                for site, at in memory.last_read_at.items()
            ],
        )
        return news


def _dids_that_may_differ(datasets: DatasetRows, saved_datasets: DatasetRows) -> AbstractSet[Did] | None:
    """Return the datasets whose rows may differ from those last saved; None: any."""
    if datasets is not saved_datasets and datasets.base_version is not saved_datasets.version:
        return None
    # an individually dated row is stored without its time while that equals the time of all
    return datasets.changed_since_base | datasets.individually_dated | saved_datasets.individually_dated


def owner_of(folder: Path) -> str | None:
    """Return the process that owns the state in *folder*; None if no daemon runs.

    The kernel drops the lock with the process, however that ends: a held lock is a sign of life.

    Raises:
        StateError: this user may not read the lock.
    """
    try:
        lock = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(
            f"{folder / 'lock'}: {error.strerror}; ask as the daemon's user or as root"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
    except OSError:  # a file system without locks: the owner is unknown
        return "unknown"
    else:
        return None
    finally:
        os.close(lock)


def _restrict_permissions(path: Path) -> None:
    """Make the database at *path*, if missing, and the files beside it readable only to the daemon's user.

    SQLite gives its log the mode of the database. An earlier version left all of these to the umask.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for file in (*path.parent.glob(f"{path.name}*"), path.with_name("lock")):
        with contextlib.suppress(PermissionError, FileNotFoundError):  # another user's: a folder of several
            file.chmod(0o600)

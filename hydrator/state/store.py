"""Store: everything that must survive a restart, in one sqlite file.

The file has one JSON document for each part of the state, one row for each dataset of a catalogue, the last
changes of ads, and reports. A catalogue may have 50,000 datasets, and a poll changes few of them: so a save
writes only the rows that changed, and the small documents whose part is another object. Only one daemon at a
time owns a state directory. The daemon's user and root can read the file while the daemon runs
(write-ahead log). No other user can read the file, whatever the umask is, because it contains the demand of
users and the answers of catalogues.
"""

import contextlib
import os
import re
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar, get_type_hints

from pydantic import TypeAdapter
from pydantic_core import to_json

from hydrator.domain.errors import StateDamaged, StateError, StateUnreadable
from hydrator.domain.model import Did, Site
from hydrator.domain.text import matches_any
from hydrator.reconcile.snapshot.merge import CatalogueMemory, DatasetRecord
from hydrator.reconcile.state import MAX_CHANGES_PER_SITE, DatasetChange, HistoryEntry, ReconcileState
from hydrator.state.database import (
    connect,
    connect_read_only,
    lock_folder,
    replace_damaged,
    restrict_permissions,
    transaction,
)

MAX_AGE: Final = timedelta(days=31)
"""The age of the oldest change of an ad that is kept."""
STAGING_REPORT: Final = "staging"
"""The name of the overview of staging, for :meth:`Store.load_report`."""
T = TypeVar("T")
_NAIVE_TIME: Final = re.compile(r'"\d{4}-\d\d-\d\d[T _][\d:.,]+"')
_NOT_SAVED: Final[Mapping[str, Any]] = {"memories": {"__all__": {"records"}}}
"""Fields that the documents leave out: the records have rows of their own."""


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - any type
    """Return the adapter of the type *kind*; building one takes some milliseconds, so it is kept."""
    return TypeAdapter(kind)


def parse_body(kind: Any, body: Any) -> Any:  # noqa: ANN401 - any type
    """Return the value of the type *kind* that the column *body* has as JSON.

    Raises:
        ValueError: *body* has no such value, or a time in it has no zone, so it cannot be compared.
    """
    if _NAIVE_TIME.search(str(body)):
        raise ValueError("a time has no zone")
    return adapter(kind).validate_json(body)


@cache
def _part_types() -> dict[str, Any]:
    """Return the type of each part of the state, by its name."""
    return get_type_hints(ReconcileState)


@contextlib.contextmanager
def decoding(table: str) -> Iterator[None]:
    """Run the ``with`` block, which decodes rows of *table*.

    Raises:
        StateDamaged: a row cannot be decoded, because another program or a bug has changed it.
    """
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise StateDamaged(f"a row of the table {table} cannot be decoded: {error!r}") from error


def read_state(db: sqlite3.Connection) -> ReconcileState:
    """Return the state. The caller must have begun a transaction.

    Raises:
        StateDamaged: a row cannot be decoded.
    """
    kinds = _part_types()
    with decoding("part"):
        rows = db.execute("select name, body from part")
        state = ReconcileState(**{name: parse_body(kinds[name], body) for name, body in rows})
    records: dict[str, dict[Did, DatasetRecord]] = {name: {} for name in state.memories}
    with decoding("record"):
        for catalogue, did, body in db.execute("select catalogue, did, body from record"):
            records[catalogue][did] = parse_body(DatasetRecord, body)
    memories = {name: replace(memory, records=records[name]) for name, memory in state.memories.items()}
    return replace(state, memories=memories)


def insert_rows(db: sqlite3.Connection, table: str, rows: Collection[Sequence[object]]) -> None:
    """Insert *rows* into *table*; each replaces the stored row with the same key."""
    if rows:
        marks = ", ".join("?" * len(next(iter(rows))))
        db.executemany(f"insert or replace into {table} values ({marks})", rows)  # noqa: S608 - constant names


def write_state(db: sqlite3.Connection, state: ReconcileState, saved: ReconcileState | None) -> None:
    """Write what differs from *saved*, the state on disk. The caller must have begun a transaction.

    If *saved* is None, what is on disk is not known: replace all of it.
    """
    if saved is None:
        db.execute("delete from part")
        db.execute("delete from record")
    saved_memories = saved.memories if saved else {}
    for name in saved_memories.keys() | state.memories.keys():
        _write_records(db, name, state.memories.get(name), saved_memories.get(name))
    for part, kind in _part_types().items():
        value = getattr(state, part)
        if saved is None or value is not getattr(saved, part):
            body = adapter(kind).dump_json(value, exclude=_NOT_SAVED.get(part))
            insert_rows(db, "part", [(part, body.decode())])


def _write_records(
    db: sqlite3.Connection, catalogue: str, memory: CatalogueMemory | None, saved: CatalogueMemory | None
) -> None:
    """Write the records of one catalogue that differ from *saved*; None for a catalogue that is not there."""
    rows, saved_rows = (one.records if one else {} for one in (memory, saved))
    gone = [(catalogue, did) for did in saved_rows.keys() - rows.keys()]
    db.executemany("delete from record where catalogue = ? and did = ?", gone)
    dump = adapter(DatasetRecord).dump_json
    changed = [
        (catalogue, did, dump(row, exclude={"reading"}, exclude_defaults=True).decode())
        for did, row in rows.items()
        if (known := saved_rows.get(did)) is not row and known != row
    ]
    insert_rows(db, "record", changed)


class Store(AbstractContextManager["Store"]):
    """The state file in *folder*; open it with :meth:`open_to_write` or :meth:`open_to_read`."""

    _open_transaction = staticmethod(transaction)

    def __init__(
        self, path: Path, connection: sqlite3.Connection, lock: int | None, damage_report: str | None = None
    ) -> None:
        self._path = path
        self._lock_fd = lock
        self._use(connection)
        self.damage_report = damage_report

    def _use(self, connection: sqlite3.Connection) -> None:
        """Read and write the database of *connection* from now on."""
        self._db = connection
        self._saved: ReconcileState | None = None
        failure = StateUnreadable if self._lock_fd is None else StateError
        self._transaction = partial(self._open_transaction, connection, threading.RLock(), failure)

    @classmethod
    def open_to_write(cls, folder: Path) -> Self:
        """Open *folder* as its owner, and create missing files.

        Rename a damaged database, create a new one, and set ``damage_report``. A lost state does not make a
        generation smaller: generations are Unix times, and the daemon reads published ads back.

        Raises:
            StateError: another daemon owns the folder, the folder is not writable, or a newer version wrote
                the state.
        """
        lock = lock_folder(folder)
        path = folder / "state.sqlite"
        try:
            restrict_permissions(path)
            try:
                return cls(path, connect(path), lock)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                database, damage_report = replace_damaged(path, error)
                return cls(path, database, lock, damage_report)
        except (sqlite3.Error, OSError) as error:
            os.close(lock)
            advice = "check that the folder is writable and the disk is not full"
            raise StateError(f"{path}: {error}; {advice}") from error
        except StateError:
            os.close(lock)
            raise

    @classmethod
    def open_to_read(cls, folder: Path) -> Self:
        """Open the state in *folder* for reading, also while a daemon owns it.

        Raises:
            StateMissing: *folder* has no state yet.
            StateUnreadable: the state cannot be read, or a newer version wrote it.
        """
        path = folder / "state.sqlite"
        return cls(path, connect_read_only(path), None)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def load(self) -> ReconcileState:
        """Return the last saved state. Read it in one transaction, because a daemon may save meanwhile.

        If a row cannot be decoded, the owner of the folder renames the database, creates a new one, sets
        ``damage_report`` and returns an empty state: withholding keeps the published ads.

        Raises:
            StateDamaged: a row cannot be decoded, and this process does not own the folder.
            StateError: the database cannot be read, renamed or created.
        """
        try:
            with self._transaction():
                self._db.execute("begin")
                state = read_state(self._db)
        except StateDamaged as error:
            if self._lock_fd is None:
                raise
            self._start_anew(error)
            return ReconcileState()
        self._saved = state
        return state

    def _start_anew(self, error: StateDamaged) -> None:
        self._db.close()
        try:
            database, self.damage_report = replace_damaged(self._path, error)
        except (sqlite3.Error, OSError) as failure:
            raise StateError(f"{self._path}: {failure}; {error}") from failure
        self._use(database)

    def save(self, state: ReconcileState, changes: Sequence[HistoryEntry] = ()) -> None:
        """Write *state* and add the *changes* of ads in one transaction; write only rows that changed.

        Delete the changes that are too old, or too many of their site. If only ages or fractions of an ad
        changed, nothing is added for it.

        Raises:
            StateError: the state cannot be written.
        """
        with self._transaction():
            write_state(self._db, state, self._saved)
            for entry in changes:
                self._add_changes(entry)
            if changes:
                oldest = (changes[-1].decided_at - MAX_AGE).timestamp()
                self._db.execute("delete from site_change where at < ?", (oldest,))
        self._saved = state

    def _add_changes(self, entry: HistoryEntry) -> None:
        """Add the changes of *entry*, and delete those of the site before its last MAX_CHANGES_PER_SITE."""
        site = entry.site
        self._db.executemany(
            "insert into site_change (site, at, did, before, after, reason) values (?, ?, ?, ?, ?, ?)",
            [(site, one.at, one.did, one.before, one.after, one.why) for one in entry.changes],
        )
        self._db.execute(
            "delete from site_change where site = ? and number <="
            " (select number from site_change where site = ? order by number desc limit 1 offset ?)",
            (site, site, MAX_CHANGES_PER_SITE),
        )

    def forget_history(self, never: tuple[str, ...]) -> None:
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

    def save_reports(self, reports: Mapping[str, object]) -> None:
        """Save values of any types that :meth:`load_report` can read, in place of the last of each name."""
        with self._transaction():
            rows = [(key, to_json(report).decode()) for key, report in reports.items()]
            insert_rows(self._db, "report", rows)

    def load_report(self, key: str, kind: type[T]) -> T | None:
        """Return the saved report; None if there is none, or if it is not of the type *kind*.

        A damaged report, or one of another version, raises no error: the daemon saves each report again.
        """
        with self._transaction():
            row = self._db.execute("select body from report where key = ?", (key,)).fetchone()
        try:
            report: T | None = parse_body(kind, row[0]) if row else None
        except ValueError:
            return None
        return report

"""Saved state: one JSON document for each part of the state, and one row for each dataset of a catalogue.

A catalogue may have 50,000 datasets, and a poll changes few of them. So each dataset has its own row, and a
save writes only the rows that changed. The documents are small, and are written when their part is another
object.
"""

import contextlib
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, get_type_hints

from pydantic import TypeAdapter

from hydrator.domain.errors import StateDamaged
from hydrator.domain.model import Did
from hydrator.reconcile.snapshot.memory import CatalogueMemory, DatasetRecord
from hydrator.reconcile.state import ReconcileState

_NOT_SAVED: Final[Mapping[str, Any]] = {"memories": {"__all__": {"records"}}}
"""Fields that the documents leave out: the records have rows of their own."""


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - any type
    """Return the adapter of the type *kind*; building one takes some milliseconds, so it is kept."""
    return TypeAdapter(kind)


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
        state = ReconcileState(**{name: adapter(kinds[name]).validate_json(body) for name, body in rows})
    records: dict[str, dict[Did, DatasetRecord]] = {name: {} for name in state.memories}
    with decoding("record"):
        for catalogue, did, body in db.execute("select catalogue, did, body from record"):
            records[catalogue][did] = adapter(DatasetRecord).validate_json(body)
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

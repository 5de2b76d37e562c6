"""Saved state: read the state from the database, and write the rows that changed since the last save.

Reader of the state in the database.

Writer of the state into the database. It writes only rows that changed since the last save.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from hydrator.domain.model import Did, Site
from hydrator.reconcile.demand import DemandMemory
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL, CatalogueMemory, DatasetRecord, DatasetRows
from hydrator.reconcile.state import ReconcileState

from . import rows as records
from .rows import RecordRows, decode_held_loss, decoding, encode_held_loss, encode_record

_T = TypeVar("_T")


class StateReader:
    """A reader of one state."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self.record_rows: RecordRows = {}

    def read_state(self) -> ReconcileState:
        """Return the state. The caller must have begun a transaction.

        Raises:
            StateDamaged: a row cannot be decoded.
        """
        ads = sorted(
            self.read("ads", "site, as_of, generation, content, openings, until", records.decode_ad),
            key=lambda ad: ad.site,
        )
        ads_by_site = {ad.site: ad for ad in ads}
        return ReconcileState(
            self._load_memories(),
            self._load_demand(),
            dict(self.read("found", "*", lambda row: (row[0], frozenset(json.loads(row[1]))))),
            ads_by_site,
            dict(self.read("held", "*", lambda row: (Site(row[0]), decode_held_loss(row[1])))),
        )

    def read(self, table: str, columns: str, decode: Callable[[Any], _T]) -> list[_T]:
        """Return the decoded rows of *table*.

        Raises:
            StateDamaged: a row cannot be decoded.
        """
        with decoding(table):
            rows = self._db.execute(f"select {columns} from {table}")  # noqa: S608 - constant names
            return [decode(row) for row in rows]

    def _load_memories(self) -> dict[str, CatalogueMemory]:
        ages: dict[str, dict[Site, datetime]] = {}
        for catalogue, site, at in self.read("ages", "*", records.decode_age):
            ages.setdefault(catalogue, {})[site] = at
        memories = dict(self.read("memory", "*", records.decode_memory))
        known: dict[str, dict[Did, DatasetRecord]] = {name: {} for name in memories}
        with decoding("known"):
            self.record_rows = self.read_record_rows()
            for (catalogue, did), row in self.record_rows.items():
                known[catalogue][did] = records.decode_record(row, memories[catalogue].answered_at)
        return {
            name: replace(memories[name], records=known[name], last_read_at=ages.get(name, {}))
            for name in sorted(memories)
        }

    def read_record_rows(self) -> RecordRows:
        """Return the rows of ``known``, by catalogue and dataset."""
        rows = self._db.execute("select catalogue, did, at, body from known")
        return {(catalogue, did): (at, body) for catalogue, did, at, body in rows}

    def _load_demand(self) -> DemandMemory:
        columns = "schedd, dids, jobs, last_wanted, key"
        entries = self.read("demand", columns, records.decode_demand)
        entries.sort(
            key=lambda entry: (entry.schedd, entry.dids, entry.key)
        )  # sort by DIDs, not by the JSON text
        return DemandMemory(tuple(entries), dict(self.read("refused", "*", records.decode_pair)))


def insert_rows(db: sqlite3.Connection, table: str, rows: Collection[Sequence[object]]) -> None:
    """Insert *rows* into *table*; each replaces the stored row with the same key."""
    if rows:
        marks = ", ".join("?" * len(next(iter(rows))))
        db.executemany(f"insert or replace into {table} values ({marks})", rows)  # noqa: S608 - constant names


@dataclass(frozen=True, slots=True)
class _RowChanges:
    """The stored rows of the table ``known``, and the changes to them."""

    stored_rows: RecordRows
    changed_rows: RecordRows
    deleted_keys: list[tuple[str, Did]]

    def compare_row(self, catalogue: str, did: Did, datasets: DatasetRows, at: datetime | None) -> None:
        key, one = (catalogue, did), datasets.rows.get(did)
        if one is None:
            self.deleted_keys.extend([key] if key in self.stored_rows else [])
        elif self.stored_rows.get(key) != (
            row := encode_record(one, AT_LAST_POLL if one.read_at is AT_LAST_POLL else at)
        ):
            self.changed_rows[key] = row

    def apply(self) -> RecordRows:
        """Apply the changes to the stored rows, and return the stored rows."""
        self.stored_rows.update(self.changed_rows)
        for key in self.deleted_keys:
            self.stored_rows.pop(key, None)
        return self.stored_rows


class StateWriter:
    """A writer that compares each state with the last saved state, and writes the rows that differ."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._stored_rows: RecordRows | None = None
        self._saved_datasets: dict[str, DatasetRows] = {}
        self._saved_demand: DemandMemory | None = None
        self._row_changes: _RowChanges | None = None

    def set_stored_rows(self, rows: RecordRows) -> None:
        """Set the rows of the table ``known`` on disk; the next save compares the state with these *rows*."""
        self._stored_rows = rows

    def write(self, state: ReconcileState) -> None:
        """Write *state*. The caller must have begun a transaction."""
        self._row_changes = self._save_memories(state.memories)
        if self._saved_demand is not state.demand:
            self._save_demand(state.demand)
        matches = state.pattern_matches.items()
        self._replace_rows("found", [(catalogue, json.dumps(sorted(dids))) for catalogue, dids in matches])
        self._replace_rows(
            "held", [(site, encode_held_loss(held)) for site, held in state.held_losses.items()]
        )
        self._replace_rows(
            "ads",
            [
                (
                    ad.site,
                    ad.as_of.timestamp(),
                    ad.generation,
                    json.dumps(ad.content),
                    json.dumps(ad.openings),
                    ad.open_until.timestamp() if ad.open_until else None,
                )
                for ad in state.ads.values()
            ],
        )

    def _replace_rows(self, table: str, rows: Collection[Sequence[object]]) -> None:
        self._db.execute(f"delete from {table}")  # noqa: S608 - constant names
        insert_rows(self._db, table, rows)

    def mark_saved(self, state: ReconcileState) -> None:
        """Record that *state* is on disk. After a failure do not call this: the next save writes all rows."""
        if self._row_changes:
            self._stored_rows = self._row_changes.apply()
        self._saved_demand = state.demand
        self._saved_datasets = {
            name: DatasetRows.wrap(memory.records) for name, memory in state.memories.items()
        }

    def _save_demand(self, demand: DemandMemory) -> None:
        self._replace_rows(
            "demand",
            [
                (
                    w.schedd,
                    json.dumps(w.dids),
                    w.jobs,
                    w.last_demanded_at.timestamp(),
                    w.key,
                )
                for w in demand.entries
            ],
        )
        self._replace_rows("refused", demand.rejected_texts.items())

    def _find_row_changes(self, memories: Mapping[str, CatalogueMemory]) -> _RowChanges:
        """Return the changes to the rows of ``known``.

        Of a catalogue whose memory was saved before, compare only the rows that are other objects now.
        """
        changes = _RowChanges(
            StateReader(self._db).read_record_rows() if self._stored_rows is None else self._stored_rows,
            {},
            [],
        )
        for catalogue, memory in memories.items():
            datasets = DatasetRows.wrap(memory.records)
            saved = None if self._stored_rows is None else self._saved_datasets.get(catalogue)
            dids: AbstractSet[Did] = datasets.keys()
            if saved:
                dids = _dids_that_may_differ(datasets, saved)
            else:
                changes.deleted_keys.extend(
                    key for key in changes.stored_rows if key[0] == catalogue and key[1] not in datasets
                )
            for did in dids:
                changes.compare_row(catalogue, did, datasets, memory.answered_at)
        if self._stored_rows is None or self._saved_datasets.keys() != memories.keys():
            changes.deleted_keys.extend(key for key in changes.stored_rows if key[0] not in memories)
        return changes

    def _save_memories(self, memories: Mapping[str, CatalogueMemory]) -> _RowChanges:
        changes = self._find_row_changes(memories)
        self._db.executemany("delete from known where catalogue = ? and did = ?", changes.deleted_keys)
        insert_rows(self._db, "known", [(*key, *row) for key, row in changes.changed_rows.items()])
        self._replace_rows(
            "memory",
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
        self._replace_rows(
            "ages",
            [
                (name, site, at.timestamp())
                for name, memory in memories.items()
                for site, at in memory.last_read_at.items()
            ],
        )
        return changes


def _dids_that_may_differ(datasets: DatasetRows, saved_datasets: DatasetRows) -> AbstractSet[Did]:
    """Return the datasets whose rows may differ from the saved rows."""
    rows, saved = datasets.rows, saved_datasets.rows
    changed = {did for did, row in rows.items() if saved.get(did) is not row} | (saved.keys() - rows.keys())
    # A dataset with its own time may differ: its row omits this time if the last poll had the same time.
    return changed | datasets.individually_dated | saved_datasets.individually_dated

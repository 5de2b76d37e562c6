"""Writer of the state into the database. It writes only rows that changed since the last save."""

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

from hydrator.domain.model import Did
from hydrator.reconcile.demand import DemandMemory
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL, CatalogueMemory, DatasetRows
from hydrator.reconcile.state import ReconcileState

from .rows import RecordRows, encode_held_loss, encode_record
from .state_reader import StateReader


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
                    ad.estimates_until.timestamp() if ad.estimates_until else None,
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
                    int(w.has_unkeyed_jobs),
                    w.wrong_key_count,
                )
                for w in demand.entries
            ],
        )
        self._replace_rows("refused", demand.rejected_texts.items())

    def _find_row_changes(self, memories: Mapping[str, CatalogueMemory]) -> _RowChanges:
        """Return the changes to the rows of ``known``.

        If a catalogue's memory was built from its saved memory, compare only the datasets that changed since.
        """
        changes = _RowChanges(
            StateReader(self._db).read_record_rows() if self._stored_rows is None else self._stored_rows,
            {},
            [],
        )
        for catalogue, memory in memories.items():
            datasets = DatasetRows.wrap(memory.records)
            saved = None if self._stored_rows is None else self._saved_datasets.get(catalogue)
            dids = _dids_that_may_differ(datasets, saved) if saved else None
            if dids is None:
                dids = datasets.keys()
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


def _dids_that_may_differ(datasets: DatasetRows, saved_datasets: DatasetRows) -> AbstractSet[Did] | None:
    """Return the datasets whose rows may differ from the saved rows; None if any row may differ."""
    if datasets is not saved_datasets and datasets.base_version is not saved_datasets.version:
        return None
    # A dataset with its own time may differ: its row omits this time if the last poll had the same time.
    return datasets.changed_since_base | datasets.individually_dated | saved_datasets.individually_dated

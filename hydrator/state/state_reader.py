"""Reader of the state in the database."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from hydrator.domain.model import Did, Site
from hydrator.reconcile.demand import DemandMemory
from hydrator.reconcile.snapshot.memory import CatalogueMemory, DatasetRecord
from hydrator.reconcile.state import ReconcileState

from . import rows as records
from .rows import RecordRows, decode_held_loss, decoding

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
            self.read("ads", "site, as_of, generation, content, until", records.decode_ad),
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
        columns = "schedd, dids, jobs, last_wanted, unkeyed, wrong"
        entries = self.read("demand", columns, records.decode_demand)
        entries.sort(key=lambda entry: (entry.schedd, entry.dids))  # sort by DIDs, not by the JSON text
        return DemandMemory(tuple(entries), dict(self.read("refused", "*", records.decode_pair)))

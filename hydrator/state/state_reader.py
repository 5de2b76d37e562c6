"""Reader of the state in the database. It returns the state and the rows that it could not decode."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from hydrator.domain.model import Did, Site, SiteAd
from hydrator.reconcile.ads.site_ads import facts_of
from hydrator.reconcile.demand import DemandMemory
from hydrator.reconcile.snapshot.memory import CatalogueMemory, DatasetRecord
from hydrator.reconcile.state import ReconcileState

from . import rows as records
from .rows import DECODE_ERRORS, RecordRows, decode_held_loss

_T = TypeVar("_T")


class StateReader:
    """A reader of one state; its ``unreadable_rows`` are the rows that it could not decode."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self.record_rows: RecordRows = {}
        self.unreadable_rows: list[tuple[str, str]] = []

    def read_state(self) -> ReconcileState:
        """Return the state. The caller must have begun a transaction."""
        ads = sorted(
            self.read("ads", "site, as_of, generation, content, until", records.decode_ad),
            key=lambda ad: ad.site,
        )
        ads_by_site = {ad.site: ad for ad in ads}
        return ReconcileState(
            self._load_memories(ads_by_site),
            self._load_demand(),
            dict(self.read("found", "*", lambda row: (row[0], frozenset(json.loads(row[1]))))),
            ads_by_site,
            dict(self.read("held", "*", lambda row: (Site(row[0]), decode_held_loss(row[1])))),
        )

    def read(self, table: str, columns: str, decode: Callable[[Any], _T]) -> Iterator[_T]:
        """Yield the decoded rows of *table*; add the other rows to ``unreadable_rows``."""
        return self.decode_rows(table, self.read_table(table, columns), decode)

    def decode_rows(self, source: str, rows: Iterable[Any], decode: Callable[[Any], _T]) -> Iterator[_T]:
        """Yield the decoded *rows*; add the other rows to ``unreadable_rows``."""
        for row in rows:
            try:
                records.refuse_broken_text(row)
                value = decode(row)
            except DECODE_ERRORS:
                self.unreadable_rows.append((source, json.dumps(row)))
            else:
                yield value

    def read_table(self, name: str, columns: str = "*") -> list[Any]:
        """Return all rows of the table *name*."""
        return self._db.execute(f"select {columns} from {name}").fetchall()  # noqa: S608 - constant names

    def _load_memories(self, ads: Mapping[Site, SiteAd]) -> dict[str, CatalogueMemory]:
        self.record_rows = self.read_record_rows()
        ages: dict[str, dict[Site, datetime]] = {}
        for catalogue, site, at in self.read("ages", "*", records.decode_age):
            ages.setdefault(catalogue, {})[site] = at
        memories = dict(self.read("memory", "*", records.decode_memory))
        records_by_catalogue: dict[str, dict[Did, DatasetRecord]] = {}
        rows = [(*key, *row) for key, row in self.record_rows.items()]
        times = {name: memory.answered_at for name, memory in memories.items()}
        unreadable_before = len(self.unreadable_rows)
        for row in self.decode_rows("known", rows, partial(records.decode_dataset, times=times)):
            records_by_catalogue.setdefault(row.catalogue, {})[row.did] = row.record
        lost_rows = self.unreadable_rows[unreadable_before:]
        facts_by_site = {site: facts_of(ad) for site, ad in ads.items()} if lost_rows else {}
        for row in records.recover_from_ads([text for _, text in lost_rows], facts_by_site):
            records_by_catalogue.setdefault(row.catalogue, {})[row.did] = row.record
        return {
            name: replace(
                memories.get(name) or records.recover_memory(records_by_catalogue[name]),
                records=records_by_catalogue.get(name, {}),
                last_read_at=ages.get(name, {}),
            )
            for name in sorted(memories.keys() | records_by_catalogue.keys())
        }

    def read_record_rows(self) -> RecordRows:
        """Return the rows of ``known``, by catalogue and dataset."""
        rows = self.read_table("known", "catalogue, did, at, body")
        return {(catalogue, did): (at, body) for catalogue, did, at, body in rows}

    def _load_demand(self) -> DemandMemory:
        columns = "schedd, dids, jobs, last_wanted, unkeyed, wrong"
        entries = list(self.read("demand", columns, records.decode_demand))
        entries.sort(key=lambda entry: (entry.schedd, entry.dids))  # sort by DIDs, not by the JSON text
        return DemandMemory(tuple(entries), dict(self.read("refused", "*", records.decode_pair)))

"""Memory of one catalogue: its last answers, stored so that a repeated answer costs nothing.

Nearly everything that is read again is unchanged except for its age. So a row that was read with the
catalogue's last complete answer has the time :data:`AT_LAST_POLL`, and the real time is stored once
beside all rows. A look-up of a dataset returns the real time; only the cycle reads rows.
docs/explanation/incremental-evaluation.md has an example.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from hydrator.domain.model import Did, Fact, Seen, Site

AT_LAST_POLL: Final = datetime.max.replace(tzinfo=UTC)
"""Time in rows: that of the last complete answer. Real times are earlier, so it sorts as the newest."""


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """One catalogue's last record of one dataset: its state at each site that has it.

    ``previous_facts`` are from the last complete reading, at sites that were read only in part since. Where
    the part has a fact too, both are kept, each with its age.
    ``reading`` is the reading that the record was made of, if it was made of one.
    """

    read_at: datetime
    facts: Mapping[Site, Fact]
    bytes_total: int | None = None
    case_variants: frozenset[Did] = frozenset()
    previous_facts: Mapping[Site, Fact] = field(default_factory=dict)
    reading: Seen | None = field(default=None, compare=False, repr=False)


_Row = TypeVar("_Row")


class TimestampedRows(Mapping[Did, _Row]):
    """Rows by dataset; :meth:`with_timestamp` replaces AT_LAST_POLL by the real time on look-up."""

    __slots__ = ("rows",)

    def __init__(self, rows: Mapping[Did, _Row]) -> None:
        self.rows = rows

    @abstractmethod
    def with_timestamp(self, row: _Row) -> _Row:
        """Return *row* with its real time."""

    def __getitem__(self, did: Did) -> _Row:
        return self.with_timestamp(self.rows[did])

    def __iter__(self) -> Iterator[Did]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, did: object) -> bool:
        return did in self.rows

    __hash__ = None  # type: ignore[assignment]


class DatasetRows(TimestampedRows[DatasetRecord]):
    """Immutable records of one catalogue by dataset; each answer makes a new object.

    Args:
        rows: by dataset. A row with ``read_at`` AT_LAST_POLL, and with it all its facts, is of *polled_at*.
        polled_at: the time of the last complete answer.
        individually_dated: the datasets whose rows have times of their own.
        base_version: the ``version`` of the rows that these were made from.
        changed_since_base: the datasets whose rows differ from those.
    """

    __slots__ = ("base_version", "changed_since_base", "individually_dated", "polled_at", "version")

    def __init__(
        self,
        rows: Mapping[Did, DatasetRecord],
        polled_at: datetime | None,
        individually_dated: AbstractSet[Did],
        base_version: object = None,
        changed_since_base: AbstractSet[Did] = frozenset(),
    ) -> None:
        super().__init__(rows)
        self.polled_at = polled_at
        self.individually_dated = individually_dated
        self.base_version = base_version
        self.changed_since_base = changed_since_base
        self.version = object()

    @classmethod
    def wrap(cls, records: Mapping[Did, DatasetRecord]) -> "DatasetRows":
        """Return *records* as DatasetRows; from a test or from disk they may be any mapping."""
        return records if isinstance(records, DatasetRows) else cls(records, None, records.keys())

    def with_timestamp(self, row: DatasetRecord) -> DatasetRecord:
        if row.read_at is not AT_LAST_POLL or self.polled_at is None:
            return row
        at = self.polled_at
        facts = {site: replace(fact, as_of=at) for site, fact in row.facts.items()}
        return replace(row, read_at=at, facts=facts)

    def apply_answer(
        self,
        polled_at: datetime | None,
        new_records: Mapping[Did, DatasetRecord],
        removed_dids: Collection[Did],
    ) -> "DatasetRows":
        """Return the rows after an answer at *polled_at*.

        *new_records* replace rows, *removed_dids* are dropped, the rest is unchanged.
        """
        if not new_records and not removed_dids:
            return DatasetRows(self.rows, polled_at, self.individually_dated, self.version)
        rows = {**self.rows, **new_records}
        for did in removed_dids:
            rows.pop(did, None)
        return DatasetRows(
            rows,
            polled_at,
            self._find_individually_dated(new_records, removed_dids),
            self.version,
            frozenset((*new_records, *removed_dids)),
        )

    def with_records(self, records: Mapping[Did, DatasetRecord]) -> "DatasetRows":
        """Return rows after the same answer, with *records* replaced; these have times of their own."""
        if not records:
            return self
        return DatasetRows(
            {**self.rows, **records},
            self.polled_at,
            self._find_individually_dated(records),
            self.base_version,
            self.changed_since_base | records.keys(),
        )

    def _find_individually_dated(
        self, new_records: Mapping[Did, DatasetRecord], removed_dids: Collection[Did] = ()
    ) -> AbstractSet[Did]:
        newly_dated = {did for did, record in new_records.items() if record.read_at is not AT_LAST_POLL}
        return (self.individually_dated - new_records.keys()).difference(removed_dids) | newly_dated


@dataclass(frozen=True, slots=True)
class CatalogueMemory:
    """One catalogue's last answer; ``unseen_reasons`` has the datasets without an answer since, and why.

    ``answered_at`` is the time of the last complete answer. ``last_read_at`` has the sites that this answer
    named and did not cover, each with the time of its last reading.
    """

    answered_at: datetime | None = None
    sites: frozenset[Site] = frozenset()
    records: Mapping[Did, DatasetRecord] = field(default_factory=dict)
    unseen_reasons: Mapping[Did, str] = field(default_factory=dict)
    unmapped_storages: frozenset[str] = frozenset()
    failure: str | None = None
    last_read_at: Mapping[Site, datetime] = field(default_factory=dict)

    def read_at(self, site: Site) -> datetime | None:
        """Return the time of the last reading of the whole *site*; None if there was none."""
        return self.last_read_at.get(site, self.answered_at if site in self.sites else None)

"""Memory of one catalogue: its last answers, stored so that an answer without changes costs little.

From poll to poll, nearly all facts are unchanged except for their age. So a row of the catalogue's last
complete answer has the time :data:`AT_LAST_POLL`, and the memory stores the real time once for all these
rows. A look-up of a dataset returns the real time; only the code of the cycle reads rows directly.

Rows of ``hydrator datasets --why``: each catalogue's answer about a dataset, with its time and query.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from hydrator.domain.model import DatasetState, Did, Fact, Seen, Site, to_unix
from hydrator.domain.provenance import describe_provenance, provenance_to_row
from hydrator.domain.units import Share, UnixTime

AT_LAST_POLL: Final = datetime.max.replace(tzinfo=UTC)
"""A marker in rows for the time of the last complete answer. It is later than all real times."""


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """One catalogue's last record of one dataset: its state at each site that has it.

    The last reading may have a replica at a site although the catalogue could not query the whole site. Then
    ``facts`` has the fact from this replica, and ``previous_facts`` the fact from the last complete reading.
    ``reading`` is the reading from which the record was built; None if it was not built from a reading.
    """

    read_at: datetime
    facts: Mapping[Site, Fact]
    bytes_total: int | None = None
    case_variants: frozenset[Did] = frozenset()
    previous_facts: Mapping[Site, Fact] = field(default_factory=dict)
    reading: Seen | None = field(default=None, compare=False, repr=False)


_Row = TypeVar("_Row")


class TimestampedRows(Mapping[Did, _Row]):
    """Rows by dataset; a look-up replaces AT_LAST_POLL by the real time (:meth:`with_timestamp`)."""

    __slots__ = ("rows",)

    def __init__(self, rows: Mapping[Did, _Row]) -> None:
        self.rows = rows

    @abstractmethod
    def with_timestamp(self, row: _Row) -> _Row:
        """Return *row* with the real time in place of AT_LAST_POLL."""

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
    """Immutable records of one catalogue, by dataset; each answer makes a new object.

    Args:
        rows: by dataset. If ``read_at`` of a row is AT_LAST_POLL, the time of its facts is *polled_at*.
        polled_at: the time of the last complete answer.
        individually_dated: the datasets whose rows have a real time, not AT_LAST_POLL.
    """

    __slots__ = ("individually_dated", "polled_at")

    def __init__(
        self,
        rows: Mapping[Did, DatasetRecord],
        polled_at: datetime | None,
        individually_dated: AbstractSet[Did],
    ) -> None:
        super().__init__(rows)
        self.polled_at = polled_at
        self.individually_dated = individually_dated

    @classmethod
    def wrap(cls, records: Mapping[Did, DatasetRecord]) -> "DatasetRows":
        """Return *records* as DatasetRows. Records from a test or from disk may be any mapping."""
        return records if isinstance(records, DatasetRows) else cls(records, None, records.keys())

    @classmethod
    def restore(cls, records: Mapping[Did, DatasetRecord], polled_at: datetime | None) -> "DatasetRows":
        """Return rows that were read from disk, where AT_LAST_POLL is a time like another."""
        rows = {did: _mark(row) if row.read_at == AT_LAST_POLL else row for did, row in records.items()}
        dated = frozenset(did for did, row in rows.items() if row.read_at is not AT_LAST_POLL)
        return cls(rows, polled_at, dated)

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

        Replace the rows of *new_records* and drop *removed_dids*; all other rows are unchanged.
        """
        rows = {**self.rows, **new_records} if new_records or removed_dids else self.rows
        for did in removed_dids:
            rows.pop(did, None)  # type: ignore[attr-defined]  # they are a copy
        newly_dated = {did for did, record in new_records.items() if record.read_at is not AT_LAST_POLL}
        kept = (self.individually_dated - new_records.keys()).difference(removed_dids)
        return DatasetRows(rows, polled_at, kept | newly_dated)


def _mark(row: DatasetRecord) -> DatasetRecord:
    """Return *row* with AT_LAST_POLL itself as its time, for comparisons by identity."""
    facts = {site: replace(fact, as_of=AT_LAST_POLL) for site, fact in row.facts.items()}
    return replace(row, read_at=AT_LAST_POLL, facts=facts)


@dataclass(frozen=True, slots=True)
class CatalogueMemory:
    """The last answers of one catalogue.

    ``answered_at`` is the time of the last complete answer. ``unseen_reasons`` has the datasets that the
    last poll did not answer for, each with the reason. ``last_read_at`` has the sites that the catalogue
    could not query for its last answer, each with the time of the last reading of the site.
    """

    answered_at: datetime | None = None
    sites: frozenset[Site] = frozenset()
    records: Mapping[Did, DatasetRecord] = field(default_factory=dict)
    unseen_reasons: Mapping[Did, str] = field(default_factory=dict)
    unmapped_storages: frozenset[str] = frozenset()
    failure: str | None = None
    last_read_at: Mapping[Site, datetime] = field(default_factory=dict)

    def read_at(self, site: Site) -> datetime | None:
        """Return the time when the catalogue last answered for the whole *site*; None if it never did."""
        return self.last_read_at.get(site, self.answered_at if site in self.sites else None)


@dataclass(frozen=True, slots=True)
class DatasetSource:
    """One catalogue's record of a dataset at a site.

    Attributes:
        did: scope:name.
        catalogue: catalogue of this record.
        unseen: reason why its last poll brought no answer about the dataset.
        site: site; null: at no site.
        state: its state there.
        as_of: time of the record.
        why: one line.
        fraction: share on disk there.
        storage: storage element.
        call: query to the catalogue.
        provenance: all that the catalogue said about the state; only the fields that it gave.
    """

    did: Did
    catalogue: str
    unseen: str | None
    site: Site | None
    state: DatasetState | None
    as_of: UnixTime | None
    why: str
    fraction: Share | None = None
    storage: str = ""
    call: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)


def provenance_rows(
    memories: Mapping[str, CatalogueMemory], dids: Sequence[Did], *, now: datetime
) -> list[DatasetSource]:
    """Return each catalogue's last record of each of *dids*.

    There is one row for each site with the dataset, or one row without a site. If the catalogue's last poll
    did not answer for the dataset, the row has an earlier answer, and ``unseen`` says why the last
    poll has no answer.
    """
    return [
        row
        for did in dids
        for catalogue, memory in sorted(memories.items())
        for row in _catalogue_rows(catalogue, memory, did, now)
    ]


def _catalogue_rows(
    catalogue: str, memory: CatalogueMemory, did: Did, now: datetime
) -> Iterator[DatasetSource]:
    record, unseen = memory.records.get(did), memory.unseen_reasons.get(did)
    if record is None:
        why = unseen or "the catalogue was not queried yet"
        yield DatasetSource(did, catalogue, unseen, None, None, None, why)
    elif not record.facts:
        why = "the catalogue has no replica of the dataset"
        yield DatasetSource(did, catalogue, unseen, None, None, to_unix(record.read_at), why)
    for site, fact in sorted(record.facts.items()) if record else ():
        source = fact.provenance
        why, row = describe_provenance(source, now), (provenance_to_row(source) or [{}])[0]
        yield DatasetSource(
            did, catalogue, unseen, site, fact.state, to_unix(fact.as_of), why,
            fact.fraction, source.storage, source.call, row,
        )  # fmt: skip

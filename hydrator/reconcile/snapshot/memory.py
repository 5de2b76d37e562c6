"""What one catalogue said of its datasets, kept so that an answer which repeats itself costs nothing.

Nearly all that is read again is as it was, but for its age. So what was read
with the catalogue's last whole answer does not carry that time itself: its row
says :data:`AT_LAST_POLL`, and the time stands once beside all rows. Who looks a dataset
up sees the time; only the cycle looks at rows.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from hydrator.domain.model import Did, Fact, Seen, Site

AT_LAST_POLL: Final = datetime.max.replace(tzinfo=UTC)
"""In rows: with the last whole answer. Every time that was read is earlier, so it sorts as the newest."""


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """The last thing one catalogue said of one dataset: its state at each site that has it.

    ``before`` is the last whole reading at sites that since were looked at in
    part only, where that part says something too: both stand, each with its age.
    ``said`` is the reading that all of it was made of, where it was made of one.
    """

    read_at: datetime
    facts: Mapping[Site, Fact]
    bytes_total: int | None = None
    case_variants: frozenset[Did] = frozenset()
    previous_facts: Mapping[Site, Fact] = field(default_factory=dict)
    reading: Seen | None = field(default=None, compare=False, repr=False)


_Row = TypeVar("_Row")


class TimestampedRows(Mapping[Did, _Row]):
    """Rows by dataset; :meth:`limit_times` puts in the time that a row stands for when it is looked up."""

    __slots__ = ("rows",)

    def __init__(self, rows: Mapping[Did, _Row]) -> None:
        self.rows = rows

    @abstractmethod
    def with_timestamp(self, row: _Row) -> _Row:
        """*row* with the time that it stands for."""

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
    """By dataset, what is known of it; made anew for each answer, and never changed.

    Args:
        rows: by dataset; one whose ``at`` is THEN, which all its facts then share, was read at *at*.
        at: the time of the last whole answer.
        apart: the datasets whose rows have times of their own.
        since: the ``mark`` of what this was made from.
        touched: the datasets whose rows differ from what this was made from.
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
        """*known*, which may be any mapping, as it came from a test or from disk."""
        return records if isinstance(records, DatasetRows) else cls(records, None, records.keys())

    def with_timestamp(self, row: DatasetRecord) -> DatasetRecord:
        if row.read_at is not AT_LAST_POLL or self.polled_at is None:
            return row
        at = self.polled_at
        here = {site: replace(fact, as_of=at) for site, fact in row.facts.items()}
        return replace(row, read_at=at, facts=here)

    def apply_answer(
        self,
        polled_at: datetime | None,
        new_records: Mapping[Did, DatasetRecord],
        removed_dids: Collection[Did],
    ) -> "DatasetRows":
        """What an answer *at* that time leaves: *fresh* rows, none of what is *gone*, the rest as it was."""
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
        """The same after the same answer, with *changed* rows, which have times of their own."""
        if not records:
            return self
        touched = self.changed_since_base | records.keys()
        return DatasetRows(
            {**self.rows, **records},
            self.polled_at,
            self._find_individually_dated(records),
            self.base_version,
            touched,
        )

    def _find_individually_dated(
        self, new_records: Mapping[Did, DatasetRecord], removed_dids: Collection[Did] = ()
    ) -> AbstractSet[Did]:
        own = {did for did, known in new_records.items() if known.read_at is not AT_LAST_POLL}
        return (self.individually_dated - new_records.keys()).difference(removed_dids) | own


@dataclass(frozen=True, slots=True)
class CatalogueMemory:
    """What one catalogue said last: ``at`` of its last whole answer, ``unseen`` since then and why.

    ``ages`` are the sites that this answer named and did not speak of, with
    when they were last read.
    """

    answered_at: datetime | None = None
    sites: frozenset[Site] = frozenset()
    records: Mapping[Did, DatasetRecord] = field(default_factory=dict)
    unseen_reasons: Mapping[Did, str] = field(default_factory=dict)
    unmapped_storages: frozenset[str] = frozenset()
    failure: str | None = None
    last_read_at: Mapping[Site, datetime] = field(default_factory=dict)

    def read_at(self, site: Site) -> datetime | None:
        """When *site* was last read as a whole; None when it never was."""
        return self.last_read_at.get(site, self.answered_at if site in self.sites else None)

"""Memory of one catalogue: its last answer about each dataset, and the rows that ``datasets --why`` shows.

From poll to poll, nearly all facts are unchanged except for their age, and each record that changed is
written to the disk. So a record of the last complete answer has no time of its own (``read_at`` is None):
``CatalogueMemory.answered_at`` is the time of all these records. Only a record that the last answer did not
renew has a time. For example, a catalogue answers at 12:00 about L1 and L2: no record has a time, and
``answered_at`` is 12:00. At 12:01 it answers about L1 alone: ``answered_at`` is 12:01, the record of L1 is
unchanged, and that of L2 gets the time 12:00.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from hydrator.domain.model import DatasetState, Did, Fact, Seen, Site, add_time, to_unix
from hydrator.domain.provenance import describe_provenance, provenance_to_row
from hydrator.domain.units import Share, UnixTime


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """One catalogue's last record of one dataset: its state at each site that has it.

    The last reading may have a replica at a site although the catalogue could not query the whole site. Then
    ``facts`` has the fact from this replica, and ``previous_facts`` the fact from the last complete reading.
    ``reading`` is the reading from which the record was built; None if it was not built from a reading.

    ``read_at`` is the time of the reading, and of each fact without a time of its own; None stands for the
    time of the catalogue's last complete answer, ``CatalogueMemory.answered_at``.
    """

    read_at: datetime | None
    facts: Mapping[Site, Fact]
    bytes_total: int | None = None
    case_variants: frozenset[Did] = frozenset()
    previous_facts: Mapping[Site, Fact] = field(default_factory=dict)
    reading: Seen | None = field(default=None, compare=False, repr=False)

    def with_time(self, answered_at: datetime | None) -> "DatasetRecord":
        """Return the record with its time, which is *answered_at* for one of the last complete answer."""
        return replace(self, read_at=answered_at) if self.read_at is None else self


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

    def find_fact(self, did: Did, site: Site) -> Fact | None:
        """Return the last fact about *did* at *site*, with its time; None without one."""
        record = self.records.get(did)
        fact = record.facts.get(site) if record else None
        return add_time(fact, record.read_at or self.answered_at) if record and fact else None


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
    read_at = (record and record.read_at) or memory.answered_at
    if record is None:
        why = unseen or "the catalogue was not queried yet"
        yield DatasetSource(did, catalogue, unseen, None, None, None, why)
    elif not record.facts:
        why = "the catalogue has no replica of the dataset"
        yield DatasetSource(did, catalogue, unseen, None, None, _to_unix(read_at), why)
    for site, fact in sorted(record.facts.items()) if record else ():
        source, as_of = fact.provenance, fact.as_of or read_at
        why, row = describe_provenance(source, now), provenance_to_row(source)
        yield DatasetSource(
            did, catalogue, unseen, site, fact.state, _to_unix(as_of), why,
            fact.fraction, source.storage, source.call, row,
        )  # fmt: skip


def _to_unix(at: datetime | None) -> UnixTime | None:
    return to_unix(at) if at else None

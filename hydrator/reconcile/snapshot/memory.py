"""Memory of one catalogue: its last answer about each dataset.

From poll to poll, nearly all facts are unchanged except for their age, and each record that changed is
written to the disk. So a record of the last complete answer has no time of its own (``read_at`` is None):
``CatalogueMemory.answered_at`` is the time of all these records. Only a record that the last answer did not
renew has a time. For example, a catalogue answers at 12:00 about L1 and L2: no record has a time, and
``answered_at`` is 12:00. At 12:01 it answers about L1 alone: ``answered_at`` is 12:01, the record of L1 is
unchanged, and that of L2 gets the time 12:00.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from hydrator.domain.model import Did, Fact, Seen, Site, add_time


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

"""Listings: the sites that have a dataset according to the catalogues, before and after a cycle's answers.

The code compares only datasets that may have changed. It keeps the counts of all listed datasets from
cycle to cycle, and updates the counts for the compared datasets only;
docs/explanation/incremental-evaluation.md explains how.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from hydrator.domain.model import DatasetState, Did, Fact, Site

from .memory import CatalogueMemory, DatasetRows

Listings = Mapping[Site, Fact]
"""The sites that list a dataset, each with its fact; the fact is AVAILABLE if any catalogue says so."""
NO_LISTINGS: Listings = {}


@dataclass(frozen=True, slots=True)
class ListedCounts:
    """The number of demanded datasets that each site lists, and how many of these are AVAILABLE there."""

    listed_by_site: Mapping[Site, int] = field(default_factory=dict)
    available_by_site: Mapping[Site, int] = field(default_factory=dict)

    def adjust(self, all_listings: Iterable[Listings], sign: int) -> "ListedCounts":
        """Return the counts with the datasets of *all_listings* added (sign 1) or subtracted (sign -1)."""
        listed, available = Counter(self.listed_by_site), Counter(self.available_by_site)
        for listings in all_listings:
            for site, fact in listings.items():
                listed[site] += sign
                if fact.state is DatasetState.AVAILABLE:
                    available[site] += sign
        return ListedCounts(+listed, +available)


@dataclass(frozen=True, slots=True)
class PreviousCounts:
    """The counts of listed datasets in the last cycle, and the datasets whose records changed since then."""

    counts: ListedCounts
    changed_dids: AbstractSet[Did]


@dataclass(frozen=True, slots=True)
class ListingChange:
    """The listings of the datasets that may have changed, before and after the answers of a cycle.

    ``previous_counts`` has the numbers of all listed datasets before the answers.
    """

    previous: Mapping[Did, Listings]
    current: Mapping[Did, Listings]
    previous_counts: ListedCounts

    def lists_now(self, did: Did, site: Site) -> bool:
        """Return True if a catalogue lists *did* at *site* after the answers of this cycle."""
        return site in self.current.get(did, NO_LISTINGS)

    def lost_and_available_dids(self) -> tuple[dict[Site, set[Did]], dict[Site, set[Did]]]:
        """Return, by site, the datasets that the site no longer lists, and those that were AVAILABLE."""
        lost: dict[Site, set[Did]] = {}
        available: dict[Site, set[Did]] = {}
        for did, listings in self.previous.items():
            current = self.current.get(did, NO_LISTINGS)
            for site, fact in listings.items():
                if site not in current:
                    lost.setdefault(site, set()).add(did)
                if fact.state is DatasetState.AVAILABLE:
                    available.setdefault(site, set()).add(did)
        return lost, available

    def new_counts(self) -> Counter[Site]:
        """Return, by site, the number of newly listed datasets; empty in the first cycle."""
        counts: Counter[Site] = Counter()
        for did, listings in self.current.items() if self.previous else ():
            counts.update(listings.keys() - self.previous.get(did, NO_LISTINGS).keys())
        return counts

    def count_listed(
        self,
        current: Mapping[str, CatalogueMemory],
        memories: Mapping[str, CatalogueMemory],
        retired: AbstractSet[Site],
    ) -> ListedCounts:
        """Return the counts of *memories*: the *current* memories plus the facts of held datasets."""
        held_dids = [
            did
            for name, memory in memories.items()
            if memory is not current[name]
            for did in {**self.previous, **self.current}
            if DatasetRows.wrap(memory.records).rows.get(did)
            is not DatasetRows.wrap(current[name].records).rows.get(did)
        ]
        listings = {**self.current, **find_listings(memories, held_dids, retired)}
        return self.previous_counts.adjust(self.previous.values(), -1).adjust(listings.values(), 1)


def compare_listings(
    previous: Mapping[str, CatalogueMemory],
    current: Mapping[str, CatalogueMemory],
    demanded_dids: AbstractSet[Did],
    retired: AbstractSet[Site],
    previous_counts: PreviousCounts | None,
    disputed_dids: Iterable[Collection[Did]],
) -> ListingChange:
    """Compare the listings of the memories before and after the answers of a cycle.

    Args:
        previous: the memories before the answers, by catalogue.
        current: the memories after the answers, by catalogue.
        demanded_dids: the demanded datasets; only these are compared.
        retired: sites that the operator removed; the comparison ignores their datasets.
        previous_counts: the counts of *previous*, and the datasets that changed since; None: compare all.
        disputed_dids: datasets with a held or approved loss; always compare these.
    """
    if previous_counts is None:
        before = find_listings(previous, demanded_dids, retired)
        counts = ListedCounts().adjust(before.values(), 1)
        return ListingChange(before, find_listings(current, demanded_dids, retired), counts)
    dids = frozenset(previous_counts.changed_dids).union(*disputed_dids)
    undemanded = find_listings(previous, dids - demanded_dids, retired)
    return ListingChange(
        find_listings(previous, dids & demanded_dids, retired),
        find_listings(current, dids & demanded_dids, retired),
        previous_counts.counts.adjust(undemanded.values(), -1),
    )


def find_listings(
    memories: Mapping[str, CatalogueMemory], dids: Collection[Did], retired: AbstractSet[Site]
) -> dict[Did, Listings]:
    """Return the listings of each of *dids* that at least one site lists."""
    listings: dict[Did, Listings] = {}
    for memory in memories.values():
        rows = DatasetRows.wrap(memory.records).rows
        for did in dids if rows else ():
            if (record := rows.get(did)) is not None and record.facts:
                facts = record.facts
                if retired:
                    facts = {site: fact for site, fact in facts.items() if site not in retired}
                listings[did] = _merge_listings(listings[did], facts) if did in listings else facts
    return listings


def _merge_listings(one: Listings, other: Listings) -> Listings:
    return {
        **one,
        **{s: f for s, f in other.items() if s not in one or f.state is DatasetState.AVAILABLE},
    }


def find_unnamed_sites(
    memories: Mapping[str, CatalogueMemory], demanded_dids: AbstractSet[Did], listed_sites: AbstractSet[Site]
) -> dict[Site, set[Did]]:
    """Return the sites that still have facts but that no catalogue lists any more, with their datasets."""
    lost_sites = listed_sites - frozenset[Site]().union(*(memory.sites for memory in memories.values()))
    unnamed: dict[Site, set[Did]] = {}
    for memory in memories.values() if lost_sites else ():
        records = DatasetRows.wrap(memory.records)
        # A row with the time of the last poll has only sites that the catalogue lists, so skip it.
        for did in records.individually_dated & demanded_dids:
            row = records.rows[did]
            for site in row.facts.keys() & lost_sites:
                if row.facts[site].as_of < row.read_at:
                    unnamed.setdefault(site, set()).add(did)
    return dict(sorted(unnamed.items()))

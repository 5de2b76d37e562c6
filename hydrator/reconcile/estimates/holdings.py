"""Holdings: the datasets on disk at each site, and the bytes of a set that a job at a site lacks.

The results of one cycle are the start of the next: only sites whose facts changed are read again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from hydrator.domain.ads.dataset_sets import SetKey, set_key
from hydrator.domain.model import DatasetState, Demand, DemandEntry, Did, Fact, Site, SiteFacts, Snapshot
from hydrator.reconcile.snapshot.memory import TimestampedRows

Holders = tuple[Site, ...]
"""The sites that have the same datasets on disk, sorted."""


@dataclass(frozen=True)
class SiteHoldings:
    """The datasets of one site: on disk, on disk in part (with the fraction), on their way (with the ETA)."""

    rows: Mapping[Did, Fact] = field(repr=False, compare=False)
    available: frozenset[Did] = frozenset()
    fractions: Mapping[Did, float] = field(default_factory=dict)
    ready_at: Mapping[Did, datetime] = field(default_factory=dict)

    @cached_property
    def partial_dids(self) -> frozenset[Did]:
        return frozenset(self.fractions)


@dataclass(frozen=True)
class DatasetSet:
    """One demanded set: its datasets, the sites with all of them, and the bytes by the sites that have them.

    ``bytes_by_holders`` is None if the size of a dataset is unknown. The bytes that are on disk at no site
    are under ``()``.
    """

    key: SetKey
    dids: frozenset[Did]
    homes: frozenset[Site]
    bytes_by_holders: Mapping[Holders, int] | None


@dataclass(frozen=True)
class Holdings:
    """The holdings of all sites, and the demanded sets by key."""

    sites: Mapping[Site, SiteHoldings]
    sets: Mapping[SetKey, DatasetSet]
    sizes: Mapping[Did, int] = field(repr=False)
    keys: Mapping[tuple[Did, ...], SetKey] = field(repr=False)

    def missing_bytes(self, one: DatasetSet, site: Site) -> dict[Holders, float]:
        """Return the bytes of *one* that are not on disk at *site*, by the sites that have them.

        The sizes of all datasets of *one* must be known.
        """
        sizes = one.bytes_by_holders or {}
        missing = {holders: float(size) for holders, size in sizes.items() if site not in holders}
        here = self.sites[site]
        if missing and not here.partial_dids.isdisjoint(one.dids):
            there = sum(here.fractions[did] * self.sizes[did] for did in here.partial_dids & one.dids)
            total = sum(missing.values())
            share = max(0.0, 1 - there / total) if total else 1.0
            missing = {holders: size * share for holders, size in missing.items()}
        return missing

    def ready_at(self, one: DatasetSet, site: Site) -> datetime | None:
        """Return the time when all datasets of *one* will be on disk at *site*; None if it is unknown."""
        here = self.sites[site]
        if not here.ready_at:
            return None
        missing = one.dids - here.available
        if not missing or not missing <= here.ready_at.keys():
            return None
        return max(here.ready_at[did] for did in missing)


def read_holdings(snapshot: Snapshot, demand: Demand, previous: Holdings | None = None) -> Holdings:
    """Return the holdings of *snapshot* and the sets of *demand*.

    Datasets whose DIDs differ in letter case only are in no set, and neither are two sets with one key.
    """
    before = previous.sites if previous else {}
    sites = {site: _read_site(facts, before.get(site)) for site, facts in snapshot.sites.items()}
    keys = previous.keys if previous else {}
    keys = {dids: keys.get(dids) or set_key(dids) for dids in _demanded_sets(demand.entries)}
    is_unchanged = (
        previous is not None
        and previous.sizes is snapshot.bytes_total
        and sites.keys() == before.keys()
        and all(site is before[name] for name, site in sites.items())
    )
    known = previous.sets if previous and is_unchanged else {}
    colliding_dids = frozenset(did for clash in snapshot.case_collisions for did in clash)
    sets: dict[SetKey, DatasetSet] = {}
    ambiguous_keys = set()
    for dids, key in keys.items():
        if not colliding_dids.isdisjoint(dids):
            continue
        if key in sets:
            ambiguous_keys.add(key)
        sets[key] = known.get(key) or build_set(key, frozenset(dids), sites, snapshot.bytes_total)
    for key in ambiguous_keys:
        del sets[key]
    return Holdings(sites, sets, snapshot.bytes_total, keys)


def _demanded_sets(entries: Iterable[DemandEntry]) -> Iterable[tuple[Did, ...]]:
    """Yield the datasets of each entry; also each dataset alone if jobs look each one up by its own key."""
    for entry in entries:
        yield entry.dids
        if entry.has_unkeyed_jobs and len(entry.dids) > 1:
            yield from ((did,) for did in entry.dids)


def _read_site(facts: SiteFacts, previous: SiteHoldings | None) -> SiteHoldings:
    rows = facts.facts.rows if isinstance(facts.facts, TimestampedRows) else facts.facts
    if previous is not None and previous.rows is rows:
        return previous
    available = frozenset(did for did, fact in rows.items() if fact.state is DatasetState.AVAILABLE)
    others = [(did, fact) for did, fact in rows.items() if did not in available]
    fractions = {
        did: min(1.0, fact.fraction)
        for did, fact in others
        if fact.fraction and fact.state in {DatasetState.PARTIAL, DatasetState.STAGING}
    }
    ready_at = {
        did: fact.provenance.ready_at
        for did, fact in others
        if fact.state is DatasetState.STAGING and fact.provenance.ready_at
    }
    return SiteHoldings(rows, available, fractions, ready_at)


def build_set(
    key: SetKey, dids: frozenset[Did], sites: Mapping[Site, SiteHoldings], sizes: Mapping[Did, int]
) -> DatasetSet:
    """Build the set of *dids* from the holdings of all sites and the sizes of the datasets."""
    whole, some = [], []
    for site, here in sites.items():
        count = len(dids & here.available)
        if count == len(dids):
            whole.append(site)
        elif count:
            some.append(site)
    homes = frozenset(whole)
    if any(did not in sizes for did in dids):
        return DatasetSet(key, dids, homes, None)
    if not some:
        return DatasetSet(key, dids, homes, {tuple(sorted(whole)): sum(sizes[did] for did in dids)})
    groups: dict[Holders, int] = {}
    for did in dids:
        holders = tuple(sorted((*whole, *(site for site in some if did in sites[site].available))))
        groups[holders] = groups.get(holders, 0) + sizes[did]
    return DatasetSet(key, dids, homes, groups)

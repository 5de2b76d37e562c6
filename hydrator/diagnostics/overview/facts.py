"""Saved facts about datasets, as the commands read them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from hydrator.config import Settings
from hydrator.diagnostics.overview.saved import load_view
from hydrator.domain.ads import contract
from hydrator.domain.ads.openings import OPENINGS_REPORT, PacedCycle
from hydrator.domain.ads.set_answers import read_shares
from hydrator.domain.model import DaemonKnowledge, DatasetState, Demand, Did, Site, Snapshot, to_unix
from hydrator.domain.provenance import describe_provenance, provenance_to_row
from hydrator.domain.units import Share, UnixTime
from hydrator.reconcile.demand import build_demand
from hydrator.reconcile.site_ads import find_share
from hydrator.reconcile.snapshot.merge import CatalogueMemory, build_snapshot
from hydrator.reconcile.state import ReconcileState
from hydrator.state.store import Store


@dataclass(frozen=True, slots=True)
class SavedFacts:
    """The facts about datasets in the state, evaluated now."""

    knowledge: DaemonKnowledge
    demand: Demand
    memories: Mapping[str, CatalogueMemory]


def load_facts(store: Store, settings: Settings, now: datetime) -> SavedFacts:
    """Load the facts, with the ages that they have *now*.

    Raises:
        StateError: the state cannot be read.
    """
    state = store.load()
    matches = frozenset(did for dids in state.pattern_matches.values() for did in dids)
    never = settings.publish.never
    demand = build_demand(
        state.demand,
        pins=settings.pinned_dids,
        matches=matches,
        now=now,
        never=never,
        default_scope=settings.daemon.default_scope,
    )
    snapshot = build_snapshot(
        state.memories, demand.dids, now=now, max_age=settings.daemon.max_age, never=never
    )
    saved, view = store.load_report(OPENINGS_REPORT, PacedCycle), load_view(store)
    demand = replace(demand, waiting=saved.waiting if saved else None)
    knowledge = DaemonKnowledge(
        now,
        snapshot,
        demand.dids,
        dids_without_room=_find_dids_without_room(state, snapshot, demand),
        held_reasons={row.site: row.held for row in view.sites if row.held} if view else {},
        openings=saved.openings if saved else None,
        no_openings_reason=saved.none_reason if saved else None,
        lists_of_wrong_keys=demand.lists_of_wrong_keys,
    )
    return SavedFacts(knowledge, demand, state.memories)


def _find_dids_without_room(
    state: ReconcileState, snapshot: Snapshot, demand: Demand
) -> Mapping[Site, frozenset[Did]]:
    """Return the datasets of sets of which a site has some data, but for which its last ad had no room."""
    colliding = {did for clash in snapshot.case_collisions for did in clash}
    without_room = {}
    for site, ad in state.ads.items():
        if site not in snapshot.sites or (contract.TRUNCATED, "false") in ad.content:
            continue
        rows = {did: fact for did, fact in snapshot.sites[site].facts.items() if did not in colliding}
        answered = {None, *read_shares(ad)}
        shares = (
            (entry, find_share(rows, snapshot, entry.dids)[0])
            for entry in demand.entries
            if entry.key not in answered and not rows.keys().isdisjoint(entry.dids)
        )
        without_room[site] = frozenset(
            did
            for entry, share in shares
            # no ad answers for an unknown state
            if share is not None and (share == 1 or demand.is_shared(entry))
            for did in entry.dids
        )
    return without_room


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
            fact.fraction, fact.storage, row,
        )  # fmt: skip


def _to_unix(at: datetime | None) -> UnixTime | None:
    return to_unix(at) if at else None

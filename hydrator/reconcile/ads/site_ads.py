"""Site ads: turn a snapshot into the ad of each site, within its size budget.

The ad must be small: HTCondor copies it for every slot, to the collector and to the negotiator. STARTD_CRON
cuts a line at 64 KiB (HTCondor: cron_job_io.cpp, STDOUT_LINEBUF_SIZE). Room is for the demanded sets first,
then for the states of single datasets. If they do not all fit, the ad omits the least demanded.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.model import Demand, Did, Fact, Site, SiteFacts, Snapshot
from hydrator.reconcile.snapshot.merge import FactRows

from .drafts import (
    Budget,
    Draft,
    add_openings,
    assign_generations,
    choose_datasets,
    empty_draft,
    facts_of,
    redraft,
    render_content,
    sets_of,
)
from .set_lines import (
    DemandedSets,
    DemandIndex,
    OmittedEntries,
    SetEntry,
    SetFacts,
    write_set_lines,
)

__all__ = [
    "Budget",
    "Draft",
    "DraftSet",
    "add_openings",
    "assign_generations",
    "build_drafts",
    "draft_site_ads",
    "empty_draft",
    "facts_of",
    "redraft",
    "sets_of",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class DraftSet:
    """The drafts of one cycle, by site, and intermediate results that the next cycle can reuse."""

    drafts: Mapping[Site, Draft]
    demand_index: DemandIndex
    budget: Budget
    colliding_dids: frozenset[Did]
    inputs: Mapping[Site, "_DraftInputs"]
    bytes_total: Mapping[Did, int] = field(default_factory=dict)
    unread_dids: AbstractSet[Did] = frozenset()


@dataclass(frozen=True, slots=True)
class _DraftInputs:
    """The inputs of one draft, and intermediate results. Equal inputs give an equal draft.

    ``entries`` are the entries of sets that this draft has computed.
    """

    facts: Mapping[Did, Fact]
    positions: Sequence[int]
    fitting_positions: AbstractSet[int]
    as_of: datetime | None
    entries: Mapping[SetKey, SetEntry] = field(default_factory=dict)

    def is_like(self, other: "_DraftInputs") -> bool:
        """Return True if both give the same draft, as long as both have the same facts."""
        return self.as_of == other.as_of


@dataclass(frozen=True, slots=True)
class _DraftSteps:
    """The inputs of :func:`build_drafts` that all sites share.

    ``changed_dids`` has, by site, the datasets that may have changed since ``previous``. ``changed_inputs``
    are the datasets whose size, or whose first answer of a catalogue, is new since then.
    """

    snapshot: Snapshot
    demand_index: DemandIndex
    demanded_sets: DemandedSets
    budget: Budget
    colliding_dids: AbstractSet[Did]
    previous: DraftSet | None
    changed_dids: Mapping[Site, AbstractSet[Did]]
    changed_inputs: AbstractSet[Did]
    has_same_order: bool

    def write(self, site: Site, facts: SiteFacts) -> tuple[tuple[tuple[str, str], ...], _DraftInputs]:
        """Return the content of the ad of *site*, and its inputs; reuse the last content if it is right."""
        inputs = self.collect_inputs(site, facts)
        last = self.last_inputs(site)
        if self.previous and last and self.is_unchanged(site, inputs):
            reused = replace(inputs, fitting_positions=last.fitting_positions, entries=last.entries)
            return self.previous.drafts[site].content, reused
        return self.render(site, facts, inputs)

    def collect_inputs(self, site: Site, facts: SiteFacts) -> _DraftInputs:
        """Return the inputs of the draft of *site*, without the results."""
        last = self.last_inputs(site)
        rows = facts.facts
        as_of: datetime | None = facts.as_of
        if isinstance(rows, FactRows):
            as_of = None if as_of == rows.now else as_of
            rows = rows.rows
        listed_facts = (
            {did: fact for did, fact in rows.items() if did not in self.colliding_dids}
            if self.colliding_dids
            else rows
        )
        positions: Sequence[int]
        if last is None or not self.has_same_order:
            positions = self.demand_index.positions_of(listed_facts)
        else:
            changed = self.changed_dids.get(site, frozenset())
            gained_or_lost = [did for did in changed if (did in listed_facts) != (did in last.facts)]
            positions = _update_positions(last.positions, gained_or_lost, listed_facts, self.demand_index)
        return _DraftInputs(listed_facts, positions, frozenset(), as_of)

    def last_inputs(self, site: Site) -> _DraftInputs | None:
        return self.previous.inputs.get(site) if self.previous else None

    def is_unchanged(self, site: Site, inputs: _DraftInputs) -> bool:
        """Return True if the last draft of *site* is still right."""
        last = self.last_inputs(site)
        has_changes = bool(self.changed_inputs or self.changed_dids.get(site))
        return last is not None and self.has_same_order and not has_changes and inputs.is_like(last)

    def known_entries(self, site: Site) -> dict[SetKey, SetEntry]:
        """Return the entries whose rows are still right: those of all sets without a changed dataset."""
        last = self.last_inputs(site)
        if last is None:
            return {}
        changed = chain(self.changed_dids.get(site, ()), self.changed_inputs)
        changed_keys = self.demand_index.keys_with(changed)
        return {key: entry for key, entry in last.entries.items() if key not in changed_keys}

    def render(
        self, site: Site, facts: SiteFacts, inputs: _DraftInputs
    ) -> tuple[tuple[tuple[str, str], ...], _DraftInputs]:
        """Return the content of the ad of *site*, and *inputs* with the results."""
        index, budget = self.demand_index, self.budget
        sets = write_set_lines(
            SetFacts(inputs.facts, self.snapshot.bytes_total, self.snapshot.unread_dids),
            self.demanded_sets,
            inputs.positions,
            budget,
            facts.as_of,
            self.known_entries(site),
        )
        rest = replace(budget, ad_bytes=budget.ad_bytes - sets.size_bytes)
        demanded_dids = chain.from_iterable(index.entries[place].dids for place in inputs.positions)
        listed = choose_datasets(inputs.facts, demanded_dids, rest, facts.as_of)
        content = render_content(
            site,
            {did: inputs.facts[did] for did in sorted(listed.dids)},
            facts.as_of,
            sets=sets.lines,
            has_list=listed.has_list,
            is_truncated=not (sets.is_complete and listed.has_list and listed.is_complete),
        )
        return content, replace(inputs, fitting_positions=sets.positions, entries=sets.entries)


def dids_without_room(drafts: Mapping[Site, Draft]) -> dict[Site, frozenset[Did]]:
    """Return, by site, the datasets of jobs for whose set the site's ad has no room."""
    return {
        site: frozenset(did for want in draft.omitted_entries for did in want.dids)
        for site, draft in drafts.items()
        if draft.omitted_entries
    }


def draft_site_ads(
    snapshot: Snapshot,
    demand: Demand,
    *,
    budget: Budget,
) -> Mapping[Site, Draft]:
    """Build the draft of every site's ad from *snapshot* and *demand*.

    Args:
        snapshot: the state of every dataset and site.
        demand: the demand, most demanded first.
        budget: the maximum bytes of a line and of an ad.

    Returns:
        The drafts, sorted by site. Datasets whose DIDs differ only in letter case are in no draft.
    """
    return build_drafts(snapshot, demand, budget=budget).drafts


def build_drafts(
    snapshot: Snapshot,
    demand: Demand,
    *,
    budget: Budget,
    previous: DraftSet | None = None,
    changed_dids: Mapping[Site, AbstractSet[Did]] | None = None,
) -> DraftSet:
    """Build the drafts like :func:`draft_site_ads`; reuse the *previous* drafts of unchanged sites.

    Args:
        snapshot: the state of every dataset and site.
        demand: the demand, most demanded first.
        budget: the maximum bytes of a line and of an ad.
        previous: the drafts of the previous snapshot.
        changed_dids: by site, the datasets that may have changed since *previous*; None if unknown.
    """
    cycle = _begin_cycle(snapshot, demand, budget, previous, changed_dids)
    drafts, inputs_by_site = {}, {}
    for site, facts in sorted(snapshot.sites.items()):
        content, inputs = cycle.write(site, facts)
        inputs_by_site[site] = inputs
        omitted_entries = OmittedEntries(demand.entries, inputs.positions, inputs.fitting_positions)
        drafts[site] = Draft(site, facts.as_of, content, omitted_entries)
    return DraftSet(
        drafts,
        cycle.demand_index,
        budget,
        frozenset(cycle.colliding_dids),
        inputs_by_site,
        snapshot.bytes_total,
        snapshot.unread_dids,
    )


def _begin_cycle(
    snapshot: Snapshot,
    demand: Demand,
    budget: Budget,
    previous: DraftSet | None,
    changed_dids: Mapping[Site, AbstractSet[Did]] | None,
) -> _DraftSteps:
    colliding_dids = frozenset(did for clash in snapshot.case_collisions for did in clash)
    if previous and (colliding_dids, budget) != (previous.colliding_dids, previous.budget):
        previous = None
    if changed_dids is None:
        previous = None
    demand_index = _index_demand(demand, previous)
    return _DraftSteps(
        snapshot,
        demand_index,
        DemandedSets(demand_index, snapshot.unread_dids),
        budget,
        colliding_dids,
        previous,
        changed_dids or {},
        _find_changed_inputs(snapshot, previous) if previous else frozenset(),
        previous is not None and demand_index.positions_by_did is previous.demand_index.positions_by_did,
    )


def _find_changed_inputs(snapshot: Snapshot, previous: DraftSet) -> AbstractSet[Did]:
    """Return the datasets whose size changed, or that a catalogue has answered for since *previous*."""
    changed = snapshot.unread_dids ^ previous.unread_dids
    new, old = snapshot.bytes_total, previous.bytes_total
    if new is old:
        return changed
    resized = {did for did, size in new.items() if old.get(did) != size}
    return changed | resized | (old.keys() - new.keys())


def _index_demand(demand: Demand, previous: DraftSet | None) -> DemandIndex:
    """Return the index of the demand; reuse the *previous* index if the order of the entries is the same."""
    wants = demand.entries
    if previous is None:
        return DemandIndex.build(wants)
    last = previous.demand_index
    if len(wants) == len(last.entries) and all(
        want is old or (want.dids, want.origin, want.key) == (old.dids, old.origin, old.key)
        for want, old in zip(wants, last.entries, strict=True)
    ):
        return last.with_entries(wants)
    return DemandIndex.build(wants)


def _update_positions(
    positions: Sequence[int], dids: Sequence[Did], facts: Mapping[Did, Fact], demand_index: DemandIndex
) -> Sequence[int]:
    """Return the *positions* of the entries that name a dataset of *facts*, updated after a change.

    *dids* are the datasets that the site gained or lost.
    """
    if not dids:
        return positions
    updated_positions = list(positions)
    for position in {position for did in dids for position in demand_index.positions_by_did.get(did, ())}:
        index = bisect_left(updated_positions, position)
        is_listed = index < len(updated_positions) and updated_positions[index] == position
        names_some = any(did in facts for did in demand_index.entries[position].dids)
        if names_some and not is_listed:
            updated_positions.insert(index, position)
        elif is_listed and not names_some:
            del updated_positions[index]
    return updated_positions

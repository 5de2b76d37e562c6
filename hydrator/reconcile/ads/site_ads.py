"""Site ads: turn a snapshot into the ad of each site, within its size budget.

The ad must be small: HTCondor copies it for every slot, to the collector and to the negotiator. STARTD_CRON
cuts a line at 64 KiB (HTCondor: cron_job_io.cpp, STDOUT_LINEBUF_SIZE). If the datasets do not all fit, the
ad omits all datasets of a job together, because a job with only some of its datasets in the ad can never
match. It omits the least demanded datasets first.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hydrator.domain.classad import classad_string, list_literal, nested_ad_literal
from hydrator.domain.model import (
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Fact,
    Site,
    SiteAd,
    SiteFacts,
    Snapshot,
    from_unix,
    to_unix,
)
from hydrator.domain.untrusted import is_ahead
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL
from hydrator.reconcile.snapshot.merge import FactRows

from .budget import (
    FRACTION_DIGITS,
    Budget,
    DemandIndex,
    OmittedEntries,
    fit_to_budget,
    is_partial,
    round_down,
)

__all__ = [
    "Budget",
    "Draft",
    "DraftSet",
    "assign_generations",
    "build_drafts",
    "classad_string",
    "draft_site_ads",
    "empty_draft",
    "facts_of",
    "implausible_generations",
    "redraft",
]  # fmt: skip

CONTRACT_VERSION = 1
_ENTRY = re.compile(r"'([^']+)'=([^;\]]+)")
"""One entry of a nested ad from :func:`nested_ad_literal`, such as ``'lofar:L1'="STAGING"``."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A site's ad before it has a generation, and the demand entries that do not fit into the ad."""

    site: Site
    as_of: datetime
    content: tuple[tuple[str, str], ...]
    omitted_entries: Sequence[DemandEntry] = ()


@dataclass(frozen=True, slots=True)
class DraftSet:
    """The drafts of one cycle, by site, and intermediate results that the next cycle can reuse."""

    drafts: Mapping[Site, Draft]
    demand_index: DemandIndex
    budget: Budget
    colliding_dids: frozenset[Did]
    inputs: Mapping[Site, "_DraftInputs"]


@dataclass(frozen=True, slots=True)
class _DraftInputs:
    """The inputs of one draft. Equal inputs give an equal draft."""

    facts: Mapping[Did, Fact]
    positions: Sequence[int]
    fitting_positions: AbstractSet[int]
    as_of: datetime | None
    trust: float


def dids_without_room(drafts: Mapping[Site, Draft]) -> dict[Site, frozenset[Did]]:
    """Return, by site, the datasets that do not fit into the site's ad."""
    return {
        site: frozenset(did for want in draft.omitted_entries for did in want.dids)
        for site, draft in drafts.items()
        if draft.omitted_entries
    }


def draft_site_ads(
    snapshot: Snapshot, demand: Demand, *, budget: Budget, trust: Mapping[Site, float] | None = None
) -> Mapping[Site, Draft]:
    """Build the draft of every site's ad from *snapshot* and *demand*.

    Args:
        snapshot: the state of every dataset and site.
        demand: the demand, most demanded first.
        budget: the maximum bytes of a line and of an ad.
        trust: by site, the share (0 to 1) of audited facts that were true.

    Returns:
        The drafts, sorted by site. Datasets whose DIDs differ only in letter case are in no draft.
    """
    return build_drafts(snapshot, demand, budget=budget, trust=trust or {}).drafts


def build_drafts(
    snapshot: Snapshot,
    demand: Demand,
    *,
    budget: Budget,
    trust: Mapping[Site, float],
    previous: DraftSet | None = None,
    changed_dids: Mapping[Site, AbstractSet[Did]] | None = None,
) -> DraftSet:
    """Build the drafts like :func:`draft_site_ads`; reuse the *previous* drafts of unchanged sites.

    Args:
        snapshot: the state of every dataset and site.
        demand: the demand, most demanded first.
        budget: the maximum bytes of a line and of an ad.
        trust: by site, the share (0 to 1) of audited facts that were true.
        previous: the drafts of the previous snapshot.
        changed_dids: by site, the datasets that may have changed since *previous*; None if unknown.
    """
    colliding_dids = frozenset(did for clash in snapshot.case_collisions for did in clash)
    if previous and (colliding_dids, budget) != (previous.colliding_dids, previous.budget):
        previous = None
    if changed_dids is None:
        previous = None
    demand_index = _index_demand(demand, previous)
    is_same_order = previous and demand_index.positions_by_did is previous.demand_index.positions_by_did
    drafts, inputs_by_site = {}, {}
    for site, facts in sorted(snapshot.sites.items()):
        last = previous.inputs.get(site) if previous and is_same_order else None
        changed = changed_dids.get(site, frozenset()) if changed_dids is not None and last else None
        inputs = _collect_inputs(facts, last, changed, colliding_dids, demand_index, trust.get(site, 1.0))
        if previous and last and not changed and (inputs.as_of, inputs.trust) == (last.as_of, last.trust):
            content, fitting = previous.drafts[site].content, last.fitting_positions
        else:
            content, fitting = _render_content(site, facts, inputs, demand_index, budget)
        inputs_by_site[site] = replace(inputs, fitting_positions=fitting)
        omitted_entries = OmittedEntries(demand.entries, inputs.positions, fitting)
        drafts[site] = Draft(site, facts.as_of, content, omitted_entries)
    return DraftSet(drafts, demand_index, budget, colliding_dids, inputs_by_site)


def assign_generations(
    drafts: Mapping[Site, Draft],
    previous_ads: Mapping[Site, SiteAd],
    *,
    published_generations: Mapping[Site, int],
    now: datetime,
    sites_to_renumber: AbstractSet[Site] = frozenset(),
) -> dict[Site, SiteAd]:
    """Return the ad of every draft, with a new generation only if the content changed.

    A generation is a Unix time. If a generation is ``MAX_AHEAD`` or more ahead of *now*, the
    generation was forged or the clock was wrong. Hooks reject an ad with this generation, so the next
    generation starts from *now*.

    Args:
        drafts: by site, the content to advertise.
        previous_ads: by site, the last ad that got a generation.
        published_generations: by site, the highest generation read back from any publisher, so that a
            daemon that lost its state does not send a lower generation.
        now: aware UTC time of this cycle.
        sites_to_renumber: sites whose ad gets a new generation even if its content is unchanged.
    """
    ads = {}
    for site, draft in drafts.items():
        old = previous_ads.get(site)
        published_generation = _plausible_generation(published_generations.get(site, 0), now)
        if (
            old
            and old.content == draft.content
            and old.generation >= published_generation
            and site not in sites_to_renumber
        ):
            generation = old.generation
        else:
            highest = max(_plausible_generation(old.generation, now) if old else 0, published_generation)
            generation = max(highest + 1, to_unix(now))
        ads[site] = SiteAd(site, min(draft.as_of, now), generation, draft.content)
    return ads


def _plausible_generation(generation: int, now: datetime) -> int:
    """Return *generation*, or 0 if it is so far ahead of *now* that hooks reject it."""
    return 0 if is_ahead(generation, now) else generation


def implausible_generations(ads: Mapping[Site, SiteAd], now: datetime) -> dict[Site, int]:
    """Return, by site, the generations of *ads* that are so far ahead of *now* that hooks reject them."""
    return {site: ad.generation for site, ad in sorted(ads.items()) if is_ahead(ad.generation, now)}


def _index_demand(demand: Demand, previous: DraftSet | None) -> DemandIndex:
    """Return the index of the demand; reuse the *previous* index if the order of the entries is the same."""
    wants = demand.entries
    if previous and [want.dids for want in wants] == [want.dids for want in previous.demand_index.entries]:
        return replace(previous.demand_index, entries=wants)
    return DemandIndex.build(wants)


def _collect_inputs(
    facts: SiteFacts,
    previous: _DraftInputs | None,
    changed_dids: AbstractSet[Did] | None,
    colliding_dids: AbstractSet[Did],
    demand_index: DemandIndex,
    trust: float,
) -> _DraftInputs:
    rows = facts.facts
    as_of: datetime | None = facts.as_of
    if isinstance(rows, FactRows):
        as_of = None if as_of == rows.now else as_of
        rows = rows.rows
    listed_facts = (
        {did: fact for did, fact in rows.items() if did not in colliding_dids} if colliding_dids else rows
    )
    if previous is None or changed_dids is None:
        positions: Sequence[int] = demand_index.positions_of(listed_facts)
    else:
        positions = _update_positions(
            previous.positions,
            [d for d in changed_dids if (d in listed_facts) != (d in previous.facts)],
            listed_facts,
            demand_index,
        )
    return _DraftInputs(listed_facts, positions, frozenset(), as_of, trust)


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


def _render_content(
    site: Site, facts: SiteFacts, inputs: _DraftInputs, demand_index: DemandIndex, budget: Budget
) -> tuple[tuple[tuple[str, str], ...], AbstractSet[int]]:
    choice = fit_to_budget(inputs.facts, demand_index, inputs.positions, budget, facts.as_of)
    states = {did: inputs.facts[did] for did in sorted(choice.dids)}
    truncated = len(choice.positions) < len(inputs.positions) or not choice.has_list
    content = _content(
        site, states, facts.as_of, has_list=choice.has_list, is_truncated=truncated, trust=inputs.trust
    )
    return content, choice.positions


def empty_draft(ad: SiteAd, trust: float = 1.0) -> Draft:
    """Return a draft without datasets, for a site whose facts in *ad* are too old or no longer valid."""
    return Draft(
        ad.site, ad.as_of, _content(ad.site, {}, ad.as_of, has_list=True, is_truncated=False, trust=trust)
    )


def redraft(ad: SiteAd, trust: float, *, now: datetime, max_age: timedelta) -> Draft:
    """Return a draft with the facts of *ad* and their ages. A fact older than *max_age* is UNKNOWN."""
    lines = dict(ad.content)
    facts = {
        did: fact if now - fact.as_of <= max_age else Fact(DatasetState.UNKNOWN, fact.as_of)
        for did, fact in facts_of(ad).items()
    }
    content = _content(
        ad.site,
        dict(sorted(facts.items())),
        ad.as_of,
        has_list="AvailableDatasets" in lines,
        is_truncated=lines.get("DataLocalityTruncated") == "true",
        trust=trust,
    )
    return Draft(ad.site, ad.as_of, content)


def shift_ad_times(ad: SiteAd, shift: timedelta) -> SiteAd:
    """Return *ad* with *shift* subtracted from its times. If the content changes, add 1 to the generation."""
    lines = dict(ad.content)
    ages = _ENTRY.findall(lines.get("DatasetAsOf", ""))
    if not ages:
        return replace(ad, as_of=ad.as_of - shift)
    seconds = round(shift.total_seconds())
    lines["DatasetAsOf"] = nested_ad_literal((Did(did), str(int(at) - seconds)) for did, at in ages)
    return replace(ad, as_of=ad.as_of - shift, generation=ad.generation + 1, content=tuple(lines.items()))


def facts_of(ad: SiteAd) -> dict[Did, Fact]:
    """Return the facts that *ad* lists, each with its age.

    Skip entries that cannot be decoded, for example those of another daemon version.
    """
    lines = dict(ad.content)
    fractions = dict(_ENTRY.findall(lines.get("DatasetFractions", "")))
    ages = dict(_ENTRY.findall(lines.get("DatasetAsOf", "")))
    facts = {}
    for did, state in _ENTRY.findall(lines.get("DatasetStates", "")):
        with suppress(ValueError, OverflowError, OSError):
            facts[Did(did)] = Fact(
                DatasetState(state.strip('"')),
                from_unix(int(ages[did])) if did in ages else ad.as_of,
                float(fractions[did]) if did in fractions else None,
            )
    return facts


def _content(
    site: Site,
    states: Mapping[Did, Fact],
    as_of: datetime,
    *,
    has_list: bool,
    is_truncated: bool,
    trust: float,
) -> tuple[tuple[str, str], ...]:
    available = [did for did, fact in states.items() if fact.state is DatasetState.AVAILABLE]
    list_line = [("AvailableDatasets", list_literal(f'"{did}"' for did in available))] if has_list else []
    return (
        ("DataLocalitySite", classad_string(site)),
        *list_line,
        ("DatasetStates", nested_ad_literal((did, f'"{fact.state}"') for did, fact in states.items())),
        ("DatasetFractions", nested_ad_literal(_fractions(states))),
        ("DatasetAsOf", nested_ad_literal(_ages(states, as_of))),
        ("DataLocalityTruncated", "true" if is_truncated else "false"),
        ("DataLocalityTrust", f"{trust:.3f}"),
        ("DataLocalityVersion", str(CONTRACT_VERSION)),
    )


def _fractions(states: Mapping[Did, Fact]) -> Iterable[tuple[Did, str]]:
    return (
        (did, f"{round_down(fact.fraction):.{FRACTION_DIGITS}f}")
        for did, fact in states.items()
        if fact.fraction is not None and is_partial(fact)
    )


def _ages(states: Mapping[Did, Fact], as_of: datetime) -> Iterable[tuple[Did, str]]:
    of_site = to_unix(as_of)
    for did, fact in states.items():
        if fact.as_of is not AT_LAST_POLL and (at := to_unix(fact.as_of)) < of_site:
            yield did, str(at)

"""Site ads: turn a snapshot into the ad of each site, within its size budget.

The ad must be small: HTCondor copies it for every slot, to the collector and to the negotiator. STARTD_CRON
cuts a line at 64 KiB (HTCondor: cron_job_io.cpp, STDOUT_LINEBUF_SIZE). Room is for the demanded sets first,
then for the states of single datasets. If they do not all fit, the ad omits the least demanded.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.model import Demand, Did, Site, SiteFacts, Snapshot

from .drafts import (
    BUDGET,
    Budget,
    Draft,
    add_openings,
    assign_generations,
    choose_datasets,
    empty_draft,
    facts_of,
    redraft,
    render_content,
)
from .set_lines import SetFacts, quote_keys, write_set_lines

__all__ = [
    "BUDGET",
    "Budget",
    "Draft",
    "add_openings",
    "assign_generations",
    "draft_site_ads",
    "empty_draft",
    "facts_of",
    "redraft",
]  # fmt: skip


def dids_without_room(drafts: Mapping[Site, Draft]) -> dict[Site, frozenset[Did]]:
    """Return, by site, the datasets of jobs for whose set the site's ad has no room."""
    return {
        site: frozenset(chain.from_iterable(map(attrgetter("dids"), draft.omitted_entries)))
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
    names = quote_keys(demand)
    colliding = frozenset(did for clash in snapshot.case_collisions for did in clash)
    drafts = {}
    for site, facts in sorted(snapshot.sites.items()):
        rows = facts.facts
        listed = {did: fact for did, fact in rows.items() if did not in colliding} if colliding else rows
        drafts[site] = _draft(site, SiteFacts(facts.as_of, listed), demand, names, snapshot, budget)
    return drafts


def _draft(
    site: Site,
    facts: SiteFacts,
    demand: Demand,
    names: Mapping[SetKey, str],
    snapshot: Snapshot,
    budget: Budget,
) -> Draft:
    """Return the draft of the ad of *site*, whose *facts* have no colliding DIDs."""
    rows = facts.facts
    set_facts = SetFacts(rows, snapshot.bytes_total, snapshot.unread_dids)
    sets = write_set_lines(set_facts, demand, names, budget, facts.as_of)
    rest = replace(budget, ad_bytes=budget.ad_bytes - sets.size_bytes)
    demanded_dids = chain.from_iterable(map(attrgetter("dids"), sets.here))
    listed = choose_datasets(rows, demanded_dids, rest, facts.as_of)
    content = render_content(
        site,
        {did: rows[did] for did in sorted(listed.dids)},
        facts.as_of,
        sets=sets.lines,
        has_list=listed.has_list,
        is_truncated=not (sets.is_complete and not sets.omitted and listed.has_list and listed.is_complete),
    )
    return Draft(site, facts.as_of, content, tuple(sets.omitted))

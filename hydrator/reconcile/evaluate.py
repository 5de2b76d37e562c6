"""Evaluation of one cycle: compute the new state and the ads from state, answers, demand and time.

This module is pure except for its callback ``make_openings``. Each cycle computes all facts and ads from
scratch.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hydrator.config import Settings
from hydrator.domain.ads.openings import Openings, PacedCycle
from hydrator.domain.model import (
    Demand,
    Did,
    Site,
    SiteAd,
    SiteFacts,
    Snapshot,
    Survey,
    Unseen,
)
from hydrator.reconcile.site_ads import (
    BUDGET,
    Budget,
    Draft,
    add_openings,
    assign_generations,
    draft_site_ads,
    empty_draft,
    redraft,
    states_of,
)
from hydrator.reconcile.snapshot.merge import CatalogueMemory, apply_survey, build_snapshot
from hydrator.reconcile.snapshot.removal_guard import GuardResult, HeldLoss, HoldCause, LossCheck
from hydrator.reconcile.state import ReconcileState

Answer = Survey | Unseen | None
"""A catalogue's survey; Unseen with the reason for its absence; None while its poll runs."""
Answers = Mapping[str, Answer]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The conclusions of one cycle: the new state, the snapshot and the ads to send.

    ``withheld_reasons`` has the sites whose published ads the daemon does not replace yet, each with the
    reason. ``gone_sites`` have no ad any more. ``released`` has, by site, the datasets that the removal
    guard kept in the ad until now, each with the reason why it leaves the ad now. ``paced`` has the
    openings, or the reason why there are none.
    """

    state: ReconcileState
    snapshot: Snapshot
    drafts: Mapping[Site, Draft]
    ads: Mapping[Site, SiteAd]
    released: Mapping[Site, Mapping[Did, str]] = field(default_factory=dict)
    withheld_reasons: Mapping[Site, str] = field(default_factory=dict)
    gone_sites: frozenset[Site] = frozenset()
    paced: PacedCycle = field(default_factory=PacedCycle)


def evaluate(
    state: ReconcileState,
    answers: Answers,
    demand: Demand,
    *,
    published_generations: Mapping[Site, int],
    settings: Settings,
    now: datetime,
    budget: Budget = BUDGET,
    approved_losses: Mapping[Site, AbstractSet[Did]] | None = None,
    withheld_reasons: Mapping[Site, str] | None = None,
    make_openings: Callable[[Snapshot], PacedCycle] = lambda _: PacedCycle(),
) -> Evaluation:
    """Compute the ad of every site from the last state and the answers of this cycle.

    Args:
        state: the state after the last cycle.
        published_generations: by site, the highest generation read back from any publisher.
        settings: the configuration.
        budget: the largest sizes of an ad and of its lines.
        now: aware UTC time at which this cycle began.
        approved_losses: by site, the held datasets whose loss the operator approved.
        withheld_reasons: sites whose published ads must stay, each with the reason (``publish.py``).
        make_openings: returns the openings for the snapshot of this cycle.
    """
    memories = {
        name: apply_survey(state.memories.get(name, CatalogueMemory()), answer, demand.dids, now=now)
        for name, answer in answers.items()
    }
    cycle = _Cycle(state, memories, demand, settings, budget, now)
    guard = cycle.hold_losses(approved_losses or {})
    continued = cycle.continue_holds((withheld_reasons or {}).keys(), approved_losses or {})
    holds = {**guard.held_losses, **continued}
    guard = replace(guard, held_losses=dict(sorted(holds.items())))
    snapshot = build_snapshot(
        guard.memories,
        demand.dids,
        now=now,
        max_age=settings.daemon.max_age,
        never=settings.publish.never,
    )
    paced = make_openings(snapshot)
    cycle = replace(cycle, demand=replace(demand, waiting=paced.waiting))
    seen = cycle.draft_ads(snapshot, paced.openings)
    gone = cycle.find_gone_sites(seen)
    drafts = cycle.add_unseen(seen, guard, gone)
    replacing = {site: draft for site, draft in drafts.items() if site not in (withheld_reasons or {})}
    ads = assign_generations(replacing, state.ads, published_generations=published_generations, now=now)
    ads = add_openings(ads, state.ads, paced.openings, now)
    return Evaluation(
        replace(state, memories=guard.memories, held_losses=guard.held_losses, ads=ads),
        snapshot,
        seen,
        ads,
        guard.released,
        withheld_reasons or {},
        gone,
        paced,
    )


@dataclass(frozen=True, slots=True)
class _Cycle:
    """The steps of :func:`evaluate` in their order, and the inputs that they share.

    ``memories`` include the answers of this cycle; ``state`` has the memories before these answers.
    """

    state: ReconcileState
    memories: Mapping[str, CatalogueMemory]
    demand: Demand
    settings: Settings
    budget: Budget
    now: datetime

    def hold_losses(self, approved_losses: Mapping[Site, AbstractSet[Did]]) -> GuardResult:
        """Run the removal guard."""
        return LossCheck(
            {name: self.state.memories.get(name, CatalogueMemory()) for name in self.memories},
            self.memories,
            self.demand.dids,
            self.state.held_losses,
            approved_losses,
            frozenset(map(Site, self.settings.sites.retired)),
            self.settings.removal_guard,
            # a cycle for new demand follows sooner, and must not confirm a loss
            timedelta(seconds=self.settings.daemon.poll_seconds / 2),
            self.now,
        ).run()

    def continue_holds(
        self, withheld_sites: AbstractSet[Site], approved_losses: Mapping[Site, AbstractSet[Did]]
    ) -> dict[Site, HeldLoss]:
        """Return the holds of withheld sites that a daemon whose clock was set back has without facts.

        A dataset is held until a catalogue lists it at the site again, or the operator approves its loss.
        """
        holds = {}
        for site in self.state.held_losses.keys() & withheld_sites:
            held = self.state.held_losses[site]
            if held.cause is not HoldCause.CLOCK:
                continue
            missing = {
                did: polls
                for did, polls in held.missing_polls.items()
                if did not in approved_losses.get(site, ())
                and not any(memory.find_fact(did, site) for memory in self.memories.values())
            }
            if missing:
                holds[site] = replace(held, missing_polls=missing)
        return holds

    def draft_ads(self, snapshot: Snapshot, openings: Openings | None) -> Mapping[Site, Draft]:
        """Draft the ad of every site in the snapshot, except the retired sites.

        A site with slots that no catalogue lists has an ad, too: its jobs read from elsewhere.
        """
        known = snapshot.sites
        as_of = max((facts.as_of for facts in known.values()), default=self.now)
        computing = openings.openings.keys() - known.keys() if openings else set()
        facts_by_site = {
            site: facts
            for site, facts in (*known.items(), *((site, SiteFacts(as_of, {})) for site in computing))
            if not self.settings.sites.is_retired(site)
        }
        return draft_site_ads(replace(snapshot, sites=facts_by_site), self.demand, budget=self.budget)

    def find_gone_sites(self, drafts: Mapping[Site, Draft]) -> frozenset[Site]:
        """Return the sites without an own storage whose slots have gone for longer than the age limit.

        A pool of clouds has new names of sites all the time, and their ads must not stay for ever.
        """
        listed = {site for memory in self.memories.values() for site in memory.sites}
        return frozenset(
            site
            for site, ad in self.state.ads.items()
            if site not in drafts
            and site not in listed
            and self.now - ad.as_of > self.settings.daemon.max_age
            and not states_of(ad)
        )

    def add_unseen(
        self, drafts: Mapping[Site, Draft], guard: GuardResult, gone: frozenset[Site]
    ) -> dict[Site, Draft]:
        """Add to *drafts* the sites without an answer of any catalogue.

        Such a site keeps what is demanded of its last ad, with the age of the facts. This ad becomes empty
        when the facts are older than the age limit, or when the guard releases datasets of the site.
        """
        now, max_age = self.now, self.settings.daemon.max_age
        all_drafts = dict(drafts)
        for site, ad in self.state.ads.items():
            if site in drafts or site in gone or self.settings.sites.is_retired(site):
                continue
            is_over = now - ad.as_of > max_age or site in guard.released
            all_drafts[site] = (
                empty_draft(ad) if is_over else redraft(ad, self.demand, now=now, max_age=max_age)
            )
        return all_drafts


def keep_disputed_matches(
    matches: Mapping[str, frozenset[Did]], state: ReconcileState
) -> dict[str, frozenset[Did]]:
    """Return *matches* plus earlier matches that the search no longer finds but that may still exist.

    If a search finds nothing, the catalogue may have lost its datasets, or it may be broken. So a dataset of
    an earlier match stays demanded while the removal guard holds the dataset, or while a catalogue does not
    answer for the dataset.
    """
    doubtful = {did for held in state.held_losses.values() for did in held.missing_polls}
    doubtful |= {did for memory in state.memories.values() for did in memory.unseen_reasons}
    disputed = {name: state.pattern_matches.get(name, frozenset()) & doubtful for name in matches}
    return {
        name: dids | {did for did in disputed[name] if _is_listed_anywhere(did, state)}
        for name, dids in matches.items()
    }


def _is_listed_anywhere(did: Did, state: ReconcileState) -> bool:
    return any(memory.records[did].facts for memory in state.memories.values() if did in memory.records)

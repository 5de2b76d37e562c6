"""Evaluation of one cycle: from state, answers, demand and time to new state and ads. Pure.

A cycle costs by what changed, not by what is known: docs/explanation/incremental-evaluation.md explains how.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from hydrator.domain.model import Demand, Did, Pending, Seen, Site, SiteAd, Snapshot, Survey, Unseen
from hydrator.reconcile.ads.site_ads import (
    Budget,
    Draft,
    DraftSet,
    assign_generations,
    build_drafts,
    empty_draft,
    redraft,
)
from hydrator.reconcile.audit.ledger import (
    AUDIT_WINDOW,
    Audit,
    RepeatedFalseClaim,
    VerificationMethod,
    apply_corrections,
    expire_and_confirm,
)
from hydrator.reconcile.snapshot.breaker import (
    BreakerLimits,
    BreakerResult,
    HeldLoss,
    ListedCounts,
    PreviousCounts,
    check_loss,
)
from hydrator.reconcile.snapshot.memory import CatalogueMemory, DatasetRows
from hydrator.reconcile.snapshot.merge import MergedSnapshot, merge_catalogues
from hydrator.reconcile.snapshot.update import apply_survey
from hydrator.reconcile.state import ReconcileState


@dataclass(frozen=True, slots=True)
class ReconcilePolicy:
    """The part of the configuration that a cycle needs."""

    default_scope: str | None = None
    pins: frozenset[Did] = frozenset()
    patterns: tuple[str, ...] = ()
    keep_demand: timedelta = timedelta(hours=24)
    max_age: timedelta = timedelta(hours=6)
    budget: Budget = field(default_factory=Budget)
    include_sites: tuple[str, ...] = ("*",)
    retired: frozenset[Site] = frozenset()
    audit_window: timedelta = AUDIT_WINDOW
    breaker_limits: BreakerLimits = field(default_factory=BreakerLimits)
    max_withhold: timedelta = timedelta(minutes=10)

    def is_retired(self, site: Site) -> bool:
        """Return True for a site that is retired by name or that no pattern includes any more."""
        included = any(fnmatchcase(site, pattern) for pattern in self.include_sites)
        return site in self.retired or not included


@dataclass(frozen=True, slots=True)
class PreviousEvaluation:
    """Intermediate results of one evaluation, from which the next one can start.

    They can be reused only for the same memories under the same policy. ``versions`` has, by catalogue,
    the version of the rows that the results were computed from.
    """

    versions: Mapping[str, object]
    policy: ReconcilePolicy
    retired: frozenset[Site]
    listed_counts: ListedCounts | None
    merged_snapshot: MergedSnapshot
    draft_set: DraftSet


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The conclusions of one cycle: everything but the sending.

    ``withheld_reasons`` has the sites that get no ad yet, ``released`` the datasets that left after
    the breaker had held them, each with the reason.
    """

    state: ReconcileState
    snapshot: Snapshot
    drafts: Mapping[Site, Draft]
    ads: Mapping[Site, SiteAd]
    repeated_claims: tuple[RepeatedFalseClaim, ...] = ()
    released: Mapping[Site, Mapping[Did, str]] = field(default_factory=dict)
    basis: PreviousEvaluation | None = field(default=None, compare=False, repr=False)
    withheld_reasons: Mapping[Site, str] = field(default_factory=dict)


def evaluate(
    state: ReconcileState,
    answers: Mapping[str, Survey | Unseen | Pending],
    demand: Demand,
    *,
    published_generations: Mapping[Site, int],
    policy: ReconcilePolicy,
    now: datetime,
    approved_losses: Mapping[Site, AbstractSet[Did]] | None = None,
    sites_to_renumber: AbstractSet[Site] = frozenset(),
    previous: Evaluation | None = None,
    polls_started_at: Mapping[str, datetime] | None = None,
    withheld_reasons: Mapping[Site, str] | None = None,
) -> Evaluation:
    """Conclude from the state and the answers which ad every site should have.

    Args:
        state: the state that the last cycle left, with the audit's verdicts since.
        answers: by catalogue, its survey, the reason why it gave none, or that it is pending.
        demand: the datasets in question.
        published_generations: by site, the highest generation that any publisher shows.
        policy: the operator's decisions.
        now: aware UTC time at which this cycle began. Readings taken since count as of then, so
            that one poll has one age.
        approved_losses: by site, the held datasets that the operator lets go.
        sites_to_renumber: sites whose ads the operator gives a new generation.
        previous: the evaluation of the last cycle. It changes no result: it only saves work.
        polls_started_at: when the poll of a catalogue began, where that was before this cycle.
        withheld_reasons: sites that get no ad yet, each with the reason; see :func:`choose_withheld_sites`.

    Returns:
        The state to save, and the ads. A site that was not seen in this cycle keeps its ad, with the
        age it has, until that is older than ``policy.max_age``; then its ad lists nothing.
    """
    memories = _apply_answers(state, answers, demand, now, polls_started_at or {})
    basis = _reusable_results(previous, state, answers, policy)
    retired = _find_retired_sites(state, memories, policy)
    breaker = _hold_losses(state, memories, demand, approved_losses or {}, retired, basis, policy, now)
    audit, repeated_claims = expire_and_confirm(
        state.audit, breaker.memories, now=now, window=policy.audit_window, max_age=policy.max_age
    )
    merged = _merge_corrected(memories, breaker, audit, demand, basis, policy, now)
    included_sites = {
        site: facts for site, facts in merged.snapshot.sites.items() if not policy.is_retired(site)
    }
    draft_set = build_drafts(
        replace(merged.snapshot, sites=included_sites),
        demand,
        budget=policy.budget,
        trust=audit.trust,
        previous=basis.draft_set if basis else None,
        changed_dids=merged.changed_dids,
    )
    drafts = _add_unseen_and_rolled_back(draft_set.drafts, state, audit, breaker, policy, now)
    withheld = withheld_reasons or {}
    ads = assign_generations(
        {site: draft for site, draft in drafts.items() if site not in withheld},
        state.ads,
        published_generations=published_generations,
        now=now,
        sites_to_renumber=sites_to_renumber,
    )
    return Evaluation(
        replace(state, memories=breaker.memories, held_losses=breaker.held_losses, ads=ads, audit=audit),
        merged.snapshot,
        draft_set.drafts,
        ads,
        repeated_claims,
        breaker.released,
        PreviousEvaluation(
            _versions(breaker.memories), policy, retired, breaker.listed_counts, merged, draft_set
        ),
        withheld,
    )


def _apply_answers(
    state: ReconcileState,
    answers: Mapping[str, Survey | Unseen | Pending],
    demand: Demand,
    now: datetime,
    polls_started_at: Mapping[str, datetime],
) -> dict[str, CatalogueMemory]:
    """Return, by catalogue that was asked, its memory with its answer in it."""
    dids = demand.dids
    return {
        name: apply_survey(
            state.memories.get(name, CatalogueMemory()),
            answer,
            dids,
            now=min(now, polls_started_at.get(name, now)),
        )
        for name, answer in answers.items()
    }


def _reusable_results(
    previous: Evaluation | None, state: ReconcileState, answers: Collection[str], policy: ReconcilePolicy
) -> PreviousEvaluation | None:
    """Return the *previous* results where they hold for *state*, the same catalogues and the same policy."""
    basis = previous.basis if previous else None
    if basis is None or basis.versions != _versions(state.memories) or basis.versions.keys() != set(answers):
        return None
    return basis if basis.policy is policy or basis.policy == policy else None


def _versions(memories: Mapping[str, CatalogueMemory]) -> dict[str, object]:
    return {name: DatasetRows.wrap(memory.records).version for name, memory in memories.items()}


def _changed_dids(memories: Mapping[str, CatalogueMemory]) -> frozenset[Did]:
    return frozenset[Did]().union(
        *(DatasetRows.wrap(memory.records).changed_since_base for memory in memories.values())
    )


def _hold_losses(
    state: ReconcileState,
    memories: Mapping[str, CatalogueMemory],
    demand: Demand,
    approved_losses: Mapping[Site, AbstractSet[Did]],
    retired: frozenset[Site],
    basis: PreviousEvaluation | None,
    policy: ReconcilePolicy,
    now: datetime,
) -> BreakerResult:
    """Run the shrink breaker; reuse its last counts while the same sites are retired."""
    listed_counts = basis.listed_counts if basis and basis.retired == retired else None
    return check_loss(
        state.memories,
        memories,
        demand.dids,
        held_losses=state.held_losses,
        approved_losses=approved_losses,
        retired=retired,
        limits=policy.breaker_limits,
        now=now,
        previous_counts=PreviousCounts(listed_counts, _changed_dids(memories)) if listed_counts else None,
    )


def _merge_corrected(
    memories: Mapping[str, CatalogueMemory],
    breaker: BreakerResult,
    audit: Audit,
    demand: Demand,
    basis: PreviousEvaluation | None,
    policy: ReconcilePolicy,
    now: datetime,
) -> MergedSnapshot:
    """Merge the catalogues, with the audit's corrections, into one snapshot.

    A dataset is merged again if its answer, the breaker or a correction changed it.
    """
    corrections = _corrections_past_breaker(audit, breaker.held_losses, policy.breaker_limits)
    corrected_memories = apply_corrections(breaker.memories, corrections)
    return merge_catalogues(
        corrected_memories,
        demand.dids,
        now=now,
        max_age=policy.max_age,
        previous=basis.merged_snapshot if basis else None,
        changed_dids=_changed_dids(memories) | _changed_dids(corrected_memories) if basis else None,
    )


def _add_unseen_and_rolled_back(
    drafts: Mapping[Site, Draft],
    state: ReconcileState,
    audit: Audit,
    breaker: BreakerResult,
    policy: ReconcilePolicy,
    now: datetime,
) -> dict[Site, Draft]:
    """Return *drafts* with those of sites that were not seen, and of sites that the operator rolled back.

    An unseen site keeps its ad. The ad is emptied once it is older than ``policy.max_age``, or when the
    breaker released datasets of the site.
    """
    unseen_ads = {
        site: ad for site, ad in state.ads.items() if site not in drafts and not policy.is_retired(site)
    }
    unseen_drafts = {
        site: empty_draft(ad, audit.trust.get(site, 1.0))
        if now - ad.as_of > policy.max_age or site in breaker.released
        else redraft(ad, audit.trust.get(site, 1.0), now=now, max_age=policy.max_age)
        for site, ad in unseen_ads.items()
    }
    rollback_drafts = {
        site: redraft(rollback.ad, audit.trust.get(site, 1.0), now=now, max_age=policy.max_age)
        for site, rollback in state.rollbacks.items()
        if not policy.is_retired(site)
    }
    return {**drafts, **unseen_drafts, **rollback_drafts}


def choose_withheld_sites(
    state: ReconcileState,
    answers: Mapping[str, Survey | Unseen | Pending],
    *,
    published_sites: Collection[Site],
    unanswered_sources: Sequence[str],
    policy: ReconcilePolicy,
) -> dict[Site, str]:
    """Choose the sites whose published ad must not be replaced yet, because the state behind it is lost.

    A daemon without its state knows neither the demand of a silent schedd nor the replicas of a
    silent catalogue. A published ad of a site that *state* does not have was made of both. So the
    ad is left unchanged until all schedds and catalogues have answered.

    Args:
        state: the state that the last cycle left.
        answers: those of this cycle, by catalogue.
        published_sites: the sites that any publisher shows.
        unanswered_sources: sources of demand, such as ``schedd ap1``, without an answer since the
            state was lost.
        policy: the operator's decisions.

    Returns:
        By site the reason; empty once every source has answered.
    """
    lost_sites = [
        site
        for site in published_sites
        if site not in state.ads and site not in state.rollbacks and not policy.is_retired(site)
    ]
    if not lost_sites:
        return {}
    reasons = [f"the demand of {name} is not known yet" for name in unanswered_sources]
    reasons += [
        f"catalogue {name} has not answered for everything yet"
        for name, answer in answers.items()
        if not _has_complete_memory(state.memories.get(name), answer)
    ]
    if not reasons:
        return {}
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return dict.fromkeys(sorted(lost_sites), f"{reasons[0]}{more}; what is published stays as it is")


def _has_complete_memory(memory: CatalogueMemory | None, answer: Survey | Unseen | Pending) -> bool:
    """Return True if the catalogue has ever answered for every dataset that it was asked about."""
    records = memory.records if memory else {}
    if isinstance(answer, Survey):
        return all(isinstance(reading, Seen) or did in records for did, reading in answer.readings.items())
    return bool(memory and memory.answered_at)


def _corrections_past_breaker(
    audit: Audit, held_losses: Mapping[Site, HeldLoss], limits: BreakerLimits
) -> Audit:
    """Return *audit* without the corrections that only the catalogue itself supports and the breaker doubts.

    An emptied catalogue gives the expensive question the same wrong answer as the cheap one. So does a
    catalogue whose polls fail. Unbounded, the audit would let go one held dataset a second. So corrections
    that no poll has repeated count for fewer datasets of a site than the breaker lets pass, oldest first.
    """
    doubtful = {(site, did) for site, held in held_losses.items() for did in held.missing_polls}
    max_unrepeated = limits.min_datasets - 1 if limits.confirming_polls else len(audit.corrections)
    unrepeated: Counter[Site] = Counter()
    corrections = {}
    for (claim, method), correction in sorted(
        audit.corrections.items(), key=lambda item: (item[1].first_found_at, item[0])
    ):
        if method is not VerificationMethod.PROBE:
            if (claim.site, claim.did) in doubtful:
                continue
            unrepeated[claim.site] += correction.repeated_at is None
            if correction.repeated_at is None and unrepeated[claim.site] > max_unrepeated:
                continue
        corrections[claim, method] = correction
    return replace(audit, corrections=corrections)


def _find_retired_sites(
    state: ReconcileState, memories: Mapping[str, CatalogueMemory], policy: ReconcilePolicy
) -> frozenset[Site]:
    sites = state.ads.keys() | {site for memory in memories.values() for site in memory.sites}
    return frozenset(site for site in sites if policy.is_retired(site))


def keep_disputed_matches(
    matches: Mapping[str, frozenset[Did]], state: ReconcileState
) -> dict[str, frozenset[Did]]:
    """Return *matches* plus the earlier matches that are missing without evidence that they are gone.

    A catalogue that matches nothing has lost its datasets, or is broken. So an earlier match is polled
    once more, and stays demanded while the breaker holds it or while it could not be read.
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

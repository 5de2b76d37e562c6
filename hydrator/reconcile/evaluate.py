"""Evaluate one cycle: from state, answers, demand and time to new state and ads. Pure."""

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
    """What the operator decided, as far as a cycle needs it."""

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
        """Did the operator take this site out, by name or by no longer including it?"""
        included = any(fnmatchcase(site, pattern) for pattern in self.include_sites)
        return site in self.retired or not included


@dataclass(frozen=True, slots=True)
class PreviousEvaluation:
    """What one cycle worked out that the next can start from, if that continues the same memories.

    ``marks`` says which: they are those of the memories that the cycle left.
    """

    versions: Mapping[str, object]
    policy: ReconcilePolicy
    retired: frozenset[Site]
    listed_counts: ListedCounts | None
    merged_snapshot: MergedSnapshot
    draft_set: DraftSet


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What follows from a state, the answers of one cycle and the time: everything but the sending.

    ``withheld`` are sites that get no ad yet, ``released`` datasets that left after they had been held,
    each with the reason.
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
    """Conclude from what is remembered and what was answered which ad every site should have.

    Args:
        state: what the last cycle left, and what the audit found since.
        answers: by catalogue, its survey, or why it gave none, or that it is pending.
        demanded: the datasets in question.
        published: by site, the highest generation that any publisher shows.
        rules: what the operator decided.
        now: when this cycle began; what was read since counts from then, so
            that one poll has one age.
        approved: by site, the held datasets that the operator lets go.
        renumbered: sites whose ads the operator gives a new generation.
        last: what the last cycle thought. It changes no answer: what it worked out, and what is still
            so, is not worked out again, so that a cycle costs by what changed.
        began: when the poll of a catalogue began, where that was before this cycle did.
        withheld: sites that get no ad yet, each with the reason; see :func:`choose_withheld_sites`.

    Returns:
        The state to remember, and the ads, also of sites that were not seen
        this cycle: those stand as they did, with the age they have, until
        they are older than ``rules.bound``; then they list nothing.
    """
    dids = demand.dids
    memories = {
        name: apply_survey(
            state.memories.get(name, CatalogueMemory()),
            answer,
            dids,
            now=min(now, (polls_started_at or {}).get(name, now)),
        )
        for name, answer in answers.items()
    }
    basis = (
        previous.basis
        if previous and previous.basis and _can_continue(previous.basis, state, answers, policy)
        else None
    )
    changed = frozenset[Did]().union(
        *(DatasetRows.wrap(one.records).changed_since_base for one in memories.values())
    )
    retired = _find_retired_sites(state, memories, policy)
    counted = basis.listed_counts if basis and basis.retired == retired else None
    judged = check_loss(
        state.memories,
        memories,
        dids,
        held_losses=state.held_losses,
        approved_losses=approved_losses or {},
        retired=retired,
        limits=policy.breaker_limits,
        now=now,
        previous_counts=PreviousCounts(counted, changed) if counted else None,
    )
    held = judged.memories
    audit, lies = expire_and_confirm(
        state.audit, held, now=now, window=policy.audit_window, max_age=policy.max_age
    )
    right = apply_corrections(
        held, _corrections_past_breaker(audit, judged.held_losses, policy.breaker_limits)
    )
    changed = changed.union(*(DatasetRows.wrap(one.records).changed_since_base for one in right.values()))
    folded = merge_catalogues(
        right,
        dids,
        now=now,
        max_age=policy.max_age,
        previous=basis.merged_snapshot if basis else None,
        changed_dids=changed if basis else None,
    )
    view = folded.snapshot
    kept = {site: facts for site, facts in view.sites.items() if not policy.is_retired(site)}
    returned = {
        site: redraft(one.ad, audit.trust.get(site, 1.0), now=now, max_age=policy.max_age)
        for site, one in state.rollbacks.items()
        if not policy.is_retired(site)
    }
    made = build_drafts(
        replace(view, sites=kept),
        demand,
        budget=policy.budget,
        trust=audit.trust,
        previous=basis.draft_set if basis else None,
        changed_dids=folded.changed_dids,
    )
    drafted = made.drafts
    left = {s: ad for s, ad in state.ads.items() if s not in drafted and not policy.is_retired(s)}
    standing = {
        site: empty_draft(ad, audit.trust.get(site, 1.0))
        if now - ad.as_of > policy.max_age or site in judged.released
        else redraft(ad, audit.trust.get(site, 1.0), now=now, max_age=policy.max_age)
        for site, ad in left.items()
    }
    apart = withheld_reasons or {}
    whole = {**drafted, **standing, **returned}
    desired = {site: draft for site, draft in whole.items() if site not in apart}
    ads = assign_generations(
        desired,
        state.ads,
        published_generations=published_generations,
        now=now,
        sites_to_renumber=sites_to_renumber,
    )
    after = replace(state, memories=held, held_losses=judged.held_losses, ads=ads, audit=audit)
    left_over = PreviousEvaluation(_versions(held), policy, retired, judged.listed_counts, folded, made)
    return Evaluation(after, view, drafted, ads, lies, judged.released, left_over, apart)


def choose_withheld_sites(
    state: ReconcileState,
    answers: Mapping[str, Survey | Unseen | Pending],
    *,
    published_sites: Collection[Site],
    unanswered_sources: Sequence[str],
    policy: ReconcilePolicy,
) -> dict[Site, str]:
    """Choose the sites whose published ad must not be replaced yet: what it was made of is lost.

    A daemon without its state knows neither what a silent schedd wants nor
    what a silent catalogue has. An ad of a site that is *published*, and that
    *state* does not know, was made of both. So it is left as it is until all
    have answered.

    Args:
        state: what the last cycle left.
        answers: those of this cycle, by catalogue.
        published: the sites that any publisher shows.
        unheard: those that have not told what they want since the state was lost, such as ``schedd ap1``.
        rules: what the operator decided.

    Returns:
        By site the reason; nothing once all that was asked has answered.
    """
    lost = [
        site
        for site in published_sites
        if site not in state.ads and site not in state.rollbacks and not policy.is_retired(site)
    ]
    if not lost:
        return {}
    silent = [
        name for name, answer in answers.items() if not _has_complete_memory(state.memories.get(name), answer)
    ]
    unknown = [f"the demand of {name} is not known yet" for name in unanswered_sources]
    unknown += [f"catalogue {name} has not answered for everything yet" for name in silent]
    if not unknown:
        return {}
    more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return dict.fromkeys(sorted(lost), f"{unknown[0]}{more}; what is published stays as it is")


def _has_complete_memory(memory: CatalogueMemory | None, answer: Survey | Unseen | Pending) -> bool:
    """Has the catalogue ever said something of all that it was asked about?"""
    known = memory.records if memory else {}
    if isinstance(answer, Survey):
        return all(isinstance(one, Seen) or did in known for did, one in answer.readings.items())
    return bool(memory and memory.answered_at)


def _versions(memories: Mapping[str, CatalogueMemory]) -> dict[str, object]:
    return {name: DatasetRows.wrap(memory.records).version for name, memory in memories.items()}


def _can_continue(
    basis: PreviousEvaluation, state: ReconcileState, answers: Collection[str], policy: ReconcilePolicy
) -> bool:
    """Is *state* what was left with *basis*, and are the same catalogues asked under the same rules?"""
    same = basis.versions == _versions(state.memories) and basis.versions.keys() == set(answers)
    return same and (basis.policy is policy or basis.policy == policy)


def _corrections_past_breaker(
    audit: Audit, held_losses: Mapping[Site, HeldLoss], limits: BreakerLimits
) -> Audit:
    """*audit* without what only the catalogue itself says, where the breaker would not believe that.

    An emptied catalogue answers the expensive question as it does the cheap
    one, and would let go one dataset a second of what is held; so would one
    whose polls fail. What no poll said again since counts for fewer datasets
    of a site than the breaker lets pass, the first ones.
    """
    doubtful = {(site, did) for site, one in held_losses.items() for did in one.missing_polls}
    most = limits.min_datasets - 1 if limits.confirming_polls else len(audit.corrections)
    alone: Counter[Site] = Counter()
    standing = {}
    for (claim, by), correction in sorted(
        audit.corrections.items(), key=lambda item: (item[1].first_found_at, item[0])
    ):
        if by is not VerificationMethod.PROBE:
            if (claim.site, claim.did) in doubtful:
                continue
            alone[claim.site] += correction.repeated_at is None
            if correction.repeated_at is None and alone[claim.site] > most:
                continue
        standing[claim, by] = correction
    return replace(audit, corrections=standing)


def _find_retired_sites(
    state: ReconcileState, memories: Mapping[str, CatalogueMemory], policy: ReconcilePolicy
) -> frozenset[Site]:
    sites = state.ads.keys() | {site for memory in memories.values() for site in memory.sites}
    return frozenset(site for site in sites if policy.is_retired(site))


def keep_disputed_matches(
    matches: Mapping[str, frozenset[Did]], state: ReconcileState
) -> dict[str, frozenset[Did]]:
    """What was *found* now, and what no longer was though nobody could see yet that it is gone.

    A catalogue that finds nothing has lost its datasets, or its mind. So what
    it found before is asked about once more, and stays wanted while it is
    held, or could not be asked about.
    """
    doubtful = {did for held in state.held_losses.values() for did in held.missing_polls}
    doubtful |= {did for memory in state.memories.values() for did in memory.unseen_reasons}
    before = {name: state.pattern_matches.get(name, frozenset()) & doubtful for name in matches}
    return {
        name: dids | {did for did in before[name] if _is_listed_anywhere(did, state)}
        for name, dids in matches.items()
    }


def _is_listed_anywhere(did: Did, state: ReconcileState) -> bool:
    known = [memory.records[did] for memory in state.memories.values() if did in memory.records]
    return any(one.facts for one in known)

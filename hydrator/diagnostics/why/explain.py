"""Explain for each site why a job does not match there, and which change would help. Pure.

The ClassAd library of the negotiator evaluates each clause of the job's and the slots' expressions.
This module decides which clauses keep the job away from a site, and which change is cheapest.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby

from hydrator.domain.model import DaemonKnowledge, Site, to_unix
from hydrator.domain.text import comma_separated, format_count

from .explanation import JobExplanation, MismatchCause, SiteMatch
from .missing_data import AUTO, data_text, is_usable
from .obstacles import causes_of, list_reasons, no_slot_reason, requested_amount
from .pool_facts import HERE_ATTRIBUTE, Clause, JobFacts, JobStatus, SlotGroup
from .remedies import cheapest_remedy_text, find_group_remedy
from .verdict import find_block_reason, list_notes, verdict_text, wait_text


def explain(
    job: JobFacts,
    groups: Sequence[SlotGroup],
    knowledge: DaemonKnowledge | None,
    *,
    now: datetime,
) -> JobExplanation:
    """Explain for every site why *job* does not match there, and which change would help.

    Args:
        job: a job in a queue.
        groups: the pool's slots, with the values of the clauses.
        knowledge: the daemon's knowledge; None if the daemon's state is unreadable.
        now: aware UTC time.
    """
    job = replace(job, total_bytes=knowledge.snapshot.sum_bytes(job.datasets) if knowledge else None)
    sites = _explain_sites(job, groups, knowledge, now)
    matches = tuple(at.display_name for at in sites if at.matching_slots)
    is_idle = job.status in {None, JobStatus.IDLE}
    block_reason = find_block_reason(job, matches, now)
    return JobExplanation(
        job=job,
        verdict=verdict_text(job, matches, sites, block_reason, now),
        matching_sites=matches,
        could_run=(is_idle and bool(matches) and not block_reason)
        or job.status in {JobStatus.RUNNING, JobStatus.TRANSFERRING, JobStatus.COMPLETED},
        notes=list_notes(job, now),
        wait=wait_text(job, now, groups, knowledge),
        funnel=funnel(job, groups, now),
        remedy=cheapest_remedy_text(sites) if is_idle and not matches else None,
        sites=tuple(sites),
    )


def explain_before_submit(
    job: JobFacts,
    groups: Sequence[SlotGroup],
    knowledge: DaemonKnowledge | None,
    *,
    now: datetime,
) -> JobExplanation:
    """Explain a job before its submission. Look only at the job's data, not at cores, memory or START.

    The daemon publishes a dataset as soon as a queued job names it. So a dataset that no queued job names
    yet counts as present at every site where a catalogue has the dataset on disk.

    Args:
        job: a job that is not submitted yet, with its datasets.
        groups: the pool's slots; their START and resources are ignored.
        knowledge: the daemon's and the catalogues' knowledge.
        now: aware UTC time.
    """
    job = replace(job, total_bytes=knowledge.snapshot.sum_bytes(job.datasets) if knowledge else None)
    groups = [_only_data(group, knowledge) for group in groups]
    sites = [_count_coming_data(job, at, groups, now) for at in _explain_sites(job, groups, knowledge, now)]
    complete_sites = tuple(at.site for at in sites if at.matching_slots)
    problem = "no single site with slots has all data of the job now"
    return JobExplanation(
        job=job,
        verdict=f"all data is at {comma_separated(complete_sites)}" if complete_sites else problem,
        matching_sites=complete_sites,
        could_run=bool(complete_sites),
        sites=tuple(sites),
        remedy=None if complete_sites else cheapest_remedy_text(sites),
    )


def _only_data(group: SlotGroup, knowledge: DaemonKnowledge | None) -> SlotGroup:
    """Return *group* as if only the data decided: by the entry of the job's set, if there is one.

    The expressions of the job look up this entry alone. Without the entry the states of the datasets decide.
    """
    has_data = (
        group.set_facts.is_local
        if group.set_facts.share is not None
        else all(is_usable(group, did, knowledge) for did in group.dataset_states)
    )
    value = "true" if has_data else "false"
    clause = Clause(f"MY.{HERE_ATTRIBUTE}", value, value)
    return replace(group, state=None, is_match=has_data, job_clauses=(clause,), slot_clauses=())


def _count_coming_data(job: JobFacts, at: SiteMatch, groups: Sequence[SlotGroup], now: datetime) -> SiteMatch:
    """Return *at* as a match if slot ads will list all data of the job soon after its submission.

    A slot without attributes needs its hook first.
    """
    reason = at.reasons[0] if at.reasons else None
    if not (reason and reason.set_facts and reason.set_facts.share is None and reason.missing_datasets):
        return at
    if not all(one.ends_with_next_cycle for one in reason.missing_datasets):
        return at
    at_site = [group for group in groups if (group.pool, group.site) == (at.pool, at.site)]
    matching = sum(group.slots for group in at_site if group.generation is not None)
    text = data_text(job, reason.missing_datasets, now)
    return replace(at, matching_slots=matching, reasons=(replace(reason, text=text),), remedy=None)


def funnel(job: JobFacts, groups: Sequence[SlotGroup], now: datetime) -> str:
    """Return how many slots remain after each cause: ``12 slots → 8 with the data → 0 with 16 cores``."""
    slots_left = list(groups)
    parts = [format_count(sum(group.slots for group in slots_left), "slot")]
    for cause in MismatchCause:
        remaining = [group for group in slots_left if cause not in causes_of(group)]
        has_lost_slots = len(remaining) < len(slots_left)
        slots_left = remaining
        if has_lost_slots or (cause is MismatchCause.DATA and job.has_required_datasets and job.is_bound):
            parts.append(f"{sum(group.slots for group in slots_left)} {_funnel_word(cause, job, now)}")
    return " → ".join(parts)


def _funnel_word(cause: MismatchCause, job: JobFacts, now: datetime) -> str:
    if cause is MismatchCause.DATA:
        return "with the data" if _insists_on_data(job, now) else "where the data lets the job run"
    return _FUNNEL_WORDS.get(cause) or f"with {requested_amount(cause, job)}"


_FUNNEL_WORDS = {
    MismatchCause.UNREADABLE_DATA: "where the job could read its data",
    MismatchCause.PLATFORM: "of the job's platform",
    MismatchCause.PATH: "with a path to the job's data",
    MismatchCause.REQUIREMENT: "that meet the job's requirements",
    MismatchCause.START: "whose START accepts the job",
    MismatchCause.BROKEN: "not broken",
    MismatchCause.BUSY: "free now",
}


def _insists_on_data(job: JobFacts, now: datetime) -> bool:
    is_waiting = job.any_after is None or to_unix(now) < job.any_after
    return not job.is_freed and job.mode != AUTO and is_waiting


def _explain_sites(
    job: JobFacts, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None, now: datetime
) -> list[SiteMatch]:
    """Explain the sites with slots, the job's own pool first; then the sites with its data, but no slot."""
    ordered = sorted(groups, key=lambda group: (group.pool, group.site))
    sites = [
        _explain_site(job, site, pool, list(site_groups), knowledge, now)
        for (pool, site), site_groups in groupby(ordered, key=lambda group: (group.pool, group.site))
    ]
    with_slots = {at.site for at in sites}
    others = knowledge.snapshot.sites.items() if knowledge else ()
    return sites + [
        SiteMatch(site, 0, 0, (no_slot_reason(job, site, knowledge, now),))
        for site, facts in others
        if site not in with_slots and any(did in facts.facts for did in job.datasets)
    ]


def _explain_site(
    job: JobFacts,
    site: Site,
    pool: str,
    groups: Sequence[SlotGroup],
    knowledge: DaemonKnowledge | None,
    now: datetime,
) -> SiteMatch:
    matching_slots = sum(group.slots for group in groups if group.can_run_now)
    reasons = tuple(list_reasons(job, site, [g for g in groups if not g.can_run_now], knowledge, now))
    remedies = [find_group_remedy(job, group, reasons, now) for group in groups if not group.can_run_now]
    cheapest = min((remedy for remedy in remedies if remedy), key=lambda remedy: remedy.effort, default=None)
    return SiteMatch(
        site,
        sum(g.slots for g in groups),
        matching_slots,
        reasons,
        None if matching_slots else cheapest,
        knowledge.held_reasons.get(site) if knowledge and job.has_required_datasets else None,
        pool,
    )

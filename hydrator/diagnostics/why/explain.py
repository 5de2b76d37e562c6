"""Explain for each site why a job does not match there, and which change would help. Pure.

The ClassAd library of the negotiator evaluates each clause of the job's and the slots' expressions.
This module decides which clauses keep the job away from a site, and which change is cheapest.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from itertools import groupby

from hydrator.domain.model import DaemonKnowledge, DatasetState, Site, to_unix
from hydrator.domain.text import comma_separated, format_count

from .explanation import JobExplanation, MismatchCause, Reason, SiteMatch
from .missing_data import MissingReason, count_datasets, data_text, is_usable, list_missing_datasets
from .obstacles import causes_of, list_reasons, no_slot_reason, requested_amount
from .pool_facts import JobFacts, JobStatus, SlotGroup
from .remedies import cheapest_remedy_text, find_data_remedy, find_group_remedy
from .sets.reasons import AUTO, add_missing_bytes, set_reason_text, sum_bytes, without_room
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
    job = replace(job, total_bytes=sum_bytes(job, knowledge))
    groups = add_missing_bytes(job, groups)
    sites = [
        _explain_site(job, site, pool, list(site_groups), knowledge, now)
        for (pool, site), site_groups in _group_by_site(groups)
    ]
    sites += _sites_without_slots(job, {at.site for at in sites}, knowledge, now)
    matches = tuple(at.display_name for at in sites if at.matching_slots)
    is_idle = job.status in {None, JobStatus.IDLE}
    block_reason = find_block_reason(job, matches, now)
    return JobExplanation(
        job=job,
        verdict=verdict_text(job, matches, sites, block_reason, now),
        matching_sites=matches,
        could_run=(is_idle and bool(matches) and not block_reason)
        or job.status in {JobStatus.RUNNING, JobStatus.TRANSFERRING, JobStatus.COMPLETED},
        block_reason=block_reason,
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
    only_site: Site | None = None,
) -> JobExplanation:
    """Explain a job before its submission. Look only at the job's data, not at cores, memory or START.

    The daemon publishes a dataset as soon as a queued job names it. So a dataset that no queued job names
    yet counts as present at every site where a catalogue has the dataset on disk.

    Args:
        job: a job that is not submitted yet, with its datasets.
        groups: the pool's slots; their START and resources are ignored.
        knowledge: the daemon's and the catalogues' knowledge.
        now: aware UTC time.
        only_site: explain only this site.
    """
    job = replace(job, total_bytes=sum_bytes(job, knowledge))
    sites = _explain_sites_before_submit(job, groups, knowledge, now, only_site)
    complete_sites = tuple(at.site for at in sites if at.matching_slots)
    problem = (
        f"{only_site} lacks some of the job's data now, or has no slots"
        if only_site
        else "no single site with slots has all data of the job now"
    )
    return JobExplanation(
        job=job,
        verdict=f"all data is at {comma_separated(complete_sites)}" if complete_sites else problem,
        matching_sites=complete_sites,
        could_run=bool(complete_sites),
        sites=tuple(sites),
        remedy=None if complete_sites else cheapest_remedy_text(sites),
    )


def _explain_sites_before_submit(
    job: JobFacts,
    groups: Sequence[SlotGroup],
    knowledge: DaemonKnowledge | None,
    now: datetime,
    only_site: Site | None,
) -> list[SiteMatch]:
    """Explain the sites with slots, then the sites with data but no slots. Always explain *only_site*."""
    sites = [
        _explain_site_before_submit(job, site, list(site_groups), knowledge, now)
        for (_, site), site_groups in _group_by_site(groups)
        if only_site in {None, site}
    ]
    known_sites = {at.site for at in sites}
    if only_site not in known_sites:
        sites += _sites_without_slots(job, known_sites, knowledge, now, only_site)
    if only_site and not sites:
        return [SiteMatch(only_site, 0, 0, (no_slot_reason(job, only_site, knowledge, now),))]
    return sites


def funnel(job: JobFacts, groups: Sequence[SlotGroup], now: datetime) -> str:
    """Return how many slots remain after each cause: ``12 slots → 8 with the data → 0 with 16 cores``."""
    slots_left = list(groups)
    parts = [format_count(sum(group.slots for group in slots_left), "slot")]
    for cause in MismatchCause:
        remaining = [group for group in slots_left if cause not in causes_of(group)]
        has_lost_slots = len(remaining) < len(slots_left)
        slots_left = remaining
        if has_lost_slots or (cause is MismatchCause.DATA and job.has_required_datasets):
            parts.append(f"{sum(group.slots for group in slots_left)} {_funnel_word(cause, job, now)}")
    return " → ".join(parts)


def _funnel_word(cause: MismatchCause, job: JobFacts, now: datetime) -> str:
    match cause:
        case MismatchCause.UNREADABLE_DATA:
            return "where the job could read its data"
        case MismatchCause.DATA:
            return "with the data" if _insists_on_data(job, now) else "where the data lets the job run"
        case MismatchCause.CORES | MismatchCause.MEMORY | MismatchCause.DISK | MismatchCause.GPUS:
            return f"with {requested_amount(cause, job)}"
        case MismatchCause.PLATFORM:
            return "of the job's platform"
        case MismatchCause.PATH:
            return "with a path to the job's data"
        case MismatchCause.REQUIREMENT:
            return "that meet the job's requirements"
        case MismatchCause.START:
            return "whose START accepts the job"
        case _:
            return "free now"


def _insists_on_data(job: JobFacts, now: datetime) -> bool:
    is_waiting = job.any_after is None or to_unix(now) < job.any_after
    return not job.is_freed and job.mode != AUTO and is_waiting


def _group_by_site(groups: Sequence[SlotGroup]) -> Iterable[tuple[tuple[str, Site], Iterable[SlotGroup]]]:
    """Group slots by their pool and site, the pool of the job first."""

    def place(group: SlotGroup) -> tuple[str, Site]:
        return group.pool, group.site

    return groupby(sorted(groups, key=place), key=place)


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
    missing = [dataset for reason in reasons for dataset in reason.missing_datasets]
    return SiteMatch(
        site,
        sum(g.slots for g in groups),
        matching_slots,
        reasons,
        None if matching_slots else cheapest,
        count_datasets(job, missing) if missing else None,
        knowledge.held_reasons.get(site) if knowledge and job.has_required_datasets else None,
        pool,
    )


def _explain_site_before_submit(
    job: JobFacts, site: Site, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None, now: datetime
) -> SiteMatch:
    slots = sum(group.slots for group in groups)
    lacking_groups = [group for group in groups if not _has_all_data(group, knowledge)]
    if not lacking_groups and not job.invalid_names:
        return SiteMatch(site, slots, slots)
    example = (lacking_groups or groups)[0]
    is_published = any(group.set_facts.share is not None for group in lacking_groups)
    missing = list_missing_datasets(job, site, lacking_groups or groups, knowledge, now)
    missing = without_room(job, example, missing)
    is_coming = not is_published and all(
        one.reason in _REASONS_THAT_A_JOB_ENDS and one.state == DatasetState.AVAILABLE for one in missing
    )
    is_hydrated = all(group.generation is not None for group in lacking_groups)
    states = data_text(job, missing, now) if missing else ""
    set_text = set_reason_text(job, example, missing) if is_published else ""
    text = "; ".join(filter(None, (states, set_text)))
    reason = Reason(MismatchCause.DATA, True, sum(group.slots for group in lacking_groups), text, (), missing)
    remedy = None if is_coming else find_data_remedy(job, (reason,), site, now)
    matching = slots if is_coming and is_hydrated else slots - reason.slots
    held_change = knowledge.held_reasons.get(site) if knowledge else None
    return SiteMatch(site, slots, matching, (reason,), remedy, count_datasets(job, missing), held_change)


_REASONS_THAT_A_JOB_ENDS = {MissingReason.NOT_IN_DEMAND, MissingReason.NOT_YET_IN_SLOTS}
"""Reasons that end once a job names the set, because ads have room for sets before single datasets.

The ad of a site with many datasets may never list a dataset of other sets, which then is NOT_YET_IN_SLOTS.
"""


def _has_all_data(group: SlotGroup, knowledge: DaemonKnowledge | None) -> bool:
    """Return True if the job could use all its data at the slots: by the entry of its set, if there is one.

    The expressions of the job look up this entry alone. Without the entry the states of the datasets decide.
    """
    if group.set_facts.share is not None:
        return group.set_facts.is_local
    return all(is_usable(group, did, knowledge) for did in group.dataset_states)


def _sites_without_slots(
    job: JobFacts,
    known_sites: AbstractSet[Site],
    knowledge: DaemonKnowledge | None,
    now: datetime,
    only_site: Site | None = None,
) -> list[SiteMatch]:
    """Return the sites that have some of the job's data but no slot in the pool."""
    if knowledge is None or not job.datasets:
        return []
    return [
        SiteMatch(site, 0, 0, (no_slot_reason(job, site, knowledge, now),))
        for site, facts in knowledge.snapshot.sites.items()
        if site not in known_sites
        and only_site in {None, site}
        and any(did in facts.facts for did in job.datasets)
    ]

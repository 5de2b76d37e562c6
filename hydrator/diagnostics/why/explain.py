"""Explain for each site why a job does not match there, and which change would help. Pure.

The ClassAd library of the negotiator evaluates the clauses. This module concludes which of them keep
the job away from a site, and which change is cheapest. Each sentence stays beside its values.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from itertools import groupby

from hydrator.domain.model import DaemonKnowledge, Site, to_unix
from hydrator.domain.text import (
    comma_separated,
    format_count,
)

from .explanation import JobExplanation, MismatchCause, Reason, SiteMatch
from .missing_data import (
    MissingReason,
    count_datasets,
    data_text,
    list_missing_datasets,
)
from .obstacles import causes_of, list_reasons, no_slot_reason, requested_amount
from .pool_facts import JobFacts, JobStatus, SlotGroup
from .remedies import cheapest_remedy_text, find_data_remedy, find_group_remedy
from .verdict import find_block_reason, list_notes, verdict_text, wait_text


def explain(
    job: JobFacts, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None, *, now: datetime
) -> JobExplanation:
    """Say for every site why *job* would not match there, and what would unlock it.

    Args:
        job: a job in a queue.
        groups: the pool's slots, judged.
        beliefs: what the daemon knows; None where its state cannot be read.
        now: aware UTC time.
    """
    notes = list_notes(job, now)
    wait = wait_text(job, now)
    sites = [
        _explain_site(job, site, pool, list(those), knowledge, now)
        for (pool, site), those in _group_by_site(groups)
    ]
    sites += _sites_without_slots(job, {at.site for at in sites}, knowledge, now)
    matches = tuple(at.display_name for at in sites if at.matching_slots)
    idle = job.status in {None, JobStatus.IDLE}
    blocked = find_block_reason(job, matches, now)
    return JobExplanation(
        job=job,
        verdict=verdict_text(job, matches, sites, blocked, now),
        matching_sites=matches,
        could_run=(idle and bool(matches) and not blocked)
        or job.status in {JobStatus.RUNNING, JobStatus.TRANSFERRING, JobStatus.COMPLETED},
        block_reason=blocked,
        notes=notes,
        wait=wait,
        funnel=funnel(job, groups, now),
        remedy=cheapest_remedy_text(sites) if idle and not matches else None,
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
    """The same before submitting: data alone counts, not cores or START, and a dataset nobody asked for yet
    counts as there when a catalogue says so, since it is published as soon as a job asks.

    Args:
        job: a job that nobody submitted, with its datasets.
        groups: the slots, judged; START and what they have are not looked at.
        beliefs: what the daemon and the catalogues know.
        now: aware UTC time.
        only: this site alone.
    """
    sites = []
    for (_, site), those in _group_by_site(groups):
        if only_site in {None, site}:
            sites.append(_explain_site_before_submit(job, site, list(those), knowledge, now))
    known = {at.site for at in sites}
    if only_site is None:
        sites += _sites_without_slots(job, known, knowledge, now)
    elif only_site not in known:
        there = _sites_without_slots(job, known, knowledge, now, only_site)
        sites += there or [SiteMatch(only_site, 0, 0, (no_slot_reason(job, only_site, knowledge, now),))]
    good = tuple(at.site for at in sites if at.matching_slots)
    where = f"at {only_site}, or it has no slots" if only_site else "at one site that has slots"
    return JobExplanation(
        job=job,
        verdict=f"all data is at {comma_separated(good)}" if good else f"not all data is {where} now",
        matching_sites=good,
        could_run=bool(good),
        sites=tuple(sites),
        remedy=None if good else cheapest_remedy_text(sites),
    )


def funnel(job: JobFacts, groups: Sequence[SlotGroup], now: datetime) -> str:
    """How many slots are left after each cause, such as ``12 slots → 8 with the data → 0 with 16 cores``."""
    left = list(groups)
    parts = [format_count(sum(group.slots for group in left), "slot")]
    for cause in MismatchCause:
        kept = [group for group in left if cause not in causes_of(group)]
        cut = len(kept) < len(left)
        left = kept
        if cut or (cause is MismatchCause.DATA and job.has_required_datasets):
            parts.append(f"{sum(group.slots for group in left)} {_funnel_word(cause, job, now)}")
    return " → ".join(parts)


def _funnel_word(cause: MismatchCause, job: JobFacts, now: datetime) -> str:
    match cause:
        case MismatchCause.UNREADABLE_DATA:
            return "where it could read its data"
        case MismatchCause.DATA:
            return "with the data" if _insists_on_data(job, now) else "where its data lets it run"
        case MismatchCause.CORES | MismatchCause.MEMORY | MismatchCause.DISK | MismatchCause.GPUS:
            return f"with {requested_amount(cause, job)}"
        case MismatchCause.PLATFORM:
            return "of its platform"
        case MismatchCause.PATH:
            return "with a path to its data"
        case MismatchCause.REQUIREMENT:
            return "that meet its requirements"
        case MismatchCause.START:
            return "whose START accepts it"
        case _:
            return "free now"


def _insists_on_data(job: JobFacts, now: datetime) -> bool:
    return not job.is_released and (job.any_after is None or to_unix(now) < job.any_after)


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
    matching = sum(group.slots for group in groups if group.can_run_now)
    reasons = tuple(list_reasons(job, site, [g for g in groups if not g.can_run_now], knowledge, now))
    ways = [find_group_remedy(job, group, reasons, now) for group in groups if not group.can_run_now]
    best = min((way for way in ways if way), key=lambda way: way.cost, default=None)
    missing = [one for reason in reasons for one in reason.missing_datasets]
    return SiteMatch(
        site,
        sum(g.slots for g in groups),
        matching,
        reasons,
        None if matching else best,
        count_datasets(job, missing) if missing else None,
        knowledge.held_reasons.get(site) if knowledge and job.has_required_datasets else None,
        pool,
    )


def _explain_site_before_submit(
    job: JobFacts, site: Site, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None, now: datetime
) -> SiteMatch:
    slots = sum(group.slots for group in groups)
    without = [group for group in groups if not all(told.is_usable for told in group.dataset_states.values())]
    if not without and not job.invalid_names:
        return SiteMatch(site, slots, slots)
    missing = list_missing_datasets(job, site, without or groups, knowledge, now)
    coming = all(one.reason is MissingReason.NOT_IN_DEMAND and one.state == "AVAILABLE" for one in missing)
    hydrated = all(group.generation is not None for group in without)
    text = data_text(job, missing, now)
    reason = Reason(MismatchCause.DATA, True, sum(group.slots for group in without), text, (), missing)
    way = None if coming else find_data_remedy(job, (reason,), now)
    matching = slots if coming and hydrated else slots - reason.slots
    held = knowledge.held_reasons.get(site) if knowledge else None
    return SiteMatch(site, slots, matching, (reason,), way, count_datasets(job, missing), held)


def _sites_without_slots(
    job: JobFacts,
    known_sites: AbstractSet[Site],
    knowledge: DaemonKnowledge | None,
    now: datetime,
    only_site: Site | None = None,
) -> list[SiteMatch]:
    """Sites that hold some of the data and have no slot in the pool."""
    if knowledge is None or not job.datasets:
        return []
    return [
        SiteMatch(site, 0, 0, (no_slot_reason(job, site, knowledge, now),))
        for site, facts in knowledge.snapshot.sites.items()
        if site not in known_sites
        and only_site in {None, site}
        and any(did in facts.facts for did in job.datasets)
    ]

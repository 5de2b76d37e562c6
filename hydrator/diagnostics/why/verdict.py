"""Verdict on a job as a whole: its status, the limits that block it, notes, and its wait for data. Pure."""

import re
from collections.abc import Sequence
from datetime import datetime
from math import inf

from hydrator.diagnostics.schedd_budget import CURES, ScheddBudget
from hydrator.diagnostics.start_record import start_text
from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.openings import Reason, describe_outlook
from hydrator.domain.model import DaemonKnowledge, to_unix
from hydrator.domain.text import (
    comma_separated,
    deduplicate,
    format_age,
    format_bytes,
    format_count,
    format_duration,
    format_time,
    shorten_list,
)
from hydrator.domain.untrusted import nearest_moment, valid_number, valid_time

from .explanation import MismatchCause, SiteMatch
from .missing_data import AUTO, RECENT_SECONDS, WRONG_KEY, list_moving_datasets
from .obstacles import causes_of, list_reasons
from .pool_facts import JobFacts, JobStatus, SlotGroup, SlotSetFacts


def verdict_text(
    job: JobFacts,
    matching_sites: Sequence[str],
    sites: Sequence[SiteMatch],
    block_reason: str | None,
    now: datetime,
) -> str:
    since = valid_time(job.status_attributes.get("EnteredCurrentStatus") or None)
    duration = f" for {format_duration((now - since).total_seconds())}" if since else ""
    match job.status:
        case JobStatus.RUNNING | JobStatus.TRANSFERRING | JobStatus.SUSPENDED:
            does = "is suspended" if job.status is JobStatus.SUSPENDED else "runs"
            return f"it {does}{duration} at {job.status_attributes.get('RemoteHost', 'a slot')}"
        case JobStatus.HELD:
            reason = str(job.status_attributes.get("HoldReason", "no reason given")).rstrip(".")
            return f"it is held{duration}: {reason}. condor_release {job.name} lets it try again"
        case JobStatus.REMOVED:
            return "it is being removed"
        case JobStatus.COMPLETED:
            return "it has completed and is about to leave the queue"
        case _ if block_reason and matching_sites:
            return f"{block_reason}; otherwise it would match at {comma_separated(matching_sites)}"
        case _ if block_reason:
            return f"{block_reason}; also, it matches no slot now"
        case _ if matching_sites:
            return f"it would match at {comma_separated(matching_sites)}{_turn_text(job)}"
        case _:
            has_slots = any(at.slots for at in sites)
            return "it matches no slot now" if has_slots else "it cannot match: the pool has no slots"


def _turn_text(job: JobFacts) -> str:
    """Return what an idle job that matches waits for, as the end of a sentence."""
    if job.budget and job.budget.idle > job.budget.room:  # it is idle itself
        return f", but {_budget_text(job.budget)}"
    return ": it waits for its turn in the next negotiation cycles"


def _budget_text(budget: ScheddBudget) -> str:
    """Return why jobs that wait for their data may keep the job from a slot that takes it."""
    figures = f"{budget.running} run, MAX_JOBS_RUNNING = {budget.most}"
    if budget.room == 0:
        return f"its schedd asks for no further slot: {figures}"
    return (
        f"its schedd asks for slots for {format_count(budget.room, 'job')} only ({figures}), and"
        f" {budget.idle} are idle: if {budget.room} of its owner wait for their data, it gets none"
        f" (HTCONDOR-3855); {CURES}"
    )


_NO_MATCH = "no match found"


def find_block_reason(job: JobFacts, matching_sites: Sequence[str], now: datetime) -> str | None:
    """Return why an idle job recently got no slot although slots match; None if no reason is known."""
    if job.status is not JobStatus.IDLE:
        return None
    if job.unplaced_universe:
        return f"no negotiator places a job of the {job.unplaced_universe} universe"
    reason = str(job.status_attributes.get("LastRejMatchReason") or "").partition(" |")[0].strip()
    rejected_at = valid_number(job.status_attributes.get("LastRejMatchTime"))
    if (
        not reason
        or rejected_at is None
        or abs(to_unix(now) - rejected_at) > RECENT_SECONDS  # the schedd's clock may be ahead of this host's
        or reason == _NO_MATCH
    ):
        return None
    if limit := re.match(r"concurrency limit (.{0,500}?)\s*reached", reason):
        names = limit[1].strip() or job.concurrency_limits
        return f"it waits for a concurrency limit{f' ({names})' if names else ''}, the negotiator reports"
    return f"it waits for its turn ({reason}), the negotiator reports" if matching_sites else None


_STARTED = {JobStatus.RUNNING, JobStatus.TRANSFERRING, JobStatus.SUSPENDED, JobStatus.COMPLETED}


def _misses_note(job: JobFacts, now: datetime) -> str:
    """Return a note about the datasets that the job could not read, the latest first; empty without any."""
    if not job.misses or job.status not in {JobStatus.IDLE, JobStatus.HELD}:
        return ""
    each = [f"{miss.did} at {miss.site} {format_age(miss.missed_at, now)}" for miss in reversed(job.misses)]
    return f"the job ran and could not read {shorten_list(deduplicate(each))}"


def list_notes(job: JobFacts, now: datetime) -> tuple[str, ...]:
    notes = []
    if not job.has_required_datasets:
        notes.append("the job names no datasets (RequiredDatasets), so data locality does not restrict it")
    elif job.unplaced_universe:
        notes.append("data locality does not decide where a job of its universe runs")
    elif not job.is_bound:
        why = "only ranks slots, or was not installed when the job was submitted"
        if job.key is None:  # the transform gives a key to each job with datasets
            why = "was not installed when the job was submitted: see hydrator pool-config"
        notes.append(
            "data locality does not restrict the job: its Requirements have no DataLocalityHere, because the"
            f" schedd's transform {why}"
        )
    elif job.is_freed:
        notes.append(
            "the job is freed (hydrator run-anywhere sets DataLocalityHere to true): its data no longer"
            " decides where it runs"
        )
    is_started = job.status in _STARTED
    if job.has_wrong_key and (is_started or not (job.is_freed or (job.mode == AUTO and job.is_bound))):
        notes.append(WRONG_KEY)
    elif is_started and (started := start_text(job.start)):
        notes.append(started)
    if misses := _misses_note(job, now):
        notes.append(misses)
    reason = job.status_attributes.get("LastRejMatchReason")
    rejected_at = valid_number(job.status_attributes.get("LastRejMatchTime"))
    if reason and rejected_at and job.status is JobStatus.IDLE:
        is_recent = abs(to_unix(now) - rejected_at) <= RECENT_SECONDS
        when = "reports" if is_recent else f"reported at {format_time(rejected_at, now)}"
        notes.append(f"the negotiator {when}: {str(reason).strip()}")
    return tuple(notes)


def wait_text(
    job: JobFacts,
    now: datetime,
    groups: Sequence[SlotGroup] = (),
    knowledge: DaemonKnowledge | None = None,
) -> str | None:
    """Return a sentence: until when the job runs only at sites with its data; None without such a limit.

    In mode auto, the sentence is the prospect of the job. A job that has started waits for nothing.
    """
    if not (job.can_wait and job.is_bound and job.has_required_datasets) or job.is_freed:
        return None
    if job.mode == AUTO and job.key is not None:
        return _auto_wait_text(job, groups, knowledge, now)
    if job.any_after is None:
        return "the job runs only at sites with all its data (DataLocality = require)"
    return _end_of_wait_text(job.any_after, now, "the job", "insists on")


def _end_of_wait_text(any_after: int, now: datetime, subject: str, verb: str) -> str:
    """Return until when *subject*, the job, needs its data, or since when it may run anywhere."""
    at, left = f"{nearest_moment(any_after):%Y-%m-%d %H:%M} UTC", any_after - to_unix(now)
    if left > 0:
        return f"{subject} {verb} its data until {at} (for {format_duration(left)}), then it may run anywhere"
    why = "its wait counts from its submission, also while it is held, and for each later run"
    return f"{subject} may run anywhere since {at} ({format_duration(-left)} ago): {why}"


def _auto_wait_text(
    job: JobFacts, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None, now: datetime
) -> str | None:
    """Return one sentence for a job in mode auto: where it may start now, or what it waits for.

    The sentence does not move with the clock: it is one of the daemon's outlooks, see
    :class:`hydrator.domain.ads.openings.Reason`. A job on hold waits for a person.
    """
    if job.has_wrong_key:
        return WRONG_KEY
    beside = {group.site for group in groups if group.set_facts.is_local and group.can_run_now}
    if beside and job.status is not JobStatus.HELD:
        return f"the job may start now at {comma_separated(sorted(beside))}, beside its data"
    if not any(group.set_facts.is_paced for group in groups):
        return _unpaced_text(job, knowledge, now)
    if job.status is JobStatus.HELD:
        return None
    open_groups = [one for one in groups if one.set_facts.is_open and not one.set_facts.is_local]
    if open_groups:
        sites = {group.site for group in open_groups}
        shortest = min(open_groups, key=lambda group: (group.set_facts.open_seconds or inf, group.site))
        refusal = _refusal_text(job, open_groups, knowledge, now, ", and no slot there is free")
        return (
            f"the job may start now at {comma_separated(sorted(sites))} by"
            f" {_reading_text(job, shortest.set_facts, shortest.site if len(sites) > 1 else None)}{refusal}"
        )
    return _closed_text(job, groups, knowledge, now)


def _closed_text(
    job: JobFacts, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None, now: datetime
) -> str:
    """Return what a job in mode auto waits for if it may not read now."""
    made = knowledge.openings if knowledge else None
    key = SetKey(job.key or "")
    outlook = made.outlooks.get(key) if made else None
    home = [group for group in groups if group.set_facts.share == 1]
    refusal = _refusal_text(job, home, knowledge, now)
    if made and outlook:
        text = f"the job waits: {describe_outlook(key, made, lane=job.lane)}"
        if outlook.is_open(job.lane):
            return f"{text}; the slot ads there do not show it yet"
        if outlook.reason is not Reason.BESIDE:
            return text
        return text + (refusal if home else ", but the slot ads there lack some of it")
    if moving := list_moving_datasets(job, knowledge):
        what = "a dataset is on its way or cannot be read"
        return f"the job waits for {shorten_list(moving)}: the daemon paces no set while {what}"
    if all(group.set_facts.share is None for group in groups):
        return _unpaced_text(job, knowledge, now)
    return (
        f"the job waits for slots beside its data{refusal}; the daemon paces its set once it has seen the"
        " job, and has facts about all its datasets"
    )


def _reading_text(job: JobFacts, facts: SlotSetFacts, site: str | None) -> str:
    """Return what a job would read at a slot where its set is open: ``reading 31 GB from UK in 4 min``.

    Of several sites, *site* has the shortest read.
    """
    if facts.source is None:
        return "reading from wherever it is what no site has on disk"
    missing_bytes = round((job.total_bytes or 0) * (1 - (facts.share or 0)))
    amount = format_bytes(missing_bytes) if missing_bytes else "its missing data"
    duration = "" if facts.open_seconds is None else f" in {format_duration(facts.open_seconds)}"
    return f"reading {amount} from {facts.source}{duration}" + (f" (at {site})" if site else "")


def _refusal_text(
    job: JobFacts,
    groups: Sequence[SlotGroup],
    knowledge: DaemonKnowledge | None,
    now: datetime,
    if_busy: str = "",
) -> str:
    """Return why no slot of *groups* takes the job, as the end of a sentence; empty if one takes it.

    It is *if_busy* if slots take the job once their jobs have ended.
    """
    if not groups or any(group.can_run_now for group in groups):
        return ""
    free = [group for group in groups if not group.is_busy and MismatchCause.BUSY not in causes_of(group)]
    if not free and not all(group.is_closed for group in groups):
        return if_busy
    refusing = free or groups
    texts = deduplicate(
        _AT_REST.get(reason.cause, reason.text)
        for site in sorted({group.site for group in refusing})
        for reason in list_reasons(job, site, [one for one in refusing if one.site == site], knowledge, now)
    )
    reasons = shorten_list(texts, " and ")
    return f", and the free slots there do not take it because {reasons}" if free else f", and {reasons}"


_AT_REST = {
    MismatchCause.UNREADABLE_DATA: "it could not read its data there",
    MismatchCause.DATA: "the facts about its data there are older than it accepts (DataLocalityMaxAge)",
}
"""Reasons without their ages, which move with the clock."""


def _unpaced_text(job: JobFacts, knowledge: DaemonKnowledge | None, now: datetime) -> str:
    """Return the sentence for a job that no daemon paces: it runs anywhere after its wait."""
    reason = knowledge.no_openings_reason if knowledge else None
    head = f"no daemon paces the reads of the job ({reason or 'see hydrator status'})"
    if job.any_after is None:
        return head
    return _end_of_wait_text(job.any_after, now, f"{head}: it", "needs")

"""Obstacles between a job and the slots of a site: the clauses that are not true, and their causes. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from hydrator.domain.model import DaemonKnowledge, Site, to_unix
from hydrator.domain.text import (
    deduplicate,
    format_age,
    format_time,
    shorten,
    shorten_list,
)
from hydrator.reconcile.misses import MISSED_EXIT_STATUS, PATHS_ATTRIBUTE, SITES_ATTRIBUTE

from .explanation import MismatchCause, Reason
from .missing_data import (
    data_text,
    has_all_data,
    list_missing_datasets,
    set_reason_text,
    state_words,
)
from .pool_facts import HERE_ATTRIBUTE, Clause, JobFacts, SlotGroup


def _failing_clauses(group: SlotGroup) -> list[tuple[Clause, MismatchCause]]:
    """Return each clause that is not true, with its cause.

    The cause is BUSY if the clause would be true for the slot without its running jobs.
    """
    sides = ((group.job_clauses, MismatchCause.REQUIREMENT), (group.slot_clauses, MismatchCause.START))
    return [
        (clause, _cause_of(clause, default))
        for clauses, default in sides
        for clause in clauses
        if not clause.is_true
    ]


def _cause_of(clause: Clause, default: MismatchCause) -> MismatchCause:
    if clause.value_if_unused == "true":
        return MismatchCause.BUSY
    words = {word.lower() for word in re.findall(r"[A-Za-z_]\w*", _blank_string_literals(clause.text))}
    if words & {HERE_ATTRIBUTE.lower(), "datasetstates", "availabledatasets"}:
        return MismatchCause.DATA
    if SITES_ATTRIBUTE.lower() in words:
        return MismatchCause.UNREADABLE_DATA
    if PATHS_ATTRIBUTE.lower() in words:
        return MismatchCause.PATH
    kinds = {cause for cause, attributes in _RESOURCE_ATTRIBUTES.items() if words & attributes}
    return kinds.pop() if len(kinds) == 1 and words <= _GENERATED_WORDS else default


_RESOURCE = {
    MismatchCause.CORES: "Cpus",
    MismatchCause.MEMORY: "Memory",
    MismatchCause.DISK: "Disk",
    MismatchCause.GPUS: "GPUs",
}
_RESOURCE_ATTRIBUTES: Mapping[MismatchCause, AbstractSet[str]] = {
    **{cause: {name.lower(), f"request{name.lower()}"} for cause, name in _RESOURCE.items()},
    MismatchCause.PLATFORM: {"arch", "opsys", "hasfiletransfer", "filesystemdomain"},
}


_GENERATED_WORDS = frozenset().union(*_RESOURCE_ATTRIBUTES.values()) | {
    *("my", "target", "is", "isnt", "undefined", "true", "false"),
    *("versionge", "split", "condorversion", "ifthenelse", "sum", "evalineachcontext", "member"),
    *("mappingmethod", "requestedcatalogs", "requestedcatalogids", "catalogs", "catalogid", "catalogsize"),
}
"""Words in clauses that condor_submit and condor_startd write. Any other word comes from a user."""


def causes_of(group: SlotGroup) -> set[MismatchCause]:
    if group.can_run_now:
        return set()
    if group.broken_reason:
        return {MismatchCause.BROKEN}
    causes = {cause for _, cause in _failing_clauses(group)}
    if group.is_match:  # the slot matches, but is not free
        causes.add(MismatchCause.BUSY)
    if causes & _RESOURCE.keys():  # even while unused, the slot is too small
        causes.discard(MismatchCause.BUSY)
    return causes or {
        MismatchCause.REQUIREMENT
    }  # every clause is true, but the whole expression is nested too deeply to evaluate


def _blank_string_literals(text: str) -> str:
    # an unterminated string literal ends where the text ends, so the pattern needs no backtracking
    return re.sub(r'"(?:\\.|[^"\\])*(?:"|\\?\Z)', '""', text)


def _reason_text(
    cause: MismatchCause, job: JobFacts, groups: Sequence[SlotGroup], failing_clauses: Sequence[str]
) -> str:
    clause_list = shorten_list([f"`{shorten(text)}`" for text in failing_clauses])
    match cause:
        case MismatchCause.CORES | MismatchCause.MEMORY | MismatchCause.DISK | MismatchCause.GPUS:
            return _resource_text(cause, job, groups)
        case MismatchCause.BROKEN:
            reasons = deduplicate(group.broken_reason for group in groups)
            return f"the slots are broken, so no job can run there: {shorten_list(reasons, '; ')}"
        case MismatchCause.BUSY if all(group.is_closed for group in groups):
            states = sorted({str(group.state).lower() for group in groups})
            return f"no slot there takes a new job: they are {' or '.join(states)}"
        case MismatchCause.BUSY:
            return f"busy: {_resource_use_text(job, groups)}"
        case MismatchCause.PLATFORM:
            return f"the slots have another platform: {clause_list} is not true"
        case MismatchCause.PATH:
            return (
                "no path to the job's data is configured for this site: add a [[storage]] table to the"
                " configuration of the submit host"
            )
        case MismatchCause.START:
            return f"the slots refuse the job: {clause_list} is not true in their START or resource limits"
        case _:
            if not failing_clauses:
                return (
                    "the job's requirements are not true, although each clause is true:"
                    " they may be nested too deeply to evaluate"
                )
            is_undefined = all(
                clause.value == "undefined"
                for group in groups
                for clause in group.job_clauses
                if clause.text in failing_clauses and not clause.is_true
            )
            why = ": the slots do not define the attributes of this clause" if is_undefined else ""
            return f"the job's own requirement {clause_list} is not true{why}"


def _misses_text(job: JobFacts, site: Site, now: datetime) -> str:
    """Return which datasets the job could not read at *site*, when, and until when the job avoids *site*."""
    site_misses = [miss for miss in job.misses if miss.site == site]
    if site_misses:
        last = site_misses[-1].missed_at
        dids = deduplicate(miss.did for miss in site_misses if miss.missed_at == last)
        text = (
            f"the job could not read {shorten_list(dids)} at this site {format_age(last, now)}, although"
            " the slot ad listed it"
        )
    else:
        text = f"the job's last run at this site could not read the data (exit status {MISSED_EXIT_STATUS})"
    if job.missed_until is not None and job.missed_until > to_unix(now) and site in job.missed_sites:
        text += f"; the job avoids the site until {format_time(job.missed_until, now)}"
    return f"{text}; see the job's stderr"


def _resource_use_text(job: JobFacts, groups: Sequence[SlotGroup]) -> str:
    parts = []
    for cause, name in _RESOURCE.items():
        request = job.requests.get(name)
        free = [group.largest_resources[name] for group in groups if name in group.largest_resources]
        if request is not None and free and max(free) < request:
            total = max(group.largest_resources.get(f"TotalSlot{name}", 0) for group in groups)
            parts.append(
                f"{_amount_with_unit(cause, max(free))} free of {_amount_with_unit(cause, total)},"
                f" the job requests {requested_amount(cause, job)}"
            )
    return "; ".join(parts) or "other jobs use these slots"


def _resource_text(cause: MismatchCause, job: JobFacts, groups: Sequence[SlotGroup]) -> str:
    """Return why the job's request for a resource fits none of *groups*."""
    name, most = _RESOURCE[cause], capacity_text(cause, groups)
    if has_bad_request(cause, job, groups):
        return f"its {request_attribute(cause)} is not a number"
    if name in job.requests:
        largest = f"the largest slot there has {most}" if most else "the slots there have none"
        return f"it requests {requested_amount(cause, job)}; {largest}"
    largest = f"exceeds the {most} of the largest slot there" if most else "the slots there have none"
    return f"its request depends on the slot, and {largest}"


def has_bad_request(cause: MismatchCause, job: JobFacts, groups: Sequence[SlotGroup]) -> bool:
    """Return True if the job's request for the resource of *cause* is a number at none of *groups*."""
    values = {clause.value for group in groups for clause, its in _failing_clauses(group) if its is cause}
    return _RESOURCE[cause] not in job.requests and values <= {"undefined", "error"}


def request_attribute(cause: MismatchCause) -> str:
    """Return the attribute with the job's request for the resource of *cause*."""
    return f"Request{_RESOURCE[cause]}"


def requested_amount(cause: MismatchCause, job: JobFacts) -> str:
    amount = job.requests.get(_RESOURCE[cause])
    return f"the {cause} that the job requests" if amount is None else _amount_with_unit(cause, amount)


def capacity_text(cause: MismatchCause, groups: Sequence[SlotGroup]) -> str:
    """Return the largest amount of the resource that a slot has in all; empty if none has any."""
    amount = _capacity(cause, groups)
    return _amount_with_unit(cause, amount) if amount > 0 else ""


def _capacity(cause: MismatchCause, groups: Sequence[SlotGroup]) -> float:
    name = _RESOURCE[cause]
    return max(
        max(g.largest_resources.get(f"TotalSlot{name}", 0), g.largest_resources.get(name, 0)) for g in groups
    )


def has_free_capacity(cause: MismatchCause, group: SlotGroup) -> bool:
    """Return True if a slot of *group* has its whole amount of the resource free now."""
    enough = 0.95 if cause is MismatchCause.DISK else 1  # the free disk of an idle slot varies
    free = group.largest_resources.get(_RESOURCE[cause], 0)
    return not group.is_busy and free >= enough * _capacity(cause, [group])


def _amount_with_unit(cause: MismatchCause, amount: float) -> str:
    match cause:
        case MismatchCause.MEMORY:
            mebibytes, unit = amount, " of memory"
        case MismatchCause.DISK:
            mebibytes, unit = amount / 1024, " of disk"
        case _:
            word = "GPU" if cause is MismatchCause.GPUS else "core"
            return f"{_digits(amount)} {word}{'' if round(amount) == 1 else 's'}"
    size = f"{_digits(mebibytes)} MiB" if mebibytes < 10_240 else f"{_digits(mebibytes / 1024)} GiB"
    return f"{size}{unit}"


def _digits(amount: float) -> str:
    return f"{amount:.0f}" if abs(amount) < 1e12 else f"{amount:.3g}"


def list_reasons(
    job: JobFacts, site: Site, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None, now: datetime
) -> Iterable[Reason]:
    """Yield the reasons why *job* does not match the slots of *groups*, which are all at *site*."""
    for cause in MismatchCause:
        affected_groups = [group for group in groups if cause in causes_of(group)]
        if not affected_groups:
            continue
        slots = sum(group.slots for group in affected_groups)
        failing = deduplicate(
            clause.text
            for group in affected_groups
            for clause, clause_cause in _failing_clauses(group)
            if clause_cause is cause
        )
        if cause is MismatchCause.DATA:
            missing = list_missing_datasets(job, site, affected_groups, knowledge, now)
            states = data_text(job, missing, now) if missing else ""
            text = "; ".join(filter(None, (states, set_reason_text(job, affected_groups[0], missing))))
            facts = affected_groups[0].set_facts if job.datasets else None
            yield Reason(cause, slots, text, tuple(failing), missing, facts)
        elif cause is MismatchCause.UNREADABLE_DATA:
            yield Reason(cause, slots, _misses_text(job, site, now), tuple(failing))
        else:
            yield Reason(cause, slots, _reason_text(cause, job, affected_groups, failing), tuple(failing))


def no_slot_reason(job: JobFacts, site: Site, knowledge: DaemonKnowledge | None, now: datetime) -> Reason:
    """Return the reason of a site without slots, with the states of the job's datasets there."""
    at = knowledge.snapshot.sites.get(site) if knowledge else None
    facts = {did: fact for did in job.datasets if (fact := at.find(did))} if at else {}
    text = "the pool has no slot of this site"
    if facts:
        text += f"; the site has {shorten_list([f'{did} {state_words(one)}' for did, one in facts.items()])}"
    if job.datasets and has_all_data(job, facts, now):
        text += ": the site has all data of the job, so the job could run on a glidein there"
    return Reason(MismatchCause.SLOTS, 0, text)

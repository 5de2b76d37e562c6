"""Remedies: the cheapest changes that let a job match. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from hydrator.domain.model import DatasetState, Site, to_unix
from hydrator.domain.text import (
    deduplicate,
    format_bytes,
    format_duration,
    format_percent,
    shorten_list,
)
from hydrator.reconcile.demand import WRONG_KEY_TODO

from .explanation import MismatchCause, Reason, Remedy, SiteMatch
from .missing_data import AUTO, MissingDataset, MissingReason
from .nowhere import is_small_part
from .obstacles import capacity_text, causes_of, has_bad_request, has_free_capacity, request_attribute
from .pool_facts import JobFacts, SlotGroup

_SHORT_WAIT_SECONDS = 1800
"""A longer wait is advised only if nothing else helps: data that is on its way usually arrives before."""


def cheapest_remedy_text(sites: Sequence[SiteMatch]) -> str | None:
    """Return the cheapest change, and all sites where the job would match after it, if these are known."""
    best = min((at.remedy for at in sites if at.remedy), key=lambda way: way.effort, default=None)
    if best is None:
        return None
    if not best.is_sure:
        return best.text
    site_names = [at.display_name for at in sites if at.remedy == best]
    return f"{best.text} (then the job matches at {shorten_list(site_names)})"


def find_group_remedy(
    job: JobFacts, group: SlotGroup, reasons: Sequence[Reason], now: datetime
) -> Remedy | None:
    """Return the changes that together let the job match *group*: the cheapest remedy of each cause."""
    ways = [
        _cause_remedy(cause, job, group, reasons, now)
        for cause in sorted(causes_of(group), key=list(MismatchCause).index)
    ]
    cost = sum(way.cost for way in ways)
    text = " and ".join(way.text for way in sorted(ways, key=lambda way: -way.cost))
    copies = [way.copy_bytes for way in ways if way.copy_bytes is not None]
    return Remedy(cost, text, all(way.is_sure for way in ways), sum(copies) if copies else None)


_REMEDIES = {
    MismatchCause.BUSY: Remedy(1, "a slot becomes free"),
    MismatchCause.PATH: Remedy(7, "submit the job again after adding a [[storage]] table for the site"),
    MismatchCause.REQUIREMENT: Remedy(
        7, "change the job's own requirements (with condor_qedit, or submit the job again)"
    ),
    MismatchCause.START: Remedy(8, "the site's operator changes START"),
    MismatchCause.BROKEN: Remedy(8, "the site's operator corrects the startd's configuration"),
    MismatchCause.PLATFORM: Remedy(9, "build the job for the platform of these slots"),
}


def _cause_remedy(
    cause: MismatchCause, job: JobFacts, group: SlotGroup, reasons: Sequence[Reason], now: datetime
) -> Remedy:
    if cause is MismatchCause.DATA:
        return find_data_remedy(job, [each for each in reasons if each.cause is cause], group, now)
    if cause is MismatchCause.UNREADABLE_DATA:
        return _misses_remedy(job, now)
    if cause is MismatchCause.BUSY and group.is_closed:
        return Remedy(6, "slots there take jobs again")
    return _REMEDIES.get(cause) or _resource_remedy(cause, job, group)


def _resource_remedy(cause: MismatchCause, job: JobFacts, group: SlotGroup) -> Remedy:
    """Return the change for a request for cores, memory, disk or GPUs that is too large for the slot."""
    attribute, most = request_attribute(cause), capacity_text(cause, [group])
    if has_bad_request(cause, job, [group]):
        return Remedy(4, f"give {attribute} a number")
    if not most:
        return Remedy(7, f"submit the job again without {attribute}")
    text = f"ask for {most} or less"
    if has_free_capacity(cause, group):
        return Remedy(4, text)
    return Remedy(5, f"{text}, and a slot becomes free")


def _misses_remedy(job: JobFacts, now: datetime) -> Remedy:
    if job.missed_until is not None and job.missed_until > to_unix(now):
        return Remedy(
            3, f"the job tries the site again, in {format_duration(job.missed_until - to_unix(now))}"
        )
    return Remedy(7, "the site's operator finds out why jobs cannot read the data there")


def find_data_remedy(job: JobFacts, reasons: Sequence[Reason], group: SlotGroup, now: datetime) -> Remedy:
    """Return the cheapest change after which the data lets *job* match *group*, and not start for nothing."""
    missing = [one for reason in reasons for one in reason.missing_datasets]
    if job.has_wrong_key:
        return Remedy(4, f"submit the job again: {WRONG_KEY_TODO}")
    if any(one.reason is MissingReason.NEVER for one in missing):
        text = f"{_submit_words(job)}: a dataset that is never published keeps no job from a slot"
        return Remedy(4, text, is_sure=False)
    ways, facts = [], group.set_facts
    is_paced = job.mode == AUTO and facts.is_paced and facts.share is not None
    can_be_read = not any(one.reason in _NOT_FOUND for one in missing)
    is_all_here = all(one.is_at_site for one in missing)
    if is_paced and can_be_read and not (missing and is_all_here):
        ways.append(Remedy(2, "the daemon lets the job read from elsewhere"))
    elif not is_paced and can_be_read and job.any_after is not None and job.any_after > to_unix(now):
        left = job.any_after - to_unix(now)
        cost = 2 if left <= _SHORT_WAIT_SECONDS else 3
        ways.append(Remedy(cost, f"the job's wait for its data ends in {format_duration(left)}"))
    if is_all_here and group.hook_error:
        ways.append(Remedy(4, f"the site's operator repairs the hook: {group.hook_error}"))
    elif missing:
        ways.append(_combine_dataset_remedies(job, missing, group))
    elif job.key is not None and group.generation is not None and facts.share is None:
        ways.append(
            Remedy(3, "the slot ads get an entry for its datasets (in a minute or two)", is_sure=False)
        )
    can_be_freed = job.is_bound and not (job.is_freed or job.opens_paths or group.hook_error)
    if can_be_freed and is_all_here and all(one.reason is not MissingReason.UNHYDRATED for one in missing):
        cluster = job.name.partition(".")[0]
        text = f"a queue super user runs hydrator run-anywhere {cluster}: then its data counts no more"
        ways.append(Remedy(6, text))
    best = min(ways, key=lambda way: way.effort, default=Remedy(10, _BRING_DATA))
    equal = [way.text for way in ways if way.cost == best.cost] or [best.text]
    return replace(best, text=" or ".join(equal))


_BRING_DATA = "ask the data manager to bring the data to one site"
_NOT_FOUND = {MissingReason.NOWHERE, MissingReason.MISSPELT, MissingReason.INVALID_NAME}
"""Reasons for which the job would find the dataset nowhere, wherever it starts."""


def _combine_dataset_remedies(job: JobFacts, missing: Sequence[MissingDataset], group: SlotGroup) -> Remedy:
    """Return the changes after which the job can use all of *missing* at *group*."""
    renamed = [one for one in missing if one.replacement and group.generation is not None]
    copied = {one.did: one.copy_bytes for one in missing if one.copy_bytes is not None}
    others = (one for one in missing if one not in renamed and one.did not in copied)
    ways = [_dataset_remedy(job, one) for one in others]
    if copied:
        ways.append(_copy_remedy(job, copied, group.site))
    if renamed:
        names = shorten_list([f"{one.replacement} instead of {one.did}" for one in renamed])
        cost = 4 if all(one.reason is MissingReason.MISSPELT for one in renamed) else 9
        ways.insert(0, Remedy(cost, f"{_submit_words(job)} with {names}"))
    has_all_sizes = all(way.text != _BRING_DATA for way in ways)
    return Remedy(
        max(way.cost for way in ways),
        shorten_list(deduplicate(way.text for way in ways), " and "),
        all(way.is_sure for way in ways),
        sum(copied.values()) if has_all_sizes else None,
    )


def _copy_remedy(job: JobFacts, sizes: Mapping[str, int], site: Site) -> Remedy:
    """Return the copy to *site* of the datasets with these *sizes*: little effort if it is a small part."""
    size = sum(sizes.values())
    cost = 3 if is_small_part(size, job.total_bytes) else 10
    return Remedy(
        cost, f"ask the data manager to copy {shorten_list(list(sizes))} ({format_bytes(size)}) to {site}"
    )


def _submit_words(job: JobFacts) -> str:
    return "submit the job again" if job.name else "submit the job"


def _dataset_remedy(job: JobFacts, missing: MissingDataset) -> Remedy:
    """Return the change after which the job can use the dataset at the site.

    The change is sure only if the daemon or a catalogue says that the dataset is or will be at the site.
    """
    did, is_there = missing.did, missing.state == DatasetState.AVAILABLE
    match missing.reason:
        case reason if reason in _NOT_FOUND:
            return _not_found_remedy(job, missing)
        case MissingReason.CASE_COLLISION:
            text = f"the data manager renames {did}, or the dataset whose name differs in letter case only"
            return Remedy(10, text, is_sure=is_there)
        case MissingReason.UNHYDRATED if is_there:
            return Remedy(8, "install the hook at the site, or repair it")
        case MissingReason.UNHYDRATED:
            return Remedy(9, "install the hook at the sites that have the data", is_sure=False)
        case MissingReason.OVER_BUDGET:
            text = "the operator makes room in the site's ad, by fewer pins or patterns"
            return Remedy(8, text, is_sure=is_there)
        case MissingReason.STALE if (job.max_age_seconds or 0) <= 0:
            return Remedy(5, f"{_submit_words(job)}: its DataLocalityMaxAge accepts no fact", is_sure=False)
        case MissingReason.STALE | MissingReason.UNSEEN:
            return Remedy(5, f"the daemon gets fresh facts about {did}", is_sure=False)
        case _:
            return _state_remedy(job, missing)


def _not_found_remedy(job: JobFacts, missing: MissingDataset) -> Remedy:
    did, submit = missing.did, _submit_words(job)
    if missing.similar_names:
        return Remedy(11, f"{submit} with {missing.similar_names[0]} instead of {did}", is_sure=False)
    text, again = f"{submit} with a dataset name that exists", ""
    if missing.missing_bytes is not None:  # a catalogue has the name
        text, again = f"ask the data manager why no site has {did}", f"{submit} "
    if len(job.datasets) > 1:
        text += f", or {again}without it (hydrator submit rapthor: --skip-absent, or --at-least 0.9)"
    return Remedy(11, text, is_sure=False)


def _state_remedy(job: JobFacts, missing: MissingDataset) -> Remedy:
    """Return the change for a dataset that only its state keeps from the job."""
    did = missing.did
    soon = "(in a minute or two)" if job.name else "once a job names it"
    match missing.state:
        case DatasetState.AVAILABLE:
            return Remedy(1, f"the slot ads list {did} {soon}")
        case DatasetState.STAGING:
            how = f"; {missing.explanation}" if missing.explanation else ""
            return Remedy(2, f"{did} arrives (STAGING{format_percent(missing.fraction)}{how})")
        case DatasetState.UNKNOWN:
            return Remedy(5, f"the daemon gets fresh facts about {did}", is_sure=False)
        case None if missing.reason is MissingReason.NOT_IN_DEMAND:
            return Remedy(3, f"the daemon asks the catalogues about {did} {soon}", is_sure=False)
        case state:
            return _STATE_REMEDIES.get(state, Remedy(10, _BRING_DATA))


_STATE_REMEDIES: Mapping[str | None, Remedy] = {
    DatasetState.NEARLINE: Remedy(10, "ask the data manager to bring the data from tape to disk"),
    DatasetState.STUCK: Remedy(10, "the owner of the stuck rule repairs the rule"),
    DatasetState.UNAVAILABLE: Remedy(7, "the storage can be read again: ask the site"),
}

"""Remedies: the cheapest changes that let a job match. Pure."""

from collections.abc import Sequence
from datetime import datetime

from hydrator.domain.model import DatasetState, to_unix
from hydrator.domain.text import (
    deduplicate,
    format_duration,
    format_percent,
    shorten_list,
)

from .explanation import MismatchCause, Reason, Remedy, SiteMatch
from .missing_data import (
    MissingDataset,
    MissingReason,
)
from .obstacles import capacity_text, causes_of
from .pool_facts import JobFacts, SlotGroup
from .sets.reasons import AUTO

_SHORT_WAIT_SECONDS = 1800
"""A longer wait is advised only if nothing else helps: data that is on its way usually arrives before."""


def cheapest_remedy_text(sites: Sequence[SiteMatch]) -> str | None:
    """Return the cheapest change, and all sites where the job would match after this change."""
    best = min((at.remedy for at in sites if at.remedy), key=lambda way: way.cost, default=None)
    if best is None:
        return None
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
    return Remedy(cost, " and ".join(way.text for way in sorted(ways, key=lambda way: -way.cost)))


def _cause_remedy(
    cause: MismatchCause, job: JobFacts, group: SlotGroup, reasons: Sequence[Reason], now: datetime
) -> Remedy:
    match cause:
        case MismatchCause.BUSY:
            return Remedy(1, "a slot becomes free")
        case MismatchCause.DATA:
            return find_data_remedy(job, [reason for reason in reasons if reason.cause is cause], now)
        case MismatchCause.UNREADABLE_DATA:
            return _misses_remedy(job, now)
        case MismatchCause.CORES | MismatchCause.MEMORY | MismatchCause.DISK | MismatchCause.GPUS:
            return Remedy(4, f"ask for {capacity_text(cause, [group])} or less")
        case MismatchCause.PATH:
            return Remedy(7, "submit the job again after adding a [[storage]] table for the site")
        case MismatchCause.REQUIREMENT:
            return Remedy(7, "change the job's own requirements (with condor_qedit, or submit the job again)")
        case MismatchCause.START:
            return Remedy(8, "the site's operator changes START")
        case _:
            return Remedy(9, "build the job for the platform of these slots")


def _misses_remedy(job: JobFacts, now: datetime) -> Remedy:
    if job.missed_until is not None and job.missed_until > to_unix(now):
        return Remedy(
            3, f"the job tries the site again, in {format_duration(job.missed_until - to_unix(now))}"
        )
    return Remedy(7, "the site's operator finds out why jobs cannot read the data there")


def find_data_remedy(job: JobFacts, reasons: Sequence[Reason], now: datetime) -> Remedy:
    missing = [one for reason in reasons for one in reason.missing_datasets]
    ways = []
    is_estimated = any(reason.set_facts and reason.set_facts.is_estimated for reason in reasons)
    if job.has_wrong_key:
        ways.append(Remedy(4, "submit the job again without DataLocalityKey"))
    elif job.mode == AUTO and is_estimated:
        ways.append(Remedy(2, "reading from elsewhere ends sooner than waiting for a slot beside the data"))
    elif job.any_after is not None and job.any_after > to_unix(now):
        left = job.any_after - to_unix(now)
        cost = 2 if left <= _SHORT_WAIT_SECONDS else 3
        ways.append(Remedy(cost, f"the job's wait for its data ends in {format_duration(left)}"))
    if missing:
        ways += _combined_arrival_remedies(missing)
    is_bound = job.is_transformed and not (job.is_freed or job.opens_paths)
    if job.can_free and is_bound and all(one.is_at_site for one in missing):
        cluster = job.name.partition(".")[0]
        text = f"hydrator run-anywhere {cluster} lets the job run anywhere, even without its data"
        ways.append(Remedy(6, text))
    best = min(ways, key=lambda way: way.cost, default=None)
    if best is None:
        return _manual_remedy(missing)
    equal = [way.text for way in ways if way.cost == best.cost]
    return Remedy(best.cost, " or ".join(equal))


def _manual_remedy(missing: Sequence[MissingDataset]) -> Remedy:
    """Return the work that a person must do for the first of *missing* that does not arrive by itself."""
    first = next((one for one in missing if _arrival_remedy(one) is None), None)
    match first.reason if first else None:
        case MissingReason.NOWHERE | MissingReason.INVALID_NAME | MissingReason.CASE_COLLISION if first:
            name = (
                f"with {first.similar_names[0]} instead of {first.did}"
                if first.similar_names
                else "with another dataset name"
            )
            return Remedy(9, f"submit the job again {name}")
        case _ if first and first.state == DatasetState.NEARLINE:
            return Remedy(10, "ask the data manager to bring the data from tape to disk")
        case _ if first and first.state == DatasetState.STUCK:
            return Remedy(10, "the owner of the stuck rule repairs the rule")
        case _:
            return Remedy(10, "ask the data manager to bring the data to one site")


def _combined_arrival_remedies(missing: Sequence[MissingDataset]) -> list[Remedy]:
    """Return the change after which the job can use all of *missing*; empty if a person must act."""
    all_remedies = [_arrival_remedy(one) for one in missing]
    if any(way is None for way in all_remedies):
        return []
    remedies = [way for way in all_remedies if way is not None]
    return [
        Remedy(
            max(way.cost for way in remedies),
            shorten_list(deduplicate(way.text for way in remedies), " and "),
        )
    ]


def _arrival_remedy(missing: MissingDataset) -> Remedy | None:
    """Return the change after which the job can use the dataset at the site; None if a person must act."""
    match missing.reason:
        case MissingReason.STATE | MissingReason.NOT_YET_IN_SLOTS | MissingReason.NOT_IN_DEMAND if (
            missing.state == DatasetState.AVAILABLE
        ):
            return Remedy(1, f"the slot ads list {missing.did} (in a minute or two)")
        case MissingReason.STATE | MissingReason.NOT_YET_IN_SLOTS | MissingReason.NOT_IN_DEMAND if (
            missing.state == DatasetState.STAGING
        ):
            how = f"; {missing.explanation}" if missing.explanation else ""
            return Remedy(2, f"{missing.did} arrives (STAGING{format_percent(missing.fraction)}{how})")
        case MissingReason.NOT_IN_DEMAND if missing.state is None:
            return Remedy(3, f"the daemon finds {missing.did} (in a minute or two)")
        case MissingReason.STATE | MissingReason.NOT_YET_IN_SLOTS | MissingReason.NOT_IN_DEMAND if (
            missing.state == DatasetState.UNKNOWN
        ):
            return Remedy(5, f"the daemon gets fresh facts about {missing.did}")
        case MissingReason.STALE | MissingReason.NO_AGE | MissingReason.UNSEEN:
            return Remedy(5, f"the daemon gets fresh facts about {missing.did}")
        case MissingReason.UNHYDRATED:
            return Remedy(8, "install the hook at the site, if the site has the data")
        case MissingReason.MISSPELT:
            return Remedy(4, f"submit the job again with the catalogue's spelling of {missing.did}")
        case MissingReason.OVER_BUDGET:
            return Remedy(8, "the operator raises budget.line_bytes")
        case _:
            return None

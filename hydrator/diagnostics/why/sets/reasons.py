"""Reasons and waits of jobs that look up a whole set of datasets, with the two estimates. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS, SetEstimate
from hydrator.domain.model import DaemonKnowledge, DatasetState, Site, to_unix
from hydrator.domain.text import format_duration, format_percent, format_time
from hydrator.domain.untrusted import nearest_moment
from hydrator.reconcile.demand import WITHHELD_KEY_TODO

from ..missing_data import MissingDataset, MissingReason
from ..pool_facts import JobFacts, SlotGroup
from .facts import SlotSetFacts, estimate_text, queue_text

AUTO = "auto"
WRONG_KEY = (
    "no site answers for the job's DataLocalityKey, which does not stand for its list alone:"
    f" submit it again, {WITHHELD_KEY_TODO}"
)

_REASONS_THAT_PASS = {MissingReason.NOT_YET_IN_SLOTS, MissingReason.NOT_IN_DEMAND}
"""Reasons that end with the next cycles of the daemon and the hook."""


def set_reason_text(job: JobFacts, group: SlotGroup, missing: Sequence[MissingDataset]) -> str:
    """Return one sentence on the job's set of datasets at a slot where the data keeps the job away.

    Return an empty text if the states of the datasets say all.
    """
    facts = group.set_facts
    if group.generation is None:
        return ""
    if job.has_wrong_key:
        return WRONG_KEY
    if job.key is not None and facts.share is None:
        if job.mode != AUTO and not all(map(_is_only_unpublished, missing)):
            return ""  # with an entry, the job would not match either
        return "the slot ads have no entry for the job's set of datasets yet"
    if facts.is_local:
        return ""
    parts = [estimate_text(facts) if job.mode == AUTO else ""]
    if facts.share or (not missing and facts.share is not None):
        parts.insert(0, f"{format_percent(facts.share).strip(' ()') or '0 %'} of the job's data is here")
    return "; ".join(filter(None, parts))


def _is_only_unpublished(missing: MissingDataset) -> bool:
    """Return True if the dataset is complete at the site, and the slot ads will list it soon."""
    return missing.reason in _REASONS_THAT_PASS and missing.state == DatasetState.AVAILABLE


def without_room(
    job: JobFacts, group: SlotGroup, missing: Sequence[MissingDataset]
) -> tuple[MissingDataset, ...]:
    """Return *missing* without the datasets that are complete at the site, but without a state of their own.

    The ad of a site with many datasets has room for the job's set, and not for each of its datasets.
    """
    if job.key is None or group.set_facts.share is None:
        return tuple(missing)
    reasons = {MissingReason.NOT_YET_IN_SLOTS, MissingReason.OVER_BUDGET}
    return tuple(
        one for one in missing if not (one.reason in reasons and one.state == DatasetState.AVAILABLE)
    )


def add_estimate_details(
    job: JobFacts, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None
) -> list[SlotGroup]:
    """Return *groups* with values that slot ads do not have: the missing bytes, and the site of the queue."""
    if job.key is None or not any(group.set_facts.is_estimated for group in groups):
        return list(groups)
    local_sites = {group.site for group in groups if group.set_facts.is_local}
    only_local = min(local_sites) if len(local_sites) == 1 else None
    details = []
    for group in groups:
        estimate = _find_estimate(job, group.site, knowledge)
        facts = replace(
            group.set_facts,
            missing_bytes=_find_missing_bytes(job, group.set_facts, estimate, knowledge),
            queue_site=(estimate.queue_site if estimate else None) or only_local,
        )
        details.append(replace(group, set_facts=facts))
    return details


def _find_estimate(job: JobFacts, site: Site, knowledge: DaemonKnowledge | None) -> SetEstimate | None:
    estimates = knowledge.estimates.sites.get(site) if knowledge and knowledge.estimates else None
    return estimates.by_key.get(SetKey(job.key or "")) if estimates else None


def _find_missing_bytes(
    job: JobFacts, facts: SlotSetFacts, estimate: SetEstimate | None, knowledge: DaemonKnowledge | None
) -> int | None:
    """Return the bytes that a job at the slot would read from elsewhere; None if the sizes are unknown."""
    if estimate and estimate.missing_bytes:
        return estimate.missing_bytes
    sizes = [knowledge.snapshot.bytes_total.get(did) if knowledge else None for did in job.datasets]
    known = [size for size in sizes if size is not None]
    return round(sum(known) * (1 - (facts.share or 0))) if len(known) == len(sizes) else None


def auto_wait_text(
    job: JobFacts, groups: Sequence[SlotGroup], knowledge: DaemonKnowledge | None, now: datetime
) -> str:
    """Return one sentence for a job in mode auto: where it may run now and why, or what it waits for."""
    if job.has_wrong_key:
        return WRONG_KEY
    away = {group.site: group.set_facts for group in groups if group.set_facts.is_estimated}
    start = describe_start(away, now)
    return f"the job {start}" if start else _unestimated_text(job, knowledge, now)


def describe_start(sites: Mapping[Site, SlotSetFacts], now: datetime) -> str:
    """Return where and when one more job in mode auto starts, by the estimates at *sites*.

    ``runs elsewhere from 15:20 UTC: at DE, reading 31 GB from UK takes 4 min, UK's next slot is ...``.
    Return an empty text if no site without all the data has valid estimates.
    """
    away = {site: facts for site, facts in sites.items() if facts.is_estimated and not facts.is_local}
    if not away:
        return ""
    cheaper = {site: facts for site, facts in away.items() if facts.is_cheaper}
    reachable = {site: facts for site, facts in away.items() if facts.read_seconds is not None}
    site, facts = min((cheaper or reachable or away).items(), key=_total_seconds)
    if cheaper:
        return f"runs elsewhere from {format_time(to_unix(now), now)}: at {site}, {estimate_text(facts)}"
    reading = f"at {site}, {estimate_text(facts)}" if reachable else ""
    if not reading:
        queue = queue_text(facts.queue_seconds, facts.queue_site)
        reading = f"{queue}; elsewhere, the sources take no further readers or cannot be reached"
    queue_seconds = facts.queue_seconds
    if queue_seconds == 0:
        return f"starts beside its data now: {reading}"
    is_endless = queue_seconds is None or queue_seconds >= NO_QUEUE_SECONDS
    until = "" if is_endless else f" until {format_time(to_unix(now) + (queue_seconds or 0), now)}"
    return f"waits beside its data{until}: {reading}"


def _total_seconds(at: tuple[Site, SlotSetFacts]) -> tuple[int, Site]:
    site, facts = at
    return (facts.read_seconds or 0) + facts.own_queue_seconds, site


def _unestimated_text(job: JobFacts, knowledge: DaemonKnowledge | None, now: datetime) -> str:
    """Return the sentence for a job without estimates: it waits for its settle time only."""
    reason = knowledge.no_estimates_reason if knowledge else None
    head = "the slots have no estimates for the job's data" + (f" ({reason})" if reason else "")
    if job.any_after is None:
        return head
    left = job.any_after - to_unix(now)
    at = f"{nearest_moment(job.any_after):%Y-%m-%d %H:%M} UTC"
    if left <= 0:
        return f"{head}: it may run anywhere since {at} ({format_duration(-left)} ago)"
    return (
        f"{head}: it insists on its data until {at} (for {format_duration(left)}), or until the daemon has"
        " published its datasets; then it may run anywhere"
    )

"""Reasons and waits of jobs that look up a whole set of datasets. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from hydrator.domain.model import DaemonKnowledge, DatasetState
from hydrator.domain.text import format_percent
from hydrator.reconcile.demand import WITHHELD_KEY_TODO

from ..missing_data import MissingDataset, MissingReason
from ..pool_facts import JobFacts, SlotGroup
from .facts import SlotSetFacts

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
    parts = ["the job may not read its data from here now" if job.mode == AUTO and facts.is_paced else ""]
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


def sum_bytes(job: JobFacts, knowledge: DaemonKnowledge | None) -> int | None:
    """Return the bytes of all datasets of *job*; None if a size is unknown."""
    sizes = [knowledge.snapshot.bytes_total.get(did) if knowledge else None for did in job.datasets]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def add_missing_bytes(job: JobFacts, groups: Sequence[SlotGroup]) -> list[SlotGroup]:
    """Return *groups* with the missing bytes of the job's set, which slot ads do not have."""
    size = job.total_bytes
    if job.key is None or size is None:
        return list(groups)
    return [
        replace(group, set_facts=replace(group.set_facts, missing_bytes=_missing(size, group.set_facts)))
        for group in groups
    ]


def _missing(size: int, facts: SlotSetFacts) -> int:
    return round(size * (1 - (facts.share or 0)))

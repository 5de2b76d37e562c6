"""Demand: the datasets that jobs name or named recently, plus pins and patterns, less those never published.

A dataset stays demanded for some time after its last job left the queue, so that the next run of a campaign
finds the dataset in the ads. A dataset that is no longer demanded leaves the ads; this is not a loss of data.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.errors import BadDid
from hydrator.domain.model import (
    MAX_DID_CHARS,
    Demand,
    DemandEntry,
    Did,
    Origin,
    QueuedJobs,
    ScheddDemand,
    Unseen,
    parse_did,
)
from hydrator.domain.redaction import escape_unprintable
from hydrator.domain.text import matches_any


@dataclass(frozen=True, slots=True)
class RememberedJobs:
    """Jobs of one schedd with the same datasets, and the time when the schedd last listed one of them.

    If ``has_unkeyed_jobs``, some of the jobs have, or had, no key of all their datasets. This includes the
    ``wrong_key_count`` jobs whose DataLocalityKey is not the key of their datasets. ``first_demanded_at`` is
    the time of the first such job; None after a restart of the daemon.
    """

    schedd: str
    dids: tuple[Did, ...]
    jobs: int
    last_demanded_at: datetime
    has_unkeyed_jobs: bool = False
    wrong_key_count: int = 0
    first_demanded_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class DemandMemory:
    """The demand from the last answer of every schedd, and the dataset names that are not valid DIDs."""

    entries: tuple[RememberedJobs, ...] = ()
    rejected_texts: Mapping[str, str] = field(default_factory=dict)


def update_demand_memory(
    memory: DemandMemory,
    answers: Mapping[str, ScheddDemand | Unseen],
    *,
    default_scope: str | None,
    keep_for: timedelta,
    now: datetime,
) -> DemandMemory:
    """Return *memory* updated with the schedds' *answers*.

    If a schedd could not be queried (Unseen), keep its demand without a time limit, as if its jobs were
    still queued. If a schedd left the pool, or a job ended, keep the demand for *keep_for*.
    """
    entries: list[RememberedJobs] = []
    rejected_texts: dict[str, str] = {}
    for schedd, answer in answers.items():
        if isinstance(answer, ScheddDemand):
            entries += _jobs_of_schedd(schedd, answer, default_scope, rejected_texts)
    known = {(old.schedd, old.dids): old.first_demanded_at for old in memory.entries}
    entries = [replace(want, first_demanded_at=known.get((want.schedd, want.dids), now)) for want in entries]
    current_keys = {(want.schedd, want.dids) for want in entries}
    for old in memory.entries:
        if isinstance(answers.get(old.schedd), Unseen):
            entries.append(replace(old, last_demanded_at=now) if old.jobs else old)
        elif (old.schedd, old.dids) not in current_keys and now - old.last_demanded_at < keep_for:
            entries.append(replace(old, jobs=0, wrong_key_count=0))
    return DemandMemory(tuple(sorted(entries, key=lambda want: (want.schedd, want.dids))), rejected_texts)


def build_demand(
    memory: DemandMemory,
    *,
    pins: Collection[Did],
    matches: AbstractSet[Did],
    now: datetime,
    settle: timedelta = timedelta(0),
    never: tuple[str, ...] = (),
) -> Demand:
    """Build the demand from the jobs in *memory*, *pins* and pattern *matches*, most demanded first.

    A set of datasets that jobs named for the first time less than *settle* ago is not settled.

    A DID that matches one of the patterns *never*, and a set with such a DID, is not demanded. So no
    catalogue is asked about it, and nothing that the daemon publishes has its name.
    """
    entries = [old for old in memory.entries if not any(matches_any(did, never) for did in old.dids)]
    merged: dict[tuple[Did, ...], DemandEntry] = {}
    for old in entries:
        other = merged.get(old.dids)
        merged[old.dids] = DemandEntry(
            old.dids,
            old.jobs + (other.job_count if other else 0),
            Origin.JOB,
            max(old.last_demanded_at, other.last_demanded_at) if other else old.last_demanded_at,
            old.has_unkeyed_jobs or (other is not None and other.has_unkeyed_jobs),
            old.first_demanded_at is None
            or now - old.first_demanded_at >= settle
            or (other is not None and other.is_settled),
        )
    pinned = [DemandEntry((did,), 0, Origin.PIN, now) for did in sorted(set(pins))]
    matched = [DemandEntry((did,), 0, Origin.PATTERN, now) for did in sorted(matches)]
    named = [one for one in (*pinned, *matched) if not matches_any(one.dids[0], never)]
    rejected_texts = {
        text: why for text, why in memory.rejected_texts.items() if not matches_any(text, never)
    }
    return Demand(
        tuple(sorted([*named, *merged.values()], key=_priority_key)),
        rejected_texts,
        _count_wrong_keys(entries),
        never,
    )


def _count_wrong_keys(entries: Iterable[RememberedJobs]) -> dict[tuple[Did, ...], int]:
    counts: Counter[tuple[Did, ...]] = Counter()
    for old in entries:
        if old.wrong_key_count:
            counts[old.dids] += old.wrong_key_count
    return dict(sorted(counts.items()))


def _priority_key(demand_entry: DemandEntry) -> tuple[Origin, int, float, tuple[Did, ...]]:
    return (
        demand_entry.origin,
        -demand_entry.job_count,
        -demand_entry.last_demanded_at.timestamp(),
        demand_entry.dids,
    )


def _jobs_of_schedd(
    schedd: str, queue: ScheddDemand, default_scope: str | None, rejected_texts: dict[str, str]
) -> Iterable[RememberedJobs]:
    jobs: dict[tuple[Did, ...], RememberedJobs] = {}
    for group in queue.job_groups:
        dids = _parse_group(group, default_scope, rejected_texts)
        if dids:
            is_keyed = group.key == set_key(dids)
            old = jobs.get(dids) or RememberedJobs(schedd, dids, 0, queue.as_of)
            jobs[dids] = replace(
                old,
                jobs=old.jobs + group.job_count,
                has_unkeyed_jobs=old.has_unkeyed_jobs or not is_keyed,
                wrong_key_count=old.wrong_key_count
                + (0 if is_keyed or group.key is None else group.job_count),
            )
    return jobs.values()


def _parse_group(
    group: QueuedJobs, default_scope: str | None, rejected_texts: dict[str, str]
) -> tuple[Did, ...]:
    """Return the DIDs that the jobs of *group* name, sorted, without duplicates.

    If one name is not a valid DID, return no DIDs, because then the jobs cannot match any slot.
    """
    try:
        return tuple(sorted({parse_did(text, default_scope) for text in group.datasets}))
    except BadDid as bad:
        rejected_texts[_make_printable(bad.text)] = bad.reason
        return ()


def _make_printable(text: str) -> str:
    """Return *text*, which a job's owner wrote, shortened and with escapes for unprintable characters."""
    return escape_unprintable(text[:MAX_DID_CHARS])

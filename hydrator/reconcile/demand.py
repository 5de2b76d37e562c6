"""Demand: the datasets that jobs name or named recently, plus pins and patterns, less those never published.

A dataset stays demanded for some time after its last job left the queue, so that the next run of a campaign
finds the dataset in the ads. A dataset that is no longer demanded leaves the ads; this is not a loss of data.

Each set has the key that its jobs look up. A user can write any key into a job, so a key stands for one list
whatever jobs have it: a hash or names for the list that they are of, a cluster's key for its jobs' list. No
site answers for other lists with the key, and for none of two lists of a cluster: the jobs of one would start
where their data is not.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.ads.dataset_sets import SetKey, fits, hash_key, is_cluster_key, set_key
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
from hydrator.domain.text import format_count, matches_any, mentions_any, shorten_list


@dataclass(frozen=True, slots=True)
class RememberedJobs:
    """Jobs of one schedd with the same datasets and key, and when the schedd last listed one of them.

    ``key`` is the jobs' DataLocalityKey, right or wrong; for jobs without one, and after the last job of a
    cluster's key, the key of ``hydrator submit``. ``is_of_cluster``: it is the key of the jobs' own cluster.
    """

    schedd: str
    dids: tuple[Did, ...]
    jobs: int
    last_demanded_at: datetime
    key: str
    is_of_cluster: bool = False


@dataclass(frozen=True, slots=True)
class DemandMemory:
    """The demand from the last answer of every schedd, and the dataset names that are not valid DIDs."""

    entries: tuple[RememberedJobs, ...] = ()
    rejected_texts: Mapping[str, str] = field(default_factory=dict)


KEEP_DEMAND: Final = timedelta(hours=24)
"""A user who submits again the next morning finds the datasets in the ads."""


def update_demand_memory(
    memory: DemandMemory,
    answers: Mapping[str, ScheddDemand | Unseen],
    *,
    default_scope: str | None,
    now: datetime,
) -> DemandMemory:
    """Return *memory* updated with the schedds' *answers*.

    If a schedd could not be queried (Unseen), keep its demand without a time limit, as if its jobs were
    still queued. If a schedd left the pool, or a job ended, keep the demand for KEEP_DEMAND.
    """
    entries: list[RememberedJobs] = []
    rejected_texts: dict[str, str] = {}
    for schedd, answer in answers.items():
        if isinstance(answer, ScheddDemand):
            entries += _jobs_of_schedd(schedd, answer, default_scope, rejected_texts)
    current = {_identity(want) for want in entries}
    for old in memory.entries:
        if _identity(old) in current:
            continue
        if isinstance(answers.get(old.schedd), Unseen):
            entries.append(replace(old, last_demanded_at=now) if old.jobs else old)
        elif now - old.last_demanded_at < KEEP_DEMAND:
            # no later job has a cluster's key, and no job of a wrong key is left to warn of
            is_lasting = fits(old.key, old.dids) and not is_cluster_key(old.key)
            ended = replace(old, jobs=0, key=old.key if is_lasting else set_key(old.dids))
            if _identity(ended) not in current:
                current.add(_identity(ended))
                entries.append(ended)
    return DemandMemory(tuple(sorted(entries, key=_identity)), rejected_texts)


def _identity(want: RememberedJobs) -> tuple[str, tuple[Did, ...], str]:
    return want.schedd, want.dids, want.key


def build_demand(
    memory: DemandMemory,
    *,
    pins: Collection[Did],
    matches: AbstractSet[Did],
    now: datetime,
    never: tuple[str, ...] = (),
    default_scope: str | None = None,
) -> Demand:
    """Build the demand from the jobs in *memory*, *pins* and pattern *matches*, most demanded first.

    A DID that matches one of the patterns *never*, and a set with such a DID, is not demanded. So no
    catalogue is asked about it, and nothing that the daemon publishes has its name.
    """
    entries = [old for old in memory.entries if not any(matches_any(did, never) for did in old.dids)]
    lists = _find_list_of_each_key(memory.entries)  # a key of a private list stands for no other
    wrong_keys: Counter[str] = Counter()
    merged: dict[tuple[tuple[Did, ...], str | None], DemandEntry] = {}
    for old in entries:
        key = SetKey(old.key) if lists.get(old.key) == old.dids else None
        if key is None and not mentions_any(old.key, never):
            wrong_keys[old.key] += old.jobs
        other = merged.get((old.dids, key))
        merged[old.dids, key] = DemandEntry(
            old.dids,
            old.jobs + (other.job_count if other else 0),
            Origin.JOB,
            max(old.last_demanded_at, other.last_demanded_at) if other else old.last_demanded_at,
            key,
        )
    pinned = [_single_entry(did, Origin.PIN, now) for did in sorted(set(pins))]
    matched = [_single_entry(did, Origin.PATTERN, now) for did in sorted(matches)]
    named = [one for one in (*pinned, *matched) if not matches_any(one.dids[0], never)]
    rejected_texts = {
        text: why
        for text, why in memory.rejected_texts.items()
        if not mentions_any(text, never, default_scope)
    }
    return Demand(
        tuple(sorted([*named, *merged.values()], key=_priority_key)),
        rejected_texts,
        dict(sorted(wrong_keys.items())),
        never,
        {key: hash_key(lists[key]) if key in lists else None for key in wrong_keys},
    )


WRONG_KEY_TODO = "without DataLocalityKey and DataLocalityTransformed; a long list by hydrator submit"
"""The advice for jobs with a wrong key: what to submit in their place."""


def describe_wrong_keys(job_counts: Mapping[str, int]) -> str:
    """Return one sentence on ``Demand.wrong_keys``, with those of most jobs."""
    most_first = sorted(job_counts.items(), key=lambda item: -item[1])
    keys = shorten_list([f"{key} ({format_count(jobs, 'job')})" for key, jobs in most_first])
    return (
        f"no site answers for the datasets of {format_count(sum(job_counts.values()), 'job')}, because the"
        " DataLocalityKey does not stand for this list alone: they wait, or start where their data is not:"
        f" {keys}"
    )


def _single_entry(did: Did, origin: Origin, now: datetime) -> DemandEntry:
    return DemandEntry((did,), 0, origin, now, set_key([did]))


def _find_list_of_each_key(entries: Iterable[RememberedJobs]) -> dict[str, tuple[Did, ...]]:
    """Return the list of datasets that each key stands for; nothing for a key of no list or of two."""
    fitting: defaultdict[str, set[tuple[Did, ...]]] = defaultdict(set)
    own: defaultdict[str, set[tuple[Did, ...]]] = defaultdict(set)
    for old in entries:
        if fits(old.key, old.dids):
            fitting[old.key].add(old.dids)
            if old.is_of_cluster:
                own[old.key].add(old.dids)
    return {key: next(iter(lists)) for key, lists in (fitting | own).items() if len(lists) == 1}


def _priority_key(demand_entry: DemandEntry) -> tuple[Origin, int, float, tuple[Did, ...], str]:
    return (
        demand_entry.origin,
        -demand_entry.job_count,
        -demand_entry.last_demanded_at.timestamp(),
        demand_entry.dids,
        demand_entry.key or "",
    )


def _jobs_of_schedd(
    schedd: str, queue: ScheddDemand, default_scope: str | None, rejected_texts: dict[str, str]
) -> Iterable[RememberedJobs]:
    jobs: dict[tuple[tuple[Did, ...], str], RememberedJobs] = {}
    for group in queue.job_groups:
        dids = _parse_group(group, default_scope, rejected_texts)
        if dids:
            key = _make_printable(group.key) if group.key else set_key(dids)
            count, is_of_cluster = group.job_count, group.is_of_cluster
            if old := jobs.get((dids, key)):
                count, is_of_cluster = old.jobs + count, old.is_of_cluster or is_of_cluster
            jobs[dids, key] = RememberedJobs(schedd, dids, count, queue.as_of, key, is_of_cluster)
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

"""Which datasets are wanted: what jobs name, with its memory, plus pins and patterns.

A dataset stays wanted for a while after its last job, so that the next run of
a campaign finds it published. Losing demand is no loss of data.
"""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hydrator.domain.errors import BadDid
from hydrator.domain.model import (
    MAX_DID_CHARS,
    Demand,
    Did,
    Origin,
    Queue,
    QueuedJobs,
    Unseen,
    Want,
    parse_did,
)
from hydrator.domain.redaction import printable


@dataclass(frozen=True, slots=True)
class Remembered:
    """Jobs of one schedd that name the same datasets, and when they last did."""

    schedd: str
    dids: tuple[Did, ...]
    jobs: int
    last_wanted: datetime


@dataclass(frozen=True, slots=True)
class DemandMemory:
    """What every schedd wanted when it was last asked, and the texts that were no DIDs."""

    wants: tuple[Remembered, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def remember(
    memory: DemandMemory,
    answers: Mapping[str, Queue | Unseen],
    *,
    default_scope: str | None,
    keep: timedelta,
    now: datetime,
) -> DemandMemory:
    """Bring *memory* up to date with what the schedds answered.

    A schedd that could not be asked (Unseen) keeps its demand, however long
    that takes, and its jobs count as wanting until now; one that is no longer
    in the pool, like a job that has ended, is remembered for *keep*.
    """
    wants: list[Remembered] = []
    refused: dict[str, str] = {}
    for schedd, answer in answers.items():
        if isinstance(answer, Queue):
            wants += _fresh(schedd, answer, default_scope, refused)
    fresh = {(want.schedd, want.dids) for want in wants}
    for old in memory.wants:
        if isinstance(answers.get(old.schedd), Unseen):
            wants.append(replace(old, last_wanted=now) if old.jobs else old)
        elif (old.schedd, old.dids) not in fresh and now - old.last_wanted < keep:
            wants.append(replace(old, jobs=0))
    return DemandMemory(tuple(sorted(wants, key=lambda want: (want.schedd, want.dids))), refused)


def demand(memory: DemandMemory, *, pins: Collection[Did], found: AbstractSet[Did], now: datetime) -> Demand:
    """Put together what jobs, *pins* and patterns (that *found* these) want, most wanted first."""
    merged: dict[tuple[Did, ...], Want] = {}
    for old in memory.wants:
        other = merged.get(old.dids)
        merged[old.dids] = Want(
            old.dids,
            old.jobs + (other.jobs if other else 0),
            Origin.JOB,
            max(old.last_wanted, other.last_wanted) if other else old.last_wanted,
        )
    pinned = [Want((did,), 0, Origin.PIN, now) for did in sorted(set(pins))]
    matched = [Want((did,), 0, Origin.PATTERN, now) for did in sorted(found)]
    return Demand(
        tuple(sorted([*pinned, *merged.values(), *matched], key=_most_wanted_first)), memory.refused
    )


def _most_wanted_first(want: Want) -> tuple[Origin, int, float, tuple[Did, ...]]:
    return want.origin, -want.jobs, -want.last_wanted.timestamp(), want.dids


def _fresh(
    schedd: str, queue: Queue, default_scope: str | None, refused: dict[str, str]
) -> Iterable[Remembered]:
    jobs: dict[tuple[Did, ...], int] = {}
    for group in queue.wants:
        dids = _parsed(group, default_scope, refused)
        if dids:
            jobs[dids] = jobs.get(dids, 0) + group.jobs
    return [Remembered(schedd, dids, count, queue.at) for dids, count in jobs.items()]


def _parsed(group: QueuedJobs, default_scope: str | None, refused: dict[str, str]) -> tuple[Did, ...]:
    """The group's DIDs, sorted, without duplicates; none when one is bad, since such jobs cannot match."""
    try:
        return tuple(sorted({parse_did(text, default_scope) for text in group.datasets}))
    except BadDid as bad:
        refused[_printable(bad.text)] = bad.reason
        return ()


def _printable(text: str) -> str:
    """*text*, which may be any user's nonsense, so that it can be stored, logged and shown."""
    return printable(text[:MAX_DID_CHARS])

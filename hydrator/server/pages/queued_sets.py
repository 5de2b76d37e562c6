"""Sets of datasets that waiting jobs need, and the prospect of these jobs. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.openings import describe_outlook
from hydrator.domain.model import DemandEntry
from hydrator.domain.text import format_bytes, format_count
from hydrator.server.view import ServerState

MAX_ROWS: Final = 8
_NOT_AUTO: Final = "waits beside its data only: no job has the mode auto"


@dataclass(frozen=True, slots=True)
class QueuedSet:
    """One set and the number of its jobs; ``prospect`` is empty if it is not known."""

    name: str
    key: SetKey | None
    jobs: int
    prospect: str


@dataclass(frozen=True, slots=True)
class QueuedSets:
    """The sets with the most waiting jobs; ``note`` says if reads are not paced, and why."""

    rows: Sequence[QueuedSet]
    more_count: int
    caption: str
    note: str


def build_queued_sets(state: ServerState) -> QueuedSets:
    """Select the sets with idle jobs; while the queues are not known, those with queued or running jobs."""
    entries = [entry for entry in state.demand.entries if entry.key]
    counts: Mapping[str | None, int] = {entry.key: entry.job_count for entry in entries}
    auto_keys, kind = frozenset(counts), "queued or running job"
    if state.load:
        groups = state.load.idle
        counts, kind = Counter(), "job"
        for group in groups:
            counts[group.key] += group.job_count
        auto_keys = frozenset(group.key for group in groups if group.is_auto)
    named = sorted((entry for entry in entries if counts.get(entry.key)), key=attrgetter("dids"))
    named.sort(key=lambda entry: counts[entry.key], reverse=True)
    job_count = sum(counts[entry.key] for entry in named)
    note = ""
    if state.openings is None:
        reason = state.knowledge.no_openings_reason if state.knowledge else None
        note = f"The daemon does not pace reads from other sites{f': {reason}' if reason else ''}."
    return QueuedSets(
        [_build_row(entry, counts[entry.key], entry.key in auto_keys, state) for entry in named[:MAX_ROWS]],
        max(0, len(named) - MAX_ROWS),
        f"{format_count(job_count, kind)}, {format_count(len(named), 'set')}",
        note,
    )


def _build_row(entry: DemandEntry, job_count: int, is_auto: bool, state: ServerState) -> QueuedSet:
    others = f" and {len(entry.dids) - 1} more" if entry.dids[1:] else ""
    size = state.snapshot.sum_bytes(entry.dids)
    name = f"{entry.dids[0]}{others}" + (f", {format_bytes(size)}" if size is not None else "")
    prospect = "" if is_auto else _NOT_AUTO
    if is_auto and entry.key and state.openings:
        prospect = describe_outlook(entry.key, state.openings)
    return QueuedSet(name, entry.key, job_count, prospect)

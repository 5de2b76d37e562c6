"""Sets of datasets that waiting jobs need, and the prospect of these jobs. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from hydrator.domain.ads.openings import describe_outlook
from hydrator.domain.model import DemandEntry
from hydrator.domain.text import format_count
from hydrator.domain.units import Bytes
from hydrator.server.view import ServerState

MAX_ROWS: Final = 8
_NOT_AUTO: Final = "waits beside its data only: no job has the mode auto"


@dataclass(frozen=True, slots=True)
class QueuedSets:
    """The sets with the most waiting jobs; ``note`` says if reads are not paced, and why.

    A row has the set, its size, the number of its jobs, and their prospect, empty if it is not known.
    """

    rows: Sequence[tuple[DemandEntry, Bytes | None, int, str]]
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
    rows = []
    for entry in named[:MAX_ROWS]:
        prospect = _NOT_AUTO
        if entry.key and entry.key in auto_keys:
            prospect = describe_outlook(entry.key, state.openings) if state.openings else ""
        rows.append((entry, state.snapshot.sum_bytes(entry.dids), counts[entry.key], prospect))
    note = ""
    if state.openings is None:
        reason = state.knowledge.no_openings_reason if state.knowledge else None
        note = f"The daemon does not pace reads from other sites{f': {reason}' if reason else ''}."
    return QueuedSets(
        rows,
        max(0, len(named) - MAX_ROWS),
        f"{format_count(job_count, kind)}, {format_count(len(named), 'set')}",
        note,
    )

"""Table of the sets of datasets that queued jobs need: where each set is, and the prospect of its jobs.

The functions are pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.openings import describe_outlook
from hydrator.domain.ads.set_answers import SetAnswer, SiteAnswers, read_set_answers
from hydrator.domain.model import DemandEntry, Site
from hydrator.domain.text import format_bytes, format_count, format_duration
from hydrator.server.view import ServerState, select_sets, total_bytes

MAX_ROWS: Final = 20


@dataclass(frozen=True, slots=True)
class QueuedSet:
    """One row of the table; ``cells`` has a text for each site of the table.

    ``start`` has the prospect of its waiting jobs in mode auto; empty if there are none.
    """

    name: str
    key: SetKey | None
    jobs: int
    cells: Sequence[str]
    start: str = ""


@dataclass(frozen=True, slots=True)
class QueuedSetTable:
    """The sets that most jobs need; ``note`` says if reads are not paced, and why."""

    sites: tuple[Site, ...]
    rows: Sequence[QueuedSet]
    caption: str
    note: str


def build_queued_sets(state: ServerState) -> QueuedSetTable:
    """Build the table from the ads that the server gives to the hooks."""
    all_sets = select_sets(state)
    shown = {entry.key for entry in all_sets[:MAX_ROWS] if entry.key is not None}
    answers = {site: read_set_answers(ad, state.now, shown) for site, ad in sorted(state.ads.items())}
    rows = [_build_row(entry, answers, state) for entry in all_sets[:MAX_ROWS]]
    caption = f"{format_count(len(all_sets), 'set')} of datasets that queued jobs need, most jobs first"
    if len(all_sets) > MAX_ROWS:
        caption += f"; the first {MAX_ROWS}"
    return QueuedSetTable(tuple(answers), rows, caption, _note(answers, state))


def _build_row(entry: DemandEntry, answers: Mapping[Site, SiteAnswers], state: ServerState) -> QueuedSet:
    size = total_bytes(entry.dids, state.snapshot)
    others = len(entry.dids) - 1
    parts = [entry.dids[0], *([f"and {others} more"] if others else [])]
    name = " ".join(parts) + (f", {format_bytes(size)}" if size is not None else "")
    key = entry.key
    cells = [_cell(each.by_key.get(key) if key else None) for each in answers.values()]
    start = describe_outlook(key, state.openings) if key and state.openings else ""
    return QueuedSet(name, key, entry.job_count, cells, start)


def _cell(answer: SetAnswer | None) -> str:
    """Return one cell, such as ``62 % here; open: read 4 min from UK``."""
    if answer is None:
        return "not published"
    if answer.is_whole:
        return "all here"
    share = f"{int(answer.share * 100)} % here" if answer.share else "not here"
    if answer.open_seconds is None:
        return share
    origin = f" from {answer.source}" if answer.source else ""
    return f"{share}; open: read {format_duration(answer.open_seconds)}{origin}"


def _note(answers: Mapping[Site, SiteAnswers], state: ServerState) -> str:
    if any(each.open_until is not None for each in answers.values()):
        return ""
    reason = f": {state.no_openings_reason}" if state.no_openings_reason else ""
    return f"The daemon does not pace reads from other sites{reason}."

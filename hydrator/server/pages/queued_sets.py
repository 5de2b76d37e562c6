"""Table of the sets of datasets that queued jobs need: where each set is, and where the next job starts.

The functions are pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hydrator.diagnostics.why.sets.facts import SlotSetFacts
from hydrator.diagnostics.why.sets.reasons import describe_start
from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS, SetEstimate
from hydrator.domain.ads.set_answers import SetAnswer, SiteAnswers, read_set_answers
from hydrator.domain.model import DemandEntry, Site
from hydrator.domain.text import format_bytes, format_count, format_duration
from hydrator.server.view import ServerState, select_sets, total_bytes

MAX_ROWS: Final = 20


@dataclass(frozen=True, slots=True)
class QueuedSet:
    """One row of the table; ``cells`` has a text for each site of the table.

    ``start`` says where and when one more job in mode auto starts; empty without estimates.
    """

    name: str
    key: SetKey | None
    jobs: int
    cells: Sequence[str]
    start: str = ""


@dataclass(frozen=True, slots=True)
class QueuedSetTable:
    """The sets that most jobs need; ``note`` says if the numbers of seconds are missing, and why."""

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
    facts = {
        site: _slot_set_facts(key, each, size, _find_estimate(state, site, key))
        for site, each in answers.items()
        if key is not None and key in each.by_key
    }
    cells = [
        _cell(each.by_key.get(key) if key else None, facts[site].queue_site if site in facts else None)
        for site, each in answers.items()
    ]
    return QueuedSet(name, key, entry.job_count, cells, describe_start(facts, state.now))


def _find_estimate(state: ServerState, site: Site, key: SetKey) -> SetEstimate | None:
    estimates = state.estimates.sites.get(site) if state.estimates else None
    return estimates.by_key.get(key) if estimates else None


def _slot_set_facts(
    key: SetKey, answers: SiteAnswers, size: int | None, estimate: SetEstimate | None
) -> SlotSetFacts:
    """Return the site's entries for a set as the job's expressions evaluate them."""
    answer = answers.by_key[key]
    missing_bytes = None if size is None else round(size * (1 - answer.share))
    return SlotSetFacts(
        is_local=answer.is_whole,
        is_estimated=answer.queue_seconds is not None,
        is_cheaper=answers.has_cheaper_read(key),
        share=answer.share,
        read_seconds=answer.read_seconds,
        queue_seconds=answer.queue_seconds,
        source=answer.source,
        own_queue_seconds=answers.own_queue_seconds,
        missing_bytes=(estimate.missing_bytes if estimate else 0) or missing_bytes,
        queue_site=estimate.queue_site if estimate else None,
    )


def _cell(answer: SetAnswer | None, queue_site: Site | None) -> str:
    """Return one cell, such as ``62 % here; read 4 min from UK, queue 12 min at UK``."""
    if answer is None:
        return "not published"
    if answer.is_whole:
        return "all here"
    share = f"{int(answer.share * 100)} % here" if answer.share else "not here"
    if answer.queue_seconds is None:
        return share
    read = "no read" if answer.read_seconds is None else f"read {format_duration(answer.read_seconds)}"
    if answer.read_seconds is not None and answer.source:
        read += f" from {answer.source}"
    if answer.queue_seconds >= NO_QUEUE_SECONDS:
        return f"{share}; {read}, no slots beside the data"
    queue = f"queue {format_duration(answer.queue_seconds)}" + (f" at {queue_site}" if queue_site else "")
    return f"{share}; {read}, {queue}"


def _note(answers: Mapping[Site, SiteAnswers], state: ServerState) -> str:
    if any(each.estimates_until is not None for each in answers.values()):
        return ""
    reason = f": {state.no_estimates_reason}" if state.no_estimates_reason else ""
    return f"The daemon has no estimates of reads and queues{reason}."

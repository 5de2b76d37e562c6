"""Texts for the ads of idle jobs: what was requested for their data, or why nothing was.

A text begins with its own time and states only what was true then. So a text that stays, while the daemon is
down or the job is held or runs, is not wrong. It is written when the *phase* of a request changes, not for
its progress: requested, arrived, stuck, being cancelled, waiting for a person, or not requested for another
reason.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hydrator.domain.errors import PoolError
from hydrator.domain.model import Did
from hydrator.domain.pool_ports import JobAdTexts
from hydrator.domain.ports.staging import StagingKind
from hydrator.domain.text import shorten, shorten_list

from ..candidates import NotAsked
from ..ledger import EntryState
from ..needs import LiveNeed, LiveNeeds
from ..overview import PlannedRow, RequestRow, StagingOverview, explain_for_job
from ..policy import is_private
from .pin_plan import NOT_PINNED

MAX_EDITS = 20
"""Edits at one schedd in one step; each edits all jobs with the same datasets."""
MAX_JOBS = 500
"""Jobs of one edit; further jobs follow in the next step."""
MAX_CHARS = 500
"""Characters of a text."""
SETTLE = timedelta(minutes=10)
"""A reason for no request is written once it has lasted this long; many last only for a moment."""
_AMOUNT = r"\d[\d,.]*(?: (?:d|h|min|s|[kMGTP]?B)\b)?"
_AMOUNTS = re.compile(rf"(?<![\w:/.-]){_AMOUNT}(?: {_AMOUNT})*(?!\w)")
"""Times and sizes in a reason, such as ``1 h 5 min``; without them, the reason is the same for longer."""

_Key = tuple[str, tuple[str, ...]]
"""A schedd, and the datasets of jobs as they name them."""


@dataclass(frozen=True, slots=True)
class JobSetStatus:
    """The status of the data of some jobs: its phase, and the sentences about it.

    ``is_refusal`` says that nothing was requested.
    """

    phase: str
    sentences: tuple[str, ...]
    is_refusal: bool = False


class StatusFinder:
    """The rows of one overview by dataset, so that the status of a set of datasets is found at once."""

    def __init__(self, overview: StagingOverview) -> None:
        self._overview = overview
        self._requests: dict[Did, list[RequestRow]] = {}
        self._planned: dict[Did, list[PlannedRow]] = {}
        self._refused: dict[frozenset[Did], list[NotAsked]] = {}
        for row in overview.requests:
            if row.kind is StagingKind.STAGE:
                self._requests.setdefault(row.did, []).append(row)
        for plan in overview.planned:
            for did in plan.dids if plan.kind is StagingKind.STAGE else ():
                self._planned.setdefault(did, []).append(plan)
        for one in overview.not_asked:
            if not one.reason.startswith(NOT_PINNED):
                self._refused.setdefault(frozenset(one.dids), []).append(one)

    def find(self, dids: Iterable[Did]) -> JobSetStatus | None:
        """Return the status of the jobs that need *dids*; None if staging has nothing to say about them."""
        names = tuple(dids)
        requests = [row for did in names for row in self._requests.get(did, ())]
        requests.sort(key=lambda row: _STATES.index(_state_of(row)))
        planned = list(dict.fromkeys(row for did in names for row in self._planned.get(did, ())))
        refused = self._refused.get(frozenset(names), [])
        if requests:
            phase = f"{_state_of(requests[0])} at {sorted({row.site for row in requests})}"
        elif planned:
            phase = f"planned {sorted({(row.site, row.needs_approval) for row in planned})}"
        elif refused:
            phase = f"not requested: {sorted({_AMOUNTS.sub('#', one.reason) for one in refused})}"
        else:
            return None
        own = replace(
            self._overview, requests=tuple(requests), planned=tuple(planned), not_asked=tuple(refused)
        )
        sentences = explain_for_job(own, names, own.as_of)
        return JobSetStatus(phase, sentences, is_refusal=not requests and not planned)


_STATES = ("stuck", "cancelled", "requested", "arrived")
"""The states of a request; of several datasets the first decides."""


def _state_of(row: RequestRow) -> str:
    if row.state == EntryState.CANCELLING.value:
        return "cancelled"
    if row.is_complete:
        return "arrived"
    return "stuck" if row.is_stuck else "requested"


def build_text(sentences: Iterable[str], now: datetime) -> str:
    """Return the text that says *sentences* as of *now*: ``2026-11-23 14:02 UTC: lofar:L1: asked …``.

    A slash replaces each backslash, which the job queue and its readers escape differently.
    """
    text = f"{now:%Y-%m-%d %H:%M} UTC: {shorten_list(list(dict.fromkeys(sentences)), '; ')}"
    return shorten(" ".join(text.replace("\\", "/").split()), MAX_CHARS)


@dataclass(frozen=True, slots=True)
class _Written:
    """The last text for some jobs, and these jobs; None if some of them have not got it yet."""

    phase: str
    text: str
    jobs: frozenset[tuple[str, int, bool | None]] | None


class JobAdWriter:
    """A writer of texts into the ads of idle jobs; after a restart it writes each text once again.

    If a schedd rejected an edit, the writer edits only one job of this schedd in each step, until the schedd
    accepts an edit.

    Args:
        texts: the queues of the schedds.
        guard: returns why no edit may begin now, such as a stop by the operator; None if it may.
    """

    def __init__(self, texts: JobAdTexts, guard: Callable[[], str | None]) -> None:
        self._texts = texts
        self._guard = guard
        self._seen: dict[_Key, tuple[str, datetime]] = {}
        self._written: dict[_Key, _Written] = {}
        self._refusing: dict[str, str] = {}

    def write(self, overview: StagingOverview, needs: LiveNeeds) -> dict[str, str]:
        """Write the texts that are due; return, by schedd, why it rejects them.

        Only idle jobs of schedds that answered in this step are edited, and none with a private dataset.
        """
        queued = {(need.schedd, need.jobs.datasets) for need in needs.needs}
        self._seen = {key: one for key, one in self._seen.items() if key in queued}
        self._written = {key: one for key, one in self._written.items() if key in queued}
        due: dict[str, list[tuple[_Key, _Written]]] = {}
        finder = StatusFinder(overview)
        for key, group in _group_idle(needs.current_needs).items():
            status = finder.find(group[0].dids)
            if status and (one := self._choose(key, status, group, overview.as_of)):
                due.setdefault(key[0], []).append((key, one))
        for schedd, edits in due.items():
            self._edit(schedd, edits)
        self._refusing = {schedd: why for schedd, why in self._refusing.items() if schedd in due}
        return dict(self._refusing)

    def _choose(
        self, key: _Key, status: JobSetStatus, group: Iterable[LiveNeed], now: datetime
    ) -> _Written | None:
        """Return the text to write now; None if the jobs have it, or if it must last longer first."""
        phase, since = self._seen.get(key, ("", now))
        since = since if phase == status.phase else now
        self._seen[key] = status.phase, since
        jobs = frozenset(
            (need.jobs.example, need.jobs.job_count, need.jobs.is_data_missing) for need in group
        )
        written = self._written.get(key)
        if written and written.phase == status.phase:  # jobs that came later get the same text
            return None if written.jobs == jobs else replace(written, jobs=jobs)
        if status.is_refusal and now - since < SETTLE:
            return None
        return _Written(status.phase, build_text(status.sentences, now), jobs)

    def _edit(self, schedd: str, edits: Iterable[tuple[_Key, _Written]]) -> None:
        is_refusing = schedd in self._refusing
        max_jobs = 1 if is_refusing else MAX_JOBS
        for key, one in list(edits)[: 1 if is_refusing else MAX_EDITS]:
            if self._guard() is not None:
                return
            try:
                edited = self._texts.set_staging_text(schedd, key[1], one.text, max_jobs=max_jobs)
            except PoolError as error:
                self._refusing[schedd] = str(error)
                return
            if edited:
                self._refusing.pop(schedd, None)
            self._written[key] = one if edited < max_jobs else replace(one, jobs=None)


def _group_idle(needs: Iterable[LiveNeed]) -> Mapping[_Key, list[LiveNeed]]:
    groups: dict[_Key, list[LiveNeed]] = {}
    for need in needs:
        if not need.jobs.is_running and not any(is_private(did) for did in need.dids):
            groups.setdefault((need.schedd, need.jobs.datasets), []).append(need)
    return groups

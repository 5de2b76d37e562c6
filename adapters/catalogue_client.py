"""A catalogue whose client runs in a worker process: check the answers, and survive the end of the process.

The worker sends a survey in parts (:mod:`adapters.catalogue_server`). This process checks each part before it
uses it, because the worker runs foreign code.

**A dataset at which the worker ends** must not cost the others their answers. The worker reports the datasets
of each question before it asks its server (:func:`adapters.worker.announce`); without a report, the question
is the whole request. If the worker ends, the datasets of this question are *suspects*, for example 100 of
1,000 datasets:

1. The poll starts the worker again and asks it about the 900 others.
2. At its end the poll asks a second process about 50 suspects. If this ends, too, it asks about 25, and so
   on, until the process has ended at one dataset *alone*. The 99 others are suspects no longer.
3. After each poll a thread asks a second process about this one again. No poll waits for the thread: the next
   poll uses the answers that have arrived. So a dataset is back with the second poll after it is well.

The worker itself is never asked about a suspect, so it keeps what it knows about the others.

**A worker of Rucio** counts the files of each dataset that is new to it, which takes minutes for thousands.
So it is asked in *portions*: about the 500 datasets with the oldest answers, then about these and more, at
last about all. What it answered before it ended, or before Rucio failed, stays fresh.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as model

from adapters.catalogue_server import EPOCH, ERRORS, MAX_SITES, STATES, to_micros
from adapters.worker import Message, Worker, WorkerFailed, WorkerRefused
from hydrator.domain.bugs import WorkerBug
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable, ConfigError
from hydrator.domain.model import (
    NO_PROVENANCE,
    Did,
    Provenance,
    Reading,
    Replica,
    Seen,
    Site,
    Survey,
    Unseen,
)
from hydrator.domain.text import list_problems

MAX_FOUND = 50_000
"""Datasets that the daemon is made for; each costs a poll."""
_MAX_ENDS = 16
"""A poll, and the thread after it, start a process again at most so often: ten halvings find one dataset in a
thousand."""
_PORTIONS_SECONDS = 120.0
"""After so long no further portion is asked in a poll."""
_FIRST_PORTION = 500
"""The datasets in the first request to a new worker; each further one has half as many more, at least 500. So
the requests repeat little, and the end of a worker costs at most a third of what it has done."""


# -- rows, as the worker sends them and this process reads them

_Text = Annotated[str, StringConstraints(max_length=500)]
_MAX_MICROS = 253_402_300_800_000_000
"""The end of the year 9999."""


def _read_micros(value: object) -> datetime:
    if type(value) is not int or not 0 <= value < _MAX_MICROS:
        raise ValueError("it is not a time in microseconds since 1970")
    return EPOCH + timedelta(microseconds=value)


_Moment = Annotated[datetime, BeforeValidator(_read_micros)]
_Index = Annotated[int, Field(ge=0)]
_Provenance = tuple[_Text, _Text, _Text, _Text, _Moment | None, _Moment | None]
"""Storage, reason, rule, account, end and expected time."""
_ReplicaRow = tuple[
    _Index, Annotated[int, Field(ge=0, lt=len(STATES))], Annotated[float, Field(ge=0, le=1)] | None, _Index
]
"""The index of the site, of the state and of the provenance, with the fraction before the last."""
_SeenRow = tuple[
    _Text,
    _Moment,
    Annotated[int, Field(ge=0, lt=2**63)] | None,
    list[_Index],
    list[_Text],
    list[_ReplicaRow],
]
"""DID, time, bytes, indexes of the unreachable sites, case variants, replicas."""


@model(frozen=True, config=ConfigDict(extra="forbid"))
class _Rows:
    """A part of a survey; the rows refer to its ``names`` of sites and its ``provenances`` by index."""

    names: list[_Text]
    provenances: list[_Provenance]
    seen: list[_SeenRow]
    unseen: list[tuple[_Text, _Text]]
    same: list[_Text]


@model(frozen=True, config=ConfigDict(extra="forbid"))
class _Summary:
    """The end of a survey: its time, all sites, and storages without a site."""

    started_at: _Moment
    sites: Annotated[list[_Text], Field(max_length=MAX_SITES)]
    unmapped: Annotated[list[_Text], Field(max_length=MAX_SITES)]


_ROWS = TypeAdapter(_Rows)
_SUMMARY = TypeAdapter(_Summary)
_NAMES = TypeAdapter(list[_Text])


def _read_rows(part: _Rows, earlier: Mapping[Did, Seen], asked: AbstractSet[Did]) -> dict[Did, Reading]:
    """Return the readings of a part; the times of rows that are the *same* as *earlier* are those of these.

    Raises:
        LookupError: a row refers to something that the part does not have.
        ValueError: a row is about another dataset, or has no site.
    """
    provenances = [
        Provenance(reason, rule, account, ends, ready)
        for _, reason, rule, account, ends, ready in part.provenances
    ]
    provenances = [NO_PROVENANCE if one == NO_PROVENANCE else one for one in provenances]
    names = [Site(name) for name in part.names]
    if not all(names):
        raise ValueError("a site has no name")
    readings: dict[Did, Reading] = {Did(did): earlier[Did(did)] for did in part.same}
    for text, at, size, unreachable, variants, rows in part.seen:
        did = Did(text)
        replicas = tuple(
            Replica(did, names[site], STATES[state], share, part.provenances[why][0], provenances[why])
            for site, state, share, why in rows
        )
        hidden = frozenset(names[index] for index in unreachable)
        readings[did] = Seen(at, replicas, size, hidden, frozenset(map(Did, variants)))
    readings.update((Did(did), Unseen(reason)) for did, reason in part.unseen)
    if not readings.keys() <= asked:
        raise ValueError(f"it is about {min(readings.keys() - asked)}, which was not asked")
    return readings


def raise_error(name: str, error: Mapping[str, Any], maker: str | None = None) -> None:
    """Raise the error that the worker of the catalogue *name* answered; *maker* is that of its plugin.

    Raises:
        CatalogueError: the catalogue failed.
        ConfigError: the catalogue cannot be built.
        WorkerBug: the worker met an exception that it does not translate into an error of the catalogue.
    """
    kind, reason = error.get("kind"), str(error.get("reason"))
    if kind == "config":
        raise ConfigError([str(problem) for problem in error["problems"]])
    if kind == "bug":
        raise WorkerBug(reason, str(error.get("frames")), maker)
    raise ERRORS.get(str(kind), CatalogueError)(name, reason)


class _WorkerEnded(Exception):
    """A worker that ended at the question about *dids*."""

    def __init__(self, failure: WorkerFailed, dids: frozenset[Did]) -> None:
        super().__init__(str(failure))
        self.has_ended_itself = failure.has_ended_itself
        self.dids = dids


@dataclass(frozen=True)
class _Suspect:
    """A dataset of a question at which a process ended; *reason* says how."""

    reason: str
    again_at: float | None = None
    """The earliest time of the next question; None if no process has ended at this dataset alone."""


@dataclass(frozen=True)
class _SuspectsAnswer:
    """The answer of a second process to one question about suspects."""

    dids: list[Did]
    readings: Mapping[Did, Reading]
    again_at: float
    is_complete: bool = False
    """The process answered, so that none of *dids* is a suspect any longer."""
    failure: str | None = None
    """The reason of the end of the process, if it ended before its answer; else None."""


def _start_thread(work: Callable[[], object]) -> Callable[[], bool]:
    """Start *work* in a thread; return a function that returns whether it has ended."""
    thread = threading.Thread(target=work, name="suspects", daemon=True)
    thread.start()
    return lambda: not thread.is_alive()


class WorkerCatalogue:
    """A catalogue whose client runs in a worker; see :class:`hydrator.domain.ports.Catalogue`.

    Args:
        name: the catalogue's name.
        worker: the worker.
        quiet_seconds: the longest time without a line of the worker; after it the worker is ended. A poll has
            no limit, because each line gives it more time.
        is_slow_at_first: the worker keeps the datasets of its last request, and needs long for new ones, as
            that of Rucio. It is asked in portions.
        maker: the plugin that the worker runs, and who made it; None if it runs no plugin.
        monotonic: a clock; tests replace it.
        start_thread: starts a thread, and returns a function that returns whether it has ended; tests
            replace it.
    """

    def __init__(
        self,
        name: str,
        worker: Worker,
        quiet_seconds: float,
        *,
        is_slow_at_first: bool = False,
        maker: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        start_thread: Callable[[Callable[[], object]], Callable[[], bool]] = _start_thread,
    ) -> None:
        self.name = name
        self._maker = maker
        self._worker = worker
        self._quiet_seconds = quiet_seconds
        self._rows: dict[Did, Seen] = {}
        self._suspects: dict[Did, _Suspect] = {}
        """All suspects; the first one was asked the longest time ago."""
        self._start_thread = start_thread
        self._has_thread_ended: Callable[[], bool] = lambda: True
        """Return whether the thread that asks about suspects after a poll has ended."""
        self._thread_answers: deque[_SuspectsAnswer] = deque()
        """The answers that this thread has got, until the next poll uses them."""
        self._must_thread_stop = False
        """A poll has found new suspects, and needs the second process: a catalogue has only one."""
        self._second: Worker | None = None
        self._is_closed = False
        self._recounts: set[Did] = set()
        self._ends_left = 0
        self._is_slow_at_first = is_slow_at_first
        self._monotonic = monotonic
        self._last_asked: AbstractSet[Did] = frozenset()
        """The datasets of the last request to the worker, which it keeps."""
        self._last: Survey | None = None

    def start(self) -> None:
        """Start the worker.

        Raises:
            ConfigError: the catalogue cannot be built.
        """
        try:
            self._worker.start()
        except WorkerRefused as refusal:
            if refusal.error.get("kind") == "config":
                raise_error(self.name, refusal.error, self._maker)
        except WorkerFailed:
            return  # as after another refusal: the first poll starts it again, and reports the reason

    def recount(self, dids: AbstractSet[Did]) -> None:
        """Let the next poll count those of *dids* again that it asks about; any thread may call this."""
        self._recounts |= dids

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """See :meth:`hydrator.domain.ports.Catalogue.find`."""
        found: set[Did] = set()

        def receive(part: Mapping[str, Any]) -> None:
            names = _NAMES.validate_python(part.get("names", []), strict=True)
            found.update(map(Did, names[: MAX_FOUND + 1 - len(found)]))

        try:
            self._exchange(self._worker, {"call": "find", "patterns": sorted(patterns)}, receive)
        except _WorkerEnded as end:
            raise CatalogueUnreachable(self.name, str(end)) from None
        if len(found) > MAX_FOUND:
            reason = f"more than {MAX_FOUND:,} datasets match; write patterns for those that jobs need"
            raise CatalogueError(self.name, reason)
        return frozenset(found)

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :meth:`hydrator.domain.ports.Catalogue.read`."""
        has_thread_ended = self._has_thread_ended()  # before its answers are taken: then these are all
        while self._thread_answers:
            self._update_suspects(self._thread_answers.popleft())
        self._ends_left = _MAX_ENDS
        self._suspects = {did: suspect for did, suspect in self._suspects.items() if did in dids}
        now = self._monotonic()
        again = [
            did for did, one in self._suspects.items() if one.again_at is not None and one.again_at <= now
        ]
        forgotten = self._rows.keys() - dids
        for did in forgotten:
            del self._rows[did]
        recounted, self._recounts = self._recounts & dids, set()
        more = {"forget": sorted(forgotten), "recount": sorted(recounted)}
        readings: dict[Did, Reading] = {}
        try:
            survey = self._read_sound(dids, readings, more)
        except CatalogueError as error:
            if not readings or self._last is None:
                raise
            survey = replace(self._last, readings=dict.fromkeys(dids, Unseen(error.reason)))
        new = [did for did, suspect in self._suspects.items() if suspect.again_at is None]
        self._must_thread_stop = bool(new) and not has_thread_ended
        if new and has_thread_ended:
            for answer in self._ask_suspects(new, (len(new) + 1) // 2, self._ends_left):
                self._update_suspects(answer)
                readings.update(answer.readings)
        for did in self._suspects.keys() - readings.keys():
            reason = self._suspects[did].reason
            readings[did] = Unseen(
                f"its worker ended at this dataset, which is asked last and alone: {reason}"
            )
        if again and has_thread_ended:
            answers = self._ask_suspects(again, 1, _MAX_ENDS)
            self._has_thread_ended = self._start_thread(partial(self._thread_answers.extend, answers))
        return replace(survey, readings={**survey.readings, **readings})

    def close(self) -> None:
        self._is_closed = True
        self._worker.close()
        if self._second:
            self._second.close()

    def _read_sound(self, dids: AbstractSet[Did], readings: dict[Did, Reading], more: Message) -> Survey:
        """Ask about all datasets but the suspects, and add the answers to *readings*; return the last survey.

        If the worker ends, ask again without the datasets at which it ended, which are suspects now. Raise
        CatalogueUnreachable if it has ended too often, or ended for another reason than a dataset: it was
        asked nothing, or was silent when asked about all.
        """
        while True:
            sound = dids - readings.keys() - self._suspects.keys()
            try:
                survey = self._read_portions(self._split(sound), readings, more)
            except _WorkerEnded as end:
                self._last_asked = frozenset()
                self._ends_left -= 1
                is_general = not end.dids or (not end.has_ended_itself and end.dids >= sound)
                if is_general or not self._ends_left:
                    raise CatalogueUnreachable(self.name, str(end)) from None
                if not end.has_ended_itself:
                    self._ends_left = 1  # a slow server takes a whole limit each time
                self._suspects.update(dict.fromkeys(sorted(end.dids & sound), _Suspect(str(end))))
            else:
                return survey

    def _read_portions(
        self, portions: list[AbstractSet[Did]], readings: dict[Did, Reading], more: Message
    ) -> Survey:
        """Ask about each of *portions*, the last of which has all datasets; return the last survey.

        After an error of the catalogue, ask only about the last. After two minutes leave the other datasets
        to the next poll, so that the cycle gets the answers so far.
        """
        ends_at = self._monotonic() + _PORTIONS_SECONDS
        while True:
            portion = portions.pop(0)
            try:
                self._last_asked = portion
                survey = self._ask(portion, **more)
            except CatalogueError:  # perhaps the oldest are those without an answer
                if not portions:
                    raise
                del portions[:-1]
                continue
            readings.update(survey.readings)
            self._last = replace(survey, readings={})
            if portions and self._monotonic() > ends_at:
                waiting = portions.pop() - portion
                readings.update(
                    dict.fromkeys(waiting, Unseen("its worker is new, and asks the next poll about it"))
                )
                portions.clear()
            if not portions:
                return survey

    def _split(self, dids: AbstractSet[Did]) -> list[AbstractSet[Did]]:
        """Return the portions of *dids*: those that the worker keeps, and of the others the oldest first."""
        known = dids & self._last_asked
        times = {did: to_micros(self._rows[did].as_of) if did in self._rows else 0 for did in dids - known}
        new = sorted(times, key=lambda did: (times[did], did))
        portions: list[AbstractSet[Did]] = []
        size = _FIRST_PORTION
        while self._is_slow_at_first and size < len(new):
            portions.append(known | set(new[:size]))
            size += max(_FIRST_PORTION, (len(known) + size) // 2)
        return [*portions, dids]

    def _ask_suspects(self, todo: list[Did], size: int, ends_left: int) -> Iterator[_SuspectsAnswer]:
        """Ask a second process about *todo*, *size* datasets at a time; yield each answer.

        After an end of the process ask about half as many, after an answer about twice as many: perhaps the
        server was sick, and is well now. The process may end *ends_left* times, or be silent once.
        """
        self._second = second = self._worker.beside()
        if self._is_closed:  # meanwhile; from here on close ends the second process
            second.close()
        with closing(second):
            while todo and ends_left > 0 and not self._must_thread_stop:
                group = todo[:size]
                try:
                    self._start(second)
                    began_at = self._monotonic()
                    answer = self._ask_group(group, second)
                    size = 2 * len(group)
                    del todo[: len(group)]
                except _WorkerEnded as end:
                    if not end.dids:  # its process did not start, or ended at a general question
                        return
                    now = self._monotonic()
                    again_at = now if end.has_ended_itself else now + (now - began_at)
                    answer = _SuspectsAnswer(group, {}, again_at, failure=str(end))
                    ends_left = ends_left - 1 if end.has_ended_itself else 0
                    size = max(1, len(group) // 2)
                    if len(group) == 1:
                        del todo[0]
                yield answer

    def _ask_group(self, group: list[Did], second: Worker) -> _SuspectsAnswer:
        """Ask *second* about *group*; an error of the catalogue says nothing about these datasets."""
        is_complete = False
        readings: Mapping[Did, Reading]
        began_at = self._monotonic()
        try:
            readings = self._ask(frozenset(group), second).readings
            is_complete = True
        except CatalogueError as error:
            readings = dict.fromkeys(group, Unseen(error.reason))
        except ConfigError as error:
            readings = dict.fromkeys(group, Unseen(str(error)))
        except WorkerBug as bug:  # the next poll reports it, if it happens again
            readings = dict.fromkeys(group, Unseen(str(bug)))
            is_complete = True
        now = self._monotonic()
        return _SuspectsAnswer(group, readings, now + (now - began_at), is_complete)

    def _update_suspects(self, answer: _SuspectsAnswer) -> None:
        """Update the suspects of *answer*, and move them to the end of the queue."""
        for did in answer.dids:
            suspect = self._suspects.pop(did, None)
            if suspect is None or answer.is_complete:
                continue
            if answer.failure and len(answer.dids) == 1:
                suspect = _Suspect(answer.failure, answer.again_at)
            elif suspect.again_at is not None:
                suspect = replace(suspect, again_at=answer.again_at)
            self._suspects[did] = suspect

    def _ask(self, dids: AbstractSet[Did], second: Worker | None = None, **more: Any) -> Survey:  # noqa: ANN401  (JSON)
        """Return the survey of *dids* alone, by the worker or by a *second* one that keeps no rows.

        Raises:
            _WorkerEnded: the worker ended before the end of its answer.
            CatalogueError: the catalogue failed, or an answer of the worker is not valid.
        """
        readings: dict[Did, Reading] = {}
        earlier = {} if second else self._rows

        def receive(part: Mapping[str, Any]) -> None:
            rows = _ROWS.validate_python(part.get("rows"), strict=False)
            readings.update(_read_rows(rows, earlier, dids))

        request = {"call": "read", "dids": sorted(dids), "forget": [], "recount": [], **more}
        try:
            answer = self._exchange(second or self._worker, request, receive)
            summary = _SUMMARY.validate_python(answer)
        except ValidationError as error:
            raise self._garbled(error) from None
        for did, reading in readings.items():
            if reading is earlier.get(did):  # the row is the same as before
                readings[did] = replace(reading, as_of=summary.started_at)
        earlier.update((did, seen) for did, seen in readings.items() if isinstance(seen, Seen))
        return Survey(
            self.name,
            summary.started_at,
            frozenset(map(Site, summary.sites)),
            readings,
            frozenset(summary.unmapped),
        )

    def _start(self, worker: Worker) -> None:
        """Start the process of *worker*, if none runs; that it cannot start is the fault of no dataset."""
        try:
            worker.start()
        except (WorkerFailed, WorkerRefused) as failure:
            raise _WorkerEnded(WorkerFailed(str(failure)), frozenset()) from None

    def _exchange(
        self, worker: Worker, request: Message, receive: Callable[[Mapping[str, Any]], None]
    ) -> Any:  # noqa: ANN401
        asked = frozenset(map(Did, request.get("dids", ())))

        def on_part(part: Any) -> None:  # noqa: ANN401  (JSON)
            nonlocal asked
            if "asks" in part:
                asked = frozenset(map(Did, _NAMES.validate_python(part["asks"])))
            else:
                receive(part)

        self._start(worker)
        try:
            answer = worker.exchange(request, self._quiet_seconds, on_part)
        except WorkerFailed as failure:
            raise _WorkerEnded(failure, asked) from None
        except WorkerRefused as refusal:
            raise CatalogueUnreachable(self.name, str(refusal)) from None
        except (ValueError, LookupError) as error:  # of a part; the worker has been ended
            raise self._garbled(error) from None
        if "error" in answer:
            raise_error(self.name, answer["error"], self._maker)
        return answer["ok"]

    def _garbled(self, error: Exception) -> CatalogueGarbled:
        problem = list_problems(error)[0] if isinstance(error, ValidationError) else error
        return CatalogueGarbled(self.name, f"the answer of its worker: {problem}")

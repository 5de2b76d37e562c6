"""A catalogue whose client runs in a worker: check its answers, and start it again.

The worker sends a survey in parts (:mod:`adapters.catalogue_server`). This process checks each part before it
uses it, because the worker runs foreign code.

The worker reports each question before it asks its server (:func:`adapters.worker.announce`); without a
report, the request is the question. If the worker ends at a question, the datasets of the question become
suspects: the others are asked again without them, and then the suspects alone in a second process, halved
until one dataset is found. That one is asked again after a poll, in a process that may end, so that a poll
after it is well has it again, and neither the worker's memory of the others nor their answers are lost. No
poll waits for it: what the second process answered is used by the first poll after its end.

A worker of Rucio counts datasets that are new to it, which takes minutes for thousands. So it is asked about
500 of them first, those with the oldest answers, then about these and more: what it answered before it ended,
or before Rucio failed, stays fresh.
"""

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Protocol

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as model

from adapters.catalogue_server import (
    ERRORS,
    MAX_SITES,
    MICROSECOND,
    STATES,
    from_micros,
    from_micros_or_none,
    to_micros,
)
from adapters.worker import Message, WorkerFailed, WorkerRefused
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
from hydrator.domain.ports import TokenValidity
from hydrator.domain.text import list_problems

MAX_FOUND = 50_000
"""Datasets that the daemon is made for; each costs a poll."""
_MAX_ENDS = 16
"""A poll starts its worker again at most so often: ten halvings find one dataset in a thousand."""
_ASKING_SECONDS = 10.0
"""After so long no further question about a single suspect begins between two polls."""
_PORTIONS_SECONDS = 120.0
"""After so long no further portion is asked in a poll."""
_FIRST_PORTION = 500
"""The datasets in the first request to a new worker; each further one has half as many more, at least 500. So
the requests repeat little, and the end of a worker costs at most a third of what it has done."""


# -- rows, as the worker sends them and this process reads them

_Text = Annotated[str, StringConstraints(max_length=500)]
_Micros = Annotated[int, Field(ge=0, lt=253_402_300_800_000_000)]
_Index = Annotated[int, Field(ge=0)]
_Provenance = tuple[_Text, _Text, _Text, _Text, _Text, _Micros | None, _Micros | None, _Micros | None]
"""Call, storage, reason, rule, account, end, expected time and its error."""
_ReplicaRow = tuple[
    _Index, Annotated[int, Field(ge=0, lt=len(STATES))], Annotated[float, Field(ge=0, le=1)] | None, _Index
]
"""The index of the site, of the state and of the provenance, with the fraction before the last."""
_SeenRow = tuple[
    _Text,
    _Micros,
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
    """The end of a survey: its time, all sites, storages without a site, and the validity of the login."""

    started_at: _Micros
    sites: Annotated[list[_Text], Field(max_length=MAX_SITES)]
    unmapped: Annotated[list[_Text], Field(max_length=MAX_SITES)]
    login: tuple[_Micros | None, _Micros] | None = None


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
        Provenance(
            *(call, storage, reason, rule, account),
            from_micros_or_none(ends),
            from_micros_or_none(ready),
            None if error is None else error * MICROSECOND,
        )
        for call, storage, reason, rule, account, ends, ready, error in part.provenances
    ]
    provenances = [NO_PROVENANCE if one == NO_PROVENANCE else one for one in provenances]
    names = [Site(name) for name in part.names]
    if not all(names):
        raise ValueError("a site has no name")
    readings: dict[Did, Reading] = {Did(did): earlier[Did(did)] for did in part.same}
    for text, at, size, unreachable, variants, rows in part.seen:
        did = Did(text)
        replicas = tuple(
            Replica(did, names[site], STATES[state], share, provenances[why].storage, provenances[why])
            for site, state, share, why in rows
        )
        hidden = frozenset(names[index] for index in unreachable)
        readings[did] = Seen(from_micros(at), replicas, size, hidden, frozenset(map(Did, variants)))
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


@dataclass
class _Outcome:
    """What a second process answered about suspects, for the poll that uses it."""

    readings: dict[Did, Reading] = field(default_factory=dict)
    again_at: dict[Did, float] = field(default_factory=dict)
    """When each suspect that was asked may be asked again, if it is alone; the last one asked is the last."""
    answered: set[Did] = field(default_factory=set)
    ends: dict[Did, str] = field(default_factory=dict)
    """The datasets at which the process ended alone, each with the reason."""


class Supervised(Protocol):
    """A worker: :class:`adapters.worker.Worker`, or one of a test."""

    def start(self) -> None: ...
    def exchange(
        self, request: Message, seconds: float, on_part: Callable[[Any], None] | None = None
    ) -> Message: ...
    def beside(self) -> "Supervised": ...
    def close(self) -> None: ...


def _start_thread(work: Callable[[], object]) -> Callable[[], bool]:
    """Start *work* in a thread; return the function that tells whether it has ended."""
    thread = threading.Thread(target=work, name="suspects", daemon=True)
    thread.start()
    return lambda: not thread.is_alive()


class WorkerCatalogue:
    """A catalogue whose client runs in *worker*; see :class:`hydrator.domain.ports.Catalogue`.

    *quiet_seconds* is the longest time without a line of the worker: a longer answer of the server ends it.
    A poll has no limit, for it makes progress. *maker* names the plugin that it runs, if any, and who made
    it. Tests replace *monotonic* and *start_thread*.

    One dataset may be too much for a client. So if the worker ends, the datasets of its last question become
    *suspects*: the poll asks about all others first, then a second worker about half of the suspects, about a
    quarter if it ends again, and so on. A thread asks about the datasets at which it ended alone, in turn,
    after a poll. While it waits for a slow answer, polls go on without the suspects.

    A worker that *is_slow_at_first* (Rucio's, which counts the files of each new dataset) keeps the datasets
    of its last question. When it is new, it is asked in *portions*: first the datasets without facts or with
    the oldest, then these and some more, and at last all. So answers arrive before all files are counted.
    """

    def __init__(
        self,
        name: str,
        worker: Supervised,
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
        self._suspects: dict[Did, str] = {}
        """Datasets at which the worker ended, those asked longest ago first, each with the reason."""
        self._again_at: dict[Did, float] = {}
        """When to ask those again at which it ended alone: after a poll, and without an end of the
        process after a pause as long as the last question; the others are asked at the end of a poll.
        """
        self._start_thread = start_thread
        self._has_asked: Callable[[], bool] = lambda: True
        """Whether the questions after an earlier poll have ended; then ``_outcome`` has their answers."""
        self._outcome = _Outcome()
        self._second: Supervised | None = None
        self._is_closed = False
        self._recounts: set[Did] = set()
        self._ends_left = 0
        self._is_slow_at_first = is_slow_at_first
        self._monotonic = monotonic
        self._last_asked: AbstractSet[Did] = frozenset()
        """The datasets of the last request to the worker, which it keeps."""
        self._last: Survey | None = None
        self.token_validity: TokenValidity | None = None

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
        is_asking = not self._has_asked()
        if not is_asking:
            self._settle(self._outcome)
            self._outcome = _Outcome()
        self._ends_left = _MAX_ENDS
        self._suspects = {did: why for did, why in self._suspects.items() if did in dids}
        self._again_at = {did: at for did, at in self._again_at.items() if did in dids}
        again = [did for did in self._suspects if self._again_at.get(did, math.inf) <= self._monotonic()]
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
        todo = [did for did in self._suspects if did not in self._again_at]
        if todo and not is_asking:
            outcome = _Outcome()
            self._ask_suspects(todo, (len(todo) + 1) // 2, outcome, self._ends_left)
            self._settle(outcome)
            readings.update(outcome.readings)
        for did in self._suspects.keys() - readings.keys():
            why = f"its worker ended at this dataset, which is asked last and alone: {self._suspects[did]}"
            readings[did] = Unseen(why)
        if again and not is_asking:
            ends_at = self._monotonic() + _ASKING_SECONDS
            ask = partial(self._ask_suspects, again, 1, self._outcome, _MAX_ENDS, ends_at)
            self._has_asked = self._start_thread(ask)
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
                self._suspects.update(dict.fromkeys(sorted(end.dids & sound), str(end)))
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

    def _ask_suspects(
        self, todo: list[Did], size: int, outcome: _Outcome, ends_left: int, ends_at: float = math.inf
    ) -> None:
        """Ask a second process about *todo*, *size* datasets at a time, until *ends_at*; fill *outcome*.

        After an end of its process ask about half as many, after an answer about twice as many: perhaps the
        server was sick, and is well now. It may end *ends_left* times.
        """
        self._second = second = self._worker.beside()
        if self._is_closed:  # meanwhile; from here on close ends the second process
            second.close()
        with closing(second):
            while todo and ends_left > 0 and self._monotonic() < ends_at:
                group = todo[:size]
                has_ended_itself = False
                try:
                    self._start(second)
                    began_at = self._monotonic()
                    self._ask_group(group, second, outcome)
                except _WorkerEnded as end:
                    if not end.dids:  # its process did not start, or ended at a general question
                        return
                    has_ended_itself = end.has_ended_itself
                    ends_left = ends_left - 1 if has_ended_itself else 0
                    size = max(1, len(group) // 2)
                    if len(group) == 1:
                        outcome.ends[group[0]] = str(end)
                        del todo[0]
                else:
                    size = 2 * len(group)
                    del todo[: len(group)]
                now = self._monotonic()
                pause_seconds = 0.0 if has_ended_itself else now - began_at
                for did in group:
                    outcome.again_at.pop(did, None)
                    outcome.again_at[did] = now + pause_seconds

    def _ask_group(self, group: list[Did], second: Supervised, outcome: _Outcome) -> None:
        try:
            outcome.readings.update(self._ask(frozenset(group), second).readings)
        except CatalogueError as error:  # the server does not answer: this says nothing about the group
            outcome.readings.update(dict.fromkeys(group, Unseen(error.reason)))
        except ConfigError as error:  # likewise
            outcome.readings.update(dict.fromkeys(group, Unseen(str(error))))
        except WorkerBug as bug:  # the next poll reports it, if it happens again
            outcome.readings.update(dict.fromkeys(group, Unseen(str(bug))))
            outcome.answered.update(group)
        else:
            outcome.answered.update(group)

    def _settle(self, outcome: _Outcome) -> None:
        """Keep what *outcome* says about the suspects; those with an answer are suspects no longer."""
        for did, again_at in outcome.again_at.items():  # the next turn begins with the others
            why = self._suspects.pop(did, None)
            if why is None or did in outcome.answered:
                self._again_at.pop(did, None)
                continue
            self._suspects[did] = outcome.ends.get(did, why)
            if did in outcome.ends or did in self._again_at:
                self._again_at[did] = again_at

    def _ask(self, dids: AbstractSet[Did], second: Supervised | None = None, **more: Any) -> Survey:  # noqa: ANN401  (JSON)
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
        started_at = from_micros(summary.started_at)
        for did, reading in readings.items():
            if reading is earlier.get(did):  # the row is the same as before
                readings[did] = replace(reading, as_of=started_at)
        earlier.update((did, seen) for did, seen in readings.items() if isinstance(seen, Seen))
        if summary.login:
            since, until = summary.login
            self.token_validity = TokenValidity(from_micros_or_none(since), from_micros(until))
        return Survey(
            self.name,
            started_at,
            frozenset(map(Site, summary.sites)),
            readings,
            frozenset(summary.unmapped),
        )

    def _start(self, worker: Supervised) -> None:
        """Start the process of *worker*, if none runs; that it cannot start is the fault of no dataset."""
        try:
            worker.start()
        except (WorkerFailed, WorkerRefused) as failure:
            raise _WorkerEnded(WorkerFailed(str(failure)), frozenset()) from None

    def _exchange(
        self, worker: Supervised, request: Message, receive: Callable[[Mapping[str, Any]], None]
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

"""The polls of catalogues, each in a thread of its own: one that hangs holds up none of the others."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Survey, Unseen
from hydrator.domain.ports import Catalogue, Clock

from .threads import run_in_thread

OVERDUE_AFTER_POLLS = 2
"""A poll under way at which so many others were due is told as trouble; one may be in time, and slow."""
_NOT_ASKED_YET = Unseen("it was not wanted yet when the catalogue was asked; it is asked about next")


@dataclass(frozen=True, slots=True)
class PollResult:
    """One answer of one catalogue: what it was *asked* about, and what it *found* by patterns, if it could.

    ``began`` is when it was first asked, ``took`` how long that took; no time where a clock was set back.
    """

    asked_dids: frozenset[Did]
    answer: Survey | Unseen
    matches: frozenset[Did] | None
    started_at: datetime
    duration: timedelta

    def answer_for(self, demanded_dids: AbstractSet[Did]) -> Survey | Unseen:
        """Return the answer; of what is *wanted* only since it was asked it says nothing."""
        late = demanded_dids - self.asked_dids
        if not late or isinstance(self.answer, Unseen):
            return self.answer
        return replace(self.answer, readings={**self.answer.readings, **dict.fromkeys(late, _NOT_ASKED_YET)})


@dataclass(slots=True)
class _RunningPoll:
    """A poll under way: first the search, then, when the gate of its round opens, the reading."""

    started_at: datetime
    matches: "Future[frozenset[Did] | None]"
    result: "Future[PollResult]"
    is_watched: bool = False
    missed_count: int = 0


@dataclass(slots=True)
class _PollRound:
    """Catalogues that are asked together: what one finds, the others are asked about, too."""

    demanded_dids: frozenset[Did] = frozenset()
    gate: threading.Event = field(default_factory=threading.Event)


class CataloguePoller:
    """Asks *catalogues*, each at most once at a time.

    Args:
        catalogues: each is asked in a thread of its own.
        clock: the time now.
        bugs: takes exceptions that no catalogue should raise.
        answered: called, from any thread, when an answer came that nobody waited for any more.
    """

    def __init__(
        self,
        catalogues: Sequence[Catalogue],
        clock: Clock,
        bugs: BugReporter,
        on_late_answer: Callable[[], None] = lambda: None,
    ) -> None:
        self._catalogues = {one.name: one for one in catalogues}
        self._clock = clock
        self._bugs = bugs
        self._on_late_answer = on_late_answer
        self._running_polls: dict[str, _RunningPoll] = {}
        self._asked_dids: dict[str, frozenset[Did]] = {}

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._catalogues)

    @property
    def running_since(self) -> Mapping[str, datetime]:
        """The catalogues that are being asked, each with since when."""
        return {name: poll.started_at for name, poll in self._running_polls.items()}

    def mark_due(self) -> frozenset[str]:
        """Note that all are due, and return those that were due before while they were being asked as now."""
        for poll in self._running_polls.values():
            poll.missed_count += not poll.result.done()
        return frozenset(
            name for name, poll in self._running_polls.items() if poll.missed_count >= OVERDUE_AFTER_POLLS
        )

    def names_to_ask(self, demanded_dids: AbstractSet[Did]) -> frozenset[str]:
        """Return the catalogues that were never asked about some of *wanted*."""
        return frozenset(
            name for name in self.names if not demanded_dids <= self._asked_dids.get(name, frozenset())
        )

    def poll(
        self,
        names: Collection[str],
        patterns: Collection[str],
        choose_dids: Callable[[Mapping[str, frozenset[Did]]], frozenset[Did]],
        timeout: timedelta | None,
    ) -> dict[str, PollResult]:
        """Begin a poll at those of *names* that are idle, and take what answers there are within *patience*.

        Args:
            names: the catalogues that are due.
            patterns: what they are searched for; none: nothing is searched for.
            wanted: the datasets to ask about, given what each catalogue found; also at the end of a search
                that was begun before.
            patience: how long to wait for searches, and again for answers; None: until all are there.

        Returns:
            By catalogue its answer, each exactly once; none of a catalogue that is still being asked.
        """
        seconds = None if timeout is None else timeout.total_seconds()
        idle = [name for name in names if name not in self._running_polls]
        turn = _PollRound()
        for name in idle:
            self._begin(name, patterns, turn)
        started = [self._running_polls[name] for name in idle]
        wait([poll.matches for poll in started], seconds)
        found = {
            name: dids
            for name, poll in self._running_polls.items()
            if poll.matches.done() and (dids := poll.matches.result()) is not None
        }
        try:
            turn.demanded_dids = choose_dids(found)
        finally:
            turn.gate.set()
        wait(
            [poll.result for poll in (self._running_polls.values() if timeout is None else started)], seconds
        )
        return self._take_results()

    def _begin(self, name: str, patterns: Collection[str], poll_round: _PollRound) -> None:
        catalogue = self._catalogues[name]
        since = self._clock()
        found: Future[frozenset[Did] | None] = Future()

        def poll() -> PollResult:
            here = self._search(catalogue, patterns)
            found.set_result(here)
            poll_round.gate.wait()
            asked = poll_round.demanded_dids | (here or frozenset())
            answer, took = self._read_and_time(catalogue, asked)
            return PollResult(asked, answer, here, since, took)

        self._running_polls[name] = _RunningPoll(since, found, run_in_thread(f"catalogue {name}", poll))

    def _take_results(self) -> dict[str, PollResult]:
        taken = {}
        for name, poll in list(self._running_polls.items()):
            if poll.result.done():
                del self._running_polls[name]
                taken[name] = poll.result.result()
                self._asked_dids[name] = taken[name].asked_dids
            elif not poll.is_watched:
                poll.is_watched = True
                poll.result.add_done_callback(lambda _: self._on_late_answer())
        return taken

    def _read_and_time(self, catalogue: Catalogue, dids: frozenset[Did]) -> tuple[Survey | Unseen, timedelta]:
        begun = self._clock()
        answer = read_catalogue(catalogue, dids, self._bugs)
        return answer, max(self._clock() - begun, timedelta())

    def _search(self, catalogue: Catalogue, patterns: Collection[str]) -> frozenset[Did] | None:
        if not patterns:
            return None
        part = f"the search in catalogue {catalogue.name}"
        try:
            found = frozenset(catalogue.find(patterns))
        except CatalogueError:
            return None
        except BaseException as error:  # noqa: BLE001 - its bug is its failure alone
            self._bugs.report(part, error)
            return None
        self._bugs.mark_resolved(part)
        return found


def read_catalogue(catalogue: Catalogue, dids: AbstractSet[Did], bugs: BugReporter) -> Survey | Unseen:
    """Ask one catalogue; whatever it raises, and an answer that is none, is Unseen."""
    part = f"catalogue {catalogue.name}"
    try:
        answer = catalogue.read(dids)
        _require_survey(answer)
    except CatalogueError as error:
        return Unseen(error.reason)
    except BaseException as error:  # noqa: BLE001 - its bug is its failure alone
        return Unseen(bugs.report(part, error))
    bugs.mark_resolved(part)
    return answer


def _require_survey(answer: object) -> None:
    """Raise TypeError where *answer* is none that a cycle can work with."""
    if not isinstance(answer, Survey):
        raise TypeError(f"its answer is a {type(answer).__name__}, not a Survey")
    at: object = answer.started_at
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise TypeError("the time of its answer is no aware datetime")

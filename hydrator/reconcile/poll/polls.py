"""The polls of catalogues, each in a thread of its own: one that hangs holds up none of the others."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hydrator.domain.bugs import Bugs
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Survey, Unseen
from hydrator.domain.ports import Catalogue, Clock

from .threads import in_thread

OVERDUE = 2
"""A poll under way at which so many others were due is told as trouble; one may be in time, and slow."""
_UNASKED = Unseen("it was not wanted yet when the catalogue was asked; it is asked about next")


@dataclass(frozen=True, slots=True)
class Polled:
    """One answer of one catalogue: what it was *asked* about, and what it *found* by patterns, if it could.

    ``began`` is when it was first asked, ``took`` how long that took; no time where a clock was set back.
    """

    asked: frozenset[Did]
    answer: Survey | Unseen
    found: frozenset[Did] | None
    began: datetime
    took: timedelta

    def about(self, wanted: AbstractSet[Did]) -> Survey | Unseen:
        """Return the answer; of what is *wanted* only since it was asked it says nothing."""
        late = wanted - self.asked
        if not late or isinstance(self.answer, Unseen):
            return self.answer
        return replace(self.answer, readings={**self.answer.readings, **dict.fromkeys(late, _UNASKED)})


@dataclass(slots=True)
class _Poll:
    """A poll under way: first the search, then, when the gate of its round opens, the reading."""

    since: datetime
    found: "Future[frozenset[Did] | None]"
    end: "Future[Polled]"
    watched: bool = False
    missed: int = 0


@dataclass(slots=True)
class _Round:
    """Catalogues that are asked together: what one finds, the others are asked about, too."""

    wanted: frozenset[Did] = frozenset()
    gate: threading.Event = field(default_factory=threading.Event)


class Polls:
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
        bugs: Bugs,
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        self._catalogues = {one.name: one for one in catalogues}
        self._clock = clock
        self._bugs = bugs
        self._answered = answered
        self._running: dict[str, _Poll] = {}
        self._asked: dict[str, frozenset[Did]] = {}

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._catalogues)

    @property
    def busy(self) -> Mapping[str, datetime]:
        """The catalogues that are being asked, each with since when."""
        return {name: poll.since for name, poll in self._running.items()}

    def overdue(self) -> frozenset[str]:
        """Note that all are due, and return those that were due before while they were being asked as now."""
        for poll in self._running.values():
            poll.missed += not poll.end.done()
        return frozenset(name for name, poll in self._running.items() if poll.missed >= OVERDUE)

    def lacking(self, wanted: AbstractSet[Did]) -> frozenset[str]:
        """Return the catalogues that were never asked about some of *wanted*."""
        return frozenset(name for name in self.names if not wanted <= self._asked.get(name, frozenset()))

    def ask(
        self,
        names: Collection[str],
        patterns: Collection[str],
        wanted: Callable[[Mapping[str, frozenset[Did]]], frozenset[Did]],
        patience: timedelta | None,
    ) -> dict[str, Polled]:
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
        seconds = None if patience is None else patience.total_seconds()
        idle = [name for name in names if name not in self._running]
        turn = _Round()
        for name in idle:
            self._begin(name, patterns, turn)
        started = [self._running[name] for name in idle]
        wait([poll.found for poll in started], seconds)
        found = {
            name: dids
            for name, poll in self._running.items()
            if poll.found.done() and (dids := poll.found.result()) is not None
        }
        try:
            turn.wanted = wanted(found)
        finally:
            turn.gate.set()
        wait([poll.end for poll in (self._running.values() if patience is None else started)], seconds)
        return self._taken()

    def _begin(self, name: str, patterns: Collection[str], turn: _Round) -> None:
        catalogue = self._catalogues[name]
        since = self._clock()
        found: Future[frozenset[Did] | None] = Future()

        def poll() -> Polled:
            here = self._search(catalogue, patterns)
            found.set_result(here)
            turn.gate.wait()
            asked = turn.wanted | (here or frozenset())
            answer, took = self._timed(catalogue, asked)
            return Polled(asked, answer, here, since, took)

        self._running[name] = _Poll(since, found, in_thread(f"catalogue {name}", poll))

    def _taken(self) -> dict[str, Polled]:
        taken = {}
        for name, poll in list(self._running.items()):
            if poll.end.done():
                del self._running[name]
                taken[name] = poll.end.result()
                self._asked[name] = taken[name].asked
            elif not poll.watched:
                poll.watched = True
                poll.end.add_done_callback(lambda _: self._answered())
        return taken

    def _timed(self, catalogue: Catalogue, dids: frozenset[Did]) -> tuple[Survey | Unseen, timedelta]:
        begun = self._clock()
        answer = read(catalogue, dids, self._bugs)
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
            self._bugs.caught(part, error)
            return None
        self._bugs.over(part)
        return found


def read(catalogue: Catalogue, dids: AbstractSet[Did], bugs: Bugs) -> Survey | Unseen:
    """Ask one catalogue; whatever it raises, and an answer that is none, is Unseen."""
    part = f"catalogue {catalogue.name}"
    try:
        answer = catalogue.read(dids)
        _check(answer)
    except CatalogueError as error:
        return Unseen(error.reason)
    except BaseException as error:  # noqa: BLE001 - its bug is its failure alone
        return Unseen(bugs.caught(part, error))
    bugs.over(part)
    return answer


def _check(answer: object) -> None:
    """Raise TypeError where *answer* is none that a cycle can work with."""
    if not isinstance(answer, Survey):
        raise TypeError(f"its answer is a {type(answer).__name__}, not a Survey")
    at: object = answer.at
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise TypeError("the time of its answer is no aware datetime")

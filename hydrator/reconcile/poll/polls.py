"""Polls of catalogues, each in a thread of its own: one that hangs delays no other."""

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
"""A running poll is overdue once this many later polls were due; after one it may just be slow."""
_NOT_ASKED_YET = Unseen("it was not wanted yet when the catalogue was asked; it is asked about next")


@dataclass(frozen=True, slots=True)
class PollResult:
    """One answer of one catalogue: the datasets it was asked about, and its pattern matches, if any.

    ``started_at`` is when it was first asked, ``duration`` how long that took; zero if the clock was set
    back.
    """

    asked_dids: frozenset[Did]
    answer: Survey | Unseen
    matches: frozenset[Did] | None
    started_at: datetime
    duration: timedelta

    def answer_for(self, demanded_dids: AbstractSet[Did]) -> Survey | Unseen:
        """Return the answer; a dataset that became demanded after the poll began is Unseen in it."""
        new_dids = demanded_dids - self.asked_dids
        if not new_dids or isinstance(self.answer, Unseen):
            return self.answer
        return replace(
            self.answer, readings={**self.answer.readings, **dict.fromkeys(new_dids, _NOT_ASKED_YET)}
        )


@dataclass(slots=True)
class _RunningPoll:
    """A running poll: first the search, then, when the gate of its round opens, the reading."""

    started_at: datetime
    matches: "Future[frozenset[Did] | None]"
    result: "Future[PollResult]"
    is_watched: bool = False
    missed_count: int = 0


@dataclass(slots=True)
class _PollRound:
    """Catalogues that are polled together: a match of one is asked of the others, too."""

    demanded_dids: frozenset[Did] = frozenset()
    gate: threading.Event = field(default_factory=threading.Event)


class CataloguePoller:
    """Polls *catalogues*, each at most once at a time.

    Args:
        catalogues: each is polled in a thread of its own.
        clock: the time now.
        bugs: counts and logs exceptions that no catalogue should raise.
        on_late_answer: called, from any thread, when an answer came that no cycle waited for any more.
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
        """Return the catalogues that are being polled, each with the start of its poll."""
        return {name: poll.started_at for name, poll in self._running_polls.items()}

    def mark_due(self) -> frozenset[str]:
        """Record that all catalogues are due; return those due at least twice during their running poll."""
        for poll in self._running_polls.values():
            poll.missed_count += not poll.result.done()
        return frozenset(
            name for name, poll in self._running_polls.items() if poll.missed_count >= OVERDUE_AFTER_POLLS
        )

    def names_to_ask(self, demanded_dids: AbstractSet[Did]) -> frozenset[str]:
        """Return the catalogues that were never asked about some of *demanded_dids*."""
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
        """Begin a poll of each idle catalogue in *names*; return the answers that arrive within *timeout*.

        Args:
            names: the catalogues that are due.
            patterns: what they are searched for; none: no search.
            choose_dids: returns the datasets to ask about, given the matches of each catalogue; also at the
                end of a search that began before.
            timeout: how long to wait for searches, and again for answers; None: until all have arrived.

        Returns:
            By catalogue its answer, each exactly once; nothing of a catalogue whose poll is still running.
        """
        seconds = None if timeout is None else timeout.total_seconds()
        idle_names = [name for name in names if name not in self._running_polls]
        poll_round = _PollRound()
        for name in idle_names:
            self._begin(name, patterns, poll_round)
        new_polls = [self._running_polls[name] for name in idle_names]
        wait([poll.matches for poll in new_polls], seconds)
        matches = {
            name: dids
            for name, poll in self._running_polls.items()
            if poll.matches.done() and (dids := poll.matches.result()) is not None
        }
        try:
            poll_round.demanded_dids = choose_dids(matches)
        finally:
            poll_round.gate.set()
        wait(
            [poll.result for poll in (self._running_polls.values() if timeout is None else new_polls)],
            seconds,
        )
        return self._take_results()

    def _begin(self, name: str, patterns: Collection[str], poll_round: _PollRound) -> None:
        catalogue = self._catalogues[name]
        started_at = self._clock()
        matches: Future[frozenset[Did] | None] = Future()

        def poll() -> PollResult:
            own_matches = self._search(catalogue, patterns)
            matches.set_result(own_matches)
            poll_round.gate.wait()
            dids = poll_round.demanded_dids | (own_matches or frozenset())
            answer, duration = self._read_and_time(catalogue, dids)
            return PollResult(dids, answer, own_matches, started_at, duration)

        self._running_polls[name] = _RunningPoll(
            started_at, matches, run_in_thread(f"catalogue {name}", poll)
        )

    def _take_results(self) -> dict[str, PollResult]:
        results = {}
        for name, poll in list(self._running_polls.items()):
            if poll.result.done():
                del self._running_polls[name]
                results[name] = poll.result.result()
                self._asked_dids[name] = results[name].asked_dids
            elif not poll.is_watched:
                poll.is_watched = True
                poll.result.add_done_callback(lambda _: self._on_late_answer())
        return results

    def _read_and_time(self, catalogue: Catalogue, dids: frozenset[Did]) -> tuple[Survey | Unseen, timedelta]:
        started_at = self._clock()
        answer = read_catalogue(catalogue, dids, self._bugs)
        return answer, max(self._clock() - started_at, timedelta())

    def _search(self, catalogue: Catalogue, patterns: Collection[str]) -> frozenset[Did] | None:
        if not patterns:
            return None
        part = f"the search in catalogue {catalogue.name}"
        try:
            matches = frozenset(catalogue.find(patterns))
        except CatalogueError:
            return None
        except BaseException as error:  # noqa: BLE001 - its bug is its failure alone
            self._bugs.report(part, error)
            return None
        self._bugs.mark_resolved(part)
        return matches


def read_catalogue(catalogue: Catalogue, dids: AbstractSet[Did], bugs: BugReporter) -> Survey | Unseen:
    """Read one catalogue; any exception, and an answer that is not a Survey, become Unseen."""
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
    """Raise TypeError if a cycle cannot work with *answer*."""
    if not isinstance(answer, Survey):
        raise TypeError(f"its answer is a {type(answer).__name__}, not a Survey")
    at: object = answer.started_at
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise TypeError("the time of its answer is not an aware datetime")

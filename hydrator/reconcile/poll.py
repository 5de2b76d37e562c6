"""Polls of catalogues and schedds: each has its own thread, so one that hangs does not delay the others."""

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import CatalogueError, PoolError
from hydrator.domain.model import Did, ScheddDemand, Survey, Unseen
from hydrator.domain.ports import Catalogue, Clock, PoolReader, PoolSnapshot
from hydrator.reconcile.demand import DemandMemory
from hydrator.reconcile.threads import THREADS, Threads

OVERDUE_AFTER_POLLS = 2
"""A running poll is overdue when this many later polls were due; after one later poll it may just be slow."""
_NOT_ASKED_YET = Unseen(
    "the query began before the dataset was demanded; the next query will have the dataset"
)


@dataclass(frozen=True, slots=True)
class PollResult:
    """One answer of one catalogue, with the datasets of the query and the matches of the patterns, if any.

    ``duration`` is the time that the query of the datasets took; zero if the clock was set back.
    """

    asked_dids: frozenset[Did]
    answer: Survey | Unseen
    matches: frozenset[Did] | None
    duration: timedelta

    def answer_for(self, demanded_dids: AbstractSet[Did]) -> Survey | Unseen:
        """Return the answer, with Unseen for each dataset that became demanded after the poll began."""
        new_dids = demanded_dids - self.asked_dids
        if not new_dids or isinstance(self.answer, Unseen):
            return self.answer
        return replace(
            self.answer, readings={**self.answer.readings, **dict.fromkeys(new_dids, _NOT_ASKED_YET)}
        )


@dataclass(slots=True)
class _RunningPoll:
    """A running poll of one catalogue.

    The poll first searches for the patterns. Then it waits for the datasets to query, because these include
    what the searches in other catalogues found.
    """

    started_at: datetime
    matches: "Future[frozenset[Did] | None]"
    result: "Future[PollResult]"
    is_watched: bool = False
    missed_count: int = 0


class CataloguePoller:
    """A poller of *catalogues*, with at most one running poll for each catalogue.

    Args:
        catalogues: the catalogues; the poller queries each in its own thread.
        clock: aware UTC time.
        bugs: counts and logs exceptions that no catalogue should raise.
        on_late_answer: called from any thread when an answer arrives after the cycle stopped waiting for it.
        threads: run the polls.
    """

    def __init__(
        self,
        catalogues: Sequence[Catalogue],
        clock: Clock,
        bugs: BugReporter,
        on_late_answer: Callable[[], None] = lambda: None,
        threads: Threads = THREADS,
    ) -> None:
        self._threads = threads
        self._catalogues = {one.name: one for one in catalogues}
        self._clock = clock
        self._bugs = bugs
        self._on_late_answer = on_late_answer
        self._running_polls: dict[str, _RunningPoll] = {}
        self._asked_dids: dict[str, frozenset[Did]] = {}
        self.search_failures: dict[str, str] = {}
        """The reason, by catalogue, why its last search for the patterns failed."""
        self.searched_names: set[str] = set()
        """The catalogues that have been searched for the patterns."""

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._catalogues)

    @property
    def running_since(self) -> Mapping[str, datetime]:
        """Return the catalogues with a running poll, each with the start of this poll."""
        return {name: poll.started_at for name, poll in self._running_polls.items()}

    def mark_due(self) -> frozenset[str]:
        """Record that a poll of all catalogues is due; return the overdue catalogues.

        A catalogue is overdue if, during its running poll, OVERDUE_AFTER_POLLS later polls were due.
        """
        for poll in self._running_polls.values():
            poll.missed_count += not poll.result.done()
        return frozenset(
            name for name, poll in self._running_polls.items() if poll.missed_count >= OVERDUE_AFTER_POLLS
        )

    def names_to_ask(self, demanded_dids: AbstractSet[Did]) -> list[str]:
        """Return the catalogues whose last query did not ask about all *demanded_dids*."""
        return [name for name in self.names if not demanded_dids <= self._asked_dids.get(name, frozenset())]

    def poll(
        self,
        names: Collection[str],
        patterns: Collection[str],
        choose_dids: Callable[[Mapping[str, frozenset[Did]]], frozenset[Did]],
        timeout: timedelta | None,
    ) -> dict[str, PollResult]:
        """Begin a poll of each idle catalogue in *names*; return the answers that arrive within *timeout*.

        Args:
            names: the catalogues to poll.
            patterns: the patterns to search for in each catalogue; if empty, do not search.
            choose_dids: a function that returns the datasets to query, from the matches of each catalogue.
                The matches include those of earlier polls that are still running.
            timeout: the maximum wait for searches, and again for answers; None for no limit.

        Returns:
            The answer of each catalogue whose poll has ended. No answer is returned twice.
        """
        idle_names = [name for name in names if name not in self._running_polls]
        demanded: Future[frozenset[Did]] = Future()
        for name in idle_names:
            self._begin(name, patterns, demanded)
        new_polls = [self._running_polls[name] for name in idle_names]
        self._threads.wait([poll.matches for poll in new_polls], timeout)
        matches = {
            name: dids
            for name, poll in self._running_polls.items()
            if poll.matches.done() and (dids := poll.matches.result()) is not None
        }
        self.searched_names |= matches.keys()
        try:
            demanded.set_result(choose_dids(matches))
        except BaseException:
            demanded.set_result(frozenset())
            raise
        awaited = self._running_polls.values() if timeout is None else new_polls
        self._threads.wait([poll.result for poll in awaited], timeout)
        return self._take_results()

    def _begin(self, name: str, patterns: Collection[str], demanded: "Future[frozenset[Did]]") -> None:
        catalogue = self._catalogues[name]
        started_at = self._clock()
        matches: Future[frozenset[Did] | None] = Future()

        def poll() -> PollResult:
            own_matches = self._search(catalogue, patterns)
            matches.set_result(own_matches)
            self._threads.wait([demanded])
            dids = demanded.result() | (own_matches or frozenset())
            begun_at = self._clock()
            answer = read_catalogue(catalogue, dids, self._bugs)
            duration = max(self._clock() - begun_at, timedelta())
            if isinstance(answer, Survey):  # the clock of a plugin may be ahead
                answer = replace(answer, started_at=min(answer.started_at, started_at))
            return PollResult(dids, answer, own_matches, duration)

        result = self._threads.start(f"catalogue {name}", poll)
        self._running_polls[name] = _RunningPoll(started_at, matches, result)

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

    def _search(self, catalogue: Catalogue, patterns: Collection[str]) -> frozenset[Did] | None:
        if not patterns:
            return None
        part = f"the search in catalogue {catalogue.name}"
        matches = self._bugs.attempt(part, lambda: frozenset(catalogue.find(patterns)), CatalogueError)
        if isinstance(matches, Unseen):
            self.search_failures[catalogue.name] = f"the search for [demand] patterns: {matches.reason}"
            return None
        self.search_failures.pop(catalogue.name, None)
        return matches


def read_catalogue(catalogue: Catalogue, dids: AbstractSet[Did], bugs: BugReporter) -> Survey | Unseen:
    """Query one catalogue about *dids*. Return Unseen if it raises an exception."""
    return bugs.attempt(f"catalogue {catalogue.name}", lambda: catalogue.read(dids), CatalogueError)


PoolAnswer = PoolSnapshot | Unseen
"""The snapshot of the pool; or the reason why the collector could not list the schedds."""


class DemandPoller:
    """A poller of the schedds. Only :meth:`query` is thread-safe.

    Args:
        pool: the schedds' queues; None if only pins and patterns name datasets.
        bugs: counts and logs exceptions that *pool* should not raise.
    """

    def __init__(self, pool: PoolReader | None, bugs: BugReporter) -> None:
        self._pool = pool
        self._bugs = bugs
        self.answers: Mapping[str, ScheddDemand | Unseen] = {}
        self.error: str | None = None
        self._listed_schedds: set[str] = set()
        self._answered_schedds: set[str] = set()
        self._has_listed_schedds = False

    def query(self, *, waits: bool = False) -> PoolAnswer | None:
        """Query the pool; return the answer for :meth:`record`, None without a pool. It may be slow.

        *waits*: see :meth:`hydrator.domain.ports.PoolReader.read_snapshot`.
        """
        if self._pool is None:
            return None
        query = partial(self._pool.read_snapshot, waits=waits)
        return self._bugs.attempt("the query of schedds", query, PoolError, describe=str)

    def record(self, answer: PoolAnswer | None, memory: DemandMemory) -> None:
        """Store *answer*; if the collector did not list the schedds, store Unseen for each known schedd."""
        answers: Mapping[str, ScheddDemand | Unseen] = {}
        self.error = answer.reason if isinstance(answer, Unseen) else None
        if isinstance(answer, Unseen):
            known_schedds = self.answers.keys() | {jobs.schedd for jobs in memory.entries}
            answers = dict.fromkeys(known_schedds, answer)
        elif answer:
            answers = {
                schedd: one if isinstance(one, Unseen) else one.demand
                for schedd, one in answer.answers.items()
            }
            self._has_listed_schedds |= bool(answers)  # a collector that has just started lists none
        self.answers = answers
        self._listed_schedds |= answers.keys()
        self._answered_schedds |= {
            schedd for schedd, answer in self.answers.items() if isinstance(answer, ScheddDemand)
        }

    def unanswered_sources(self) -> list[str]:
        """Return the names, such as ``schedd ap1``, of the schedds that have not answered yet.

        A schedd that has left the pool without an answer is one of them: a collector forgets a silent schedd.
        If the collector has never listed any schedd, return ``all schedds``.
        """
        if self._pool and not self._has_listed_schedds:
            return ["all schedds"]
        return sorted(f"schedd {schedd}" for schedd in self._listed_schedds - self._answered_schedds)

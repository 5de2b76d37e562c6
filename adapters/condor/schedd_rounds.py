"""Rounds of queries to all schedds of a pool: parallel, with a time limit and a backoff for slow schedds.

A round does not wait for a schedd that takes long: the next round returns its answer.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from hydrator.domain.ads import contract
from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Site, Unseen
from hydrator.domain.ports import Clock, StepReporter

from .bindings.client import CondorClient

_T = TypeVar("_T")
MAX_CONCURRENT_SCHEDDS = 8
"""Maximum number of schedds queried at once; each beyond the first needs a child process meanwhile."""
STALL_AFTER = timedelta(seconds=1)
"""After this time without an answer, one more schedd is queried in parallel."""
BUDGET = timedelta(seconds=5)
"""After this time a round queries no more schedds that did not answer the last time.

A round that need not wait ends, if none has answered for STALL_AFTER.
"""
MAX_BACKOFF = timedelta(minutes=5)
"""The longest pause before a schedd without an answer is queried again."""


@dataclass(slots=True)
class _ScheddStatus:
    """The last query of a schedd: the time of the query, and the failure, if any.

    *timeouts_in_row* counts consecutive queries that failed after STALL_AFTER or more. The next query
    is sent after *backoff_until*.
    """

    asked_at: float = 0.0
    failure: str = (
        "not queried yet, because other schedds took too long to answer; this schedd is among the next"
    )
    has_answered: bool = False
    timeouts_in_row: int = 0
    backoff_until: float = 0.0


class ScheddRounds:
    """Separate queries of all schedds that the collector lists: a hanging schedd delays only its own answer.

    Args:
        client: the client that queries the collector and the schedds; ``close`` also closes the client.
            The daemon's cycles use another client, because an answer may take long.
        make_client: a function that makes further clients. Without this function, one schedd is queried at
            a time.
        monotonic: a clock that never goes back.
        reporter: gets the number of schedds, and each answer as a step.
    """

    def __init__(
        self,
        client: CondorClient,
        make_client: Callable[[], CondorClient] | None = None,
        *,
        stall: timedelta = STALL_AFTER,
        budget: timedelta = BUDGET,
        monotonic: Callable[[], float] = time.monotonic,
        reporter: StepReporter | None = None,
    ) -> None:
        self._client = client
        self._make_client = make_client
        self._max_concurrent = MAX_CONCURRENT_SCHEDDS if make_client else 1
        self._stall_seconds = stall.total_seconds()
        self._budget_seconds = budget.total_seconds()
        self._monotonic = monotonic
        self._reporter = reporter
        self._statuses: dict[str, _ScheddStatus] = {}
        self._lock = threading.Lock()
        self._extra_clients: set[CondorClient] = set()
        self._asked_schedds: set[str] = set()
        self._late_answers: dict[str, Any] = {}
        self._is_closed = False
        self._bugs = BugReporter()

    def ask(
        self, question: Callable[[CondorClient, str], _T], *, waits: bool = True
    ) -> dict[str, _T | Unseen]:
        """Run *question* for each schedd; return, by schedd name, the answer or the reason why there is none.

        Without *waits*, leave the schedds that take long to the next round, with the same question.

        Raises:
            PoolError: the collector did not return the list of schedds.
        """
        names = [str(ad["Name"]) for ad in self._client.schedds()]
        with self._lock:
            self._statuses = {name: self._statuses.get(name) or _ScheddStatus() for name in names}
        started_at = self._monotonic()
        idle = [name for name in names if name not in self._asked_schedds]
        due = [name for name in idle if self._statuses[name].backoff_until <= started_at]
        due.sort(key=lambda name: (not self._statuses[name].has_answered, self._statuses[name].asked_at))
        if self._reporter:
            self._reporter.set_steps(len(due))
        query = _ScheddQuery(question, deque(due), started_at + self._budget_seconds, {})
        self._run_workers(query, waits=waits)
        with self._lock:
            query.is_over = True
            answers = {**self._late_answers, **query.answers}
            self._late_answers.clear()
        return {
            name: answers[name] if name in answers else Unseen(self._statuses[name].failure) for name in names
        }

    def close(self) -> None:
        """Stop the clients, also during a query."""
        with self._lock:
            self._is_closed = True
            clients = [*self._extra_clients, self._client]
        for client in clients:
            client.close()

    def _run_workers(self, query: "_ScheddQuery[_T]", *, waits: bool) -> None:
        pool = ThreadPoolExecutor(self._max_concurrent, thread_name_prefix="schedds")
        workers = [pool.submit(self._ask_schedds, query, self._client)]
        answer_count = 0
        while wait(workers, self._stall_seconds).not_done:
            is_stalled, answer_count = len(query.answers) == answer_count, len(query.answers)
            if not is_stalled:
                continue
            busy_count = max(len(workers), len(self._asked_schedds))  # earlier rounds may still wait, too
            if query.waiting_schedds and self._make_client and busy_count < self._max_concurrent:
                workers.append(pool.submit(self._work_with_new_client, query, self._make_client))
            elif not waits and self._monotonic() > query.deadline_at:
                break
        pool.shutdown(wait=False)
        if self._make_client and not workers[0].done():
            self._replace_client(workers[0], self._make_client)
        for worker in workers:
            if worker.done():
                worker.result()

    def _replace_client(self, worker: "Future[None]", make_client: Callable[[], CondorClient]) -> None:
        """Use a new client from now on, since *worker* still waits for an answer with the present one."""
        with self._lock:
            busy = self._client
            self._extra_clients.add(busy)
            self._client = make_client()
        worker.add_done_callback(lambda _: self._close_extra_client(busy))

    def _close_extra_client(self, client: CondorClient) -> None:
        with self._lock:
            self._extra_clients.discard(client)
        client.close()

    def _work_with_new_client(
        self, query: "_ScheddQuery[_T]", make_client: Callable[[], CondorClient]
    ) -> None:
        """Query the schedds that still wait, with a new client; close this client at the end."""
        with self._lock:
            if self._is_closed:
                return
            client = make_client()
            self._extra_clients.add(client)
        try:
            self._ask_schedds(query, client)
        finally:
            self._close_extra_client(client)

    def _ask_schedds(self, query: "_ScheddQuery[_T]", client: CondorClient) -> None:
        while name := self._next_schedd(query):
            started_at = self._monotonic()
            answer: _T | Unseen
            try:
                answer = query.question(client, name)
            except PoolError as error:
                answer = Unseen(error.reason)
            except Exception as error:  # noqa: BLE001 - a failure affects this schedd only
                answer = Unseen(self._bugs.report(f"query of schedd {name}", error))
            else:
                self._bugs.mark_resolved(f"query of schedd {name}")
            self._record(query, name, answer, started_at)
            if self._reporter:
                self._reporter.advance()
            if isinstance(answer, Unseen) and self._monotonic() > query.deadline_at:
                return  # the query of the next schedd may take as long as this query

    def _record(self, query: "_ScheddQuery[_T]", name: str, answer: _T | Unseen, started_at: float) -> None:
        """Keep *answer*, for the next round if this one is over, unless the schedd has left the pool."""
        with self._lock:
            self._asked_schedds.discard(name)
            status = self._statuses.get(name)
            if status is None:
                return
            if isinstance(answer, Unseen):
                self._record_failure(status, answer.reason, started_at)
            else:
                self._statuses[name] = _ScheddStatus(started_at, has_answered=True)
            if not query.is_over:
                query.answers[name] = answer
            elif not isinstance(answer, Unseen):
                self._late_answers[name] = answer

    def _next_schedd(self, query: "_ScheddQuery[_T]") -> str | None:
        with self._lock:
            is_late = self._monotonic() > query.deadline_at
            if (
                not query.waiting_schedds
                or self._is_closed
                or query.is_over
                or (is_late and not self._statuses[query.waiting_schedds[0]].has_answered)
            ):
                return None
            name = query.waiting_schedds.popleft()
            self._asked_schedds.add(name)
            status = self._statuses[name]
            if status.has_answered or not status.asked_at:
                status.failure = "no answer yet"
            return name

    def _record_failure(self, status: _ScheddStatus, reason: str, started_at: float) -> None:
        now = self._monotonic()
        duration = now - started_at
        status.asked_at, status.failure, status.has_answered = started_at, reason, False
        status.timeouts_in_row = status.timeouts_in_row + 1 if duration >= self._stall_seconds else 0
        backoff_seconds = 0.0
        if status.timeouts_in_row:
            backoff_seconds = min(duration * 2 ** (status.timeouts_in_row - 1), MAX_BACKOFF.total_seconds())
        status.backoff_until = now + backoff_seconds


class SiteRounds(ScheddRounds):
    """Rounds of queries about jobs, whose answers also need the sites of slots, from the collector.

    Args:
        client: queries the collector and the schedds.
        clock: the current time.
        site_attributes: names of slot attributes; the first that a slot has gives the slot's site.
        make_client: makes further clients, if some schedds do not answer.
    """

    def __init__(
        self,
        client: CondorClient,
        clock: Clock,
        site_attributes: Sequence[str],
        make_client: Callable[[], CondorClient] | None = None,
    ) -> None:
        super().__init__(client, make_client)
        self._clock = clock
        self._site_attributes = tuple(dict.fromkeys((contract.SITE, *site_attributes)))

    def _find_site(self, ad: Mapping[str, Any]) -> Site | None:
        site = contract.first_site(ad.get(name) for name in self._site_attributes)
        return Site(site) if site else None

    def _read_sites_by_slot(self, constraint: str, client: CondorClient | None = None) -> dict[str, Site]:
        """Return the sites of the slots that match *constraint*, by name; none if the collector fails.

        A query of a schedd gives its own *client*, because another one may wait for an answer.
        """
        try:
            ads = (client or self._client).slots([*self._site_attributes, "Name"], constraint)
        except PoolError:
            return {}
        sites = ((str(ad["Name"]), self._find_site(ad)) for ad in ads)
        return {name: site for name, site in sites if site is not None}


@dataclass(slots=True)
class _ScheddQuery(Generic[_T]):
    """One round: the question, the schedds that still wait, the deadline, and the answers so far."""

    question: Callable[[CondorClient, str], _T]
    waiting_schedds: deque[str]
    deadline_at: float
    answers: dict[str, _T | Unseen]
    is_over: bool = False

"""Rounds of queries to all schedds of a pool: parallel, with a time limit and a backoff for slow schedds."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

import structlog

from hydrator.domain.ads import contract
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Site, Unseen
from hydrator.domain.ports import Clock, StepReporter
from hydrator.domain.text import link_to_bug_report

from .bindings.client import CondorClient, QueueClient

_T = TypeVar("_T")
_log = structlog.get_logger("hydrator")
MAX_CONCURRENT_SCHEDDS = 8
"""Maximum number of schedds queried at once; each beyond the first needs a child process meanwhile."""
STALL_AFTER = timedelta(seconds=1)
"""After this time without an answer, one more schedd is queried in parallel."""
BUDGET = timedelta(seconds=5)
"""After this time a round queries no more schedds that did not answer the last time."""
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
        client: QueueClient,
        make_client: Callable[[], QueueClient] | None = None,
        *,
        max_concurrent: int = MAX_CONCURRENT_SCHEDDS,
        stall: timedelta = STALL_AFTER,
        budget: timedelta = BUDGET,
        monotonic: Callable[[], float] = time.monotonic,
        reporter: StepReporter | None = None,
    ) -> None:
        self._client = client
        self._make_client = make_client
        self._max_concurrent = max_concurrent if make_client else 1
        self._stall_seconds = stall.total_seconds()
        self._budget_seconds = budget.total_seconds()
        self._monotonic = monotonic
        self._reporter = reporter
        self._statuses: dict[str, _ScheddStatus] = {}
        self._lock = threading.Lock()
        self._extra_clients: set[QueueClient] = set()
        self._is_closed = False

    def ask(self, question: Callable[[QueueClient, str], _T]) -> dict[str, _T | Unseen]:
        """Run *question* for each schedd; return, by schedd name, the answer or the reason why there is none.

        Raises:
            PoolError: the collector did not return the list of schedds.
        """
        names = [str(ad["Name"]) for ad in self._client.schedds()]
        self._statuses = {name: self._statuses.get(name) or _ScheddStatus() for name in names}
        started_at = self._monotonic()
        due = [name for name in names if self._statuses[name].backoff_until <= started_at]
        due.sort(key=lambda name: (not self._statuses[name].has_answered, self._statuses[name].asked_at))
        if self._reporter:
            self._reporter.set_steps(len(due))
        query = _ScheddQuery(question, deque(due), started_at + self._budget_seconds, {})
        self._run_workers(query)
        return {name: query.answers.get(name, Unseen(self._statuses[name].failure)) for name in names}

    def close(self) -> None:
        """Stop the clients, also during a query."""
        with self._lock:
            self._is_closed = True
            clients = [*self._extra_clients, self._client]
        for client in clients:
            client.close()

    def _run_workers(self, query: "_ScheddQuery[_T]") -> None:
        with ThreadPoolExecutor(self._max_concurrent, thread_name_prefix="schedds") as pool:
            workers = [pool.submit(self._ask_schedds, query, self._client)]
            answer_count = 0
            while wait(workers, self._stall_seconds).not_done:
                is_stalled, answer_count = len(query.answers) == answer_count, len(query.answers)
                if (
                    is_stalled
                    and query.waiting_schedds
                    and self._make_client
                    and len(workers) < self._max_concurrent
                ):
                    workers.append(pool.submit(self._work_with_new_client, query, self._make_client))
            for worker in workers:
                worker.result()

    def _work_with_new_client(
        self, query: "_ScheddQuery[_T]", make_client: Callable[[], QueueClient]
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
            with self._lock:
                self._extra_clients.discard(client)
            client.close()

    def _ask_schedds(self, query: "_ScheddQuery[_T]", client: QueueClient) -> None:
        while name := self._next_schedd(query):
            started_at = self._monotonic()
            try:
                query.answers[name] = query.question(client, name)
            except Exception as error:  # noqa: BLE001 - a failure affects this schedd only
                reason = self._failure_reason(name, error)
                query.answers[name] = Unseen(reason)
                self._record_failure(self._statuses[name], reason, started_at)
                if self._monotonic() > query.deadline_at:
                    return  # the query of the next schedd may take as long as this query
            else:
                self._statuses[name] = _ScheddStatus(started_at, has_answered=True)
            finally:
                if self._reporter:
                    self._reporter.advance()

    def _failure_reason(self, name: str, error: Exception) -> str:
        if isinstance(error, PoolError):
            return error.reason
        reason = f"bug in the query of schedd {name}: {type(error).__name__}"
        if self._statuses[name].failure != reason:
            _log.error(
                f"query of schedd {name} failed: this is a bug, please report it",
                report_url=link_to_bug_report(),
                exc_info=error,
            )
        return reason

    def _next_schedd(self, query: "_ScheddQuery[_T]") -> str | None:
        with self._lock:
            is_late = self._monotonic() > query.deadline_at
            if (
                not query.waiting_schedds
                or self._is_closed
                or (is_late and not self._statuses[query.waiting_schedds[0]].has_answered)
            ):
                return None
            return query.waiting_schedds.popleft()

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
        self._collector = client
        self._clock = clock
        self._site_attributes = tuple(dict.fromkeys((contract.SITE, *site_attributes)))

    def _find_site(self, ad: Mapping[str, Any]) -> Site | None:
        return next((Site(str(ad[name])) for name in self._site_attributes if ad.get(name)), None)

    def _read_sites_by_slot(self, constraint: str) -> dict[str, Site]:
        """Return the sites of the slots that match *constraint*, by name; none if the collector fails."""
        try:
            ads = self._collector.slots([*self._site_attributes, "Name"], constraint)
        except PoolError:
            return {}
        sites = ((str(ad["Name"]), self._find_site(ad)) for ad in ads)
        return {name: site for name, site in sites if site is not None}


@dataclass(slots=True)
class _ScheddQuery(Generic[_T]):
    """One round: the question, the schedds that still wait, the deadline, and the answers so far."""

    question: Callable[[QueueClient, str], _T]
    waiting_schedds: deque[str]
    deadline_at: float
    answers: dict[str, _T | Unseen]

"""Questions to all schedds of a pool: several at a time, for a bounded time; those that are silent rest."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

import structlog

from hydrator.domain.errors import PoolError
from hydrator.domain.model import Unseen
from hydrator.domain.text import link_to_bug_report

from . import CondorClient

_T = TypeVar("_T")
_log = structlog.get_logger("hydrator")
MAX_CONCURRENT_SCHEDDS = 8
"""Schedds that are asked at a time at most; each beyond the first costs a process while that lasts."""
STALL_AFTER = timedelta(seconds=1)
"""When no schedd answered for so long, one more is asked beside those that are being asked."""
BUDGET = timedelta(seconds=5)
"""After so long no schedd is asked any more that did not answer the last time."""
MAX_BACKOFF = timedelta(minutes=5)
"""A schedd that gives no answer is asked again after this, at the latest."""


@dataclass(slots=True)
class _ScheddStatus:
    """The last question to a schedd: when it was *asked*, and its answer's failure, if it was one.

    *silent* counts the questions in a row that took longer than a stall and were not answered; until *rests*
    it is not asked.
    """

    asked_at: float = 0.0
    failure: str = "it has not been asked yet: others were silent for too long; it is among the next"
    has_answered: bool = False
    timeouts_in_row: int = 0
    backoff_until: float = 0.0


class ScheddPoller:
    """Asks each schedd that the collector knows alone, so that one that hangs costs only its own answer.

    Args:
        client: asks the collector, and the schedds.
        more: makes another client; without it one schedd is asked at a time.
        seconds: a clock that never goes back.
    """

    def __init__(
        self,
        client: CondorClient,
        make_client: Callable[[], CondorClient] | None = None,
        *,
        max_concurrent: int = MAX_CONCURRENT_SCHEDDS,
        stall: timedelta = STALL_AFTER,
        budget: timedelta = BUDGET,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._make_client = make_client
        self._max_concurrent = max_concurrent if make_client else 1
        self._stall_seconds = stall.total_seconds()
        self._budget_seconds = budget.total_seconds()
        self._monotonic = monotonic
        self._statuses: dict[str, _ScheddStatus] = {}
        self._lock = threading.Lock()
        self._extra_clients: set[CondorClient] = set()
        self._is_closed = False

    def ask(self, question: Callable[[CondorClient, str], _T]) -> dict[str, _T | Unseen]:
        """Ask *question* of each schedd; by its name the answer, or why there is none.

        Raises:
            PoolError: the collector could not say which schedds there are.
        """
        names = [str(ad["Name"]) for ad in self._client.schedds()]
        self._statuses = {name: self._statuses.get(name) or _ScheddStatus() for name in names}
        begun = self._monotonic()
        due = [name for name in names if self._statuses[name].backoff_until <= begun]
        due.sort(key=lambda name: (not self._statuses[name].has_answered, self._statuses[name].asked_at))
        turn = _ScheddQuery(question, deque(due), begun + self._budget_seconds, {})
        self._run_workers(turn)
        return {name: turn.answers.get(name) or Unseen(self._statuses[name].failure) for name in names}

    def close(self) -> None:
        """End what :attr:`more` made, also under a question."""
        with self._lock:
            self._is_closed = True
            extra = list(self._extra_clients)
        for client in extra:
            client.close()

    def _run_workers(self, query: "_ScheddQuery[_T]") -> None:
        with ThreadPoolExecutor(self._max_concurrent, thread_name_prefix="schedds") as pool:
            workers = [pool.submit(self._ask_schedds, query, self._client)]
            done = 0
            while wait(workers, self._stall_seconds).not_done:
                stalls, done = len(query.answers) == done, len(query.answers)
                if (
                    stalls
                    and query.waiting_schedds
                    and self._make_client
                    and len(workers) < self._max_concurrent
                ):
                    workers.append(pool.submit(self._work_with_new_client, query, self._make_client))
            for worker in workers:
                worker.result()

    def _work_with_new_client(
        self, query: "_ScheddQuery[_T]", make_client: Callable[[], CondorClient]
    ) -> None:
        """Ask what is left through a client of our own, which ends with it."""
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

    def _ask_schedds(self, query: "_ScheddQuery[_T]", client: CondorClient) -> None:
        while name := self._next_schedd(query):
            begun = self._monotonic()
            try:
                query.answers[name] = query.question(client, name)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this schedd's failure alone
                reason = self._failure_reason(name, error)
                query.answers[name] = Unseen(reason)
                self._record_failure(self._statuses[name], reason, begun)
                if self._monotonic() > query.deadline_at:
                    return  # the next one may be as silent
            else:
                self._statuses[name] = _ScheddStatus(begun, has_answered=True)

    def _failure_reason(self, name: str, error: Exception) -> str:
        if isinstance(error, PoolError):
            return error.reason
        reason = f"bug in the query of schedd {name}: {type(error).__name__}"
        if self._statuses[name].failure != reason:
            _log.error(
                f"the query of schedd {name} failed: this is a bug, please report it",
                report_url=link_to_bug_report(),
                exc_info=error,
            )
        return reason

    def _next_schedd(self, query: "_ScheddQuery[_T]") -> str | None:
        with self._lock:
            late = self._monotonic() > query.deadline_at
            if (
                not query.waiting_schedds
                or self._is_closed
                or (late and not self._statuses[query.waiting_schedds[0]].has_answered)
            ):
                return None
            return query.waiting_schedds.popleft()

    def _record_failure(self, status: _ScheddStatus, reason: str, started_at: float) -> None:
        now = self._monotonic()
        took = now - started_at
        status.asked_at, status.failure, status.has_answered = started_at, reason, False
        status.timeouts_in_row = status.timeouts_in_row + 1 if took >= self._stall_seconds else 0
        rest = (
            min(took * 2 ** (status.timeouts_in_row - 1), MAX_BACKOFF.total_seconds())
            if status.timeouts_in_row
            else 0.0
        )
        status.backoff_until = now + rest


@dataclass(slots=True)
class _ScheddQuery(Generic[_T]):
    """One question to all schedds: who is still to be asked, until when, and the answers there are."""

    question: Callable[[CondorClient, str], _T]
    waiting_schedds: deque[str]
    deadline_at: float
    answers: dict[str, _T | Unseen]

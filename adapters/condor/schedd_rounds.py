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
from hydrator.domain.links import report_page
from hydrator.domain.model import Unseen

from . import CondorClient

_T = TypeVar("_T")
_log = structlog.get_logger("hydrator")
AT_ONCE = 8
"""Schedds that are asked at a time at most; each beyond the first costs a process while that lasts."""
STALL = timedelta(seconds=1)
"""When no schedd answered for so long, one more is asked beside those that are being asked."""
BUDGET = timedelta(seconds=5)
"""After so long no schedd is asked any more that did not answer the last time."""
LONGEST_REST = timedelta(minutes=5)
"""A schedd that gives no answer is asked again after this, at the latest."""


@dataclass(slots=True)
class _Past:
    """The last question to a schedd: when it was *asked*, and its answer's failure, if it was one.

    *silent* counts the questions in a row that took longer than a stall and were not answered; until *rests*
    it is not asked.
    """

    asked: float = 0.0
    failure: str = "it has not been asked yet: others were silent for too long; it is among the next"
    answered: bool = False
    silent: int = 0
    rests: float = 0.0


class Rounds:
    """Asks each schedd that the collector knows alone, so that one that hangs costs only its own answer.

    Args:
        client: asks the collector, and the schedds.
        more: makes another client; without it one schedd is asked at a time.
        seconds: a clock that never goes back.
    """

    def __init__(
        self,
        client: CondorClient,
        more: Callable[[], CondorClient] | None = None,
        *,
        at_once: int = AT_ONCE,
        stall: timedelta = STALL,
        budget: timedelta = BUDGET,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._more = more
        self._at_once = at_once if more else 1
        self._stall = stall.total_seconds()
        self._budget = budget.total_seconds()
        self._seconds = seconds
        self._past: dict[str, _Past] = {}
        self._lock = threading.Lock()
        self._extra: set[CondorClient] = set()
        self._closed = False

    def ask(self, question: Callable[[CondorClient, str], _T]) -> dict[str, _T | Unseen]:
        """Ask *question* of each schedd; by its name the answer, or why there is none.

        Raises:
            PoolError: the collector could not say which schedds there are.
        """
        names = [str(ad["Name"]) for ad in self._client.schedds()]
        self._past = {name: self._past.get(name) or _Past() for name in names}
        begun = self._seconds()
        due = [name for name in names if self._past[name].rests <= begun]
        due.sort(key=lambda name: (not self._past[name].answered, self._past[name].asked))
        turn = _Turn(question, deque(due), begun + self._budget, {})
        self._answer(turn)
        return {name: turn.answers.get(name) or Unseen(self._past[name].failure) for name in names}

    def close(self) -> None:
        """End what :attr:`more` made, also under a question."""
        with self._lock:
            self._closed = True
            extra = list(self._extra)
        for client in extra:
            client.close()

    def _answer(self, turn: "_Turn[_T]") -> None:
        with ThreadPoolExecutor(self._at_once, thread_name_prefix="schedds") as pool:
            workers = [pool.submit(self._work, turn, self._client)]
            done = 0
            while wait(workers, self._stall).not_done:
                stalls, done = len(turn.answers) == done, len(turn.answers)
                if stalls and turn.names and self._more and len(workers) < self._at_once:
                    workers.append(pool.submit(self._help, turn, self._more))
            for worker in workers:
                worker.result()

    def _help(self, turn: "_Turn[_T]", more: Callable[[], CondorClient]) -> None:
        """Ask what is left through a client of our own, which ends with it."""
        with self._lock:
            if self._closed:
                return
            client = more()
            self._extra.add(client)
        try:
            self._work(turn, client)
        finally:
            with self._lock:
                self._extra.discard(client)
            client.close()

    def _work(self, turn: "_Turn[_T]", client: CondorClient) -> None:
        while name := self._next(turn):
            begun = self._seconds()
            try:
                turn.answers[name] = turn.question(client, name)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this schedd's failure alone
                reason = self._reason(name, error)
                turn.answers[name] = Unseen(reason)
                self._failed(self._past[name], reason, begun)
                if self._seconds() > turn.until:
                    return  # the next one may be as silent
            else:
                self._past[name] = _Past(begun, answered=True)

    def _reason(self, name: str, error: Exception) -> str:
        if isinstance(error, PoolError):
            return error.reason
        reason = f"bug in the query of schedd {name}: {type(error).__name__}"
        if self._past[name].failure != reason:
            _log.error(
                f"the query of schedd {name} failed: this is a bug, please report it",
                how=report_page(),
                exc_info=error,
            )
        return reason

    def _next(self, turn: "_Turn[_T]") -> str | None:
        with self._lock:
            late = self._seconds() > turn.until
            if not turn.names or self._closed or (late and not self._past[turn.names[0]].answered):
                return None
            return turn.names.popleft()

    def _failed(self, past: _Past, reason: str, begun: float) -> None:
        now = self._seconds()
        took = now - begun
        past.asked, past.failure, past.answered = begun, reason, False
        past.silent = past.silent + 1 if took >= self._stall else 0
        rest = min(took * 2 ** (past.silent - 1), LONGEST_REST.total_seconds()) if past.silent else 0.0
        past.rests = now + rest


@dataclass(slots=True)
class _Turn(Generic[_T]):
    """One question to all schedds: who is still to be asked, until when, and the answers there are."""

    question: Callable[[CondorClient, str], _T]
    names: deque[str]
    until: float
    answers: dict[str, _T | Unseen]

"""Background queries to Rucio that no poll waits for: verify counts, and retry failed queries.

A thread with a connection of its own sends queries between polls, never during a poll. A trusted count is
a count that a poll used again without a new query. The thread verifies each trusted count once in
``verify_every``, evenly spread. It also retries queries for single DIDs that failed or had no answer. So a
DID without an answer delays only one poll, the poll of its first failure.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did

from .session.queries import QueryRunner
from .session.transport import NotFound

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")
QueryKey = tuple[str, Did]
"""The kind of a query (count, name or members), and its DID."""

_FIRST_WAIT_SECONDS = 60.0
_MAX_WAIT_SECONDS = 3600.0
# After a retry that took 1 s, the next retry starts 4 s later: retries take a fifth of the time at most.
_RETRY_GAP_FACTOR = 4.0
_MAX_LAG_SECONDS = 60.0  # polls delay verifications; the thread catches up with this delay at most
_MAX_FAILURES_IN_ROW = 3  # after so many failures, verification stops until the next poll
_CLOSE_SECONDS = 10.0


@dataclass
class _FailedQuery:
    """A query that failed *failures* times, last with *error*; *ask* repeats the query at *retry_at*."""

    error: CatalogueError
    ask: Callable[[QueryRunner], object]
    failures: int
    retry_at: float


class BackgroundVerifier(Generic[T, R]):
    """The thread for background queries of a catalogue.

    The first item to verify, or the first failed query, starts the thread. An item is a trusted count.

    Args:
        queries: a query runner with a connection of its own.
        verify: a function that verifies one item.
        verify_every: verify each item once in this time; zero: start no thread.
        monotonic: a function that returns the seconds of a monotonic clock.
    """

    def __init__(
        self,
        queries: QueryRunner,
        verify: Callable[[QueryRunner, T], R],
        verify_every: timedelta,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queries, self._verify, self._monotonic = queries, verify, monotonic
        self._verify_every_seconds = verify_every.total_seconds()
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._running_polls = 0
        self._is_closed = False
        self._unexpected_error: Exception | None = None
        self._failed_queries: dict[QueryKey, _FailedQuery] = {}
        self._next_retry_at = 0.0
        self._items_to_verify: deque[tuple[QueryKey, T]] = deque()
        self._gap_seconds = 0.0
        self._next_verify_at = 0.0
        self._failures_in_row = 0
        self._results: list[tuple[T, R]] = []

    @property
    def is_enabled(self) -> bool:
        """Return True if ``verify_every`` is not zero; if it is zero, polls count all datasets themselves."""
        return self._verify_every_seconds > 0

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Let the thread start no query during the ``with`` block.

        Raises:
            Exception: the thread had an unexpected error, a bug. Each such error is raised once.
        """
        with self._condition:
            self._running_polls += 1
            bug, self._unexpected_error = self._unexpected_error, None
        try:
            if bug:
                raise bug
            yield
        finally:
            with self._condition:
                self._running_polls -= 1
                self._condition.notify_all()

    # -- failed queries

    def retry_later(self, key: QueryKey, error: CatalogueError, ask: Callable[[QueryRunner], object]) -> None:
        """Repeat a poll's failed query by calling *ask* until Rucio answers; a 404 is an answer."""
        if self.is_enabled and not isinstance(error, NotFound):
            with self._condition:
                self._failed_queries[key] = _FailedQuery(error, ask, 1, self._monotonic())

    def error_of(self, key: QueryKey) -> CatalogueError | None:
        """Return the last error of the query *key*; None if this query did not fail."""
        with self._condition:
            failing = self._failed_queries.get(key)
            return failing.error if failing else None

    def forget_all_but(self, dids: Collection[Did]) -> None:
        """Forget the failed queries for all DIDs but *dids*."""
        with self._condition:
            for key in [key for key in self._failed_queries if key[1] not in dids]:
                del self._failed_queries[key]

    # -- verification

    def take_verified(self) -> list[tuple[T, R]]:
        """Return the items verified since the last call, each with its result."""
        with self._condition:
            results, self._results = self._results, []
            return results

    def start_verifying(self, items: Iterable[tuple[QueryKey, T]]) -> None:
        """Let the thread verify *items*, in this order; drop earlier items that are not verified yet."""
        if not self.is_enabled:
            return
        with self._condition:
            self._items_to_verify = deque(items)
            self._failures_in_row = 0
            if self._items_to_verify:
                self._gap_seconds = self._verify_every_seconds / len(self._items_to_verify)
                now = self._monotonic()
                self._next_verify_at = max(
                    self._next_verify_at or now + self._gap_seconds, now - _MAX_LAG_SECONDS
                )
            has_work = self._items_to_verify or self._failed_queries
            if has_work and self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="rucio-background", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def close(self) -> None:
        """End the thread, even if a query is running, and close its connection."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        give_up_at = time.monotonic() + _CLOSE_SECONDS
        while self._thread and self._thread.is_alive() and time.monotonic() < give_up_at:
            self._queries.connection.deadline.expire_now()
            self._thread.join(0.1)
        self._queries.close()

    # -- the thread

    def _run(self) -> None:
        while job := self._next_job():
            try:
                job()
            except Exception as bug:  # noqa: BLE001 - the next poll raises this error
                with self._condition:
                    self._unexpected_error = bug
                    self._failures_in_row = _MAX_FAILURES_IN_ROW

    def _next_job(self) -> Callable[[], None] | None:
        """Wait until the next query is due and return it; return None after :meth:`close`."""
        with self._condition:
            while not self._is_closed:
                at, job = self._earliest_job()
                wait = max(at - self._monotonic(), self._queries.connection.pause_seconds)
                if job and wait <= 0 and not self._running_polls:
                    return job
                self._condition.wait(None if job is None or self._running_polls else max(wait, 0.001))
            return None

    def _earliest_job(self) -> tuple[float, Callable[[], None] | None]:
        verify_at = (
            self._next_verify_at
            if self._items_to_verify and self._failures_in_row < _MAX_FAILURES_IN_ROW
            else None
        )
        if self._failed_queries:
            key = min(self._failed_queries, key=lambda each: self._failed_queries[each].retry_at)
            retry_at = max(self._next_retry_at, self._failed_queries[key].retry_at)
            if verify_at is None or retry_at <= verify_at:
                return retry_at, lambda: self._retry(key)
        return (0.0, None) if verify_at is None else (verify_at, self._verify_next)

    def _retry(self, key: QueryKey) -> None:
        """Repeat a failed query; if Rucio answers, all other failed queries are due now."""
        with self._condition:
            failing = self._failed_queries.get(key)
        if failing is None:
            return
        started_at = self._monotonic()
        error = self._try_query(failing.ask)
        now = self._monotonic()
        with self._condition:
            self._next_retry_at = now + _RETRY_GAP_FACTOR * (now - started_at)
            if self._failed_queries.get(key) is not failing:
                return
            if not isinstance(error, CatalogueError):
                del self._failed_queries[key]
                for each in self._failed_queries.values():
                    each.retry_at = min(each.retry_at, now)
                return
            failing.error = error
            failing.retry_at = now + min(
                _MAX_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** min(failing.failures - 1, 10)
            )
            failing.failures += 1

    def _verify_next(self) -> None:
        with self._condition:
            if not self._items_to_verify:
                return
            key, item = self._items_to_verify.popleft()
            self._next_verify_at = max(
                self._next_verify_at + self._gap_seconds, self._monotonic() - _MAX_LAG_SECONDS
            )
        result = self._try_query(lambda queries: self._verify(queries, item))
        with self._condition:
            if isinstance(result, CatalogueError):
                self._failures_in_row += 1
                retry_at = self._monotonic() + _FIRST_WAIT_SECONDS
                self._failed_queries[key] = _FailedQuery(
                    result, lambda queries: self._verify(queries, item), 1, retry_at
                )
            else:
                self._failures_in_row = 0
                if result is not None:
                    self._results.append((item, result))

    def _try_query(self, ask: Callable[[QueryRunner], A]) -> A | CatalogueError | None:
        """Run *ask* and return its answer or error; return None after a 404, which the next poll handles."""
        try:
            with self._queries.connection.start_poll(self._queries.settings.timeout.total_seconds()):
                return ask(self._queries)
        except NotFound:
            return None
        except CatalogueError as error:
            return error

"""Questions to Rucio that no poll waits for: counts that are verified in turn, and what failed alone.

A thread with a connection of its own asks between polls, never during one. It verifies each known count
once in ``verify_every``, evenly spread. And it repeats questions about single DIDs that Rucio refused, failed
over or never answered, so that such a DID costs the polls its first failure only.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from adapters.rucio.session.queries import QueryRunner
from adapters.rucio.session.transport import NotFound
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")
QueryKey = tuple[str, Did]
"""The kind of a question, and the DID it is about."""

_FIRST_WAIT_SECONDS = 60.0
_MAX_WAIT_SECONDS = 3600.0
_RETRY_GAP_FACTOR = (
    4.0  # a question that failed before comes no sooner than so many times as long as the last one took
)
_MAX_LAG_SECONDS = 60.0  # seconds of verification that polls held up and that are made up for
_MAX_FAILURES_IN_ROW = 3  # failures, after which nothing is verified until the next poll
_CLOSE_SECONDS = 10.0


@dataclass
class _FailedQuery:
    """A question that failed *failures* times, last with *error*; *ask* repeats it, not before *again_at*."""

    error: CatalogueError
    ask: Callable[[QueryRunner], object]
    failures: int
    retry_at: float


class BackgroundVerifier(Generic[T, R]):
    """One thread beside the polls of a catalogue; it starts when there is something to ask.

    Args:
        asker: asks on a connection of its own.
        verify: verifies one thing.
        every: verify each thing once in this time; zero: nothing is left to the background.
        monotonic: seconds of a clock that nobody sets.
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
        """Is anything left to the background? Not where nothing is believed from poll to poll."""
        return self._verify_every_seconds > 0

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Begin nothing while a poll asks.

        Raises:
            Exception: what went wrong in the thread and is a bug, once.
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

    # -- what failed alone

    def retry_later(self, key: QueryKey, error: CatalogueError, ask: Callable[[QueryRunner], object]) -> None:
        """A poll's question failed: repeat it with *ask* until it is answered."""
        if self.is_enabled:
            with self._condition:
                self._failed_queries[key] = _FailedQuery(error, ask, 1, self._monotonic())

    def error_of(self, key: QueryKey) -> CatalogueError | None:
        """The last error of a question that still fails."""
        with self._condition:
            failing = self._failed_queries.get(key)
            return failing.error if failing else None

    def forget_all_but(self, dids: Collection[Did]) -> None:
        """Forget the questions about all but *dids*."""
        with self._condition:
            for key in [key for key in self._failed_queries if key[1] not in dids]:
                del self._failed_queries[key]

    # -- what is verified in turn

    def take_verified(self) -> list[tuple[T, R]]:
        """Return what was verified since the last call, each with what was found."""
        with self._condition:
            taken, self._results = self._results, []
            return taken

    def start_verifying(self, items: Iterable[tuple[QueryKey, T]]) -> None:
        """After a poll: verify *things*, in this order, instead of those of the last poll."""
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
            wanted = self._items_to_verify or self._failed_queries
            if wanted and self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="rucio-background", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def close(self) -> None:
        """End the thread, also under a question, and let go of its connection."""
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
            except Exception as bug:  # noqa: BLE001 - the next poll raises it, as this catalogue's failure
                with self._condition:
                    self._unexpected_error = bug
                    self._failures_in_row = _MAX_FAILURES_IN_ROW

    def _next_job(self) -> Callable[[], None] | None:
        """Wait for the next question; None at the end."""
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
        """Ask once more what failed; a first answer after failures lets all others be asked soon."""
        with self._condition:
            failing = self._failed_queries.get(key)
        if failing is None:
            return
        begun = self._monotonic()
        error = self._try_query(failing.ask)
        now = self._monotonic()
        with self._condition:
            self._next_retry_at = now + _RETRY_GAP_FACTOR * (now - begun)
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
            key, thing = self._items_to_verify.popleft()
            self._next_verify_at = max(
                self._next_verify_at + self._gap_seconds, self._monotonic() - _MAX_LAG_SECONDS
            )
        found = self._try_query(lambda asker: self._verify(asker, thing))
        with self._condition:
            if isinstance(found, CatalogueError):
                self._failures_in_row += 1
                again_at = self._monotonic() + _FIRST_WAIT_SECONDS
                self._failed_queries[key] = _FailedQuery(
                    found, lambda asker: self._verify(asker, thing), 1, again_at
                )
            else:
                self._failures_in_row = 0
                if found is not None:
                    self._results.append((thing, found))

    def _try_query(self, ask: Callable[[QueryRunner], A]) -> A | CatalogueError | None:
        """The answer, or its error; None where Rucio does not know that DID, which the next poll learns."""
        try:
            with self._queries.connection.start_poll(self._queries.settings.timeout.total_seconds()):
                return ask(self._queries)
        except NotFound:
            return None
        except CatalogueError as error:
            return error

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

from adapters.rucio.session.client import NotFound
from adapters.rucio.session.queries import Asker
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")
Key = tuple[str, Did]
"""The kind of a question, and the DID it is about."""

_FIRST_WAIT = 60.0
_LONGEST_WAIT = 3600.0
_SHARE = 4.0  # a question that failed before comes no sooner than so many times as long as the last one took
_MOST_BEHIND = 60.0  # seconds of verification that polls held up and that are made up for
_MOST_IN_A_ROW = 3  # failures, after which nothing is verified until the next poll
_END_WITHIN = 10.0


@dataclass
class _Failing:
    """A question that failed *failures* times, last with *error*; *ask* repeats it, not before *again_at*."""

    error: CatalogueError
    ask: Callable[[Asker], object]
    failures: int
    again_at: float


class Background(Generic[T, R]):
    """One thread beside the polls of a catalogue; it starts when there is something to ask.

    Args:
        asker: asks on a connection of its own.
        verify: verifies one thing.
        every: verify each thing once in this time; zero: nothing is left to the background.
        monotonic: seconds of a clock that nobody sets.
    """

    def __init__(
        self,
        asker: Asker,
        verify: Callable[[Asker, T], R],
        every: timedelta,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._asker, self._verify, self._monotonic = asker, verify, monotonic
        self._every = every.total_seconds()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._polls = 0
        self._closed = False
        self._bug: Exception | None = None
        self._failing: dict[Key, _Failing] = {}
        self._retry_at = 0.0
        self._round: deque[tuple[Key, T]] = deque()
        self._gap = 0.0
        self._verify_at = 0.0
        self._in_a_row = 0
        self._verified: list[tuple[T, R]] = []

    @property
    def enabled(self) -> bool:
        """Is anything left to the background? Not where nothing is believed from poll to poll."""
        return self._every > 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Begin nothing while a poll asks.

        Raises:
            Exception: what went wrong in the thread and is a bug, once.
        """
        with self._changed:
            self._polls += 1
            bug, self._bug = self._bug, None
        try:
            if bug:
                raise bug
            yield
        finally:
            with self._changed:
                self._polls -= 1
                self._changed.notify_all()

    # -- what failed alone

    def failed(self, key: Key, error: CatalogueError, ask: Callable[[Asker], object]) -> None:
        """A poll's question failed: repeat it with *ask* until it is answered."""
        if self.enabled:
            with self._changed:
                self._failing[key] = _Failing(error, ask, 1, self._monotonic())

    def error_of(self, key: Key) -> CatalogueError | None:
        """The last error of a question that still fails."""
        with self._changed:
            failing = self._failing.get(key)
            return failing.error if failing else None

    def keep(self, dids: Collection[Did]) -> None:
        """Forget the questions about all but *dids*."""
        with self._changed:
            for key in [key for key in self._failing if key[1] not in dids]:
                del self._failing[key]

    # -- what is verified in turn

    def take_verified(self) -> list[tuple[T, R]]:
        """Return what was verified since the last call, each with what was found."""
        with self._changed:
            taken, self._verified = self._verified, []
            return taken

    def begin(self, things: Iterable[tuple[Key, T]]) -> None:
        """After a poll: verify *things*, in this order, instead of those of the last poll."""
        if not self.enabled:
            return
        with self._changed:
            self._round = deque(things)
            self._in_a_row = 0
            if self._round:
                self._gap = self._every / len(self._round)
                now = self._monotonic()
                self._verify_at = max(self._verify_at or now + self._gap, now - _MOST_BEHIND)
            wanted = self._round or self._failing
            if wanted and self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="rucio-background", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread, also under a question, and let go of its connection."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        give_up_at = time.monotonic() + _END_WITHIN
        while self._thread and self._thread.is_alive() and time.monotonic() < give_up_at:
            self._asker.connection.deadline.end()
            self._thread.join(0.1)
        self._asker.close()

    # -- the thread

    def _run(self) -> None:
        while job := self._next_job():
            try:
                job()
            except Exception as bug:  # noqa: BLE001 - the next poll raises it, as this catalogue's failure
                with self._changed:
                    self._bug = bug
                    self._in_a_row = _MOST_IN_A_ROW

    def _next_job(self) -> Callable[[], None] | None:
        """Wait for the next question; None at the end."""
        with self._changed:
            while not self._closed:
                at, job = self._earliest()
                wait = max(at - self._monotonic(), self._asker.connection.pause)
                if job and wait <= 0 and not self._polls:
                    return job
                self._changed.wait(None if job is None or self._polls else max(wait, 0.001))
            return None

    def _earliest(self) -> tuple[float, Callable[[], None] | None]:
        verify_at = self._verify_at if self._round and self._in_a_row < _MOST_IN_A_ROW else None
        if self._failing:
            key = min(self._failing, key=lambda each: self._failing[each].again_at)
            retry_at = max(self._retry_at, self._failing[key].again_at)
            if verify_at is None or retry_at <= verify_at:
                return retry_at, lambda: self._repeat(key)
        return (0.0, None) if verify_at is None else (verify_at, self._verify_next)

    def _repeat(self, key: Key) -> None:
        """Ask once more what failed; a first answer after failures lets all others be asked soon."""
        with self._changed:
            failing = self._failing.get(key)
        if failing is None:
            return
        begun = self._monotonic()
        error = self._asked(failing.ask)
        now = self._monotonic()
        with self._changed:
            self._retry_at = now + _SHARE * (now - begun)
            if self._failing.get(key) is not failing:
                return
            if not isinstance(error, CatalogueError):
                del self._failing[key]
                for each in self._failing.values():
                    each.again_at = min(each.again_at, now)
                return
            failing.error = error
            failing.again_at = now + min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(failing.failures - 1, 10))
            failing.failures += 1

    def _verify_next(self) -> None:
        with self._changed:
            if not self._round:
                return
            key, thing = self._round.popleft()
            self._verify_at = max(self._verify_at + self._gap, self._monotonic() - _MOST_BEHIND)
        found = self._asked(lambda asker: self._verify(asker, thing))
        with self._changed:
            if isinstance(found, CatalogueError):
                self._in_a_row += 1
                again_at = self._monotonic() + _FIRST_WAIT
                self._failing[key] = _Failing(found, lambda asker: self._verify(asker, thing), 1, again_at)
            else:
                self._in_a_row = 0
                if found is not None:
                    self._verified.append((thing, found))

    def _asked(self, ask: Callable[[Asker], A]) -> A | CatalogueError | None:
        """The answer, or its error; None where Rucio does not know that DID, which the next poll learns."""
        try:
            with self._asker.connection.poll(self._asker.settings.timeout.total_seconds()):
                return ask(self._asker)
        except NotFound:
            return None
        except CatalogueError as error:
            return error

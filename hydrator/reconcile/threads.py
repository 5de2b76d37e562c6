"""Threads: work beside the caller, and waits for it. The simulation has its own, in virtual time."""

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from contextvars import copy_context
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from hydrator.domain.model import Unseen
from hydrator.domain.ports import Clock

_T = TypeVar("_T")


class Threads:
    """The threads of this process: every wait of a cycle or of a turn is one of these."""

    def start(self, name: str, work: Callable[[], _T]) -> "Future[_T]":
        """Run *work* in its own daemon thread. Its log lines have the current cycle's number."""
        future: Future[_T] = Future()
        context = copy_context()

        def run() -> None:
            try:
                future.set_result(context.run(work))
            except BaseException as error:  # noqa: BLE001 - a plugin may even raise SystemExit
                future.set_exception(error)

        threading.Thread(target=run, name=name, daemon=True).start()
        return future

    def wait(self, futures: "Collection[Future[Any]]", timeout: timedelta | None = None) -> None:
        """Wait until all *futures* are done, but not longer than *timeout*; None means without a limit."""
        wait(futures, None if timeout is None else timeout.total_seconds())

    def condition(self) -> threading.Condition:
        """Return a new condition on which threads wait for each other."""
        return threading.Condition()


THREADS = Threads()
"""The threads of this process; they hold no state."""


class ParallelWorkers(Generic[_T]):
    """Threads that do one piece of work at a time for each part of the daemon, such as a publisher.

    The name of each thread is *name* and the name of the part, such as ``publisher collector``.
    """

    def __init__(self, name: str, clock: Clock, threads: Threads) -> None:
        self._name = name
        self._clock = clock
        self._threads = threads
        self._running_work: dict[str, tuple[datetime, Future[_T]]] = {}

    def run(self, work: Mapping[str, Callable[[], _T]], timeout: timedelta | None) -> dict[str, _T | Unseen]:
        """Run the *work* of each part; return its result, or Unseen after *timeout*.

        Without a *timeout*, wait for all results. A part that is still busy with earlier work gets no new
        work: return the result of the earlier work, once there is one.
        """
        for part, piece in work.items():
            if part not in self._running_work:
                future = self._threads.start(f"{self._name} {part}", piece)
                self._running_work[part] = (self._clock(), future)
        self._threads.wait([self._running_work[part][1] for part in work], timeout)
        return {part: self._take_result(part) for part in work}

    def find_unfinished(self, part: str) -> Unseen | None:
        """Return since when *part* is busy, or None. Drop the result of finished work; it is never Unseen."""
        result = self._take_result(part) if part in self._running_work else None
        return result if isinstance(result, Unseen) else None

    def _take_result(self, part: str) -> _T | Unseen:
        since, future = self._running_work[part]
        if not future.done():
            return Unseen(f"no answer yet to the request of {since:%Y-%m-%d %H:%M:%S} UTC")
        del self._running_work[part]
        return future.result()

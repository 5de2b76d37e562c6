"""Work of several parts, each in a thread of its own: a part that hangs delays no other."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from hydrator.domain.ports import Clock

_T = TypeVar("_T")


def run_in_thread(name: str, work: Callable[[], _T]) -> "Future[_T]":
    """Do *work* in a daemon thread of its own; it logs with this cycle's number."""
    future: Future[_T] = Future()
    context = copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001 - a plugin may even raise SystemExit
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


@dataclass(frozen=True, slots=True)
class UnfinishedWork:
    """Work that a part began at ``started_at`` and has not finished."""

    started_at: datetime

    @property
    def reason(self) -> str:
        """Return one sentence for people."""
        return f"it was asked at {self.started_at:%Y-%m-%d %H:%M:%S} UTC and has not answered yet"


class ParallelWorkers(Generic[_T]):
    """Workers, one for each part, with one piece of work at a time; *name* begins the threads' names."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._running_work: dict[str, tuple[datetime, Future[_T]]] = {}

    def run(
        self, work: Mapping[str, Callable[[], _T]], timeout: timedelta | None
    ) -> dict[str, _T | UnfinishedWork]:
        """Return the result of each part's *work*; UnfinishedWork if it exceeds *timeout* (None: wait).

        A part that is still busy with its last work gets no new work. When that is done, its result is
        returned.
        """
        for part, piece in work.items():
            if part not in self._running_work:
                self._running_work[part] = (self._clock(), run_in_thread(f"{self._name} {part}", piece))
        wait(
            [self._running_work[part][1] for part in work],
            None if timeout is None else timeout.total_seconds(),
        )
        return {part: self._take_result(part) for part in work}

    def find_unfinished(self, part: str) -> UnfinishedWork | None:
        """Return since when *part* is busy; a result that arrived meanwhile is dropped."""
        result = self._take_result(part) if part in self._running_work else None
        return result if isinstance(result, UnfinishedWork) else None

    def _take_result(self, part: str) -> _T | UnfinishedWork:
        since, future = self._running_work[part]
        if not future.done():
            return UnfinishedWork(since)
        del self._running_work[part]
        return future.result()

"""Work of several parts, each in a thread of its own: a part that hangs holds up none of the others."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from hydrator.domain.ports import Clock

_T = TypeVar("_T")


def in_thread(name: str, work: Callable[[], _T]) -> "Future[_T]":
    """Do *work* in a thread of its own, which keeps no process alive; it logs with this turn's number."""
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
class Busy:
    """The part was given work at that time, and has not finished it."""

    since: datetime

    @property
    def reason(self) -> str:
        """One sentence for people."""
        return f"it was asked at {self.since:%Y-%m-%d %H:%M:%S} UTC and has not answered yet"


class SideBySide(Generic[_T]):
    """Has each part do one piece of work at a time; *name* is that of the threads."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._running: dict[str, tuple[datetime, Future[_T]]] = {}

    def do(self, work: Mapping[str, Callable[[], _T]], patience: timedelta | None) -> dict[str, _T | Busy]:
        """Return what each part made of its *work*; Busy where it takes longer than *patience* (None: wait).

        A part that is still busy with its last piece is given no other; when that is done, it is what the
        part made of this one.
        """
        for part, piece in work.items():
            if part not in self._running:
                self._running[part] = (self._clock(), in_thread(f"{self._name} {part}", piece))
        wait(
            [self._running[part][1] for part in work], None if patience is None else patience.total_seconds()
        )
        return {part: self._ended(part) for part in work}

    def busy(self, part: str) -> Busy | None:
        """Return since when *part* is busy; what it ended meanwhile is forgotten."""
        found = self._ended(part) if part in self._running else None
        return found if isinstance(found, Busy) else None

    def _ended(self, part: str) -> _T | Busy:
        since, future = self._running[part]
        if not future.done():
            return Busy(since)
        del self._running[part]
        return future.result()

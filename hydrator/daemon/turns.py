"""Turns: pieces of work of the daemon that may take long, each kind once at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """The turns that run now; thread-safe. After :meth:`drain` no further turn begins."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_ending = False
        self._running: set[str] = set()

    @property
    def is_ending(self) -> bool:
        """Return True if no further turn begins: the daemon ends."""
        return self._is_ending

    @contextmanager
    def turn(self, name: str) -> Iterator[bool]:
        """Run the ``with`` block as a turn of the kind *name*, after a running turn of this kind has ended.

        Yields:
            False if the daemon ends: then the block must do nothing.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._is_ending or name not in self._running)
            if may_run := not self._is_ending:
                self._running.add(name)
        try:
            yield may_run
        finally:
            if may_run:
                with self._condition:
                    self._running.discard(name)
                    self._condition.notify_all()

    def drain(self, seconds: float, name: str | None = None) -> bool:
        """Let no further turn begin, and wait at most *seconds* until running turns end.

        With a *name*, wait only for the turn of this kind.

        Returns:
            True if none of these turns is still running.
        """
        with self._condition:
            self._is_ending = True
            self._condition.notify_all()
            return self._condition.wait_for(
                lambda: name not in self._running if name else not self._running, seconds
            )

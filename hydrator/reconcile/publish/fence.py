"""Fence: end the work of one configuration's parts, once a reload has replaced them.

A reload cannot stop a thread that hangs in a catalogue's answer. It closes the fence instead: the old
parts begin no further turn, and a running one saves and publishes nothing more.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hydrator.domain.errors import SupersededByReload


class Fence:
    """A gate that every turn and every step of one generation of parts passes; safe from any thread.

    A *turn* is a piece of work that may take long and may hang. A *step* is the part of a turn that has an
    effect: it saves, sends, or logs. ``drain`` lets running turns end, ``close`` ends them at their next
    step.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_draining = False
        self._is_closed = False
        self._running_turns: dict[str, int] = {}
        self._running_steps = 0

    @property
    def is_closed(self) -> bool:
        """Return True once no further step begins: these parts save and send nothing more."""
        return self._is_closed

    @property
    def is_ending(self) -> bool:
        """Return True once no further turn begins."""
        return self._is_draining or self._is_closed

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Enclose a turn of the kind *name*; it waits for another of its kind to end.

        Raises:
            SupersededByReload: no turn begins any more.
        """
        with self._condition:
            self._condition.wait_for(lambda: self.is_ending or not self._running_turns.get(name))
            if self.is_ending:
                raise SupersededByReload
            self._running_turns[name] = 1
        try:
            yield
        finally:
            with self._condition:
                del self._running_turns[name]
                self._condition.notify_all()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Enclose a step; ``close`` waits for its end.

        Raises:
            SupersededByReload: the fence is closed.
        """
        with self._condition:
            if self._is_closed:
                raise SupersededByReload
            self._running_steps += 1
        try:
            yield
        finally:
            with self._condition:
                self._running_steps -= 1
                self._condition.notify_all()

    def drain(self, seconds: float, name: str | None = None) -> bool:
        """Let no further turn begin, and wait at most *seconds* for running ones.

        Returns:
            True if none is left, of the kind *name* if one is given.
        """
        with self._condition:
            self._is_draining = True
            self._condition.notify_all()
            busy = self._running_turns.keys()
            return self._condition.wait_for(lambda: name not in busy if name else not busy, seconds)

    def close(self, seconds: float) -> bool:
        """Let no further step begin; return True if none is running within *seconds*."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
            return self._condition.wait_for(lambda: not self._running_steps, seconds)

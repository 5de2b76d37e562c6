"""Fence: stop the work of an old configuration after a reload has replaced this configuration.

A reload cannot stop a thread that waits for a catalogue's answer. So the reload closes a fence. Then the
objects of the old configuration begin no new work, and work that still runs saves and publishes nothing more.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hydrator.domain.errors import SupersededByReload


class Fence:
    """A gate that all work of one configuration must pass; thread-safe.

    A *turn* is a piece of work that may take long and may hang. A *step* is the part of a turn that has an
    effect: it saves, sends or logs. ``drain`` waits until running turns end. ``close`` stops each turn at
    its next step.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_draining = False
        self._is_closed = False
        self._running_turns: dict[str, int] = {}
        self._running_steps = 0

    @property
    def is_closed(self) -> bool:
        """Return True if no further step may begin, so that this configuration saves and sends nothing."""
        return self._is_closed

    @property
    def is_ending(self) -> bool:
        """Return True if no further turn may begin."""
        return self._is_draining or self._is_closed

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Run the ``with`` block as a turn of the kind *name*, after a running turn of this kind has ended.

        Raises:
            SupersededByReload: no further turn may begin.
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
        """Run the ``with`` block as a step; ``close`` waits for the end of the block.

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
        """Let no further turn begin, and wait at most *seconds* until running turns end.

        With a *name*, wait only for the turn of this kind.

        Returns:
            True if none of these turns is still running.
        """
        with self._condition:
            self._is_draining = True
            self._condition.notify_all()
            busy = self._running_turns.keys()
            return self._condition.wait_for(lambda: name not in busy if name else not busy, seconds)

    def close(self, seconds: float) -> bool:
        """Let no further step begin; return True if all running steps end within *seconds*."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
            return self._condition.wait_for(lambda: not self._running_steps, seconds)

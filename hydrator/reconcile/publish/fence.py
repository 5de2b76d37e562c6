"""Fence: end what the parts of one configuration may still do, once other parts have replaced them.

A reload cannot stop a thread that hangs in a catalogue's answer. It closes the fence instead: no turn of the
old parts begins, and one under way saves and publishes nothing more.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hydrator.domain.errors import Fenced


class Fence:
    """A gate that every turn and every step of one generation of parts passes; safe from any thread.

    A *turn* is a piece of work that may take long and may hang. A *step* is the part of a turn that has an
    effect: it saves, sends, or says something. ``drain`` lets turns under way end, ``close`` ends them
    at their next step.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._draining = False
        self._closed = False
        self._under_way: dict[str, int] = {}
        self._steps = 0

    @property
    def closed(self) -> bool:
        """True once nothing of these parts counts any more."""
        return self._closed

    @property
    def ends(self) -> bool:
        """True once no further turn begins."""
        return self._draining or self._closed

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Enclose a turn of the kind *name*; it waits for another of its kind to end.

        Raises:
            Fenced: no turn begins any more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.ends or not self._under_way.get(name))
            if self.ends:
                raise Fenced
            self._under_way[name] = 1
        try:
            yield
        finally:
            with self._changed:
                del self._under_way[name]
                self._changed.notify_all()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Enclose a step; ``close`` waits for its end.

        Raises:
            Fenced: the fence is closed.
        """
        with self._changed:
            if self._closed:
                raise Fenced
            self._steps += 1
        try:
            yield
        finally:
            with self._changed:
                self._steps -= 1
                self._changed.notify_all()

    def drain(self, seconds: float, name: str | None = None) -> bool:
        """Let no further turn begin, and wait at most *seconds* for those under way.

        Returns:
            True when none is left, of the kind *name* where one is given.
        """
        with self._changed:
            self._draining = True
            self._changed.notify_all()
            busy = self._under_way.keys()
            return self._changed.wait_for(lambda: name not in busy if name else not busy, seconds)

    def close(self, seconds: float) -> bool:
        """Let no further step begin; return True when none is under way within *seconds*."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._steps, seconds)

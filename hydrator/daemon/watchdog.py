"""Watchdog: end a process that makes no progress."""

import threading
import time
from collections.abc import Callable


class Watchdog:
    """When the schedule last got somewhere; told and asked from any thread."""

    def __init__(self, limit_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """*allowance*: seconds that may pass between two steps; *now*: a clock that never goes back."""
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self.restart(limit_seconds)

    def restart(self, limit_seconds: float) -> None:
        """Begin anew with another *allowance*."""
        with self._lock:
            self._limit_seconds = limit_seconds
            self._last_step = "the start", self._monotonic()

    def record_step(self, step: str) -> None:
        """*what* was just reached."""
        with self._lock:
            self._last_step = step, self._monotonic()

    def hang_reason(self) -> str | None:
        """Why the daemon counts as hung, or None."""
        with self._lock:
            (what, when), allowance = self._last_step, self._limit_seconds
        silent = self._monotonic() - when
        if silent <= allowance:
            return None
        return f"nothing went on for {silent:.0f} s after {what}; {allowance:.0f} s are allowed"

"""Watchdog: notice that the daemon's schedule makes no progress."""

import threading
import time
from collections.abc import Callable


class Watchdog:
    """The last progress of the schedule, and its time; safe from any thread."""

    def __init__(self, limit_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Allow *limit_seconds* between two steps of the schedule, measured by the clock *monotonic*."""
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self.restart(limit_seconds)

    def restart(self, limit_seconds: float) -> None:
        """Start the measurement again with another limit."""
        with self._lock:
            self._limit_seconds = limit_seconds
            self._last_step = "the start", self._monotonic()

    def record_step(self, step: str) -> None:
        """Record that the schedule has just reached *step*."""
        with self._lock:
            self._last_step = step, self._monotonic()

    def hang_reason(self) -> str | None:
        """Return why the daemon counts as hung, or None if it does not hang."""
        with self._lock:
            (step, reached_at), limit_seconds = self._last_step, self._limit_seconds
        idle_seconds = self._monotonic() - reached_at
        if idle_seconds <= limit_seconds:
            return None
        return f"no progress for {idle_seconds:.0f} s after {step} (limit {limit_seconds:.0f} s)"

"""How often Rucio is asked: so many calls a second, and none while it asked us to wait."""

import threading
import time
from collections.abc import Callable
from datetime import datetime

from adapters.http import headers as _headers

_FIRST_PAUSE_SECONDS = 2.0
_MIN_PAUSE_SECONDS = 0.25


class RucioRateLimiter:
    """Spaces the calls of all threads; all times in seconds of a monotonic clock.

    Args:
        per_second: at most so many calls a second.
        monotonic, sleep: the clock, and how to wait on it; tests turn one of their own.
    """

    def __init__(
        self,
        calls_per_second: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gap_seconds = 1 / calls_per_second
        self._monotonic, self._sleep = monotonic, sleep
        self._next_call_at = 0.0
        self._paused_until = 0.0
        self._refusals = 0
        self._lock = threading.Lock()

    @property
    def pause_seconds(self) -> float:
        """How long the server still wants to be let alone."""
        return max(0.0, self._paused_until - self._monotonic())

    def wait_for_turn(self) -> None:
        """Wait for the next call's turn, and again where it asked for a pause meanwhile."""
        begin = -1.0
        while begin < self._paused_until:
            with self._lock:
                now = self._monotonic()
                begin = max(now, self._next_call_at, self._paused_until)
                self._next_call_at = begin + self._gap_seconds
            if begin > now:
                self._sleep(begin - now)

    def record_refusal(self, retry_after: str | None, now: datetime | None) -> None:
        """It said 429 or 503: let it alone for as long as it asks, and twice as long as last time at least.

        Args:
            retry_after: its header of that name.
            now: its own time, where it told.
        """
        asked = _headers.retry_after(retry_after, now)
        with self._lock:
            if not self.pause_seconds:  # else this one was under way already, and is no further sign
                self._refusals += 1
            least = (_FIRST_PAUSE_SECONDS if asked is None else _MIN_PAUSE_SECONDS) * 2 ** min(
                self._refusals - 1, 10
            )
            pause = min(_headers.MAX_PAUSE_SECONDS, max(asked or 0.0, least))
            self._paused_until = max(self._paused_until, self._monotonic() + pause)

    def record_answer(self) -> None:
        """It answered otherwise."""
        with self._lock:
            if not self.pause_seconds:
                self._refusals = 0

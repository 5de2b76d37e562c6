"""How often Rucio is asked: so many calls a second, and none while it asked us to wait."""

import threading
import time
from collections.abc import Callable
from datetime import datetime

from adapters.http import headers as _headers

_FIRST_PAUSE = 2.0
_SHORTEST = 0.25


class Pace:
    """Spaces the calls of all threads; all times in seconds of a monotonic clock.

    Args:
        per_second: at most so many calls a second.
        monotonic, sleep: the clock, and how to wait on it; tests turn one of their own.
    """

    def __init__(
        self,
        per_second: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gap = 1 / per_second
        self._monotonic, self._sleep = monotonic, sleep
        self._next = 0.0
        self._not_before = 0.0
        self._refusals = 0
        self._changing = threading.Lock()

    @property
    def pause(self) -> float:
        """How long the server still wants to be let alone."""
        return max(0.0, self._not_before - self._monotonic())

    def turn(self) -> None:
        """Wait for the next call's turn, and again where it asked for a pause meanwhile."""
        begin = -1.0
        while begin < self._not_before:
            with self._changing:
                now = self._monotonic()
                begin = max(now, self._next, self._not_before)
                self._next = begin + self._gap
            if begin > now:
                self._sleep(begin - now)

    def refused(self, retry_after: str | None, now: datetime | None) -> None:
        """It said 429 or 503: let it alone for as long as it asks, and twice as long as last time at least.

        Args:
            retry_after: its header of that name.
            now: its own time, where it told.
        """
        asked = _headers.retry_after(retry_after, now)
        with self._changing:
            if not self.pause:  # else this one was under way already, and is no further sign
                self._refusals += 1
            least = (_FIRST_PAUSE if asked is None else _SHORTEST) * 2 ** min(self._refusals - 1, 10)
            pause = min(_headers.LONGEST_PAUSE, max(asked or 0.0, least))
            self._not_before = max(self._not_before, self._monotonic() + pause)

    def answered(self) -> None:
        """It answered otherwise."""
        with self._changing:
            if not self.pause:
                self._refusals = 0

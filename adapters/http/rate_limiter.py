"""Rate limiter for calls to one server: limit the calls per second, and pause if the server asks for a pause.

A response of 429, or of 503 with ``Retry-After``, starts a pause for all threads.
A ``Retry-After`` of seconds sets its length; an HTTP date, which RFC 9110 (10.2.3) also allows and servers
hardly send, is as no time. A server may send any text in a header, so an invalid text raises no error.
"""

import math
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_PAUSE_SECONDS = 120.0
"""The longest pause in seconds, even if a server asks for a longer one, perhaps by mistake."""
_MAX_HEADER_CHARS = 100
"""The longest time header in characters that is parsed."""


def http_date(header: str | None) -> datetime | None:
    """Parse a date (RFC 9110, 5.6.7).

    Return None if the header is missing, is not a date, or is a date that is out of range.
    """
    if not header or len(header) > _MAX_HEADER_CHARS:
        return None
    try:
        date = parsedate_to_datetime(header)
        return date.astimezone(UTC) if date.tzinfo else None
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def retry_after(header: str | None) -> float | None:
    """Parse the seconds of ``Retry-After``, up to ``MAX_PAUSE_SECONDS``; None for any other text."""
    text = (header or "").strip()
    if not (text.isascii() and text.isdecimal()):
        return None
    return MAX_PAUSE_SECONDS if len(text) > 6 else min(MAX_PAUSE_SECONDS, float(text))


_FIRST_PAUSE_SECONDS = 2.0
_MIN_PAUSE_SECONDS = 0.25


class HttpRateLimiter:
    """A limit on the rate of all threads' calls to one server; times are seconds of a monotonic clock.

    Args:
        calls_per_second: the largest rate.
        monotonic, sleep: the clock, and the function that waits on it; tests replace both.
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
        """Return the remaining seconds of the pause; 0 without a pause."""
        return max(0.0, self._paused_until - self._monotonic())

    def wait_for_turn(self, within_seconds: float = math.inf) -> bool:
        """Wait until the caller may send a call; wait longer if the server asks for a pause meanwhile.

        Returns:
            False, without a wait, if the wait would be longer than *within_seconds*; else True.
        """
        give_up_at = self._monotonic() + within_seconds
        begin = -1.0
        while begin < self._paused_until:
            with self._lock:
                now = self._monotonic()
                begin = max(now, self._next_call_at, self._paused_until)
                if begin > give_up_at:
                    return False
                self._next_call_at = begin + self._gap_seconds
            if begin > now:
                self._sleep(begin - now)
        return True

    def record_response(self, status: int, retry_after_header: str | None) -> bool:
        """Record one response; return True if the server refused the call and asked for a pause.

        Then pause all calls for the time that the server asks for, but at least for a minimum time. The
        minimum is 0.25 s (2 s without seconds in ``Retry-After``), and doubles with each further refusal in
        a row. No pause is longer than ``MAX_PAUSE_SECONDS``.

        Args:
            status: the status of the response.
            retry_after_header: its ``Retry-After``.
        """
        is_refusal = status == 429 or (status == 503 and retry_after_header is not None)
        with self._lock:
            if not self.pause_seconds:  # in a pause, it is the response to a call from before
                self._refusals = self._refusals + 1 if is_refusal else 0
            if is_refusal:
                seconds = retry_after(retry_after_header)
                shortest = _FIRST_PAUSE_SECONDS if seconds is None else _MIN_PAUSE_SECONDS
                pause = max(seconds or 0.0, shortest * 2 ** min(self._refusals - 1, 10))
                ends_at = self._monotonic() + min(MAX_PAUSE_SECONDS, pause)
                self._paused_until = max(self._paused_until, ends_at)
        return is_refusal

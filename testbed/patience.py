"""Waiting for a condition, with one long time limit: it costs nothing when all is well."""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

PATIENCE = 6
"""Factor by which a step may take longer than on a quiet machine; test machines are shared and slow."""

LIMIT_SECONDS = 300.0
"""The limit of every wait: it ends a test that hangs, and says nothing about speed."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0

_T = TypeVar("_T")


def wait_for(condition: Callable[[], _T], what: str) -> _T:
    """Poll until *condition* is true, and return its value.

    Args:
        what: the condition in words, for the failure.

    Raises:
        AssertionError: it was not true within LIMIT_SECONDS.
    """
    for _ in polls(LIMIT_SECONDS):
        if answer := condition():
            return answer
    raise AssertionError(f"not within {LIMIT_SECONDS:g} s: {what}")


def polls(limit_seconds: float) -> Iterator[None]:
    """Yield once for each poll until the limit, with longer and longer pauses, so that few polls see much.

    The pause is also at least twice the time of the last poll: so the polls of many tests that wait at the
    same time do not use up a busy machine. The last poll begins after the limit.
    """
    deadline = time.monotonic() + limit_seconds
    pause = _FIRST_PAUSE
    is_late = False
    while not is_late:
        begun = time.monotonic()
        is_late = begun > deadline
        yield
        time.sleep(max(pause, min(2 * (time.monotonic() - begun), 3 * _LONGEST_PAUSE)))
        pause = min(1.5 * pause, _LONGEST_PAUSE)

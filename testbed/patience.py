"""Waiting for a condition, with long time limits: they cost nothing when all is well."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 6
"""Factor by which a step may take longer than on a quiet machine; test machines are shared and slow."""

LONGEST_PAUSE = 3.0
"""Longest time between two polls, in seconds."""

_T = TypeVar("_T")


def wait_for(condition: Callable[[], _T], seconds: float, what: str, step: float = 0.1) -> _T:
    """Poll until *condition* is true, and return its value.

    Args:
        seconds: how long that may take on a quiet machine; the limit is PATIENCE times as long.
        what: the condition in words, for the failure.
        step: seconds between two polls; more if a poll itself takes longer, see :func:`pause`.

    Raises:
        AssertionError: it was not true in time.
    """
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        begun = time.monotonic()
        late = begun > deadline
        if answer := condition():
            return answer
        if late:
            raise AssertionError(f"not within {seconds * PATIENCE:g} s: {what}")
        pause(begun, step)


def pause(begun: float, step: float) -> None:
    """Wait before the next poll, at least twice as long as the one took that began at *begun* (monotonic).

    So the polls of many tests that wait at the same time do not use up a busy machine.
    """
    time.sleep(max(step, min(2 * (time.monotonic() - begun), LONGEST_PAUSE)))

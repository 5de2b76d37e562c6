"""Waiting for a condition: its end costs nothing when all is well, so it is far away."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 6
"""Factor by which a step may take longer than on a quiet machine; test machines are shared and slow."""

_T = TypeVar("_T")


def wait_for(condition: Callable[[], _T], seconds: float, what: str, step: float = 0.1) -> _T:
    """Ask until *condition* says something true, and return that.

    Args:
        seconds: how long that may take on a quiet machine; we wait :data:`TIMEOUT_FACTORS` times as long.
        what: what we wait for, for the failure.
        step: seconds from one question to the next.

    Raises:
        AssertionError: it did not become so in time.
    """
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        late = time.monotonic() > deadline
        if answer := condition():
            return answer
        if late:
            raise AssertionError(f"not within {seconds * PATIENCE:g} s: {what}")
        time.sleep(step)

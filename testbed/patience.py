"""Waiting for a condition, with long time limits: they cost nothing when all is well."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 6
"""Factor by which a step may take longer than on a quiet machine; test machines are shared and slow."""

_T = TypeVar("_T")


def wait_for(condition: Callable[[], _T], seconds: float, what: str, step: float = 0.1) -> _T:
    """Poll until *condition* is true, and return its value.

    Args:
        seconds: how long that may take on a quiet machine; the limit is TIMEOUT_FACTORS times as long.
        what: the condition in words, for the failure.
        step: seconds between two polls.

    Raises:
        AssertionError: it was not true in time.
    """
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        late = time.monotonic() > deadline
        if answer := condition():
            return answer
        if late:
            raise AssertionError(f"not within {seconds * PATIENCE:g} s: {what}")
        time.sleep(step)

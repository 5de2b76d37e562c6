"""The parts of scenarios that come before all waiting: datasets and jobs."""

from collections.abc import Callable
from typing import Any, TypeVar

_Begin = TypeVar("_Begin", bound=Callable[..., Any])

BEGINNINGS: list[Callable[..., Any]] = []


def begin_early(begin: _Begin) -> _Begin:
    """Mark a function of the installation: fixture `begun` calls it, and the test beside it gets the result.

    The negotiator needs several seconds for any job, and as many for all jobs.
    """
    BEGINNINGS.append(begin)
    return begin

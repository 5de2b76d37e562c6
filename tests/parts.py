"""Real parts that tests need: a test without one is skipped, and listed in red; in CI it fails."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from testbed.cached import Unavailable


def without(what: str, reason: object) -> NoReturn:
    """Skip a test for lack of *what*; in CI, which must have everything, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"no {what} here, and this is CI: {reason}", pytrace=False)
    pytest.skip(f"no {what} here: {reason}")


@contextmanager
def needs(what: str) -> Iterator[None]:
    """Skip or fail the test if *what* cannot be fetched or started inside."""
    try:
        yield
    except Unavailable as reason:
        without(what, reason)

"""A pool with the generated configuration, for the modules that let its sites advertise what a test sets."""

from collections.abc import Iterator

import pytest

from testbed.pool import Pool
from tests.located import Located


@pytest.fixture(scope="module")
def shared_located(own_pool: Pool) -> Located:
    """The pool of one module: a module with other sites has its own fixture `own_pool`."""
    return Located(own_pool)


@pytest.fixture
def located(shared_located: Located) -> Iterator[Located]:
    """The module's pool; after each test its queue is empty and all cores are free."""
    yield shared_located
    shared_located.clear()

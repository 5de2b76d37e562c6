"""A client of the daemon; a pool with the generated configuration whose sites advertise what a test sets."""

from collections.abc import Iterator

import pytest

from adapters.condor.bindings.client import CondorClient
from adapters.condor.bindings.process import CondorSettings
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


@pytest.fixture
def client(pool: Pool) -> Iterator[CondorClient]:
    """A client of the pool with the rights of the daemon."""
    with CondorClient(CondorSettings(pool.collector, token_directory=pool.token("hydrator"))) as made:
        yield made

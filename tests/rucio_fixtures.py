"""The real Rucio server of a test session, for whichever conftest wants it, and what stands around one."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.debs import DebUnavailable
from testbed.postgres import Postgres
from testbed.rucio import RucioServer, RucioUnavailable, server_python
from tests.parts import NO_POSTGRES, NO_RUCIO, needs, without


@contextmanager
def needs_postgres() -> Iterator[None]:
    """What runs inside needs PostgreSQL and the Rucio server that can talk to it."""
    try:
        yield
    except DebUnavailable as reason:
        without(NO_POSTGRES, reason)
    except RucioUnavailable as reason:
        without(NO_RUCIO, reason)


@pytest.fixture(scope="session")
def rucio_server(tmp_path_factory):
    """A running server, shared; tests keep apart by scopes. The first build takes half a minute."""
    with needs(NO_RUCIO):
        server_python()
    with RucioServer.start(tmp_path_factory.mktemp("rucio") / "server") as server:
        yield server


@pytest.fixture(scope="module")
def rucio_on_postgres(tmp_path_factory):
    """A running server of a module's own whose database is PostgreSQL, which takes several writers."""
    with needs_postgres():
        server_python(postgresql=True)
        postgres = Postgres.start()
    with postgres, RucioServer.start(tmp_path_factory.mktemp("rucio") / "server", postgres.url) as server:
        yield server

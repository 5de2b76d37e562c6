"""The real Rucio server of a test session, for whichever conftest wants it, and what stands around one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from hydrator.domain.ports import Clock
from hydrator.wiring import system_clock
from testbed.postgres import Postgres
from testbed.rucio import RucioServer, server_python
from tests.parts import needs


@contextmanager
def catalogues(**usual: object) -> Iterator[Callable[..., RucioCatalogue]]:
    """Makes catalogues with these settings and what else a test wants, on the system's clock; closes them."""
    account = {"name": "rucio", "account": "hydrator", "username": "somebody", "password": "a-secret-word"}
    with ExitStack() as made:

        def make(clock: Clock = system_clock, **changes: object) -> RucioCatalogue:
            settings = RucioSettings(**{**account, **usual, **changes})
            return made.enter_context(closing(RucioCatalogue(settings, clock)))

        yield make


@pytest.fixture(scope="session")
def rucio_server(tmp_path_factory):
    """A running server, shared; tests keep apart by scopes. The first build takes half a minute."""
    with needs("real Rucio server"):
        server_python()
    with RucioServer.start(tmp_path_factory.mktemp("rucio") / "server") as server:
        yield server


@pytest.fixture(scope="module")
def rucio_on_postgres(tmp_path_factory):
    """A running server of a module's own whose database is PostgreSQL, which takes several writers."""
    with needs("PostgreSQL under Rucio"):
        server_python(postgresql=True)
        postgres = Postgres.start()
    with postgres, RucioServer.start(tmp_path_factory.mktemp("rucio") / "server", postgres.url) as server:
        yield server

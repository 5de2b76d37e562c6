"""The real Rucio server of a test session, for whichever conftest wants it, and what stands around one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from testbed.debs import DebUnavailable
from testbed.postgres import Postgres
from testbed.rucio import RucioServer, RucioUnavailable, server_python

NO_RUCIO = "no real Rucio server"
NO_APACHE = "no Apache before Rucio"
NO_POSTGRES = "no PostgreSQL under Rucio"


def without(what: str, reason: object) -> NoReturn:
    """Skip a test for lack of *what*; in CI, which must have everything, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}, and this is CI: {reason}", pytrace=False)
    pytest.skip(f"{what}: {reason}")


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
    try:
        server_python()
    except RucioUnavailable as reason:
        without(NO_RUCIO, reason)
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

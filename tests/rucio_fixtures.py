"""The real Rucio server of a test session, for whichever conftest wants it."""

import os

import pytest

from testbed.rucio import RucioServer, RucioUnavailable, server_python

NO_RUCIO = "no real Rucio server"


@pytest.fixture(scope="session")
def rucio_server(tmp_path_factory):
    """A running server, shared; tests keep apart by scopes. The first build takes half a minute."""
    try:
        server_python()
    except RucioUnavailable as exc:
        if os.environ.get("CI") == "true":
            pytest.fail(str(exc))
        pytest.skip(f"{NO_RUCIO}: {exc}")
    with RucioServer.start(tmp_path_factory.mktemp("rucio") / "server") as server:
        yield server

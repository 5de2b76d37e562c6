"""The Rucio server of the tests: its start, its end, and its traces."""

import httpx
import pytest

from testbed.rucio import RucioServer

pytestmark = pytest.mark.rucio


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ping", timeout=60, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def test_rucio_server_starts_and_leaves_nothing(rucio_server, tmp_path):
    with RucioServer.start(tmp_path / "server") as server:
        assert answers(server.url)
        assert server.password not in repr(server)
    assert not answers(server.url)
    assert list(tmp_path.iterdir()) == []

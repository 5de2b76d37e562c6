"""The Rucio server of the tests: its start, its end, and its traces."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from testbed.patience import PATIENCE
from testbed.rucio import RucioServer

pytestmark = pytest.mark.rucio
ROOT = Path(__file__).parents[2]


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds * PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds * PATIENCE:g} s: {what}"
        time.sleep(0.05)


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


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_rucio_server_ends_with_the_process_that_started_it(rucio_server, tmp_path, how):
    up = subprocess.Popen(
        [sys.executable, "-m", "testbed.rucio", "up"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = re.search(r"http://127\.0\.0\.1:\d+", up.stdout.readline())[0]
        assert answers(url)
        up.send_signal(how)
        assert (up.wait(600) == 0) == (how != signal.SIGKILL)
        until(lambda: not answers(url), 20, "the server ends")
        until(lambda: list(tmp_path.iterdir()) == [], 20, "its folder goes")
    finally:
        up.kill()
        up.wait()
        up.stdout.close()


def test_failed_rucio_command_has_its_reason(rucio_server):
    with pytest.raises(RuntimeError, match="RSENotFound"):
        rucio_server.seed(("delete_rse", {"rse": "NOWHERE"}))

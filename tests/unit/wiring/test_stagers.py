"""Stagers: which catalogue gets which, with which options, from the configuration."""

import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from adapters.remote import RemoteObject
from adapters.worker import WorkerFailed
from hydrator.config import load
from hydrator.domain.errors import CatalogueUnreachable, ConfigError
from hydrator.domain.model import Did
from hydrator.domain.staging_ports import StagingFailed, StagingQuery
from hydrator.wiring.catalogues import _worker_error, build_stagers
from testbed.patience import wait_for
from testbed.processes import is_running
from tests.factories import L1

CATALOGUES = """
[[catalogue]]
type = "file"
path = "catalogue.toml"
[[catalogue]]
type = "rucio"
url = "http://127.0.0.1:1"
account = "hydrator"
username = "hydrator"
password_file = "password"
[[catalogue]]
type = "dmapi"
url = "http://127.0.0.1:1/api/v1"
token_file = "token"
[publish.collector]
enabled = false
[staging.sites.CAM]
storage = "CAM-DISK"
[staging.sites.RAL]
"""


@pytest.fixture
def stagers(tmp_path):
    (tmp_path / "catalogue.toml").write_text('sites = ["CAM"]\n[datasets]\n')
    for name in ("password", "token"):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text("a-long-secret")
    opened = []

    def build(staging: str, mode: str = "request"):
        file = tmp_path / "config.toml"
        mode_line = f'[staging]\nmode = "{mode}"\n'
        file.write_text(f'[daemon]\nstate_dir = "state"\n{CATALOGUES}{mode_line}{staging}\n')
        built = build_stagers(load(file))
        opened.extend(built.values())
        return built

    yield build
    for stager in opened:
        stager.close()


def test_nothing_is_built_for_a_mode_that_is_off(stagers):
    assert stagers("[staging.catalogues.rucio]", mode="off") == {}


@pytest.mark.outside
def test_a_rucio_catalogue_has_a_stager_of_its_own(stagers):
    built = stagers('[staging.catalogues.rucio]\nactivity = "Production Input"', mode="propose")
    assert set(built) == {"rucio"}
    with pytest.raises(CatalogueUnreachable, match=r"127\.0\.0\.1"):
        built["rucio"].list(StagingQuery(frozenset({L1})))


class Ending:
    """A worker that ends at each request."""

    def start(self) -> None: ...
    def close(self) -> None: ...

    def exchange(self, request, seconds, on_part=None):
        raise WorkerFailed("its process was killed by SIGKILL")


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("request", StagingFailed),
        ("cancel", StagingFailed),
        ("list", CatalogueUnreachable),
        ("probe_permissions", CatalogueUnreachable),
    ],
)
def test_write_in_which_the_worker_ends_may_have_happened(method, error):
    stager = RemoteObject("rucio", Ending(), 60, partial(_worker_error, "rucio"))
    with pytest.raises(error, match="killed by SIGKILL") as caught:
        getattr(stager, method)("rule")
    assert type(caught.value) is error


@pytest.mark.parametrize("name", ["file", "dmapi"])
def test_a_catalogue_without_requests_needs_a_command(stagers, name):
    with pytest.raises(ConfigError, match=rf"staging\.catalogues\.{name}: .*set command"):
        stagers(f"[staging.catalogues.{name}]")


@pytest.mark.outside
@pytest.mark.parametrize("name", ["file", "rucio", "dmapi"])
def test_a_command_comes_before_the_catalogue_itself(stagers, name):
    words = ["echo", '{"did": "lofar:L1", "bytes": 7}']
    [stager] = stagers(f"[staging.catalogues.{name}]\ncommand = {words}").values()
    assert stager.list(StagingQuery()).sizes == {Did("lofar:L1"): 7}


PARENT = """
import sys
from pathlib import Path
from hydrator.config import load
from hydrator.wiring.catalogues import build_stagers
[stager] = build_stagers(load(Path(sys.argv[1]))).values()
stager.cancel("rule")
"""


@pytest.mark.outside
def test_a_command_and_what_it_started_end_with_a_daemon_that_is_killed(stagers, tmp_path):
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $$ $! > {pids}; wait"
    stagers(f"[staging.catalogues.file]\ncommand = {['/bin/sh', '-c', script]}")
    with subprocess.Popen([sys.executable, "-c", PARENT, tmp_path / "config.toml"]) as parent:
        wait_for(lambda: pids.exists() and pids.read_text(), "the command to start")
        parent.kill()
    started = pids.read_text().split()
    try:
        wait_for(lambda: not any(map(is_running, started)), "the end of the command")
    finally:
        for one in filter(is_running, started):
            os.kill(int(one), signal.SIGKILL)


def test_every_problem_is_reported(stagers):
    with pytest.raises(ConfigError) as raised:
        stagers("[staging.catalogues.file]\n[staging.catalogues.dmapi]")
    assert len(raised.value.problems) == 2

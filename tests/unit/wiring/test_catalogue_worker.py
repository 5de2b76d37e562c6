"""The environment of the process of a Rucio catalogue, with the configuration of rucio-clients."""

import os
from pathlib import Path

import pytest

from hydrator.config import load
from hydrator.wiring.catalogues import build_catalogues, rucio_environment
from testbed.rucio_standin import RucioStandIn
from tests.factories import L1


@pytest.mark.parametrize("is_writable", [True, False])
def test_rucio_clients_have_a_private_configuration_in_any_case(tmp_path, monkeypatch, is_writable):
    monkeypatch.setenv("RUCIO_CONFIG", "another")
    (tmp_path / "file").touch()
    folder = tmp_path / ("state" if is_writable else "file") / "rucio"
    environment = rucio_environment(folder)
    config = Path(environment["RUCIO_CONFIG"])
    assert (config.parent == folder) is is_writable
    assert config.parent.stat().st_mode & 0o77 == 0
    assert config.read_text() == f"[client]\nauth_token_file_path = {config.parent / 'token'}\n"
    assert environment == {**os.environ, "RUCIO_CONFIG": str(config)}
    assert os.environ["RUCIO_CONFIG"] == "another", "other threads read the environment of this process"


@pytest.mark.outside
def test_worker_keeps_its_token_in_the_state_of_the_daemon(tmp_path):
    (tmp_path / "password").write_text("a-secret-word")
    (tmp_path / "password").chmod(0o600)
    with RucioStandIn({"UK-DISK": "UK"}, {L1: {"UK-DISK": "available"}}) as server:
        (tmp_path / "config.toml").write_text(
            f'[daemon]\nstate_dir = "state"\n[[catalogue]]\ntype = "rucio"\nurl = "{server.url}"\n'
            'account = "a"\nusername = "a"\npassword_file = "password"\n'
        )
        [catalogue] = build_catalogues(load(tmp_path / "config.toml"))
        try:
            assert catalogue.read({L1}).readings[L1].replicas
            assert (tmp_path / "state" / "rucio" / "rucio" / "token").read_text() == server.token
        finally:
            catalogue.close()

"""What the process of a Rucio catalogue prepares for rucio-clients."""

from pathlib import Path

import pytest

from adapters.rucio.session.settings import RucioSettings
from hydrator.wiring import catalogue_worker


@pytest.mark.parametrize("is_writable", [True, False])
def test_rucio_clients_have_a_private_configuration_in_any_case(tmp_path, monkeypatch, is_writable):
    monkeypatch.setenv("RUCIO_CONFIG", "another")
    (tmp_path / "file").touch()
    folder = tmp_path / ("state" if is_writable else "file") / "rucio"
    settings = RucioSettings(name="r", url="https://r.example.org", account="a", token_dir=folder)
    catalogue_worker._configure_rucio(settings)
    config = Path(catalogue_worker.os.environ["RUCIO_CONFIG"])
    assert (config.parent == folder) is is_writable
    assert config.parent.stat().st_mode & 0o77 == 0
    assert config.read_text() == f"[client]\nauth_token_file_path = {config.parent / 'token'}\n"

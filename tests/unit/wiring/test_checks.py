"""Inputs of `hydrator check`, built from a configuration."""

from contextlib import closing
from datetime import timedelta
from functools import partial

import pytest

from hydrator.config import load
from hydrator.diagnostics.check.findings import Level
from hydrator.diagnostics.check.installation import check_memory
from hydrator.domain.network import TransferOrigin, TransferSample
from hydrator.state.network_rows import NetworkRecord, save_network
from hydrator.state.store import Store
from hydrator.wiring import assemble, build_check_inputs, system_clock
from hydrator.wiring.catalogues import needed_memory
from tests.factories import CAM, RAL

pytestmark = pytest.mark.outside

CONFIG = """
[daemon]
state_dir = "state"
[[catalogue]]
type = "file"
path = "catalogue.toml"
[publish.collector]
enabled = false
[staging]
mode = "{mode}"
[staging.sites.CAM]
space_tb = 5
[staging.catalogues.file]
command = ["true"]
"""


@pytest.fixture
def check_inputs(tmp_path):
    """Builds the inputs for a mode of staging, after the operator stopped staging or not."""
    (tmp_path / "catalogue.toml").write_text('sites = ["CAM"]\n[datasets]\n')

    def build(mode: str, *, is_stopped=False, more=""):
        (tmp_path / "config.toml").write_text(CONFIG.format(mode=mode) + more)
        settings = load(tmp_path / "config.toml")
        with closing(assemble(settings, system_clock)) as parts:
            if is_stopped:
                settings.daemon.state_dir.mkdir()
                parts.staging.files.prepare()
                parts.staging.files.stop("tape")
            return build_check_inputs(settings, parts)

    return build


@pytest.mark.parametrize(("mode", "asking"), [("request", {"file"}), ("propose", set())])
def test_stagers_are_checked_in_the_modes_request_and_propose(check_inputs, mode, asking):
    inputs = check_inputs(mode)
    assert [one.name for one in inputs.stagers] == ["file"]
    assert inputs.asking_catalogues == asking
    assert inputs.staging_stop_reason is None


def test_no_stager_is_checked_in_the_mode_off(check_inputs):
    inputs = check_inputs("off", is_stopped=True)
    assert list(inputs.stagers) == []
    assert inputs.staging_stop_reason is None


def test_stop_of_the_operator_is_an_input(check_inputs):
    assert "tape" in str(check_inputs("request", is_stopped=True).staging_stop_reason)


UPLINK = "[network.uplinks.CAM]\ngbit_per_second = 10\n"
LINK = '[[network.links]]\nsource = "CAM"\ndestination = "RAL"\ngbit_per_second = 2\n'


@pytest.mark.parametrize(
    ("more", "samples", "is_named"),
    [
        ("", None, True),
        ("", 0, True),
        ("", 1, True),
        ("", 9, False),
        ("[network]\ndefault_gbit_per_second = 1\n", None, False),
        (UPLINK, None, False),
        (LINK, None, False),
        ('[network]\nexcluded_sources = ["CAM"]\n', None, True),
    ],
)
def test_rates_that_are_only_the_default_are_named(check_inputs, tmp_path, more, samples, is_named):
    if samples is not None:
        now = system_clock()
        read = partial(TransferSample, CAM, RAL, 10**9, 8.0, origin=TransferOrigin.WRAPPER, user="ann")
        times = [now - timedelta(minutes=number) for number in range(samples)]
        with Store.open_to_write(tmp_path / "state") as store:
            save_network(store, NetworkRecord(tuple(read(ended_at=at) for at in times)))
    found = [one for one in check_inputs("off", more=more).daemon_findings if one.subject == "network"]
    assert [one.level for one in found] == [Level.ADVICE] * is_named


def test_memory_limit_below_the_limits_of_the_workers_is_a_warning(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('[[catalogue]]\ntype = "file"\npath = "c.json"\n[daemon]\nstate_dir = "state"\n')
    needed = needed_memory(load(config))
    assert needed == 1_800_000_000
    config.write_text(config.read_text() + '[[catalogue]]\ntype = "directory"\nmemory_mb = 200\n')
    assert needed_memory(load(config)) == needed + 200_000_000
    assert [finding.level for finding in check_memory(needed - 1, needed)] == [Level.WARN]
    assert not [*check_memory(needed, needed), *check_memory(None, needed)]

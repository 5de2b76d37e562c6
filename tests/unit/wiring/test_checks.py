"""Inputs of `hydrator check`, built from a configuration."""

from contextlib import closing

import pytest

from hydrator.config import load
from hydrator.diagnostics.check.findings import Level
from hydrator.diagnostics.check.installation import check_memory
from hydrator.wiring import assemble, build_check_inputs, system_clock
from hydrator.wiring.catalogues import needed_memory

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


@pytest.mark.parametrize(("mode", "asking"), [("ask", {"file"}), ("propose", set())])
def test_stagers_are_checked_in_the_modes_ask_and_propose(check_inputs, mode, asking):
    inputs = check_inputs(mode)
    assert [one.name for one in inputs.stagers] == ["file"]
    assert inputs.asking_catalogues == asking
    assert inputs.staging_stop_reason is None


def test_no_stager_is_checked_in_the_mode_off(check_inputs):
    inputs = check_inputs("off", is_stopped=True)
    assert list(inputs.stagers) == []
    assert inputs.staging_stop_reason is None


def test_stop_of_the_operator_is_an_input(check_inputs):
    assert "tape" in str(check_inputs("ask", is_stopped=True).staging_stop_reason)


def test_memory_limit_below_the_limits_of_the_workers_is_a_warning(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('[[catalogue]]\ntype = "file"\npath = "c.json"\n[daemon]\nstate_dir = "state"\n')
    needed = needed_memory(load(config))
    assert needed == 1_800_000_000
    assert [finding.level for finding in check_memory(needed - 1, needed)] == [Level.WARN]
    assert not [*check_memory(needed, needed), *check_memory(None, needed)]

"""Inputs of `hydrator check`, built from a configuration."""

import gc
from contextlib import closing
from datetime import timedelta
from functools import partial

import pytest

from adapters.worker import Worker
from hydrator.config import load
from hydrator.diagnostics.check.findings import Level
from hydrator.diagnostics.check.installation import check_memory, check_virtual_organisations
from hydrator.diagnostics.check.staging import check_switch
from hydrator.domain.network import TransferOrigin, TransferSample
from hydrator.state.reports import NETWORK_REPORT, NetworkRecord
from hydrator.state.store import Store
from hydrator.wiring import system_clock
from hydrator.wiring.assembly import assemble
from hydrator.wiring.catalogues import needed_memory
from hydrator.wiring.checks import build_check_inputs
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
                parts.staging.control.prepare()
                parts.staging.control.stop("tape")
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
    assert list(check_switch(inputs.staging_stop_reason, inputs.stagers)) == []


def test_stop_of_the_operator_is_an_input(check_inputs):
    assert "tape" in str(check_inputs("request", is_stopped=True).staging_stop_reason)


UPLINK = '[[network.links]]\nsource = "CAM"\ngbit_per_second = 10\n'
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
            store.save_report(NETWORK_REPORT, NetworkRecord(tuple(read(ended_at=at) for at in times)))
    found = [one for one in check_inputs("off", more=more).daemon_findings if one.subject == "network"]
    assert [one.level for one in found] == [Level.ADVICE] * is_named


POOL = """
[daemon]
state_dir = "state"
[htcondor]
collector = "127.0.0.1:1"
[publish.collector]
enabled = true
"""
RUCIO = """
[[catalogue]]
type = "rucio"
url = "http://127.0.0.1:1"
account = "hydrator"
username = "hydrator"
password_file = "password"
"""
BARE = """
[[catalogue]]
type = "file"
path = "catalogue.toml"
"""
STAGING = """
[staging]
mode = "propose"
[staging.sites.CAM]
"""
SEVERAL = POOL.replace("127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")


@pytest.mark.parametrize(
    ("config", "megabytes"),
    [
        (POOL + BARE, 300 + 4000 + 500),
        (
            POOL
            + BARE
            + '[[catalogue]]\ntype = "directory"\nmemory_mb = 200\nscope = "a"\nroots = {CAM = "/"}',
            300 + 4000 + 700,
        ),
        (POOL.replace("true", "false") + RUCIO + "[demand]\nask_schedds = false", 300 + 1000),
        (POOL + RUCIO + BARE, 300 + 4000 + 1500),
        (POOL + RUCIO + STAGING + "[staging.catalogues.rucio]", 300 + 5000 + 2000),
        (POOL + RUCIO + STAGING + '[staging.catalogues.rucio]\ncommand = ["true"]', 300 + 5000 + 1000),
        (POOL + RUCIO + STAGING.replace("propose", "off") + "[staging.catalogues.rucio]", 300 + 4000 + 1000),
        ("[publish]\nslot_merge = true" + POOL + BARE, 300 + 5000 + 500),
        (SEVERAL + BARE, 300 + 7000 + 500),
    ],
)
def test_needed_memory_is_the_sum_of_the_limits_of_all_workers(tmp_path, config, megabytes):
    (tmp_path / "catalogue.toml").write_text('sites = ["CAM"]\n[datasets]\n')
    (tmp_path / "password").write_text("a-long-secret")
    (tmp_path / "password").chmod(0o600)
    (tmp_path / "config.toml").write_text(config)
    settings = load(tmp_path / "config.toml")
    before = set(map(id, all_workers()))
    with closing(assemble(settings, system_clock)) as parts:
        workers = [one for one in all_workers() if id(one) not in before]
        assert needed_memory(settings, len(parts.pool.collectors)) == megabytes * 1_000_000
        assert sum(one.limit_bytes for one in workers) == (megabytes - 300) * 1_000_000


def all_workers() -> list[Worker]:
    """Return all workers of this process."""
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, Worker)]


@pytest.mark.parametrize(("limit", "levels"), [(99, [Level.WARN]), (100, []), (None, [])])
def test_memory_limit_below_the_needed_memory_is_a_warning(limit, levels):
    assert [finding.level for finding in check_memory(limit, 100)] == levels


@pytest.mark.parametrize(
    ("servers", "is_named"),
    [
        ({"a": ("https://rucio/", "ska"), "b": ("https://Rucio", "lofar")}, True),
        ({"a": ("https://rucio", "ska"), "b": ("https://rucio", "")}, True),
        ({"a": ("https://rucio", "ska"), "b": ("https://other", "lofar")}, False),
        ({"a": ("https://rucio", "ska"), "b": ("https://rucio", "ska")}, False),
    ],
)
def test_virtual_organisations_of_one_rucio_are_named(servers, is_named):
    """Case R10: a DID of two VOs has the best state of both."""
    found = [*check_virtual_organisations(servers)]
    assert [(one.level, "a, b" in one.message) for one in found] == [(Level.WARN, True)] * is_named

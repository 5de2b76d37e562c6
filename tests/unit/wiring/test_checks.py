"""Inputs of `hydrator check`, built from a configuration."""

import gc
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from adapters.worker import Worker
from hydrator.config import load
from hydrator.diagnostics.check.findings import CheckInputs, Level
from hydrator.diagnostics.check.installation import check_memory, check_virtual_organisations
from hydrator.diagnostics.problems import LAST_CYCLE
from hydrator.domain.model import Snapshot
from hydrator.domain.network import TransferOrigin, TransferSample
from hydrator.reconcile.view import CYCLE_REPORT, CatalogueView
from hydrator.staging.overview import StagingOverview
from hydrator.state.reports import NETWORK_REPORT, NetworkRecord
from hydrator.state.store import STAGING_REPORT, Store
from hydrator.wiring import system_clock
from hydrator.wiring.assembly import assemble
from hydrator.wiring.catalogues import needed_memory
from hydrator.wiring.checks import build_check_inputs
from tests.factories import CAM, RAL, demand, report_of, view_of

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
                settings.daemon.state_dir.mkdir(exist_ok=True)
                parts.staging.control.prepare()
                parts.staging.control.stop("tape")
            return build_check_inputs(settings, parts)

    return build


@pytest.mark.parametrize(("mode", "asking"), [("request", {"file"}), ("propose", set())])
def test_stagers_are_checked_in_the_modes_request_and_propose(check_inputs, mode, asking):
    inputs = check_inputs(mode)
    assert [one.name for one in inputs.stagers] == ["file"]
    assert inputs.asking_catalogues == asking


def test_no_stager_is_checked_in_the_mode_off(check_inputs):
    assert list(check_inputs("off", is_stopped=True).stagers) == []


def daemon_findings(inputs: CheckInputs) -> list[tuple[Level, str, str]]:
    found = [one for one in inputs.daemon_findings if one.subject != "network"]
    return [(one.level, one.subject, one.advice) for one in found]


def test_forgotten_stop_is_a_warning_before_the_daemons_next_step_too(check_inputs, tmp_path):
    with Store.open_to_write(tmp_path / "state") as store:
        store.save_reports({CYCLE_REPORT: view_of(report_of(Snapshot({}), demand(), at=system_clock()))})
        store.save_reports({STAGING_REPORT: StagingOverview(system_clock(), "request")})
        fine = daemon_findings(check_inputs("request"))
        stopped = daemon_findings(check_inputs("request", is_stopped=True))
    assert fine == [(Level.OK, "daemon", "")]
    assert stopped == [(Level.WARN, "staging", "hydrator staging resume"), *fine]


def test_check_repeats_no_failure_of_the_last_cycle_of_a_daemon_that_has_stopped(check_inputs, tmp_path):
    view = view_of(report_of(Snapshot({}), demand(), at=system_clock()))
    failed = replace(view, catalogues=(CatalogueView(name="rucio", error="timeout"),))
    with Store.open_to_write(tmp_path / "state") as store:
        store.save_reports({CYCLE_REPORT: failed})
        running = check_inputs("off").daemon_findings
    stopped = check_inputs("off").daemon_findings
    assert [(one.level, one.failed_part) for one in running if one.subject == LAST_CYCLE] == [
        (Level.FAIL, "rucio")
    ]
    assert [one.message.partition(";")[0] for one in stopped if one.subject != "network"] == [
        "no daemon runs here"
    ]


DEFAULT = "[network]\ndefault_gbit_per_second = 1\n"
UPLINK = '[[network.links]]\nsource = "CAM"\ngbit_per_second = 10\n'
LINK = '[[network.links]]\nsource = "CAM"\ndestination = "RAL"\ngbit_per_second = 2\n'


@pytest.mark.parametrize(
    ("more", "samples", "is_named"),
    [
        ("", None, True),
        ("", 0, True),
        ("", 1, True),
        ("", 9, False),
        (DEFAULT, None, False),
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
            store.save_reports({NETWORK_REPORT: NetworkRecord(tuple(read(ended_at=at) for at in times))})
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
    ("config", "megabytes", "beside"),
    [
        (POOL + BARE, 300 + 4000 + 500, 500),
        (
            POOL
            + BARE
            + '[[catalogue]]\ntype = "directory"\nmemory_mb = 200\nscope = "a"\nroots = {CAM = "/"}',
            300 + 4000 + 700,
            700,
        ),
        (POOL.replace("true", "false") + RUCIO + "[demand]\nask_schedds = false", 300 + 1000, 1000),
        (POOL + RUCIO + BARE, 300 + 4000 + 1500, 1500),
        (POOL + RUCIO + STAGING + "[staging.catalogues.rucio]", 300 + 5000 + 2000, 1000),
        (POOL + RUCIO + STAGING + '[staging.catalogues.rucio]\ncommand = ["true"]', 300 + 5000 + 1500, 1000),
        (
            POOL + RUCIO + STAGING.replace("propose", "off") + "[staging.catalogues.rucio]",
            300 + 4000 + 1000,
            1000,
        ),
        ("[publish]\nslot_merge = true" + POOL + BARE, 300 + 5000 + 500, 500),
        (SEVERAL + BARE, 300 + 7000 + 500, 500),
    ],
)
def test_needed_memory_is_the_sum_of_the_limits_of_all_workers(tmp_path, config, megabytes, beside):
    """Each catalogue may have a second process beside its worker."""
    (tmp_path / "catalogue.toml").write_text('sites = ["CAM"]\n[datasets]\n')
    (tmp_path / "password").write_text("a-long-secret")
    (tmp_path / "password").chmod(0o600)
    (tmp_path / "config.toml").write_text(config)
    settings = load(tmp_path / "config.toml")
    before = set(map(id, all_workers()))
    with closing(assemble(settings, system_clock)) as parts:
        workers = [one for one in all_workers() if id(one) not in before]
        assert parts.pool.needs is None or parts.pool.needs in parts.closables
        assert needed_memory(settings, len(parts.pool.collectors)) == (megabytes + beside) * 1_000_000
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
        ({"a": ("https://rucio", "ska"), "b": ("https://rucio:443/", "lofar")}, True),
        ({"a": ("https://rucio", "ska"), "b": ("https://other", "lofar")}, False),
        ({"a": ("https://rucio", "ska"), "b": ("https://rucio", "ska")}, False),
    ],
)
def test_virtual_organisations_of_one_rucio_are_named(servers, is_named):
    """Case R10: a DID of two VOs has the best state of both."""
    found = [*check_virtual_organisations(servers)]
    assert [(one.level, "a, b" in one.message) for one in found] == [(Level.WARN, True)] * is_named

"""The staging tasks of the daemon: steps beside the cycles, the switch and a reload."""

from types import SimpleNamespace

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hydrator.daemon.runtime import Turns
from hydrator.daemon.staging import StagingTasks
from hydrator.staging.controller import StagingParts
from hydrator.staging.overview import StagingOverview
from hydrator.staging.table import StagingCommand, Table
from hydrator.state.command_files import TABLE_REPORT, StagingFiles
from hydrator.state.store import STAGING_REPORT, Store
from hydrator.wiring import system_clock
from tests.factories import CAM, HOUR, L1, settings_with
from tests.staging_world import StagingWorld, need, policy
from tests.unit.daemon.contexts import context_with, runtime_with


class Daemon:
    """The tasks with a real state and the world's catalogue, on the system's clock."""

    def __init__(self, folder, store, rules=None):
        self.world = StagingWorld(rules, L1=1)
        self.world.clock.now = system_clock()
        self.world.queue(need(L1, queued_since=self.world.clock.now - HOUR))
        self.world.step()
        self.world.stager.calls.clear()
        self.world.stager.rules.clear()
        self.store, self.turns = store, Turns()
        self.files = StagingFiles(folder)
        stagers = {} if self.world.settings.mode == "off" else {"rucio": self.world.stager}
        settings = settings_with(scope="lofar", poll_seconds=1200)
        settings = settings.model_copy(update={"staging": self.world.settings})
        parts = {
            "staging": StagingParts(settings, stagers, self.world.needs.copy, self.files),
            "network": SimpleNamespace(find_rate=lambda *_: 0.0),
        }
        self.registry = CollectorRegistry()
        self.context = context_with(
            settings=settings, store=store, registry=self.registry, report=self.world.report
        )
        self.tasks = StagingTasks(self.context)
        self.scheduler = BackgroundScheduler(timezone="UTC")
        self.tasks.schedule(runtime_with(self.scheduler, turns=self.turns, **parts))

    def step(self):
        """Run the scheduled step; return the events of the log."""
        (job,) = self.scheduler.get_jobs()
        with capture_logs() as logged:
            job.func(*job.args)
        return logged


@pytest.fixture
def store(tmp_path):
    with Store.open_to_write(tmp_path) as opened:
        yield opened


def test_a_step_asks_saves_and_shares(tmp_path, store):
    daemon = Daemon(tmp_path, store)
    logged = daemon.step()
    assert daemon.world.stages == {(L1, CAM)}
    [one] = store.load_report(TABLE_REPORT, Table).requests
    assert (one.did, one.rule) == (L1, "rule2")
    saved = store.load_report(STAGING_REPORT, StagingOverview)
    assert saved == daemon.context.staging
    assert [row.did for row in saved.requests] == [L1]
    [line] = [each for each in logged if each["event"] == "staging asked a request at the catalogue"]
    assert (line["dataset"], line["outcome"]) == (L1, "done")


def test_the_switch_stops_the_next_step(tmp_path, store):
    daemon = Daemon(tmp_path, store)
    StagingFiles(tmp_path).stop("too much traffic")
    daemon.step()
    assert daemon.world.stages == set()
    assert "too much traffic" in daemon.context.staging.stop_reason
    StagingFiles(tmp_path).resume()
    daemon.step()
    assert daemon.world.stages == {(L1, CAM)}
    assert daemon.files.read_pending().commands == ()


def test_a_command_that_cannot_be_read_is_reported_and_set_aside(tmp_path, store):
    daemon = Daemon(tmp_path, store)
    (tmp_path / "staging" / "000001-x.json").write_text('{"command": "approve"')
    daemon.files.submit(StagingCommand("approve", ("abc",)))
    [line] = [each for each in daemon.step() if each["event"] == "staging has a problem"]
    assert "000001-x.json: is not a command" in line["why"]
    assert "renames the file to *.refused" in line["why"]
    assert [path.name for path in (tmp_path / "staging").iterdir()] == ["000001-x.refused"]
    assert "staging has no problem any more" in [each["event"] for each in daemon.step()]


def test_with_the_mode_off_no_step_is_scheduled_and_the_overview_says_so(tmp_path, store):
    daemon = Daemon(tmp_path, store, policy("off"))
    assert daemon.scheduler.get_jobs() == []
    assert daemon.context.staging.mode == "off"
    assert store.load_report(STAGING_REPORT, StagingOverview).mode == "off"


def test_a_problem_is_logged_once_when_it_begins_and_once_when_it_ends(tmp_path, store):
    daemon = Daemon(tmp_path, store)
    daemon.world.stager.is_broken = True
    events = [[each["event"] for each in daemon.step()] for _ in range(2)]
    assert events == [["staging has a problem"], []]
    daemon.world.stager.is_broken = False
    assert "staging has no problem any more" in [each["event"] for each in daemon.step()]


def test_a_state_folder_without_room_for_commands_is_a_problem_and_nothing_is_asked(tmp_path, store):
    (tmp_path / "staging").write_text("not a folder")
    daemon = Daemon(tmp_path, store)
    [line] = [each for each in daemon.step() if each["event"] == "staging has a problem"]
    assert "the daemon must be able to write into this folder" in line["why"]
    assert daemon.world.stages == set()
    (tmp_path / "staging").unlink()
    daemon.step()
    assert daemon.world.stages == {(L1, CAM)}


def test_a_daemon_that_ends_asks_nothing(tmp_path, store):
    daemon = Daemon(tmp_path, store)
    daemon.turns.drain(0)
    daemon.step()
    assert daemon.world.stager.calls == []


def test_a_step_counts_its_requests_once(tmp_path, store):
    daemon = Daemon(tmp_path, store)
    daemon.step()
    daemon.step()
    sample = daemon.registry.get_sample_value
    assert sample("hydrator_staging_requests_total", {"outcome": "asked"}) == 1
    assert sample("hydrator_staging_in_flight_bytes", {"site": CAM}) == 10**12

"""`hydrator staging`: the requests in the daemon's state, and the operator's commands as files."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from hydrator.cli.app import app
from hydrator.cli.output.staging import describe_progress
from hydrator.diagnostics.overview.saved import STAGING_REPORT
from hydrator.domain.errors import ConfigError, StateError
from hydrator.state.command_files import StagingFiles
from hydrator.state.store import Store
from tests.command_line import run_hydrator
from tests.factories import CAM, L1, L2, L3
from tests.staging_world import StagingWorld, need, policy

STAGING = """
[staging]
mode = "propose"
[staging.catalogues.file]
[staging.sites.CAM]
"""
REQUESTING = (
    STAGING.replace("propose", "request").replace("file", "rucio")
    + """
[[catalogue]]
type = "file"
name = "rucio"
path = "datasets.json"
"""
)
CATALOGUE = '[[catalogue]]\ntype = "file"\npath = "datasets.json"\n'


class Desk:
    """An operator beside a daemon whose state has the overview of a world in memory."""

    def __init__(self, folder):
        self.config = folder / "config.toml"
        self.configure(CATALOGUE)
        self.state_dir = folder / "state"
        with Store.open_to_write(self.state_dir):
            pass
        self.files = StagingFiles(self.state_dir)

    def configure(self, text: str):
        self.config.write_text(f'[daemon]\nstate_dir = "state"\n{text}')

    def save(self, world: StagingWorld):
        self.files.prepare()
        with Store.open_to_write(self.state_dir) as store:
            store.save_reports({STAGING_REPORT: world.overview})

    def run(self, *words: str):
        return self.run_command("staging", *words)

    def run_command(self, *words: str):
        done = CliRunner().invoke(app, [*words, "-c", str(self.config)])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    def json(self, *words: str):
        return json.loads(self.run(*words, "--json"))


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


def world_with(*terabytes: float, rules=None) -> StagingWorld:
    """A world whose jobs each wait for one dataset, after one step."""
    world = StagingWorld(rules)
    dids = (L1, L2, L3)[: len(terabytes)]
    for did, size in zip(dids, terabytes, strict=True):
        world.add_dataset(did, size)
    world.queue(*(need(did) for did in dids))
    world.step()
    return world


def test_list_shows_the_progress_of_a_request_and_its_jobs(desk):
    world = world_with(1)
    handle = next(iter(world.stager.rules))
    world.stager.set(handle, files_done=40)
    world.step()
    desk.save(world)
    (row,) = desk.json("list")["last_step"]["requests"]
    assert (row["did"], row["kind"], row["job_count"]) == (L1, "stage", 1)
    assert (row["files_done"], row["files"], row["rule"]) == (40, 100, handle)
    text = desk.run("list")
    assert "mode request" in text
    assert "40 of 100" in text
    assert row["batch"] in text


def test_list_shows_why_nothing_is_requested(desk):
    desk.save(world_with(6.1))
    (row,) = desk.json("list")["last_step"]["not_asked"]
    assert row["dids"] == [L1]
    assert f"not asked: {L1}: {row['reason']}" in desk.run("list")


def test_list_shows_the_operators_stop_before_the_next_step(desk):
    desk.save(world_with(1))
    desk.run("stop", "--reason", "tape robot is down")
    assert "tape robot is down" in desk.json("list")["stopped"]
    assert "nothing is requested or renewed: stopped by the operator" in desk.run("list")


def test_list_before_the_first_step_says_if_one_will_come(desk):
    """Case S28 of cases/submit.md."""
    assert desk.run("list") == "staging is off ([staging] mode): the daemon requests no data\n"
    desk.config.write_text(desk.config.read_text() + STAGING)
    assert desk.run("list") == "the daemon has not made a step of staging yet\n"
    row = desk.json("list")
    assert (row["mode"], row["last_step"]) == ("propose", None)


@pytest.mark.parametrize("name", ["approve", "reject"])
def test_answer_to_a_waiting_request_reaches_the_daemon(desk, name):
    world = StagingWorld(L1=1.5, L2=1.5)
    (planned,) = world.step_with(need(L1, L2, sites=[CAM])).planned
    desk.save(world)
    effect = "may now request" if name == "approve" else "will not request"
    assert f"the daemon {effect}" in desk.run(name, planned.first.batch)
    world.control.commands = [command for _, command in desk.files.read_pending().commands]
    assert world.step().planned == ()
    assert world.stages == ({(L1, CAM), (L2, CAM)} if name == "approve" else set())


def test_unknown_id_is_refused_with_the_ids_that_wait(desk):
    world = world_with(3)
    desk.save(world)
    (planned,) = world.overview.planned
    with pytest.raises(ConfigError, match=f"approve 12: no such request waits; ids: {planned.first.batch}"):
        desk.run("approve", "12")
    assert desk.files.read_pending().commands == ()


def test_approval_of_a_proposal_says_that_the_mode_is_propose(desk):
    world = world_with(1, rules=policy("propose"))
    desk.save(world)
    with pytest.raises(ConfigError, match="the mode is propose, so nothing is requested"):
        desk.run("approve", world.overview.planned[0].first.batch)


@pytest.mark.parametrize("key", ["batch", "rule"])
def test_cancel_ends_the_request_and_does_not_repeat_it(desk, key):
    world = world_with(1)
    desk.save(world)
    desk.configure(REQUESTING)
    (row,) = world.overview.requests
    assert "next step cancels 1 request" in desk.run("cancel", getattr(row, key))
    world.control.commands = [command for _, command in desk.files.read_pending().commands]
    world.step()
    assert "cancel" in world.stager.calls
    for _ in range(2):
        world.step(timedelta(minutes=10))
    assert world.stages == set()


@pytest.mark.parametrize(
    "text", [CATALOGUE, REQUESTING.replace('"request"', '"propose"'), REQUESTING.replace("CAM", "RAL")]
)
def test_cancel_where_the_daemon_ends_no_request_is_refused_with_the_rule(desk, text):
    world = world_with(1)
    desk.save(world)
    desk.configure(text)
    (row,) = world.overview.requests
    with pytest.raises(ConfigError, match=f"mode is not request.*{row.rule}"):
        desk.run("cancel", row.batch)
    assert not desk.files.read_pending().commands


def test_cancel_of_an_unknown_request_is_refused(desk):
    desk.save(world_with(1))
    with pytest.raises(ConfigError, match="staging cancel 12: the daemon has no such request; ids: "):
        desk.run("cancel", "12")


def test_resume_ends_a_stop(desk):
    desk.save(world_with(1))
    desk.run("stop")
    assert desk.files.stop_reason
    assert "staging is not stopped" in desk.run("resume")
    assert desk.files.stop_reason is None


def test_stop_without_staging_names_the_missing_folder(desk):
    with pytest.raises(StateError, match="no daemon has created it yet"):
        desk.run("stop")


def test_bad_id_is_one_sentence_and_exit_status_2(desk):
    done = run_hydrator("staging", "approve", "12", "-c", desk.config)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        "hydrator: staging approve 12: no such request waits; see hydrator staging list"
    ]


@pytest.mark.parametrize(
    ("files_done", "files", "text"),
    [(0, 3, "0 of 3"), (3, 3, "3 of 3"), (5, None, "")],
)
def test_progress_is_a_count_of_files(files_done, files, text):
    (row,) = world_with(1).overview.requests
    assert describe_progress(replace(row, files=files, files_done=files_done)) == text


def test_status_shows_what_the_mode_propose_would_request(desk):
    desk.save(world_with(1, rules=policy("propose")))
    text = " ".join(desk.run_command("status").split())
    assert "staging: mode propose, 0 requests, 0 B on the way" in text
    assert "staging: would ask for 1 TB in 1 dataset at CAM; the mode is propose" in text
    row = json.loads(desk.run_command("status", "--json"))["staging"]
    assert [one["bytes"] for each in row["planned"] for one in each["requests"]] == [10**12]


def test_status_shows_bytes_on_the_way_and_why_staging_stopped(desk):
    world = world_with(1)
    world.control.stop_reason = "stopped by the operator (tape)"
    world.step()
    desk.save(world)
    text = " ".join(desk.run_command("status").split())
    assert "staging: mode request, 1 request, 1 TB on the way" in text
    assert "nothing is requested or renewed: stopped by the operator (tape); hydrator staging resume" in text


def test_status_without_staging_does_not_mention_it(desk):
    desk.save(world_with(1, rules=policy("off")))
    assert "staging" not in desk.run_command("status")
    assert json.loads(desk.run_command("status", "--json"))["staging"] is None

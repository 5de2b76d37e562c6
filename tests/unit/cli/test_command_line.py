"""The command line for its users: help, completion, exit statuses."""

import os
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hydrator import __version__
from hydrator.cli.output.examples import EXAMPLES
from hydrator.domain.model import Site
from hydrator.reconcile.state import ReconcileState
from hydrator.reconcile.view import CYCLE_REPORT
from hydrator.state.store import Store
from tests.command_line import run_text as run
from tests.command_tree import COMMANDS, options
from tests.factories import L1, demand, facts, replica, report_of, view_of

STATE_CONFIG = (
    '[daemon]\nstate_dir = "state"\n[[catalogue]]\ntype = "file"\nname = "list"\npath = "list.json"\n'
)


@pytest.fixture
def config(tmp_path) -> str:
    (tmp_path / "config.toml").write_text(STATE_CONFIG)
    return str(tmp_path / "config.toml")


@pytest.fixture
def started(config, tmp_path) -> str:
    """The configuration of a daemon that has ended no cycle yet."""
    Store.open_to_write(tmp_path / "state").close()
    return config


def test_status_before_the_first_cycle_says_that_none_has_ended(started):
    done = run("status", "-c", started)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "last cycle: no cycle has ended yet")


# help that teaches


@pytest.mark.parametrize("line", EXAMPLES.splitlines())
def test_each_example_uses_existing_commands_and_options(line):
    typed, why = line.split("   # ")
    path = max((path for path in COMMANDS if typed.startswith(f"hydrator {path}")), key=len)
    command = COMMANDS[path]
    ours = re.split(r" [|>] ", typed)[0]
    assert {word for word in ours.split() if re.match(r"--?[a-z]", word)} <= options(path)
    given = shlex.split(re.split(r" && ", ours)[0])[1 + len(path.split()) :]
    assert command.make_context(path, given).params.keys() == {each.name for each in command.params}
    assert why
    assert line in command.epilog


def test_every_command_and_every_option_has_a_help_text():
    for path, command in COMMANDS.items():
        assert command.help, path
        for each in command.params:
            assert each.help or each.param_type_name == "argument", (path, each.name)


def test_help_fits_80_columns_and_obeys_no_color():
    said = run("why", "--help", COLUMNS="80", NO_COLOR="1", FORCE_COLOR="1").stdout
    assert "hydrator why 123.4   # explain why this job is idle" in said
    assert not re.search(r"\x1b\[(3[0-7]|9[0-7])", said)  # bold is no colour
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in said.splitlines()) <= 80


@pytest.mark.outside
@pytest.mark.parametrize("variable", ["FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"])
def test_forced_colours_are_no_escapes(variable):
    """The help has colours; an error is plain, because Rich would take longer to load than all the rest."""
    words = [sys.executable, "-m", "hydrator.cli", "status"]
    for more, is_coloured in (("--help", True), ("--nonsense", False)):
        done = subprocess.run(
            [*words, more], env={**os.environ, variable: "1"}, capture_output=True, check=False
        )
        assert (b"\x1b[" in done.stdout + done.stderr) is is_coloured
        assert b"\\x1b" not in done.stdout + done.stderr


# completion


def completed(line: str) -> list[str]:
    """Return the words that bash offers after *line*, by the completion script's own query."""
    words = line.split(" ")
    said = run(_HYDRATOR_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1)).stdout
    return said.split()


def test_bash_completes_commands_subcommands_and_options():
    assert {"status", "sites"} <= set(completed("hydrator s"))
    assert "pool-config" in completed("hydrator p")
    assert completed("hydrator why --sch") == ["--schedd"]


# exit statuses


def test_wrong_option_or_missing_configuration_exits_2_without_traceback(tmp_path):
    for words in (("nonsense",), ("status", "--nonsense"), ("status", "-c", str(tmp_path / "none.toml"))):
        done = run(*words)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
    assert "give a configuration with --config; a user writes five lines" in done.stderr


@pytest.mark.parametrize(
    ("command", "option", "wanted"),
    [
        ("submit rapthor x", "--max-wait", "give a whole number of seconds from 0 to 99999999"),
        ("submit rapthor x", "--expected-time", "give a whole number of seconds from 1 to 99999999"),
        ("submit rapthor x", "--cpus", "give a whole number of cores from 1 to 4096"),
        ("submit rapthor x", "--memory-gb", "give a number of GB from 0.001 to 65536"),
        ("submit rapthor x", "--disk-gb", "give a number of GB from 0.001 to 1000000"),
        ("submit rapthor x", "--at-least", "give a number from 0 to 1"),
        (
            "init -y --catalogue file --path x",
            "--gbit-per-second",
            "give a number of Gb/s from 0.001 to 100000",
        ),
        ("report", "--since", "give a time span like 90m, 6h or 2d, or a time in the past"),
    ],
)
@pytest.mark.parametrize("typed", ["", "abc", "nan", "inf", "70%", "1h30", "-1", "1e308", "9" * 5000])
def test_number_or_time_that_an_option_cannot_take_is_one_sentence(tmp_path, command, option, wanted, typed):
    done = run(*command.split(), option, typed, cwd=tmp_path)
    *usage, sentence = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert not usage or usage[0].startswith("Usage: hydrator ")
    assert all(part in sentence for part in (option, wanted, repr(typed)[:90]))
    assert len(sentence) < 300


@pytest.mark.parametrize("typed", ["UK\nDE", "UK" * 50_000], ids=["two lines", "long"])
def test_problem_with_a_typed_text_is_one_line(started, typed):
    done = run("sites", typed, "-c", started)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert len(done.stderr) < 5000


@pytest.mark.outside
@pytest.mark.parametrize("words", ["--version", "hook", "--help", "status --json"])
@pytest.mark.parametrize(
    ("redirection", "said"),
    [(">&-", []), (">/dev/full", ["hydrator: the output cannot be written: No space left on device"])],
)
def test_output_that_nobody_can_read_has_no_traceback(started, words, redirection, said):
    command = f"{sys.executable} -m hydrator.cli {words} {redirection}"
    environment = {**os.environ, "HYDRATOR_CONFIG": started}
    done = subprocess.run(
        command, shell=True, env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr.splitlines()) == (len(said), said)


def write_nothing(file: Path) -> None:
    file.parent.mkdir()
    file.touch()


def write_another_file(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("no database")


def damage_a_row(file: Path) -> None:
    with Store.open_to_write(file.parent) as store:
        store.save(ReconcileState())
    with sqlite3.connect(file) as database:
        database.execute("update part set body = '7' where name = 'demand'")


def damage_the_pages(file: Path) -> None:
    with Store.open_to_write(file.parent) as store:
        store.save(ReconcileState())
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


READERS = ["status", "sites", "sites CAM", "datasets", "network", "plan", "approve", "staging list"]


@pytest.mark.parametrize(
    ("words", "write", "status", "answer"),
    [
        ("status", write_nothing, 1, "is empty: no daemon has finished its start with this state_dir yet"),
        ("status", lambda file: file.mkdir(parents=True), 2, "is not a file"),
        ("status", lambda file: file.parent.write_text(""), 2, "state_dir must be a folder"),
        ("status", lambda file: file.parent.symlink_to(file.parent), 2, "state_dir must be a folder"),
        *((words, write_another_file, 2, "is not a readable state") for words in READERS),
        *((words, damage_a_row, 2, "") for words in ("datasets", "network", "approve")),
        *((words, damage_the_pages, 2, "") for words in ("datasets", "network", "approve")),
    ],
)
def test_state_that_cannot_be_read_is_one_sentence(config, tmp_path, words, write, status, answer):
    write(tmp_path / "state" / "state.sqlite")
    done = run(*words.split(), "-c", config)
    assert (done.returncode, len(done.stderr.splitlines()), done.stdout) == (status, 1, "")
    assert answer in done.stderr


def test_check_fails_where_it_cannot_read_the_state(config, tmp_path):
    config = tmp_path / "config.toml"
    Path(config).write_text(
        f"{STATE_CONFIG}[demand]\nask_schedds = false\n"
        "[publish]\ncollector.enabled = false\nfile.enabled = false\n"
    )
    (tmp_path / "list.json").write_text('{"datasets": {}}')
    assert run("check", "-c", config).returncode == 0
    write_another_file(tmp_path / "state" / "state.sqlite")
    done = run("check", "-c", config)
    assert (done.returncode, "is not a readable state" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    "words",
    ["submit filter /dev/zero", "submit filter {sub} --datasets-file /dev/zero", "submit rapthor /dev/zero"],
)
def test_file_without_end_is_refused(config, tmp_path, words):
    (tmp_path / "x.sub").write_text("executable = /bin/true\nqueue\n")
    done = run(*words.format(sub=tmp_path / "x.sub").split(), "-c", config)
    assert (done.returncode, done.stdout) == (2, "")
    assert "/dev/zero: the file is larger than" in done.stderr


@pytest.mark.parametrize("typed", ["Liège", "Li\udcc3\udca8ge"], ids=["UTF-8", "C"])
def test_site_is_found_by_a_name_that_the_locale_cannot_spell(config, tmp_path, typed):
    site = Site("Liège")
    with Store.open_to_write(tmp_path / "state") as store:
        store.save_reports(
            {CYCLE_REPORT: view_of(report_of(facts(replica(L1, site), sites=(site,)), demand(L1)))}
        )
    done = run("sites", typed, "-c", config)
    assert (done.returncode, "Liège" in done.stdout) == (0, True), done.stderr


def test_reason_of_a_stop_is_one_line_of_text(started):
    for reason in ("\udcff", "x" * 191, "two\nlines"):
        done = run("staging", "stop", "--reason", reason, "-c", started)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert "one line of at most 190 bytes" in done.stderr or reason == "\udcff"


@pytest.mark.parametrize("words", [("--version",), ("-V",)])
def test_the_version_is_printed(words):
    done = run(*words)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")

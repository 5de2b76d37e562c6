"""The loaded command line behaves as a command that Python starts for each call."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.loaded_cli import run_hydrator

pytestmark = pytest.mark.outside

ROOT = Path(__file__).parents[3]


def started(words: list[str], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hydrator.cli", *words]
    own = {**environment, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=own, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["nonsense"],
        ["plan"],
        ["plan", "-c", "none.toml"],
        ["sites", "--json"],
        ["submit", "--help"],
    ],
    ids=" ".join,
)
def test_a_call_answers_as_a_command_that_python_starts(words, tmp_path):
    (tmp_path / "bad.toml").write_text("[daemon]\nstate_dir = 3\n")
    environment = {**os.environ, "HYDRATOR_CONFIG": "bad.toml", "COLUMNS": "100"}
    new, loaded = started(words, environment, tmp_path), run_hydrator(words, environment, tmp_path)
    shown = [(done.returncode, done.stdout, done.stderr) for done in (loaded, new)]
    assert shown[0] == shown[1]
    assert shown[0][1] + shown[0][2] != ""


def test_calls_leave_no_trace_in_later_calls(tmp_path):
    first = run_hydrator(["plan"], {**os.environ, "HYDRATOR_CONFIG": "first.toml"}, tmp_path)
    second = run_hydrator(["plan"], {**os.environ, "HYDRATOR_CONFIG": "second.toml"})
    assert ("first.toml" in first.stderr, "first.toml" in second.stderr) == (True, False)
    assert "second.toml" in second.stderr

"""The loaded command line behaves as a command that Python starts for each call."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from hydrator.reconcile.poll.threads import run_in_thread
from testbed.loaded_cli import run_hydrator
from testbed.patience import wait_for
from testbed.processes import parents

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


def test_calls_at_once_do_not_mix_their_outputs(tmp_path):
    names = [f"file-{number}.toml" for number in range(8)]
    seen: dict[str, str] = {}

    def ask(name: str) -> None:
        seen[name] = run_hydrator(["plan", "-c", name], folder=tmp_path).stderr

    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[other for other in names if other in seen[name]] for name in names] == [[name] for name in names]


def test_a_call_that_does_not_end_is_killed(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")  # its reader waits for a writer
    with pytest.raises(subprocess.TimeoutExpired):
        run_hydrator(["plan", "-c", "pipe.toml"], folder=tmp_path, timeout=3)


@pytest.fixture
def waiting_call(tmp_path: Path) -> "Iterator[tuple[int, Future[subprocess.CompletedProcess[str]]]]":
    """A call that reads a pipe: its process, and its result once it has ended."""
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    ended = run_in_thread("call", lambda: run_hydrator(["plan", "-c", "pipe.toml"], folder=tmp_path))

    def opened() -> int | None:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no process reads the pipe yet
            return None

    writer = wait_for(opened, 60, "a call that reads the pipe")
    (call,) = processes_in(tmp_path)
    yield call, ended
    os.close(writer)


def test_a_killed_call_has_the_status_of_its_signal(waiting_call):
    call, ended = waiting_call
    os.kill(call, signal.SIGKILL)
    assert ended.result().returncode == -signal.SIGKILL


def processes_in(folder: Path) -> list[int]:
    """Return the processes whose working directory is *folder*."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            is_there = entry.readlink() == folder
        except OSError:
            continue
        if is_there:
            found.append(int(entry.parent.name))
    return found


def test_ctrl_c_ends_a_call_and_not_the_loaded_command(waiting_call):
    call, ended = waiting_call
    watcher = parents()[call]
    for pid in (parents()[watcher], watcher, call):  # as a terminal does: to the whole group
        os.kill(pid, signal.SIGINT)
    done = ended.result()
    assert (done.returncode != 0, "Traceback" in done.stderr) == (True, False)
    assert run_hydrator(["--version"]).returncode == 0

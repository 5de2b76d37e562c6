"""Progress of commands: on a terminal only, and erased at the end."""

import contextlib
import io
import os
import pty
import re
import sys
import termios
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from hydrator.cli import main
from hydrator.cli.app import app
from hydrator.cli.output.progress import show_progress

pytestmark = pytest.mark.outside


@pytest.fixture
def planned(tmp_path):
    (tmp_path / "list.json").write_text('{"sites": ["CAM"], "datasets": {}}')
    file = tmp_path / "config.toml"
    file.write_text(
        f'[daemon]\nstate_dir = "{tmp_path}"\n[demand]\nask_schedds = false\n[publish.collector]\n'
        'enabled = false\n[[catalogue]]\ntype = "file"\nname = "list"\npath = "list.json"\n'
        '[publish.file]\ndirectory = "ads"\n'
    )
    return str(file)


@pytest.fixture
def run(monkeypatch) -> Callable[..., str]:
    """Run one command in this process with *stream* at a terminal; return what the terminal got."""

    def running(
        *words: str,
        columns: int = 80,
        stream: str = "stderr",
        statuses: tuple[int | None, ...] = (0, None),
        **environment: str,
    ) -> str:
        main_end, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, columns))
        shown = os.fdopen(terminal, "w")
        with monkeypatch.context() as patch, redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
                patch.delenv(name, raising=False)
            for name, value in {"TERM": "xterm", "COLUMNS": str(columns), **environment}.items():
                patch.setenv(name, value)
            patch.setattr(sys, stream, shown)
            patch.setattr(sys, "argv", ["hydrator", *words])
            with pytest.raises(SystemExit) as ended:
                main()
        shown.close()
        seen = _read_all(main_end)
        assert ended.value.code in statuses, seen
        return seen

    return running


def _read_all(main_end: int) -> str:
    seen = b""
    with contextlib.suppress(OSError):  # EIO
        while more := os.read(main_end, 4096):
            seen += more
    os.close(main_end)
    return seen.decode()


def _plain(seen: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)


@pytest.mark.parametrize("command", ["plan", "once"])
def test_progress_is_erased_at_the_end(run, planned, command):
    seen = run(command, "-c", planned)
    assert "asking schedds and catalogues" in seen
    assert "\x1b[2K" in seen[seen.rindex("asking") :]


def test_bar_counts_its_steps(monkeypatch):
    main_end, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(terminal, "w") as shown, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", shown)
        with show_progress("asking all schedds", has_steps=True) as bar:
            bar.set_steps(2)
            bar.advance()
    assert "1/2" in _plain(_read_all(main_end))


STATE = ("reading the daemon's state",)
ASKING = ("asking the daemon and the catalogues",)
PARSET = ("searching for the datasets of the parset", "asking the catalogues for the sites of the datasets")
SHOWN = {
    "once": ((), ("asking schedds and catalogues, then publishing",)),
    "plan": ((), ("asking schedds and catalogues",)),
    "check": ((), ("asking the pool and the catalogues",)),
    "datasets": ((), STATE),
    "network": ((), STATE),
    "approve": ((), STATE),
    "why": (("lofar:L1",), ("asking the pool",)),
    "report": ((), ("querying the histories of the schedds",)),
    "run-anywhere": (("--all",), ("editing the queued jobs of the schedds",)),
    "submit rapthor": (("run.parset", "--dry-run"), PARSET),
    "submit filter": (("job.sub", "--datasets", "lofar:L1"), ASKING),
    "submit wrap": (("--datasets", "lofar:L1", "--", "condor_submit", "job.sub"), ASKING),
}
"""Commands that may take more than a second: words that follow the command, and the tasks on the terminal."""
QUICK = {"run", "hook", "init", "status", "sites", "pool-config", "submit wrapper", "submit toil-shim"}
QUICK |= {f"token {name}" for name in ("new", "list", "revoke")}
QUICK |= {f"staging {name}" for name in ("list", "approve", "reject", "cancel", "stop", "resume")}
"""Commands that read or write only files of a bounded size; `run` has its log."""


def names_of(group: Any, before: str = "") -> set[str]:
    """Return the names of all commands of *group*, each with those of its groups."""
    names = set()
    for name, command in group.commands.items():
        below = getattr(command, "commands", None)
        names |= names_of(command, f"{before}{name} ") if below else {f"{before}{name}"}
    return names


def test_each_command_is_quick_or_shows_its_progress():
    assert names_of(get_command(app)) == SHOWN.keys() | QUICK
    assert not SHOWN.keys() & QUICK


@pytest.mark.parametrize("command", SHOWN)
def test_a_command_that_may_take_more_than_a_second_shows_its_tasks(
    run, planned, tmp_path, monkeypatch, command
):
    """No pool answers here, and PATH has no condor_submit: the command fails after its progress."""
    monkeypatch.chdir(tmp_path)
    run("once", "-c", planned)
    Path("job.sub").write_text("executable = /bin/true\nqueue\n")
    Path("run.parset").write_text("[global]\ndir_working = /data/run\ninput_ms = [lofar:L1]\n")
    words, tasks = SHOWN[command]
    seen = run(
        *command.split(), "-c", planned, *words, columns=120, statuses=(0, None, 1, 2, 127), PATH="/nowhere"
    )
    assert [task for task in tasks if task not in _plain(seen)] == [], seen


def test_progress_is_not_shown_on_a_dumb_terminal(run, planned):
    assert "asking" not in run("plan", "-c", planned, TERM="dumb")


def test_progress_is_not_shown_without_a_terminal(planned, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hydrator", "plan", "-c", planned])
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr()
    assert ("publish" in printed.out, printed.err) == (True, "")


def test_bar_fits_a_narrow_terminal(run, planned):
    lines = re.split(r"[\r\n]+", _plain(run("plan", "-c", planned, columns=40)))
    assert max(len(line.rstrip()) for line in lines) <= 40

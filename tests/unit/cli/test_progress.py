"""Progress of commands: on a terminal only, never with ``--json``, and erased at the end."""

import contextlib
import io
import os
import pty
import re
import sys
import termios
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest

from hydrator.cli import main
from hydrator.cli.output.progress import ProgressBar, ReportingCatalogue
from hydrator.domain.errors import CatalogueError
from hydrator.reconcile.reconciler import read_all
from tests.factories import CAM, L1, NOON, replica
from tests.memory import MemoryCatalogue

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

    def running(*words: str, columns: int = 80, stream: str = "stderr", **environment: str) -> str:
        main_end, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, columns))
        shown = os.fdopen(terminal, "w")
        with monkeypatch.context() as patch, redirect_stdout(io.StringIO()):
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
        assert ended.value.code in (0, None), seen
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


COLOUR = re.compile(r"\x1b\[[0-9;]*\b(3[0-9]|9[0-7])[;m]")


@pytest.mark.parametrize(("command", "done"), [("plan", "2/2"), ("once", "2/3")])
def test_bar_counts_the_answers_and_is_erased_at_the_end(run, planned, command, done):
    """The last step of `once` is the publishing, which ends with the bar."""
    seen = run(command, "-c", planned)
    assert "asking schedds and catalogues" in seen
    assert done in _plain(seen)
    assert "\x1b[2K" in seen[seen.rindex("asking") :]


def test_progress_is_not_shown_with_json_or_on_a_dumb_terminal(run, planned):
    assert run("plan", "--json", "-c", planned) == ""
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


class CountedSteps(ProgressBar):
    """A bar that counts its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def advance(self) -> None:
        self.count += 1


def test_catalogue_that_fails_is_a_step_too():
    bar = CountedSteps()
    well = MemoryCatalogue("well", [replica()], sites=[CAM], clock=lambda: NOON)
    broken = MemoryCatalogue("broken", sites=[CAM], is_broken=True)
    with pytest.raises(CatalogueError):
        ReportingCatalogue(broken, bar).read({L1})
    answers = read_all([ReportingCatalogue(one, bar) for one in (well, broken)], {L1})
    assert (answers.keys(), bar.count) == ({"well", "broken"}, 3)

"""The systemd unit, checked by systemd itself; test_booted.py boots one."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.processes import run_program
from tests.parts import without

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "hydrator.service"
DROP_IN = UNIT.with_name("hydrator.service.d") / "10-secrets.conf"
PROGRAM = "/opt/classad-hydrator/bin/hydrator"
EXPOSURE = 12
"""Maximum exposure level of `systemd-analyze security`, in tenths."""

needs_systemd = pytest.mark.usefixtures("analyzer")


@pytest.fixture
def analyzer() -> None:
    if shutil.which("systemd-analyze") is None:
        without("systemd", "systemd-analyze is not installed (apt-get install systemd)")


@pytest.fixture
def unit(tmp_path) -> Path:
    """Return the unit with the program of this checkout instead of the installed one."""
    here = Path(sys.executable).with_name("hydrator")
    assert here.is_file()
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(PROGRAM, str(here)))
    return copy


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_program(["systemd-analyze", *map(str, arguments)])


def uncommented(text: str) -> str:
    return re.sub(r"^#(?=[A-Z]\w+=)", "", text, flags=re.MULTILINE)


@needs_systemd
def test_systemd_accepts_the_unit(unit):
    # verify exits with 0 despite unknown keys, so any output is a problem
    done = analyze("verify", unit)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
def test_systemd_accepts_the_drop_in_with_every_commented_line(unit):
    folder = unit.with_name("hydrator.service.d")
    folder.mkdir()
    (folder / DROP_IN.name).write_text(uncommented(DROP_IN.read_text()))
    assert (folder / DROP_IN.name).read_text().count("\nLoadCredential=") == 2
    done = analyze("verify", unit)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
def test_unit_confines_the_daemon(unit):
    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", unit)
    assert done.returncode == 0, done.stdout.splitlines()[-1]

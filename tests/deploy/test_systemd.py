"""The systemd unit, checked by systemd itself; test_booted.py boots one."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.parts import NO_SYSTEMD, without

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
        without(NO_SYSTEMD, "systemd-analyze is not installed (apt-get install systemd)")


@pytest.fixture
def unit(tmp_path) -> Path:
    """Return the unit with the program of this checkout instead of the installed one."""
    here = Path(sys.executable).with_name("hydrator")
    assert here.is_file()
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(PROGRAM, str(here)))
    return copy


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, check=False
    )


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
def test_systemd_accepts_the_unit_with_the_example_drop_in(unit):
    folder = unit.with_name("hydrator.service.d")
    folder.mkdir()
    (folder / DROP_IN.name).write_text(DROP_IN.read_text())
    done = analyze("verify", unit)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (folder / DROP_IN.name).write_text(DROP_IN.read_text().replace("LoadCredential=", "LoadCredentials="))
    assert "LoadCredentials" in analyze("verify", unit).stderr  # so it was read


@needs_systemd
def test_systemd_rejects_a_misspelt_key(unit):
    unit.write_text(unit.read_text().replace("NoNewPrivileges", "NoNewPrivilege"))
    assert "NoNewPrivilege" in analyze("verify", unit).stderr


@needs_systemd
def test_unit_confines_the_daemon(unit):
    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", unit)
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_unit_lets_the_bindings_list_the_network_interfaces():
    # without AF_NETLINK the first advertise or query ends the process with status 4
    [families] = re.findall(r"^RestrictAddressFamilies=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert set(families.split()) == {"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}


def test_unit_state_directory_is_the_default_of_the_configuration():
    example = tomllib.loads((ROOT / "config.example.toml").read_text())
    [name] = re.findall(r"^StateDirectory=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert example["daemon"]["state_dir"] == f"/var/lib/{name}"


def test_command_of_the_unit_is_valid():
    [command] = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    program, subcommand, option, config = command.split()
    assert (program, option) == (PROGRAM, "--config")
    hydrator = str(Path(sys.executable).with_name("hydrator"))
    done = subprocess.run(
        [hydrator, subcommand, option, f"{config}.missing"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2  # the configuration is missing, and that is all that is wrong
    assert done.stderr == (
        f"hydrator: {config}.missing: No such file or directory;"
        " give a configuration with --config, or create one with `hydrator init`\n"
    )


def test_unit_waits_for_the_notification_of_the_daemon():
    unit = dict(re.findall(r"^(Type|NotifyAccess|WatchdogSec)=(.*)$", UNIT.read_text(), re.MULTILINE))
    assert unit == {"Type": "notify", "NotifyAccess": "main", "WatchdogSec": "90"}

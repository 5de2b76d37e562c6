"""The shipped unit under a real systemd that is booted for it, with the wheel installed as the docs say."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from testbed.machine import PREFIX, Machine, boot
from testbed.patience import wait_for
from testbed.pool import Pool
from testbed.ports import free_port
from testbed.wheelhouse import ROOT, our_wheel
from tests.deploy.packages import read_ads
from tests.deploy.service import SITES, write_configuration
from tests.pages import blocks
from tests.parts import needs

pytestmark = [pytest.mark.pool, pytest.mark.timeout(1200)]

UNIT = "hydrator.service"
PRINTED = blocks("sh systemd")
"""The commands of the page, in their order; the last ones look at what was installed."""
SYSTEMD = ROOT / "deploy" / "systemd"
LATER = "9.9.9"


@dataclass(frozen=True)
class Installed:
    """The daemon on a machine beside a real pool."""

    machine: Machine
    pool: Pool
    port: int

    def ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def ads(self) -> dict[str, tuple[list[str], int]]:
        """What the pool's collector shows: by site the datasets, and the generation."""
        return read_ads(self.pool)

    def log(self) -> str:
        return self.machine.run("journalctl", "--no-pager", "--output=cat", f"--unit={UNIT}")

    def show(self, name: str) -> str:
        return self.machine.show(UNIT, name)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    """Our wheel, and a later one of the same."""
    folder = tmp_path_factory.mktemp("wheels")
    our_wheel(folder)
    our_wheel(folder, version=LATER)
    return folder


@pytest.fixture(scope="module")
def installed(own_pool: Pool, wheels: Path, tmp_path_factory) -> Iterator[Installed]:
    """The daemon as docs/operators/service.md installs it; CI must have it."""
    port = free_port()
    furniture = tmp_path_factory.mktemp("furniture")
    _furnish(furniture, own_pool, wheels, port)
    machines = boot(tmp_path_factory.mktemp("machine"), furniture)
    with ExitStack() as until_then:
        with needs("systemd"):
            machine = until_then.enter_context(machines)
        [ours] = wheels.glob("classad_hydrator-0*.whl")
        for block in PRINTED[:-1]:
            # the machine has no network, so it is the wheel that pip takes, as the page says
            wheel = f"--no-index --no-deps /srv/{ours.name}"
            machine.run(
                "sh", "-euc", f"cd /srv\n{block.text.replace('pip install .', f'pip install {wheel}')}"
            )
        yield Installed(machine, own_pool, port)


def _furnish(root: Path, pool: Pool, wheels: Path, port: int) -> None:
    """What an operator puts on the machine before the first start."""
    (root / "srv" / "deploy").mkdir(parents=True)  # the checkout, where the page's commands are typed
    shutil.copytree(SYSTEMD, root / "srv" / "deploy" / "systemd")
    for wheel in wheels.glob("*.whl"):
        shutil.copy(wheel, root / "srv")
    etc = root / "etc/classad-hydrator"
    etc.mkdir(parents=True)
    shutil.copy(pool.token("hydrator", ("READ", "DAEMON")) / "token", root / "srv" / "hydrator.token")
    write_configuration(etc, pool, port)


def test_service_starts_notifies_systemd_and_publishes_to_a_real_pool(installed):
    assert installed.show("ActiveState") == "active"
    wait_for(installed.ready, "the daemon to be ready")
    wait_for(lambda: installed.ads().keys() == SITES, "the site ads in the collector")
    assert installed.ads()["UK"][0] == ["lofar:L1"]
    wait_for(lambda: installed.show("StatusText") == "3 sites, 1 dataset; all is well", "a status")


def test_last_commands_of_the_installation_page_report_no_problem(installed):
    wait_for(lambda: not failed(installed, "/usr/local/bin/hydrator"), "nothing to fail")
    login = "export PATH=/usr/local/sbin:/usr/local/bin:$PATH\n"  # as root has it on a Debian
    installed.machine.run("sh", "-euc", login + PRINTED[-1].text)


def test_service_runs_as_a_dynamic_user_with_a_private_state(installed):
    status = installed.machine.run("cat", f"/proc/{installed.show('MainPID')}/status")
    [uid] = re.findall(r"^Uid:\t(\d+)", status, re.MULTILINE)
    assert 61184 <= int(uid) <= 65519  # systemd's range of dynamic users
    assert re.findall(r"^Cap(?:Eff|Bnd|Amb):\t(\w+)", status, re.MULTILINE) == [16 * "0"] * 3
    assert re.findall(r"^(?:NoNewPrivs|Seccomp):\t(\d)", status, re.MULTILINE) == ["1", "2"]
    state = installed.machine.run("stat", "--format=%u %a", "/var/lib/private/classad-hydrator/state.sqlite")
    assert state.split()[0] == uid
    assert state.split()[1].endswith("00")


def findings(installed, program: str) -> list[dict[str, str]]:
    """What a check by root says."""
    found: list[dict[str, str]] = json.loads(installed.machine.run(program, "check", "--json", check=False))
    return found


def failed(installed, program: str) -> list[str]:
    return [one["message"] for one in findings(installed, program) if one["level"] == "fail"]


def test_check_as_root_runs_as_the_service(installed):
    hydrator = "/usr/local/bin/hydrator"
    wait_for(lambda: "all is well" in installed.show("StatusText"), "a whole cycle")
    wait_for(lambda: not failed(installed, hydrator), "nothing to fail")
    seen = [one["message"] for one in findings(installed, hydrator)]
    assert [one for one in seen if "accepts site ads (DAEMON) from hydrator@" in one]
    installed.machine.run(hydrator, "sites")


def test_check_without_the_wrapper_names_the_owner_of_the_token(installed):
    tokens = "HYDRATOR_HTCONDOR__TOKEN_DIRECTORY=/run/classad-hydrator/tokens.d"
    said = installed.machine.run("env", tokens, f"{PREFIX}/bin/hydrator", "check", "--json", check=False)
    assert "belongs to uid" in said


def test_check_as_root_reports_a_file_that_the_daemon_cannot_read(installed):
    wait_for(lambda: "all is well" in installed.show("StatusText"), "a whole cycle")
    installed.machine.run("chmod", "600", "/etc/classad-hydrator/catalogue.toml")
    try:
        installed.machine.run("touch", "/etc/classad-hydrator/catalogue.toml")
        [said] = wait_for(lambda: failed(installed, f"{PREFIX}/bin/hydrator"), "a cycle that fails")
    finally:
        installed.machine.run("chmod", "644", "/etc/classad-hydrator/catalogue.toml")
    assert re.fullmatch(r"catalogue .* fails.*/catalogue\.toml: Permission denied; let uid \d+ read it", said)
    wait_for(lambda: "all is well" in installed.show("StatusText"), "a whole cycle")


def test_watchdog_restarts_a_hanging_daemon_with_its_state(installed):
    ads = installed.ads()
    assert installed.show("WatchdogUSec") == "1min 30s"
    dropin = "/run/systemd/system/hydrator.service.d"  # no test waits for ninety seconds
    installed.machine.run("mkdir", "-p", dropin)
    installed.machine.run("sh", "-c", f"printf '[Service]\\nWatchdogSec=20\\n' > {dropin}/50-test.conf")
    installed.machine.run("systemctl", "daemon-reload")
    installed.machine.run("systemctl", "restart", "hydrator")
    before = installed.show("MainPID")
    installed.machine.run("kill", "-STOP", before)
    wait_for(lambda: installed.show("MainPID") not in {before, "0"}, "systemd to kill and restart it")
    wait_for(lambda: installed.show("ActiveState") == "active", "the daemon to be back")
    assert int(installed.show("NRestarts")) >= 1
    assert "watchdog" in installed.log().lower()
    installed.machine.run("rm", "-r", dropin)
    installed.machine.run("systemctl", "daemon-reload")
    wait_for(installed.ready, "the daemon to be ready")
    assert installed.ads() == ads  # the same content, so the same generations


def test_invalid_configuration_is_one_sentence_without_a_restart(installed):
    restarts = installed.show("NRestarts")
    config = "/etc/classad-hydrator/config.toml"
    installed.machine.run("sed", "-i", "s/^pins/pinz/", config)
    installed.machine.run("systemctl", "restart", "hydrator", check=False)
    wait_for(lambda: installed.show("ActiveState") == "failed", "the start to fail")
    assert installed.show("ExecMainStatus") == "2"
    assert installed.show("NRestarts") in {restarts, "0"}
    assert "demand.pinz" in installed.log()
    assert "Traceback" not in installed.log()
    installed.machine.run("sed", "-i", "s/^pinz/pins/", config)
    installed.machine.run("systemctl", "reset-failed", "hydrator")
    installed.machine.run("systemctl", "start", "hydrator")


def test_systemctl_stop_leaves_no_process(installed):
    installed.machine.run("systemctl", "stop", "hydrator")
    assert installed.show("ActiveState") == "inactive"
    assert (installed.show("Result"), installed.show("ExecMainStatus")) == ("success", "0")
    assert installed.machine.run("pgrep", "-f", "hydrator", check=False) == ""
    assert installed.machine.run("ls", "/run/classad-hydrator", check=False) == ""

"""The packages of Debian 13, and the RPMs, on a booted Debian 13 beside a real pool.

There is no Enterprise Linux here: the real rpm installs the RPMs, and this machine's Python 3.12 runs them.
"""

import io
import re
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from hydrator import __version__
from scripts.packages.__main__ import main
from scripts.packages.rpm import rpm_program
from scripts.packages.targets import DAEMON, HOOK, PACKAGES, Target
from testbed.files import umask
from testbed.machine import Machine, layers
from testbed.patience import wait_for
from testbed.pool import Pool
from testbed.ports import free_port
from tests.deploy.packages import (
    BACKUPS,
    DEBIAN_13,
    EL9,
    EL10,
    ETC,
    NOON,
    PRINTED,
    booted,
    configure,
    list_files,
    make,
    read_ads,
)
from tests.deploy.service import SITES
from tests.parts import needs, without
from tests.pythons import copy_python, find_python

pytestmark = [pytest.mark.pool, pytest.mark.timeout(1800)]

EDITED = "/etc/condor/config.d/60-datalocality-schedd.conf"
KEPT = ("/etc/classad-hydrator", "/var/lib/classad-hydrator", "/var/lib/private")
"""Folders that stay with all that is in them when rpm erases the package."""
COMPILED = f"/usr/lib/python{EL9.python}/"
"""The library of the Python that the test adds: Python writes compiled modules there."""
FOLDERS_OF_OTHERS = {
    "/opt",
    "/usr/share/fish",
    "/usr/share/fish/vendor_completions.d",
    "/usr/share/zsh",
    "/usr/share/zsh/site-functions",
}
"""Folders that other packages of Enterprise Linux own: rpm creates them here and leaves them."""


@pytest.fixture(scope="module")
def rpms(tmp_path_factory) -> Path:
    """The packages of Enterprise Linux 9, and those of 10, as ``make packages`` writes them."""
    folder = tmp_path_factory.mktemp("rpms")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setenv("SOURCE_DATE_EPOCH", str(NOON))
        assert main([str(folder), EL9.name, EL10.name]) == 0
    assert printed.getvalue().splitlines() == [str(path) for path in sorted(folder.iterdir())]
    return folder


def rpms_for(target: Target, folder: Path) -> dict[str, Path]:
    """Return the RPMs for *target* in *folder*, by the name of the package."""
    return {path.name.split(f"-{__version__}")[0]: path for path in folder.glob(f"*.{target.tag}.*.rpm")}


def query(rpm: Path, *options: str) -> str:
    tool, environment = rpm_program("rpm")
    command = [str(tool), "--dbpath", f"{rpm.parent}/none", "--query", "--package", *options, str(rpm)]
    return subprocess.check_output(command, text=True, env={"PATH": "/usr/bin:/bin", **environment})


def test_the_rpms_for_both_releases_differ_only_in_the_package_of_python(rpms):
    both = [rpms_for(target, rpms) for target in (EL9, EL10)]
    assert both[0].keys() == both[1].keys() == {package.name for package in PACKAGES}
    for name in both[0]:
        content = [query(of[name], "--dump", "--scripts", "--configfiles") for of in both]
        assert content[0] == content[1], name
    old, new = ([*query(of[DAEMON.name], "--requires").splitlines()] for of in both)
    assert set(old) - set(new) == {"python3.12"}
    assert set(new) - set(old) == {"python3 >= 3.12"}


def test_equal_sources_give_equal_rpms_whatever_the_umask(tmp_path, rpms):
    with umask(0o077):
        again = make(*PACKAGES, target=EL9, folder=tmp_path)
    for rpm in again:
        assert rpm.read_bytes() == (rpms / rpm.name).read_bytes(), rpm.name


def test_the_rpms_name_their_dependencies_and_have_completions_and_root_owns_their_files(rpms):
    found = rpms_for(EL9, rpms)
    requires = query(found[DAEMON.name], "--requires").splitlines()
    assert {"python3.12", "systemd >= 250"} <= set(requires)
    assert not [one for one in requires if one.startswith(("libc", "python(abi)"))]
    listed = query(found[DAEMON.name], "--list").splitlines()
    assert {
        "/usr/share/bash-completion/completions/hydrator",
        "/usr/share/zsh/site-functions/_hydrator",
        "/usr/share/fish/vendor_completions.d/hydrator.fish",
    } <= set(listed)
    owners = set(query(found[DAEMON.name], "--queryformat", "[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]").split())
    assert owners == {"root:root"}
    assert "python3 >= 3.6" in query(found[HOOK.name], "--requires")


def test_machine_code_of_the_rpm_runs_with_the_c_library_of_enterprise_linux_9(rpms, tmp_path):
    tool, environment = rpm_program("rpm2archive")
    (tmp_path / "daemon.rpm").symlink_to(rpms_for(EL9, rpms)[DAEMON.name])
    command = [str(tool), "--nocompression", str(tmp_path / "daemon.rpm")]
    subprocess.run(command, check=True, env=environment)
    with tarfile.open(tmp_path / "daemon.rpm.tar") as archive:
        archive.extractall(tmp_path, filter="fully_trusted")
    assert newest_glibc(tmp_path / "opt/classad-hydrator/lib") <= (2, 34)


def newest_glibc(folder: Path) -> tuple[int, int]:
    """Return the newest release of the GNU C library whose symbols the machine code in *folder* uses."""
    wanted = re.compile(rb"\0GLIBC_(\d+)\.(\d+)[.\d]*(?=\0)")
    files = [path for path in folder.rglob("*.so*") if path.is_file()]
    found = [match for path in files for match in wanted.findall(path.read_bytes())]
    return max((int(major), int(minor)) for major, minor in found)


@pytest.fixture(scope="module")
def machine(own_pool: Pool, rpms: Path, tmp_path_factory) -> Iterator[Machine]:
    """A Debian 13 with the packages in /srv, and with Enterprise Linux's Python if this machine has it."""
    folder = tmp_path_factory.mktemp("debian-13")
    deb = make(DAEMON, target=DEBIAN_13, folder=folder)
    if python := find_python(EL9.python):
        copy_python(python, folder / "furniture")
    with needs("systemd"):
        lower = layers()
    with booted(own_pool, [*deb, *rpms.glob("*.rpm")], folder, lower) as machine:
        yield machine


def start_service(machine: Machine, pool: Pool, since: int) -> dict[str, tuple[list[str], int]]:
    """Start the installed daemon as the page says; return its ads, which are newer than *since* (Unix s)."""
    machine.run("sh", "-euc", PRINTED[1].text)
    wait_for(lambda: read_ads(pool, since).keys() == SITES, "the new site ads in the collector")
    ads = read_ads(pool, since)
    pid = machine.show("hydrator", "MainPID")
    assert machine.run("stat", "--format=%U", f"/proc/{pid}") == "hydrator"
    return ads


def test_a_fresh_debian_13_publishes_after_apt_install(machine, own_pool):
    """As an operator: apt install, hydrator init, systemctl enable --now; then purge leaves nothing."""
    before = list_files(machine)
    command = PRINTED[0].text
    assert "deb12" in command
    given = ("--condor-config", f"{ETC}/condor_config", "--token-directory", f"{ETC}/tokens.d")
    second = int(time.time())
    machine.run("sh", "-euc", f"cd /srv; {command.replace('deb12', DEBIAN_13.tag)}")
    configure(machine, "condor_config", "catalogue.toml")
    machine.run("hydrator", "init", "--yes", *given, "--catalogue", "file", "--path", f"{ETC}/catalogue.toml")
    http = f"\n[publish.http]\nport = {free_port()}\n"  # the machine shares this one's network
    machine.run("sh", "-euc", f"printf '%s' \"$0\" >> {ETC}/config.toml", http)
    start_service(machine, own_pool, second)
    assert machine.run("readlink", "/opt/classad-hydrator/bin/python3") == "/usr/bin/python3.13"

    machine.run("apt-get", "purge", "--yes", DAEMON.name)
    assert machine.show("hydrator", "LoadState") == "not-found"
    assert list_files(machine) - before <= BACKUPS


def test_the_real_rpm_installs_upgrades_and_erases_the_running_daemon(machine, own_pool):
    """The packages of Enterprise Linux 10 are a later release of those of 9, so they are the upgrade."""
    if not find_python(EL9.python):
        without("other Python", f"the RPMs need Python {EL9.python}")
    before = list_files(machine)
    rpm(machine, f"--install /srv/*.{EL9.tag}.*.rpm")
    assert machine.run("hydrator", "--version") == __version__
    assert machine.run("stat", "--format=%a %U", f"{ETC}/tokens.d") == "700 root"
    second = int(time.time())
    configure(machine, "condor_config", "catalogue.toml", "config.toml")
    published = start_service(machine, own_pool, second)
    assert published["UK"][0] == ["lofar:L1"]
    pid = machine.show("hydrator", "MainPID")
    machine.run("sh", "-euc", f"echo '# mine' >> {EDITED}")

    rpm(machine, f"--upgrade /srv/*.{EL10.tag}.*.rpm")
    wait_for(lambda: machine.show("hydrator", "StatusText").endswith("all is well"), "a cycle")
    assert machine.show("hydrator", "MainPID") != pid
    assert read_ads(own_pool, min(generation for _, generation in published.values())) == published
    assert machine.run("tail", "-n", "1", EDITED) == "# mine"

    rpm(machine, f"--erase {' '.join(package.name for package in PACKAGES)}")
    assert machine.show("hydrator", "LoadState") == "not-found"
    assert machine.run("pgrep", "-f", "hydrator", check=False) == ""
    left = list_files(machine) - before - BACKUPS - FOLDERS_OF_OTHERS
    assert {name for name in left if not name.startswith((*KEPT, COMPILED))} == {f"{EDITED}.rpmsave"}
    assert {f"{ETC}/config.toml", "/var/lib/private/classad-hydrator/state.sqlite"} <= left


def rpm(machine: Machine, words: str) -> None:
    """Run rpm on the machine; its database has no packages of the system, so it checks no dependencies.

    A plug-in of this rpm, which Enterprise Linux does not have, would leave the scriptlets without a network.
    """
    machine.run("sh", "-euc", f"rpm --nodeps --noplugins {words}")

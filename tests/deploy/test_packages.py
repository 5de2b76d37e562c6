"""The packages of ``make packages`` on a booted Debian 12, and what HTCondor reads of them."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hydrator import __version__
from scripts.packages.__main__ import main
from scripts.packages.targets import DAEMON, HOOK, PACKAGES, POOL, SUBMIT
from testbed.debian import ENTER, SUITES, tree
from testbed.files import umask
from testbed.machine import Machine, base
from testbed.patience import wait_for
from testbed.pool import Pool
from testbed.processes import run_program
from tests.deploy.packages import (
    BACKUPS,
    DEBIAN_12,
    ETC,
    PRINTED,
    booted,
    configure,
    list_files,
    make,
    read_ads,
)
from tests.deploy.service import SITES
from tests.parts import needs

pytestmark = [pytest.mark.pool, pytest.mark.timeout(1800)]

OVERLAY = """
set -eu
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
mount -t proc proc "$2/root/proc"
list() {
    left="-path ./proc -o -path ./var/lib/dpkg -o -path ./srv -o -path ./tmp"
    (cd "$1" && find . -xdev \\( $left \\) -prune -o -print | sort)
}
list "$2/root" > "$2/before"
"""
WITH_CONDOR = """
PLACE=$2 configuration=$2/root/etc/condor/config.d
enter() { chroot "$PLACE/root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
save() { enter condor_config_val -dump | grep --invert-match --extended-regexp '^(#|P?PID =)' > "$PLACE/$1"; }
rm "$PLACE/root/usr/sbin/condor_reconfig"
printf '#!/bin/sh\\necho called >> /srv/calls\\n' > "$PLACE/root/usr/sbin/condor_reconfig"
chmod 755 "$PLACE/root/usr/sbin/condor_reconfig"
echo "DATALOCALITY_HOOK_ARGS = --collector cm.example.org" > "$configuration/50-datalocality-source.conf"
save before_install
enter sh -c 'dpkg --install /srv/*_0*.deb' >&2
save installed
test ! -e "$PLACE/root/srv/calls"
master=$PLACE/root$(enter condor_config_val MASTER_ADDRESS_FILE)
mkdir -p "${master%/*}"
touch "$master"
echo "MINE = 3" >> "$configuration/60-datalocality-schedd.conf"
enter sh -c 'dpkg --install /srv/*_9*.deb' >&2
save upgraded
enter dpkg --remove classad-hydrator-hook classad-hydrator-pool classad-hydrator-submit >&2
rm "$master"
rmdir "${master%/*}" 2>/dev/null || true
save removed
enter dpkg --purge classad-hydrator-hook classad-hydrator-pool classad-hydrator-submit >&2
save purged
"""
WITHOUT_PROC = """
set -eu
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
chroot "$2/root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -euc '
    test ! -e /proc/self
    dpkg --force-depends --install /srv/*.deb
    stat --format="%a %U" /etc/classad-hydrator /etc/classad-hydrator/tokens.d'
"""
COMPARE = """
list "$2/root" > "$2/after"
comm -13 "$2/before" "$2/after"
"""
LATER = "9.9.9"
INSTALL = ["apt-get", "install", "--yes", "--no-install-recommends"]


@pytest.fixture(scope="module")
def debs(tmp_path_factory) -> Path:
    """The packages of Debian 12, and a later version of the daemon's."""
    folder, trees = tmp_path_factory.mktemp("debs"), tmp_path_factory.mktemp("trees")
    make(*PACKAGES, folder=folder, trees=trees)
    make(DAEMON, folder=folder, version=LATER, trees=trees)
    return folder


@pytest.fixture(scope="module")
def machine(own_pool: Pool, debs: Path, tmp_path_factory) -> Iterator[Machine]:
    """A Debian 12 without a trace of this project, but with its packages and a pool's token in /srv."""
    with booted(own_pool, debs.iterdir(), tmp_path_factory.mktemp("debian-12")) as machine:
        # the test machine has an installation from wheels below /opt: this machine is to be a fresh one
        machine.run("rm", "-rf", "/opt/classad-hydrator")
        yield machine


def test_the_debs_install_run_upgrade_and_leave_nothing_behind(machine, own_pool):
    passwd = machine.run("cat", "/etc/passwd")
    before = list_files(machine)
    machine.run("sh", "-euc", f"cd /srv; {PRINTED[0].text}")
    others = [f"/srv/{package.name}_{__version__}_all.deb" for package in (HOOK, POOL, SUBMIT)]
    machine.run(*INSTALL, *others)
    assert machine.run("hydrator", "--version") == __version__
    assert "hydrator" in machine.run("getent", "passwd", "hydrator")
    assert machine.run("stat", "--format=%a %U", f"{ETC}/tokens.d") == "700 root"
    assert machine.show("hydrator", "ActiveState") == "inactive"  # it has no configuration yet
    configure(machine, "condor_config", "catalogue.toml", "config.toml")
    machine.run("sh", "-euc", PRINTED[1].text)
    wait_for(lambda: read_ads(own_pool).keys() == SITES, "the site ads in the collector")
    assert read_ads(own_pool)["UK"][0] == ["lofar:L1"]
    [uid] = {machine.run("stat", "--format=%U", f"/proc/{machine.show('hydrator', 'MainPID')}")}
    assert uid == "hydrator"

    published = read_ads(own_pool)
    machine.run(*INSTALL, f"/srv/classad-hydrator_{LATER}+{DEBIAN_12.tag}_amd64.deb")
    wait_for(lambda: machine.show("hydrator", "StatusText").endswith("all is well"), "a cycle")
    assert read_ads(own_pool) == published
    assert machine.run("dpkg-query", "--show", "--showformat=${Version}", "classad-hydrator").startswith(
        LATER
    )
    assert machine.run("cat", f"{ETC}/config.toml").startswith("[daemon]")

    machine.run("apt-get", "purge", "--yes", *(package.name for package in PACKAGES))
    assert machine.show("hydrator", "LoadState") == "not-found"
    assert list_files(machine) - before <= BACKUPS
    assert machine.run("cat", "/etc/passwd") == passwd
    assert machine.run("pgrep", "-f", "hydrator", check=False) == ""


def test_the_daemon_installs_in_a_chroot_without_proc(debs, tmp_path):
    """As image builders do; the packages that it depends on are not what is tried here."""
    for name in ("upper/srv", "work", "root"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "upper").chmod(0o755)
    shutil.copy(next(debs.glob(f"classad-hydrator_{__version__}+*.deb")), tmp_path / "upper/srv")
    with needs("systemd"):
        lower = base()
    words = ["unshare", "--mount", "sh", "-c", WITHOUT_PROC, "sh", str(lower), str(tmp_path)]
    done = run_program(words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-4:] == ["755", "root", "700", "root"]


def test_equal_sources_give_equal_debs_whatever_the_umask(tmp_path, debs):
    with umask(0o077):
        again = make(*PACKAGES, folder=tmp_path)
    for deb in again:
        assert deb.read_bytes() == (debs / deb.name).read_bytes(), deb.name


def test_the_hook_needs_python_3_6_and_nothing_else(debs):
    [hook] = debs.glob("classad-hydrator-hook_*_all.deb")
    field = ["dpkg-deb", "--field", str(hook), "Depends"]
    assert subprocess.check_output(field, text=True) == "python3 (>= 3.6)\n"


@pytest.fixture
def debian(tmp_path) -> Callable[..., set[str]]:
    """Return a function that runs a script in a Debian, with files in /srv, and returns what remains.

    The Debian is that of the test pools, by default 13: it has HTCondor, and no systemd.
    """
    for name in ("upper/srv", "work", "root"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "upper").chmod(0o755)

    def run(script: str, suite: str = SUITES["23.9"], **environment: str) -> set[str]:
        with needs("HTCondor pool"):
            files = tree(suite, print)
        words = ["sh", "-c", f"{OVERLAY}{script}{COMPARE}", "sh", str(files), str(tmp_path)]
        env = {**os.environ, **environment}
        done = run_program([*ENTER, *words], env=env)
        assert done.returncode == 0, done.stderr
        return set(done.stdout.splitlines())

    return run


@pytest.mark.parametrize("release", SUITES)
def test_removed_packages_leave_htcondor_with_its_own_values(debian, debs, tmp_path, release):
    """Debian keeps configuration files of a removed package: they must have no effect but by an edit.

    The packages run ``condor_reconfig``, but only while HTCondor's master runs.
    """
    srv, small = tmp_path / "upper/srv", (HOOK, POOL, SUBMIT)
    for package in small:
        shutil.copy(debs / f"{package.name}_{__version__}_all.deb", srv)
    make(*small, folder=srv, version=LATER)
    assert debian(WITH_CONDOR, SUITES[release]) == {"./etc/condor/config.d/50-datalocality-source.conf"}
    before, installed, upgraded, removed, purged = (
        set((tmp_path / name).read_text().splitlines())
        for name in ("before_install", "installed", "upgraded", "removed", "purged")
    )
    changed = {line.split(" = ")[0] for line in installed - before}
    assert {"START", "STARTD_CRON_JOBLIST", "JOB_TRANSFORM_NAMES", "NEGOTIATOR_PRE_JOB_RANK"} <= changed
    assert upgraded == installed | {"MINE = 3"}
    assert removed == before | {"MINE = 3"}
    assert purged == before
    # with a running master, each package tells HTCondor at its upgrade (two scripts) and at its removal
    assert (srv / "calls").read_text().split() == ["called"] * 9


def test_an_unknown_system_is_refused_with_the_known_ones(tmp_path, capsys):
    assert main([str(tmp_path), "debian-99"]) == 2
    assert capsys.readouterr().err == "packages: no system 'debian-99': use debian-12, debian-13, el9, el10\n"

"""The packages of ``make packages``: on a booted Debian, and the RPMs unpacked and looked at."""

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hydrator import __version__
from scripts.packages.__main__ import build, main
from scripts.packages.rpm import rpm_program
from scripts.packages.targets import DAEMON, HOOK, PACKAGES, POOL, SUBMIT, TARGETS
from testbed.machine import Machine, boot
from testbed.patience import PATIENCE, wait_for
from testbed.pool import Pool
from testbed.ports import free_port
from tests.deploy.service import CATALOGUE, write_configuration
from tests.pages import blocks
from tests.parts import NO_SYSTEMD, needs
from tests.pythons import pythons

pytestmark = [pytest.mark.pool, pytest.mark.timeout(1800)]

DEBIAN_12, DEBIAN_13, EL9, EL10 = TARGETS
NOON = 1_790_000_000
LATER = "9.9.9"
INSTALL = ["apt-get", "install", "--yes", "--no-install-recommends"]
PRINTED = blocks("sh packages")
"""The commands of docs/how-to/operate/install-from-packages.md."""
IGNORED = ("var/lib/dpkg", "var/lib/apt", "var/log", "var/cache", "var/lib/systemd", "run", "tmp", "srv")
"""Folders that Debian's own programs write."""
BACKUPS = {"/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-"}
"""Files that adduser and deluser leave."""


def make(*packages, target=DEBIAN_12, folder, version=__version__):
    return [build(package, target, folder, NOON, version) for package in packages]


@pytest.fixture(scope="module")
def debs(tmp_path_factory) -> Path:
    """The packages of Debian 12, and a later version of the daemon's."""
    folder = tmp_path_factory.mktemp("debs")
    make(*PACKAGES, folder=folder)
    make(DAEMON, folder=folder, version=LATER)
    return folder


@pytest.fixture(scope="module")
def machine(own_pool: Pool, debs: Path, tmp_path_factory) -> Iterator[Machine]:
    """A Debian 12 without a trace of this project, but with its packages and a pool's token in /srv."""
    furniture = tmp_path_factory.mktemp("furniture")
    srv = furniture / "srv"
    srv.mkdir()
    for deb in debs.iterdir():
        (srv / deb.name).write_bytes(deb.read_bytes())
    (srv / "hydrator.token").write_bytes(
        (own_pool.token("hydrator", ("READ", "DAEMON")) / "token").read_bytes()
    )
    write_configuration(srv, own_pool, free_port())
    machines = boot(tmp_path_factory.mktemp("machine"), furniture)
    with ExitStack() as until_then:
        with needs(NO_SYSTEMD):
            booted = until_then.enter_context(machines)
        # the test machine has an installation from wheels below /opt: this machine is to be a fresh one
        booted.run("rm", "-rf", "/opt/classad-hydrator")
        yield booted


def files(machine: Machine) -> set[str]:
    """All files, folders and links of the machine but those that Debian's own programs write."""
    prunes = [word for name in IGNORED for word in ("-path", f"/{name}", "-prune", "-o")]
    found = machine.run("find", "/", "-xdev", *prunes, "-print")
    return set(found.splitlines())


def ads(pool: Pool) -> dict[str, tuple[list[str], int]]:
    names = ("DataLocalitySite", "AvailableDatasets", "DataLocalityGeneration")
    found = pool.ads('MyType == "DataLocality"', *names)
    return {ad[names[0]]: (ad[names[1]], ad[names[2]]) for ad in found}


def test_the_debs_install_run_upgrade_and_leave_nothing_behind(machine, own_pool):
    passwd = machine.run("cat", "/etc/passwd")
    before = files(machine)
    machine.run("sh", "-euc", f"cd /srv; {PRINTED[0].text}")
    others = [f"/srv/{package.name}_{__version__}_all.deb" for package in (HOOK, POOL, SUBMIT)]
    machine.run(*INSTALL, *others)
    assert machine.run("hydrator", "--version") == __version__
    assert "hydrator" in machine.run("getent", "passwd", "hydrator")
    assert machine.run("stat", "--format=%a %U", "/etc/classad-hydrator/tokens.d") == "700 root"
    assert machine.show("hydrator", "ActiveState") == "inactive"  # it has no configuration yet
    for name in ("condor_config", "catalogue.toml", "config.toml"):
        machine.run("install", "-m", "0644", f"/srv/{name}", "/etc/classad-hydrator/")
    machine.run("install", "-m", "0600", "/srv/hydrator.token", "/etc/classad-hydrator/tokens.d/hydrator")
    machine.run("sh", "-euc", PRINTED[1].text)
    wait_for(lambda: ads(own_pool).keys() == {"UK", "AU"}, 60, "two site ads in the collector")
    assert ads(own_pool)["UK"][0] == ["lofar:L1"]
    [uid] = {machine.run("stat", "--format=%U", f"/proc/{machine.show('hydrator', 'MainPID')}")}
    assert uid == "hydrator"

    published = ads(own_pool)
    machine.run(*INSTALL, f"/srv/classad-hydrator_{LATER}+{DEBIAN_12.tag}_amd64.deb")
    wait_for(lambda: machine.show("hydrator", "StatusText").endswith("all is well"), 60, "a cycle")
    assert ads(own_pool) == published
    assert machine.run("dpkg-query", "--show", "--showformat=${Version}", "classad-hydrator").startswith(
        LATER
    )
    assert machine.run("cat", "/etc/classad-hydrator/config.toml").startswith("[daemon]")

    machine.run("apt-get", "purge", "--yes", *(package.name for package in PACKAGES))
    assert machine.show("hydrator", "LoadState") == "not-found"
    assert files(machine) - before <= BACKUPS
    assert machine.run("cat", "/etc/passwd") == passwd
    assert machine.run("pgrep", "-f", "hydrator", check=False) == ""


def test_a_fresh_debian_publishes_within_two_minutes_of_apt_install(machine, own_pool):
    """As an operator: apt install, hydrator init, systemctl enable --now; then purge leaves nothing."""
    before, etc = files(machine), "/etc/classad-hydrator"
    given = ("--condor-config", f"{etc}/condor_config", "--token-directory", f"{etc}/tokens.d")
    started_at, second = time.monotonic(), int(time.time())
    machine.run("sh", "-euc", f"cd /srv; {PRINTED[0].text}")
    for name in ("condor_config", "catalogue.toml"):
        machine.run("install", "-m", "0644", f"/srv/{name}", etc)
    machine.run("install", "-m", "0600", "/srv/hydrator.token", f"{etc}/tokens.d/hydrator")
    machine.run("hydrator", "init", "--yes", *given, "--catalogue", "file", "--path", f"{etc}/catalogue.toml")
    http = f"\n[publish.http]\nport = {free_port()}\n"  # the machine shares this one's network
    machine.run("sh", "-euc", f"printf '%s' \"$0\" >> {etc}/config.toml", http)
    machine.run("sh", "-euc", PRINTED[1].text)

    def new_sites() -> set[str]:  # the collector may still have ads of another test's daemon
        return {site for site, (_, generation) in ads(own_pool).items() if generation >= second}

    wait_for(lambda: new_sites() == {"UK", "AU"}, 120, "two new site ads in the collector")
    took = time.monotonic() - started_at
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    assert took < 120 * (PATIENCE if is_busy else 1), f"{took:.0f} s"
    machine.run("apt-get", "purge", "--yes", DAEMON.name)
    assert files(machine) - before <= BACKUPS


def test_equal_sources_give_equal_packages(tmp_path, debs):
    for package in (HOOK, SUBMIT, POOL, DAEMON):
        [again] = make(package, folder=tmp_path)
        assert again.read_bytes() == (debs / again.name).read_bytes(), again.name


def test_the_hook_needs_python_3_6_and_nothing_else(debs):
    [hook] = debs.glob("classad-hydrator-hook_*_all.deb")
    field = ["dpkg-deb", "--field", str(hook), "Depends"]
    assert subprocess.check_output(field, text=True) == "python3 (>= 3.6)\n"


def query(rpm: Path, *options: str) -> str:
    tool, environment = rpm_program("rpm")
    command = [str(tool), "--dbpath", f"{rpm.parent}/none", "--query", "--package", *options, str(rpm)]
    return subprocess.check_output(command, text=True, env={"PATH": "/usr/bin:/bin", **environment})


@pytest.fixture(scope="module")
def rpms(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rpms")
    make(*PACKAGES, target=EL9, folder=folder)
    return folder


def test_the_rpms_name_their_dependencies_files_and_scriptlets(rpms):
    found = {path.name.split(f"-{__version__}")[0]: path for path in rpms.iterdir()}
    assert found.keys() == {package.name for package in PACKAGES}
    requires = query(found[DAEMON.name], "--requires").splitlines()
    assert {"python3.12", "systemd >= 250"} <= set(requires)
    assert not [one for one in requires if one.startswith(("libc", "python(abi)"))]
    listed = query(found[DAEMON.name], "--list").splitlines()
    assert {
        "/usr/bin/hydrator",
        "/opt/classad-hydrator/bin/hydrator",
        "/usr/lib/systemd/system/hydrator.service",
        "/usr/lib/sysusers.d/classad-hydrator.conf",
        "/usr/share/man/man1/hydrator.1.gz",
    } <= set(listed)
    scriptlets = query(found[DAEMON.name], "--scripts")
    assert "systemctl disable --now hydrator.service" in scriptlets
    owners = set(query(found[DAEMON.name], "--queryformat", "[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]").split())
    assert owners == {"root:root"}
    edited = query(found[SUBMIT.name], "--configfiles").split()
    assert edited == ["/etc/condor/config.d/60-datalocality-schedd.conf"]
    assert "python3 >= 3.6" in query(found[HOOK.name], "--requires")


@pytest.mark.parametrize("target", [DEBIAN_13, EL9], ids=lambda target: target.name)
def test_the_program_runs_on_the_python_of_the_system(target, rpms, tmp_path):
    """There is no such system here: the tree runs on this machine with the same release of Python."""
    python = [each for each in pythons() if runs(each, target.python)]
    if not python:
        pytest.skip(f"this machine has no Python {target.python}")
    if target is EL9:
        [rpm] = rpms.glob("classad-hydrator-0*.rpm")
        tool, environment = rpm_program("rpm2archive")
        shutil.copy(rpm, tmp_path / "daemon.rpm")
        subprocess.run([str(tool), str(tmp_path / "daemon.rpm")], check=True, env=environment)
        with tarfile.open(tmp_path / "daemon.rpm.tgz") as archive:
            archive.extractall(tmp_path, filter="fully_trusted")
    else:
        [deb] = make(DAEMON, target=target, folder=tmp_path)
        subprocess.run(["dpkg-deb", "--extract", str(deb), str(tmp_path)], check=True)
    site = tmp_path / "opt/classad-hydrator/lib" / f"python{target.python}" / "site-packages"
    (tmp_path / "catalogue.toml").write_text(CATALOGUE)
    (tmp_path / "config.toml").write_text(
        '[daemon]\nstate_dir = "state"\n[[catalogue]]\ntype = "file"\npath = "catalogue.toml"\n'
        '[demand]\nask_schedds = false\npins = ["lofar:L1"]\n[publish.collector]\nenabled = false\n'
        '[publish.file]\ndirectory = "ads"\n[publish.http]\nenabled = false\n'
    )
    (tmp_path / "state").mkdir(mode=0o700)
    start = f"import sys; sys.path.insert(0, {str(site)!r}); from hydrator.cli import main; main()"
    command = [python[0], "-I", "-c", start, "once", "--config", str(tmp_path / "config.toml")]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert '{"lofar:L1"}' in (tmp_path / "ads/UK.ad").read_text()


def runs(python: str, release: str) -> bool:
    ask = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.check_output(ask, text=True).strip() == release


def test_an_unknown_system_is_refused_with_the_known_ones(tmp_path, capsys):
    assert main([str(tmp_path), "debian-99"]) == 2
    assert capsys.readouterr().err == "packages: no system 'debian-99': use debian-12, debian-13, el9, el10\n"

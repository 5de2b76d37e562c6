"""Parts of all tests of the packages: built packages, and a booted machine with a configuration in /srv."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hydrator import __version__
from scripts.packages.__main__ import build
from scripts.packages.targets import TARGETS
from testbed.machine import Machine, boot
from testbed.pool import Pool
from testbed.ports import free_port
from tests.deploy.service import write_configuration
from tests.pages import blocks
from tests.parts import needs

DEBIAN_12, DEBIAN_13, EL9, EL10 = TARGETS
NOON = 1_790_000_000
PRINTED = blocks("sh packages")
"""The commands of docs/operators/service.md."""
ETC = "/etc/classad-hydrator"
BACKUPS = {"/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-"}
"""Files that adduser and deluser leave."""
_IGNORED = ("var/lib/dpkg", "var/lib/rpm", "var/lib/apt", "var/log", "var/cache", "var/lib/systemd", "run")
"""Folders that the system's own programs write, besides /tmp and /srv."""


def make(*packages, target=DEBIAN_12, folder, version=__version__, trees=None):
    return [build(package, target, folder, NOON, version, trees) for package in packages]


@contextmanager
def booted(pool: Pool, packages: Iterable[Path], folder: Path, lower: str | None = None) -> Iterator[Machine]:
    """Boot a machine with *packages*, a configuration and a pool's token in /srv; files go to *folder*."""
    furniture, own = folder / "furniture", folder / "machine"
    srv = furniture / "srv"
    srv.mkdir(parents=True)
    own.mkdir()
    for path in packages:
        (srv / path.name).write_bytes(path.read_bytes())
    (srv / "hydrator.token").write_bytes((pool.token("hydrator", ("READ", "DAEMON")) / "token").read_bytes())
    write_configuration(srv, pool, free_port())
    with ExitStack() as until_then:
        with needs("systemd"):
            machine = until_then.enter_context(boot(own, furniture, lower))
        yield machine


def configure(machine: Machine, *names: str) -> None:
    """Install the files *names* of /srv, and the token."""
    for name in names:
        machine.run("install", "-m", "0644", f"/srv/{name}", f"{ETC}/")
    machine.run("install", "-m", "0600", "/srv/hydrator.token", f"{ETC}/tokens.d/hydrator")


def list_files(machine: Machine) -> set[str]:
    """Return all files, folders and links of the machine but those that the system's own programs write."""
    prunes = [word for name in (*_IGNORED, "tmp", "srv") for word in ("-path", f"/{name}", "-prune", "-o")]
    found = machine.run("find", "/", "-xdev", *prunes, "-print")
    return set(found.splitlines())


def read_ads(pool: Pool, since: int = 0) -> dict[str, tuple[list[str], int]]:
    """Return the datasets and the generation of each site ad whose generation is at least *since* (Unix s).

    The collector may still have ads of the daemon of another test.
    """
    names = ("DataLocalitySite", "AvailableDatasets", "DataLocalityGeneration")
    found = pool.ads('MyType == "DataLocality"', *names)
    return {ad[names[0]]: (ad[names[1]], ad[names[2]]) for ad in found if ad[names[2]] >= since}

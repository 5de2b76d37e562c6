"""The packages and the systems that they are built for."""

from dataclasses import dataclass
from typing import Literal

HOOK_PYTHON = "3.6"
"""The oldest Python that runs the hook."""


@dataclass(frozen=True, slots=True)
class Target:
    """A system with packages of its own, because it has a Python of its own.

    ``interpreter`` is the program that runs the daemon, ``requirement`` the package with this program in the
    syntax of the system, and ``tag`` the part of the packages' version that names the system.
    """

    name: str
    kind: Literal["deb", "rpm"]
    python: str
    interpreter: str
    requirement: str
    tag: str


TARGETS = (
    Target("debian-12", "deb", "3.11", "/usr/bin/python3.11", "python3.11", "deb12"),
    Target("debian-13", "deb", "3.13", "/usr/bin/python3.13", "python3.13", "deb13"),
    Target("el9", "rpm", "3.12", "/usr/bin/python3.12", "python3.12", "el9"),
    Target("el10", "rpm", "3.12", "/usr/bin/python3.12", "python3 >= 3.12", "el10"),
)


@dataclass(frozen=True, slots=True)
class Package:
    """One package: its name, its one-line summary, and whether it has machine code."""

    name: str
    summary: str
    description: str
    has_machine_code: bool = False


DAEMON = Package(
    "classad-hydrator",
    "daemon that advertises to an HTCondor pool where data is",
    "The daemon reads replica catalogues such as Rucio and publishes in an HTCondor\n"
    "pool which datasets each site has, so that jobs start beside their data.",
    has_machine_code=True,
)
POOL = Package(
    "classad-hydrator-pool",
    "HTCondor configuration of a central manager for data locality",
    "One file for /etc/condor/config.d: the negotiator ranks slots by the data of\n"
    "jobs. Install it on the central manager of the pool.",
)
SUBMIT = Package(
    "classad-hydrator-submit",
    "HTCondor configuration of an access point for data locality",
    "One file for /etc/condor/config.d: the schedd transforms jobs that name\n"
    "datasets. Install it on each access point (submit host).",
)
HOOK = Package(
    "classad-hydrator-hook",
    "STARTD_CRON hook that puts a site's datasets into slot ads",
    "One Python file that needs Python 3.6 or later and nothing else. Set the source\n"
    "of the ads in /etc/condor/config.d/50-datalocality-source.conf.",
)
PACKAGES = (DAEMON, POOL, SUBMIT, HOOK)
CONFIG_FOLDER = "etc/condor/config.d"
RECONFIG = """\
# HTCondor reads the changed folder if it runs here; its tools wait for minutes where there is no DNS
timeout 20 sh -c '
    [ -e "$(condor_config_val MASTER_ADDRESS_FILE)" ] && condor_reconfig
' >/dev/null 2>&1 || true
"""
"""The part of the maintainer scripts of packages with HTCondor's configuration."""

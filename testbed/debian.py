"""HTCondor from Debian, in a tree of its own: built once, atomically; no pool writes to it.

    ${XDG_CACHE_HOME:-~/.cache}/classad-hydrator/sid        25.14 and whatever follows it
    ${XDG_CACHE_HOME:-~/.cache}/classad-hydrator/trixie     23.9

The mirror is the machine's own; if it has none, debootstrap's default.
"""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from .cached import Unavailable, cache_folder, lock_file
from .debs import quietly
from .processes import run_program

SUITES = {"25.14": "sid", "23.9": "trixie"}
"""The Debian suite that has each release; a suite's own name is taken as well."""

DONE = "testbed.done"
"""A file in the root of a complete tree; it holds HTCondor's version."""

_PACKAGES = "python3,procps,ca-certificates"  # the hook and condor's scripts need all of Python's library
ENTER = [
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"),
]
"""Mounts and processes of a build are its own, and end with it also when it is killed."""


def tree(suite: str, say: Callable[[str], None]) -> Path:
    """Return the folder with Debian *suite* and HTCondor in it; build it if it is missing.

    A first build takes about 45 s. Builds wait for each other; a killed one leaves only a folder, which the
    next one removes.

    Raises:
        Unavailable: not root, or a step failed; the build's log is kept, and named.
    """
    home = cache_folder()
    done = home / suite
    if not (done / DONE).is_file():
        if os.geteuid() != 0:
            raise Unavailable(f"only root can build a Debian tree with HTCondor in {done}")
        home.mkdir(parents=True, exist_ok=True)
        with lock_file(home / f"{suite}.lock"):
            if not (done / DONE).is_file():
                _build(suite, home, say)
    return done


def version(done: Path) -> str:
    """Return HTCondor's version in a complete tree, such as ``25.14.1``."""
    return (done / DONE).read_text("utf-8").strip()


def mirror() -> str | None:
    """Return the Debian mirror that apt installs from here, or None if this is no Debian.

    It is that of the machine's own release; security updates and archives of others are not.
    """
    if not shutil.which("apt-get"):
        return None
    release = platform.freedesktop_os_release()
    wanted = {release.get("VERSION_CODENAME", ""), "stable", "testing", "unstable", "sid"}
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)"]
    for _ in range(2):
        for line in run_program(targets, check=True).stdout.splitlines():
            uri, suite, component, origin = line.split(" ", 3)
            if (component, origin) == ("main", "Debian") and suite in wanted:
                return uri
        quietly(["apt-get", "update"])  # apt has no list yet
    return None


def _build(suite: str, home: Path, say: Callable[[str], None]) -> None:
    """Build *suite* in a temporary place and move it to its own when it is complete."""
    ensure_debootstrap(say)
    for left in home.glob(f".building-{suite}-*"):
        shutil.rmtree(left)
    new, log = home / f".building-{suite}-{os.getpid()}", home / f"{suite}.log"
    log.write_bytes(b"")
    say(f"building a private Debian {suite} with HTCondor in {home / suite} (once, about a minute)")
    source = mirror()
    _run_to_log(
        [*ENTER, "debootstrap", "--variant=minbase", f"--include={_PACKAGES}", suite, str(new)]
        + ([source] if source else []),
        log,
        f"debootstrap of {suite}",
    )
    policy = new / "usr" / "sbin" / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n", "utf-8")  # start no service
    policy.chmod(0o755)
    install = "apt-get install -y --no-install-recommends condor && apt-get clean"
    inside = 'mount -t proc proc "$1/proc" && exec chroot "$1" env DEBIAN_FRONTEND=noninteractive sh -c "$2"'
    _run_to_log(
        [*ENTER, "sh", "-c", inside, "sh", str(new), install], log, f"apt-get install condor in {suite}"
    )
    output = run_program(
        ["chroot", str(new), "/usr/bin/env", "CONDOR_CONFIG=ONLY_ENV", "condor_version"], check=True
    ).stdout
    (new / DONE).write_text(parse_version(output) + "\n", "utf-8")
    if (home / suite).exists():  # left by a build of another kind, without the mark of a complete one
        (home / suite).rename(home / f".building-{suite}-old")
        shutil.rmtree(home / f".building-{suite}-old")
    new.rename(home / suite)


def parse_version(said: str) -> str:
    """Return ``25.14.1`` from the output of condor_version."""
    found = re.search(r"\$CondorVersion: (\d+\.\d+\.\d+)", said)
    if not found:
        raise Unavailable(f"condor_version does not say its version: {said[:200]!r}")
    return found[1]


def ensure_debootstrap(say: Callable[[str], None]) -> None:
    """Install debootstrap if it is missing."""
    if shutil.which("debootstrap"):
        return
    if not shutil.which("apt-get"):
        raise Unavailable("there is neither HTCondor nor debootstrap here, nor an apt-get to install one")
    say("installing debootstrap with apt-get")
    install = ["apt-get", "install", "-y", "--no-install-recommends", "debootstrap"]
    if quietly(install):
        quietly(["apt-get", "update"])
        if failure := quietly(install):
            raise Unavailable(f"apt-get cannot install debootstrap: {failure}")


def _run_to_log(command: list[str], log: Path, what: str) -> None:
    with log.open("ab") as out:
        done = subprocess.run(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
        raise Unavailable(f"{what} failed ({' '.join(last)}); its log is {log}")

"""Programs of Debian's packages in a private tree, if the machine has none: unpacked, not installed."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .cached import Unavailable, built, cache_folder, lock_file
from .processes import run_program


def program(name: str, package: str, places: str, copy: Path | None = None) -> tuple[Path, Mapping[str, str]]:
    """Return the program *name* and the environment it needs.

    Args:
        name: of the program.
        package: the Debian package that has it.
        places: where that package puts it, below the root, as a glob.
        copy: a folder for a copy of the tree, for a program that another user runs: only its owner may read
            the tree. By default it is run from the tree.

    Raises:
        Unavailable: the machine does not have it, and it cannot be downloaded.
    """
    if found := _newest(Path("/"), f"{places}/{name}"):
        return found, {}
    root = built(f"deb-{package}", package.encode(), lambda home: _unpack(package, home))
    if copy and not all(each.stat().st_mode & 0o005 == 0o005 for each in (root, *root.parents)):
        root = shutil.copytree(root, copy, symlinks=True)
    found = _newest(root, f"{places}/{name}")
    if not found:
        raise Unavailable(f"Debian's {package} has no {places}/{name}")
    libraries = [str(path) for part in ("usr/lib", "lib") for path in (root / part).glob("*-linux-gnu")]
    return found, {"LD_LIBRARY_PATH": os.pathsep.join(libraries)}


def promtool() -> tuple[Path, Mapping[str, str]]:
    """Return the program that checks metrics and alerts; see :func:`program`."""
    return program("promtool", "prometheus", "usr/bin")


def library(name: str, package: str, places: str) -> Path:
    """Return the shared library *name*; see :func:`program`.

    Raises:
        Unavailable: the machine does not have it, and it cannot be downloaded.
    """
    pattern = f"{places}/{name}"
    found = _newest(Path("/"), pattern, os.R_OK)
    if not found:
        root = built(f"deb-{package}", package.encode(), lambda home: _unpack(package, home))
        found = _newest(root, pattern, os.R_OK)
    if not found:
        raise Unavailable(f"Debian's {package} has no {pattern}")
    return found


def _newest(root: Path, pattern: str, mode: int = os.X_OK) -> Path | None:
    return max((path for path in root.glob(pattern) if os.access(path, mode)), default=None)


def _unpack(package: str, home: Path) -> None:
    with lock_file(cache_folder() / "deb.flock"):  # one apt-get at a time: its lists are shared
        _download(package, home)


def _download(package: str, home: Path) -> None:
    archives = home / "archives"
    (archives / "partial").mkdir(parents=True)
    here = [
        "-o",
        f"Dir::Cache::archives={archives}",
        "-o",
        "Debug::NoLocking=1",
        "-o",
        "APT::Sandbox::User=root",
    ]
    get = ["apt-get", *here, "install", "--download-only", "--no-install-recommends", "-y", package]
    words = quietly(get)
    if words:
        quietly(["apt-get", "update"])
        words = quietly(get)
    debs = sorted(archives.glob("*.deb"))
    if words or not debs:
        raise Unavailable(f"apt-get cannot download {package}: {words or 'it downloaded nothing'}")
    for deb in debs:
        if words := quietly(["dpkg", "--extract", str(deb), str(home)]):
            raise Unavailable(f"dpkg cannot unpack {deb.name}: {words}")
        deb.unlink()


def quietly(command: list[str]) -> str:
    """Run *command*; return its error, or nothing."""
    try:
        done = run_program(
            command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        return str(error)
    return done.stderr.strip()[-400:] or "it does not say why" if done.returncode else ""

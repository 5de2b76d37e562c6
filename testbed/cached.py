"""Environments that are built once, from a lock file, into the cache folder, and then shared by all runs."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .processes import run_program


class Unavailable(Exception):
    """A part cannot be had on this machine; the text is the reason, often an error of pip or apt-get."""


def cache_folder() -> Path:
    """Return the folder of downloads that later runs use again."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "classad-hydrator"


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the lock file at *path*, so that two runs do not build the same."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def built(name: str, recipe: bytes, build: Callable[[Path], None]) -> Path:
    """Return the folder *name* in the cache; *build* makes it if it is missing or has another *recipe*.

    It is built in a temporary place, then renamed: an interrupted build never looks complete.
    """
    home = cache_folder() / name
    stamp = home / "lock.sha256"
    digest = hashlib.sha256(recipe + sys.version.encode()).hexdigest()
    home.parent.mkdir(parents=True, exist_ok=True)
    with lock_file(home.parent / f"{name}.flock"):
        if not (stamp.is_file() and stamp.read_text("utf-8") == digest):
            shutil.rmtree(home, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=home.parent) as scratch:
                fresh = Path(scratch) / "fresh"
                build(fresh)
                (fresh / "lock.sha256").write_text(digest, "utf-8")
                fresh.rename(home)
    return home


_NO_BUILD = '''\
"""A build backend that only names the package: pip downloads a source, but asks its backend for metadata."""

from pathlib import Path


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    lines = Path("PKG-INFO").read_text().splitlines()
    name, version = (
        next(line.split()[1] for line in lines if line.startswith(f"{field}: "))
        for field in ("Name", "Version")
    )
    folder = Path(metadata_directory) / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    (folder / "WHEEL").write_text(
        "Wheel-Version: 1.0\\nGenerator: testbed\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    )
    return folder.name
'''


def run_pip(what: str, *words: str | Path, python: str | Path = sys.executable, path: str = "") -> None:
    """Run pip with *words* and without dependencies, by *python* and with *path* as its PYTHONPATH.

    Raises:
        Unavailable: most often for lack of a package index; the text begins with *what*.
    """
    environment = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore", **({"PYTHONPATH": path} if path else {})}
    options = ("--quiet", "--disable-pip-version-check", "--no-deps")
    done = run_program([python, "-m", "pip", *words, *options], env=environment)
    if done.returncode != 0:
        raise Unavailable(f"cannot get {what}: {done.stderr.strip()[-600:]}")


def install_wheels(home: Path, lock: Path, what: str) -> None:
    """Let pip put exactly the wheels of *lock* into the folder *home*; see :func:`run_pip`."""
    where = ("--target", home, "--no-compile", "--only-binary=:all:")
    run_pip(what, "install", *where, "--require-hashes", "-r", lock)


def venv_python(name: str, lock: Path, *options: str) -> Path:
    """Return the Python of a virtual environment with exactly the packages of *lock*.

    Raises:
        Unavailable: most often for lack of a package index.
    """

    def build(home: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
        python = home / "bin" / "python"
        run_pip(name, "install", "--require-hashes", *options, "-r", lock, python=python)

    # other files of the same versions need no other environment
    pins = re.sub(rb" \\\n +--hash=\S+", b"", lock.read_bytes())
    return built(name, pins, build) / "bin" / "python"


@contextmanager
def source_archive(project: str, version: str, sha256: str, *, backend: str) -> Iterator[tarfile.TarFile]:
    """Download the source of *project* from the package index, and open it. Nothing is built.

    Args:
        project: the name as in the file PROJECT-VERSION.tar.gz.
        version: its version.
        sha256: the hash of the file.
        backend: the module of its build backend: pip asks it for metadata, and gets them from a stand-in.

    Raises:
        Unavailable: pip could not download it, or it is not the expected file.
    """
    with tempfile.TemporaryDirectory() as scratch:
        package, _, module = backend.partition(".")
        stand_in = Path(scratch) / "backend" / package
        stand_in.mkdir(parents=True)
        (stand_in / "__init__.py").touch()
        (stand_in / f"{module}.py").write_text(_NO_BUILD, "utf-8")
        wanted = ("--no-binary", ":all:", "--no-build-isolation", "--dest", scratch, f"{project}=={version}")
        run_pip(f"the source of {project}", "download", *wanted, path=str(stand_in.parent))
        source = Path(scratch) / f"{project}-{version}.tar.gz"
        if hashlib.sha256(source.read_bytes()).hexdigest() != sha256:
            raise Unavailable(f"{source.name} is not the file it was")
        with tarfile.open(source) as archive:
            yield archive

"""Environments that are built once, from a lock file, into the cache folder, and then shared by all runs."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


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


class PipFailed(Exception):
    """pip could not install; the text ends with its error."""


def venv_python(name: str, lock: Path, *options: str) -> Path:
    """Return the Python of a virtual environment with exactly the packages of *lock*.

    Raises:
        PipFailed: most often for lack of a package index.
    """

    def build(home: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
        pip: Sequence[str] = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        words = [
            *pip,
            "--disable-pip-version-check",
            "--no-deps",
            "--require-hashes",
            *options,
            "-r",
            str(lock),
        ]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise PipFailed(f"cannot install {name}: {done.stderr.strip()[-600:]}")

    # other files of the same versions need no other environment
    pins = re.sub(rb" \\\n +--hash=\S+", b"", lock.read_bytes())
    return built(name, pins, build) / "bin" / "python"

"""Rapthor itself, from PyPI in a virtual environment of its own: what it makes of a parset.

    with RapthorReader.start() as rapthor:
        rapthor.read(Path("run.parset"))        # the measurement sets, or why it refuses

The environment (1.1 GB) is built once into the cache folder from ``rapthor.lock``.
"""

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from .rucio import cache_folder

VERSION = "2.1.post1"
LOCK = Path(__file__).with_name("rapthor.lock")
_READER = """\
import json, logging, os, sys, tempfile

logging.disable(logging.CRITICAL)
from rapthor.lib.parset import parset_read

print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    os.chdir(asked["folder"])
    try:
        answer = {"found": parset_read(asked["parset"], use_log_file=False)["mss"]}
    except Exception as why:
        answer = {"refused": type(why).__name__, "why": str(why)}
    print(json.dumps(answer), flush=True)
"""


class RapthorUnavailable(Exception):
    """Rapthor cannot be installed here, most often for lack of a package index."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Rapthor ended with an exception."""

    kind: str
    why: str


def python() -> Path:
    """The Python of Rapthor's environment, built first where it is missing or of another lock: a minute.

    Raises:
        RapthorUnavailable: pip could not install it; the text ends with pip's own words.
    """
    home = cache_folder() / f"rapthor-{VERSION}"
    stamp = home / "lock.sha256"
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    home.parent.mkdir(parents=True, exist_ok=True)
    with _locked(home.parent / f"rapthor-{VERSION}.flock"):
        if not (stamp.is_file() and stamp.read_text() == digest):
            shutil.rmtree(home, ignore_errors=True)
            _build(home, digest)
    return home / "bin" / "python"


def _build(home: Path, digest: str) -> None:
    """Build beside *home*, then rename: an interrupted build is never mistaken for a whole one."""
    with tempfile.TemporaryDirectory(prefix=f"{home.name}.", dir=home.parent) as scratch:
        venv = Path(scratch) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, capture_output=True)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        words = [*pip, "--no-deps", "--no-compile", "-r", str(LOCK)]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise RapthorUnavailable(f"cannot install Rapthor {VERSION}: {done.stderr.strip()[-600:]}")
        (venv / "lock.sha256").write_text(digest)
        venv.rename(home)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class RapthorReader:
    """Rapthor's own reader in a process that answers one parset after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @classmethod
    def start(cls) -> Self:
        """Start it, which builds the environment where there is none.

        Raises:
            RapthorUnavailable: it cannot be installed, or does not start.
        """
        process = subprocess.Popen(
            [str(python()), "-I", "-c", _READER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        reader = cls(process)
        if reader._line() != "ready":
            reader.stop()
            raise RapthorUnavailable(f"Rapthor {VERSION} does not start in {python()}")
        return reader

    def read(self, parset: Path, folder: Path) -> list[str] | Refused:
        """The measurement sets that *parset* stands for, asked in *folder*, or Rapthor's refusal."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"parset": str(parset), "folder": str(folder)}) + "\n")
        self._process.stdin.flush()
        answer = self._line()
        if not isinstance(answer, dict):
            raise RapthorUnavailable(f"Rapthor's reader ended over {parset}")
        if "found" in answer:
            return [str(name) for name in answer["found"]]
        return Refused(str(answer["refused"]), str(answer["why"]))

    def _line(self) -> object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def stop(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

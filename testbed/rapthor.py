"""Rapthor itself, from PyPI in a virtual environment of its own: its reading of a parset.

    with RapthorReader.start() as rapthor:
        rapthor.read(Path("run.parset"))        # the measurement sets, or its error

The environment (1.1 GB) is built once into the cache folder from ``rapthor.lock``.
"""

import json
import subprocess
from pathlib import Path
from typing import Self

from .cached import Unavailable, built, source_archive, venv_python

VERSION = "2.1.post1"
SOURCE_SHA256 = "c21e960f001ff05d1329a4fc0be6dfed24b3756fc4b9ae7ce698a6be3df1a7e6"
"""Of rapthor-2.1.post1.tar.gz on PyPI, which has the examples; the wheels have none."""
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
        answer = {"refused": f"{type(why).__name__}: {why}"}
    print(json.dumps(answer), flush=True)
"""


def python() -> Path:
    """Return the Python of Rapthor's environment; build it first if missing or of another lock: a minute.

    Raises:
        Unavailable: pip could not install it; the text ends with pip's error.
    """
    return venv_python(f"rapthor-{VERSION}", LOCK, "--no-compile")


def example() -> str:
    """Return the example parset in Rapthor's source, unchanged.

    Raises:
        Unavailable: pip could not download it, or it is not the expected file.
    """
    recipe = SOURCE_SHA256.encode()
    home = built(f"rapthor-example-{VERSION}", recipe, _fetch_example)
    return (home / "rapthor.parset").read_text("utf-8")


def examples() -> dict[str, str]:
    """Return every parset that Rapthor ships, by its name: its source's example, and its package's.

    Raises:
        Unavailable: pip could not install it.
    """
    (settings,) = python().parents[1].glob("lib/python3*/site-packages/rapthor/settings")
    shipped = {file.name: file.read_text("utf-8") for file in sorted(settings.glob("*.parset"))}
    return {"rapthor.parset": example(), **shipped}


def _fetch_example(home: Path) -> None:
    with source_archive("rapthor", VERSION, SOURCE_SHA256, backend="setuptools.build_meta") as archive:
        found = archive.extractfile(f"rapthor-{VERSION}/examples/rapthor.parset")
        assert found is not None
        home.mkdir()
        (home / "rapthor.parset").write_bytes(found.read())


class RapthorReader:
    """Rapthor's own reader in a process that answers one parset after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @classmethod
    def start(cls) -> Self:
        """Start it; build the environment first if there is none.

        Raises:
            Unavailable: it cannot be installed, or does not start.
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
            raise Unavailable(f"Rapthor {VERSION} does not start in {python()}")
        return reader

    def read(self, parset: Path, folder: Path) -> list[str] | str:
        """Return the measurement sets of *parset*, read in *folder*, or the text of Rapthor's error."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"parset": str(parset), "folder": str(folder)}) + "\n")
        self._process.stdin.flush()
        answer = self._line()
        if not isinstance(answer, dict):
            raise Unavailable(f"Rapthor's reader ended over {parset}")
        if "found" in answer:
            return [str(name) for name in answer["found"]]
        return str(answer["refused"])

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

    def __exit__(self, *_: object) -> None:
        self.stop()

"""``hydrator run`` without a pool, as a supervisor would start it: a process, its environment, its log."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from .patience import wait_for
from .processes import end


@dataclass(frozen=True)
class Lone:
    """A daemon that runs: its address, its process and its log file."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(self.url + path, headers=headers, trust_env=False, timeout=60)

    def ready(self) -> bool:
        """Return True if ``/readyz`` answers so.

        Raises:
            AssertionError: the daemon has ended; the text ends with its log.
        """
        if self.process.poll() is not None:
            raise AssertionError(f"it ended with {self.process.returncode}: {self.log.read_text()[-2000:]}")
        try:
            return self.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False


@contextlib.contextmanager
def daemon(arguments: Sequence[str], environment: Mapping[str, str], port: int, log: Path) -> Iterator[Lone]:
    """Start ``hydrator`` with only *arguments* and *environment*; yield it when it is ready."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("HYDRATOR_")}
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hydrator.cli", *arguments], env=own | dict(environment), stderr=out
        )
    running = Lone(f"http://127.0.0.1:{port}", process, log)
    try:
        wait_for(running.ready, 30, "the daemon to be ready")
        yield running
    finally:
        end(process, 60)

"""Servers that tests start: each in a folder of its own, which is removed at the end."""

import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from .patience import PATIENCE
from .processes import MORTAL, end


class Served:
    """A running server; all its files are in *folder*, which ``stop`` removes."""

    folder: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """End the server and remove its folder."""
        end(self.process, 15)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @staticmethod
    def _serve(command: Sequence[str], log: Path, **how: Any) -> "subprocess.Popen[bytes]":  # noqa: ANN401
        """Start *command*, which ends with the thread that starts it; its output goes to *log*."""
        with log.open("wb") as output:
            return subprocess.Popen(
                [*MORTAL, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, **how
            )

    def _wait_for_ping(self, url: str, failed: str, *logs: str, verify: ssl.SSLContext | bool = True) -> None:
        """Wait until the server at *url* answers ``/ping``; see :meth:`_wait`."""

        def answers() -> bool:
            try:
                return httpx.get(f"{url}/ping", timeout=60, trust_env=False, verify=verify).status_code == 200
            except httpx.HTTPError:
                return False

        self._wait(answers, failed, *logs)

    def _wait(self, there: Callable[[], bool], failed: str, *logs: str) -> None:
        """Wait until the server answers.

        Args:
            there: returns True once it answers.
            failed: text of the failure if it is not in time, or has ended.
            logs: the files in *folder* whose ends the failure shows, as globs.

        Raises:
            RuntimeError: it did not answer; it is stopped by then.
        """
        deadline = time.monotonic() + 60 * PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            if there():
                return
            time.sleep(0.05)
        files = [file for log in logs for file in sorted(self.folder.glob(log)) if file.is_file()]
        output = "".join(file.read_text(errors="replace")[-2000:] for file in files)
        self.stop()
        raise RuntimeError(f"{failed}:\n{output}")

"""Servers that tests start: each in a folder of its own, which is removed at the end."""

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from .patience import PATIENCE
from .processes import end


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait(self, there: Callable[[], bool], failed: str, *logs: str, seconds: float = 60) -> None:
        """Wait until the server answers.

        Args:
            there: returns True once it answers.
            failed: text of the failure if it is not in time, or has ended.
            logs: the files in *folder* whose ends the failure shows, as globs.
            seconds: how long that may take on a quiet machine; the limit is PATIENCE times as long.

        Raises:
            RuntimeError: it did not answer; it is stopped by then.
        """
        deadline = time.monotonic() + seconds * PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            if there():
                return
            time.sleep(0.05)
        files = [file for log in logs for file in sorted(self.folder.glob(log)) if file.is_file()]
        output = "".join(file.read_text(errors="replace")[-2000:] for file in files)
        self.stop()
        raise RuntimeError(f"{failed}:\n{output}")

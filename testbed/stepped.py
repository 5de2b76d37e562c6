"""A wall clock that a test sets, for one process and its children; their monotonic clock is unchanged.

Debian's libfaketime replaces the C library's functions when the process starts
(``LD_PRELOAD``), so that every library of the process has the same clock.
"""

import time
from pathlib import Path

from .debs import library


def fake_clock() -> Path:
    """Return the library that replaces the clock.

    Raises:
        Unavailable: the machine does not have it, and it cannot be downloaded.
    """
    return library("libfaketime.so.1", "libfaketime", "usr/lib/*/faketime")


class SteppedClock:
    """The wall clock of processes that are started with ``environ``.

    Raises:
        Unavailable: there is no libfaketime.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.ahead = 0
        self.step(0)
        self.environ = {
            "LD_PRELOAD": str(fake_clock()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",  # the file is read at each look at the clock
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def step(self, seconds: int) -> None:
        """Set the clock forward by so many *seconds*, or back where they are negative."""
        self.ahead += seconds
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{self.ahead:+d}\n")
        fresh.rename(self._file)

    def now(self) -> float:
        """Return the Unix time in those processes."""
        return time.time() + self.ahead

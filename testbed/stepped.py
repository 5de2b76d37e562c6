"""A wall clock that a test sets, for one process and all it starts; its monotonic clock goes on as ever.

The C library's functions are replaced when the process starts (``LD_PRELOAD``), so that every library of the
process has the same clock. A C compiler must be there.
"""

import struct
import subprocess
import time
from pathlib import Path
from typing import Final

_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *ahead;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("STEPPED_CLOCK"), O_RDONLY);
    ahead = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *ahead;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
"""


class CompilerUnavailable(Exception):
    """There is no C compiler."""


class SteppedClock:
    """The wall clock of processes that are started with ``environ``.

    Raises:
        CompilerUnavailable: there is no C compiler.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.ahead = 0
        self.step(0)
        library = folder / "clock.so"
        command = ["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library)]
        try:
            subprocess.run(command, input=_SOURCE, text=True, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompilerUnavailable(f"cc: {getattr(error, 'stderr', None) or error}") from error
        self.environ = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(self._file)}

    def step(self, seconds: int) -> None:
        """Set the clock forward by so many *seconds*, or back where they are negative."""
        self.ahead += seconds
        with self._file.open("r+b" if self._file.exists() else "w+b") as file:
            file.write(struct.pack("l", self.ahead))

    def now(self) -> float:
        """The Unix time that those processes have."""
        return time.time() + self.ahead

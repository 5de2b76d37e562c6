"""The daemon's operating-system process: its memory, the service manager, and the watchdog."""

import contextlib
import ctypes
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping

import structlog

_M_ARENA_MAX = -8
"""The number of the parameter M_ARENA_MAX in glibc's malloc.h."""


def limit_arenas(max_arenas: int = 2) -> None:
    """Let the C library keep at most *max_arenas* memory arenas, instead of eight for each core.

    Each thread allocates from one arena, and an arena keeps the memory of its largest use. The daemon has
    threads for every catalogue, for schedds and the HTTP server. So its memory grew for hours although its
    data did not grow. Only one thread at a time renders or parses, so no thread waits for an arena. A C
    library without arenas needs no limit; see mallopt(3).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, max_arenas)


def trim_heap() -> None:
    """Return free memory to the system, also free memory between blocks in use.

    Without this call the C library returns only the free memory at the end of an arena. The temporary memory
    of a cycle is free between blocks that stay in use, each time in other places. So the daemon grew by 2 MiB
    an hour although its data did not grow. A call takes about as long as reading all free memory; see
    malloc_trim(3).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


_log = structlog.get_logger("hydrator")
_MAX_INTERVAL_SECONDS = 30.0
"""Largest interval between two checks for a hung daemon, also without a watchdog."""


class ServiceManager:
    """The service manager (systemd) that started the daemon, if there is one."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Read ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` (microseconds) and ``WATCHDOG_PID`` from *environ*."""
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        is_for_this_process = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        micros = environ.get("WATCHDOG_USEC", "")
        watchdog = int(micros) / 1e6 if is_for_this_process and micros.isascii() and micros.isdigit() else 0.0
        self.watchdog_interval_seconds = (
            min(_MAX_INTERVAL_SECONDS, watchdog / 3) if watchdog else _MAX_INTERVAL_SECONDS
        )
        """Seconds between two keep-alives: a third of the watchdog's time, so one keep-alive may be late."""
        self._is_failure_logged = False

    def notify_reloading(self) -> None:
        """Report that a reload began; ``READY=1`` reports its end."""
        self.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def set_status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows."""
        self.notify("STATUS=" + " ".join(text.split()))

    def notify(self, *lines: str) -> None:
        """Send *lines*: ``READY=1``, ``STOPPING=1``, the keep-alive ``WATCHDOG=1``; see sd_notify(3)."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.settimeout(1)
                out.connect(self._address)
                out.send("\n".join(lines).encode())
        except OSError as error:
            if not self._is_failure_logged:
                _log.warning("cannot notify systemd", why=str(error))
            self._is_failure_logged = True


class Watchdog:
    """The last progress of the schedule, and its time; safe from any thread."""

    def __init__(self, limit_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Allow *limit_seconds* between two steps of the schedule, measured by the clock *monotonic*."""
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._limit_seconds = limit_seconds
        self._last_step = "the start", self._monotonic()

    def record_step(self, step: str) -> None:
        """Record that the schedule has just reached *step*."""
        with self._lock:
            self._last_step = step, self._monotonic()

    def hang_reason(self) -> str | None:
        """Return why the daemon counts as hung, or None if it does not hang."""
        with self._lock:
            step, reached_at = self._last_step
        idle_seconds = self._monotonic() - reached_at
        if idle_seconds <= self._limit_seconds:
            return None
        return f"no progress for {idle_seconds:.0f} s after {step} (limit {self._limit_seconds:.0f} s)"

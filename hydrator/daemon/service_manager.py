"""What the service manager is told of us: sd_notify(3), and when a hung daemon stops saying that it lives.

It is a datagram of `NAME=value` lines to the socket that ``NOTIFY_SOCKET``
names; without that variable nothing is sent.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping

import structlog

_log = structlog.get_logger("hydrator")
_LONGEST_WAIT = 30.0
"""Seconds: also without a watchdog it is looked so often whether the daemon hangs."""


class Supervisor:
    """The service manager that started us, or nobody."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """*environ*: ``NOTIFY_SOCKET``, and ``WATCHDOG_USEC`` (microseconds) meant for ``WATCHDOG_PID``."""
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        micros = environ.get("WATCHDOG_USEC", "")
        watchdog = int(micros) / 1e6 if ours and micros.isascii() and micros.isdigit() else 0.0
        self.patience = min(_LONGEST_WAIT, watchdog / 3) if watchdog else _LONGEST_WAIT
        """Seconds between two signs of life: a third of the watchdog's, so that one may be late."""
        self._unheard = False

    def ready(self) -> None:
        """Started, or reloaded."""
        self._send("READY=1")

    def reloading(self) -> None:
        """A reload began; `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def alive(self) -> None:
        """A sign of life for the watchdog."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line that ``systemctl status`` shows."""
        self._send("STATUS=" + " ".join(text.split()))

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.settimeout(1)
                out.connect(self._address)
                out.send("\n".join(lines).encode())
        except OSError as error:
            if not self._unheard:
                _log.warning("the service manager cannot be told", why=str(error))
            self._unheard = True


class Progress:
    """When the schedule last got somewhere; told and asked from any thread."""

    def __init__(self, allowance: float, now: Callable[[], float] = time.monotonic) -> None:
        """*allowance*: seconds that may pass between two steps; *now*: a clock that never goes back."""
        self._now = now
        self._lock = threading.Lock()
        self.restart(allowance)

    def restart(self, allowance: float) -> None:
        """Begin anew with another *allowance*."""
        with self._lock:
            self._allowance = allowance
            self._last = "the start", self._now()

    def step(self, what: str) -> None:
        """*what* was just reached."""
        with self._lock:
            self._last = what, self._now()

    def stuck(self) -> str | None:
        """Why the daemon counts as hung, or None."""
        with self._lock:
            (what, when), allowance = self._last, self._allowance
        silent = self._now() - when
        if silent <= allowance:
            return None
        return f"nothing went on for {silent:.0f} s after {what}; {allowance:.0f} s are allowed"

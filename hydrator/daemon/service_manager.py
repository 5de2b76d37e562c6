"""What the service manager is told of us: sd_notify(3), and when a hung daemon stops saying that it lives.

It is a datagram of `NAME=value` lines to the socket that ``NOTIFY_SOCKET``
names; without that variable nothing is sent.
"""

import os
import socket
import time
from collections.abc import Mapping

import structlog

_log = structlog.get_logger("hydrator")
_MAX_INTERVAL_SECONDS = 30.0
"""Seconds: also without a watchdog it is looked so often whether the daemon hangs."""


class ServiceManager:
    """The service manager that started us, or nobody."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """*environ*: ``NOTIFY_SOCKET``, and ``WATCHDOG_USEC`` (microseconds) meant for ``WATCHDOG_PID``."""
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        micros = environ.get("WATCHDOG_USEC", "")
        watchdog = int(micros) / 1e6 if ours and micros.isascii() and micros.isdigit() else 0.0
        self.watchdog_interval_seconds = (
            min(_MAX_INTERVAL_SECONDS, watchdog / 3) if watchdog else _MAX_INTERVAL_SECONDS
        )
        """Seconds between two signs of life: a third of the watchdog's, so that one may be late."""
        self._is_failure_logged = False

    def notify_ready(self) -> None:
        """Started, or reloaded."""
        self._send("READY=1")

    def notify_reloading(self) -> None:
        """A reload began; `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def notify_stopping(self) -> None:
        self._send("STOPPING=1")

    def notify_alive(self) -> None:
        """A sign of life for the watchdog."""
        self._send("WATCHDOG=1")

    def set_status(self, text: str) -> None:
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
            if not self._is_failure_logged:
                _log.warning("the service manager cannot be told", why=str(error))
            self._is_failure_logged = True

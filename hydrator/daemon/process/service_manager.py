"""Service manager: report the daemon's state to systemd by sd_notify(3).

A notification is a datagram of `NAME=value` lines to the socket in ``NOTIFY_SOCKET``.
Without this variable the daemon sends nothing.
"""

import os
import socket
import time
from collections.abc import Mapping

import structlog

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

    def notify_ready(self) -> None:
        """Report that the daemon has started or reloaded."""
        self._send("READY=1")

    def notify_reloading(self) -> None:
        """Report that a reload began; :meth:`notify_ready` reports its end."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def notify_stopping(self) -> None:
        """Report that the daemon stops."""
        self._send("STOPPING=1")

    def notify_alive(self) -> None:
        """Send the watchdog a keep-alive."""
        self._send("WATCHDOG=1")

    def set_status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows."""
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
                _log.warning("cannot notify systemd", why=str(error))
            self._is_failure_logged = True

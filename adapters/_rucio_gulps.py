"""Answers that come row by row, read in gulps.

Rucio sends a bulk answer as it makes it, some 300 bytes at a time. Who looks whenever there is
something wakes for every row, and takes the processor from a server that shares the machine.
"""

import http.client
import io
import select
import socket
import time
from collections.abc import Callable

_PATIENT_AFTER = 4  # looks: a short answer is whole by then, and never waits
_BREATH = 0.002
_GULP = 1 << 18


class Gulps(io.RawIOBase):
    """Reads *source*; of a long answer it lets a little come together where nothing is there yet.

    Args:
        source: what is read.
        ready: whether there is something to read now, or it has ended.
        wait: waits a moment.
    """

    def __init__(self, source: io.RawIOBase, ready: Callable[[], bool], wait: Callable[[], None]) -> None:
        self._source, self._ready, self._wait = source, ready, wait
        self._looks = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: bytearray | memoryview) -> int | None:  # type: ignore[override]
        self._looks += 1
        if self._looks > _PATIENT_AFTER and not self._ready():
            self._wait()
        return self._source.readinto(into)

    def close(self) -> None:
        self._source.close()
        super().close()


class GulpedResponse(http.client.HTTPResponse):
    """An answer that is read in gulps."""

    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        look = select.poll()
        look.register(sock, select.POLLIN)
        gulps = Gulps(self.fp.detach(), lambda: bool(look.poll(0)), lambda: time.sleep(_BREATH))
        self.fp = io.BufferedReader(gulps, _GULP)

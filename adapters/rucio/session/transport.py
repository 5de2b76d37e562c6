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
_LONGEST_LINE = 65_536
_MOST_BEGINNINGS = 10


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


class _Lines(io.BufferedReader):
    """A reader whose lines end: urllib3 asks for lines of any length, and a server may send one."""

    def readline(self, size: int | None = -1, /) -> bytes:
        if size is not None and size >= 0:
            return super().readline(size)
        line = super().readline(_LONGEST_LINE + 1)
        if len(line) > _LONGEST_LINE:
            raise http.client.LineTooLong("line of a chunk")
        return line


class GulpedResponse(http.client.HTTPResponse):
    """An answer that is read in gulps, and that begins: ``100 Continue`` may come before it, not for ever."""

    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        look = select.poll()
        look.register(sock, select.POLLIN)
        gulps = Gulps(self.fp.detach(), lambda: bool(look.poll(0)), lambda: time.sleep(_BREATH))
        self.fp = _Lines(gulps, _GULP)
        self._begun = 0

    def _read_status(self) -> tuple[str, int, str]:
        self._begun += 1
        if self._begun > _MOST_BEGINNINGS:
            raise http.client.HTTPException("it says 100 Continue, and goes on to say so")
        return super()._read_status()  # type: ignore[misc, no-any-return]

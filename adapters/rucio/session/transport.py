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

_COALESCE_AFTER_READS = 4  # looks: a short answer is whole by then, and never waits
_COALESCE_SECONDS = 0.002
_BUFFER_BYTES = 1 << 18
_MAX_LINE_BYTES = 65_536
_MAX_STATUS_LINES = 10


class CoalescingReader(io.RawIOBase):
    """Reads *source*; of a long answer it lets a little come together where nothing is there yet.

    Args:
        source: what is read.
        ready: whether there is something to read now, or it has ended.
        wait: waits a moment.
    """

    def __init__(self, source: io.RawIOBase, is_ready: Callable[[], bool], wait: Callable[[], None]) -> None:
        self._source, self._is_ready, self._wait = source, is_ready, wait
        self._read_count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int | None:  # type: ignore[override]
        self._read_count += 1
        if self._read_count > _COALESCE_AFTER_READS and not self._is_ready():
            self._wait()
        return self._source.readinto(buffer)

    def close(self) -> None:
        self._source.close()
        super().close()


class _BoundedLineReader(io.BufferedReader):
    """A reader whose lines end: urllib3 asks for lines of any length, and a server may send one."""

    def readline(self, size: int | None = -1, /) -> bytes:
        if size is not None and size >= 0:
            return super().readline(size)
        line = super().readline(_MAX_LINE_BYTES + 1)
        if len(line) > _MAX_LINE_BYTES:
            raise http.client.LineTooLong("line of a chunk")
        return line


class CoalescedResponse(http.client.HTTPResponse):
    """An answer that is read in gulps, and that begins: ``100 Continue`` may come before it, not for ever."""

    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        look = select.poll()
        look.register(sock, select.POLLIN)
        gulps = CoalescingReader(
            self.fp.detach(), lambda: bool(look.poll(0)), lambda: time.sleep(_COALESCE_SECONDS)
        )
        self.fp = _BoundedLineReader(gulps, _BUFFER_BYTES)
        self._status_lines = 0

    def _read_status(self) -> tuple[str, int, str]:
        self._status_lines += 1
        if self._status_lines > _MAX_STATUS_LINES:
            raise http.client.HTTPException("it says 100 Continue, and goes on to say so")
        return super()._read_status()  # type: ignore[misc, no-any-return]

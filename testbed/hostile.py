"""An HTTP server with hostile answers, to each client in a thread of its own.

    with Hostile(ENDLESS["headers"]) as server:
        Server("sick", server.url, …)

A way to answer is a function with the parameter ``send``, which returns False once the client has gone.
"""

import gzip
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

Send = Callable[[bytes], bool]
Answering = Callable[[Send], None]
STATUS = b"HTTP/1.1 200 OK\r\n"
OK = STATUS + b"Content-Type: application/json\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
PAUSE_SECONDS = 0.05


class Hostile:
    """A server on loopback that answers every request by *answering*, which may be replaced."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.asked = 0
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._accepting = threading.Thread(target=self._accept, name="hostile")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self._over.is_set():
            with suppress(OSError):
                connection, _ = self._listener.accept()
                self._open.add(connection)
                thread = threading.Thread(target=self._serve, args=(connection,), name="hostile-one")
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        def send(data: bytes) -> bool:
            try:
                connection.sendall(data)
            except OSError:
                return False
            return not self._over.wait(0 if data else PAUSE_SECONDS)

        with suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head and (more := connection.recv(65_536)):
                head += more
            if head:
                self.asked += 1
                self.answering(send)
        self._open.discard(connection)
        connection.close()


def answer(body: bytes, *headers: str) -> Answering:
    """Answer with all of *body*."""
    lines = [f"Content-Length: {len(body)}", "Connection: close", *headers]
    return lambda send: _all(send, [OK + "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body])


def rows_of(body: bytes, *headers: str) -> Answering:
    """Answer with all of *body*, as Rucio does with rows."""
    lines = [f"Content-Length: {len(body)}", "Connection: close", "Content-Type: application/x-json-stream"]
    head = "".join(f"{line}\r\n" for line in (*lines, *headers)).encode()
    return lambda send: _all(send, [STATUS + head + b"\r\n" + body])


def endless(begin: bytes, unit: bytes, *, slowly: bool = False) -> Answering:
    """Begin with *begin*, and repeat *unit* without end; *slowly*: with a pause after each."""

    def answering(send: Send) -> None:
        if send(begin):
            while send(unit) and (not slowly or send(b"")):
                pass

    return answering


def stream(unit: bytes, size: int, *headers: str) -> Answering:
    """Answer with *unit* repeated to *size* bytes, in the form without a length."""
    piece = unit * max(1, 65_536 // len(unit))
    count = size // len(piece)
    begin = (
        (STATUS if headers else OK)
        + "".join(f"{line}\r\n" for line in headers).encode()
        + b"Transfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"%x\r\n%s\r\n" % (len(piece), piece)

    def answering(send: Send) -> None:
        _all(send, [begin, *([b"1\r\n[\r\n"] if unit.endswith(b",") else [])])
        for _ in range(count):
            if not send(chunk):
                return
        send(b"0\r\n\r\n")

    return answering


def gzip_bomb(size: int, unit: bytes = b"\n" * 65_536) -> bytes:
    """Return bytes that decompress to *size* bytes of *unit*, compressed once: half a second for 1 GB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(unit) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum, units = 0, size // len(unit)
    for _ in range(units):
        checksum = zlib.crc32(unit, checksum)
    trailer = struct.pack("<LL", checksum, units * len(unit) % 2**32)
    return b"\x1f\x8b\x08" + bytes(7) + block * units + packer.flush() + trailer


def _all(send: Send, parts: Iterable[bytes]) -> None:
    for part in parts:
        if not send(part):
            return


_CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKED = OK + _CHUNKS
ENDLESS: Mapping[str, Answering] = {
    "nothing": endless(b"", b""),
    "headers": endless(OK, b"X-More: " + b"a" * 100 + b"\r\n"),
    "headers, slowly": endless(OK, b"X: y\r\n", slowly=True),
    "one header": endless(OK + b"X-More: ", b"a" * 1000),
    "100 Continue": endless(b"", CONTINUE * 100),
    "100 Continue, slowly": endless(b"", CONTINUE, slowly=True),
    "a body, slowly": endless(CHUNKED, b"1\r\n \r\n", slowly=True),
    "a body": endless(CHUNKED, b"3e8\r\n" + b" " * 1000 + b"\r\n"),
    "a chunk's length": endless(CHUNKED, b"0" * 1000),
    "chunks' extensions": endless(CHUNKED + b"1;", b"a" * 1000),
    "trailers": endless(CHUNKED + b"0\r\n", b"X-More: " + b"a" * 100 + b"\r\n"),
    "a packed body of nothing": endless(
        OK
        + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\na\r\n"
        + gzip.compress(b"")[:10]
        + b"\r\n",
        b"5\r\n\x00\x00\x00\xff\xff\r\n" * 100,
    ),
}
"""Answers that never end."""

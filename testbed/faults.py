"""An HTTP proxy that misbehaves on request: between a catalogue's adapter and its server, real or stand-in.

    with FaultProxy("http://127.0.0.1:8080") as proxy:
        RucioSettings(url=proxy.url, …)
        proxy.fault = FAULTS["truncated"]     until it is set to None again

A fault takes the whole answer of the server and decides what the client gets of it.
"""

import email.utils
import http.client
import json
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler
from typing import Any, Self
from urllib.parse import urlsplit

DAY = 24 * 3600
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "upgrade", "te", "trailer"}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a server."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def with_body(self, body: bytes) -> "Answer":
        return replace(self, body=body)


@dataclass(frozen=True, slots=True)
class Fault:
    """Faults in answers.

    ``spoil`` makes another answer of the true one. ``deliver`` writes an answer to the client in its own way,
    by default correctly. ``hold`` is called before the request reaches the server. ``refuses`` accepts no
    connection. ``only`` is a pattern of the paths that it
    applies to; ``after`` lets that many of these requests through first.
    """

    name: str
    spoil: Callable[[Answer], Answer] = lambda answer: answer
    deliver: "Callable[[Answer, _Request], None] | None" = None
    hold: "Callable[[_Request], None] | None" = None
    refuses: bool = False
    only: str = ""
    after: int = 0


class FaultProxy:
    """Forwards requests to *upstream*; ``fault`` may be changed at any time, by any thread."""

    def __init__(self, upstream: str) -> None:
        place = urlsplit(upstream)
        self.upstream = (place.hostname or "127.0.0.1", place.port or 80)
        self.asked: list[str] = []
        self.over = threading.Event()
        self._fault: Fault | None = None
        self._let_through = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self._port = 0
        self._listen()
        self._accepting = threading.Thread(target=self._accept, name="fault-proxy")
        self._accepting.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def fault(self) -> Fault | None:
        """Return the faults that are active now."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault | None) -> None:
        with self._lock:
            self._fault, self._let_through = fault, 0
            for each in self._open:  # what hangs or drips ends with the fault that made it so
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            if fault is not None and fault.refuses and self._listener is not None:
                self._listener.close()
                self._listener = None
        if (fault is None or not fault.refuses) and self._listener is None:
            self._listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.fault = None
        self._accepting.join()
        for thread in self._threads:
            thread.join()
        if self._listener is not None:
            self._listener.close()

    def due(self, path: str) -> Fault | None:
        """Return the fault that applies to a request for *path*."""
        with self._lock:
            fault = self._fault
            if fault is None or not re.search(fault.only, path):
                return None
            self._let_through += 1
            return fault if self._let_through > fault.after else None

    def _listen(self) -> None:
        # the listening socket is created again after a refusal, on the same port
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]

    def _accept(self) -> None:
        while not self.over.is_set():
            try:
                listener = self._listener
                if listener is None or not select.select([listener], [], [], 0.02)[0]:
                    self.over.wait(0.01)
                    continue
                connection, address = listener.accept()
            except (OSError, ValueError):  # closed under our eyes
                continue
            thread = threading.Thread(target=self._serve, args=(connection, address), name="fault-proxy-one")
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()

    def _serve(self, connection: socket.socket, address: tuple[str, int]) -> None:
        with self._lock:
            self._open.add(connection)
        try:
            _Request(connection, address, self)  # type: ignore[arg-type]
        except OSError:
            pass  # the client went, or we hung up on it
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()


class _Request(BaseHTTPRequestHandler):
    """One connection, one request."""

    server: FaultProxy  # type: ignore[assignment]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.close_connection = True
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(self.path)
        fault = self.server.due(self.path)
        if fault is not None and fault.hold is not None:
            fault.hold(self)
        answer = self._upstream(body)
        if fault is not None:
            answer = fault.spoil(answer)
        (fault.deliver if fault and fault.deliver else whole)(answer, self)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815 - http.server's names

    def _upstream(self, body: bytes) -> Answer:
        connection = http.client.HTTPConnection(*self.server.upstream, timeout=60)
        try:
            end_to_end_headers = {
                name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP
            }
            connection.request(self.command, self.path, body or None, end_to_end_headers)
            answer = connection.getresponse()
            headers = tuple((n, v) for n, v in answer.getheaders() if n.lower() not in _HOP_BY_HOP)
            return Answer(answer.status, headers, answer.read())
        finally:
            connection.close()

    def head(self, answer: Answer, length: int) -> None:
        """Send the status and the headers, with this length."""
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close")
        self.end_headers()

    def healthy(self, seconds: float) -> bool:
        """Wait; return True once the fault is no longer active."""
        return self.server.over.wait(seconds) or self.server.fault is None

    def log_message(self, *_: Any) -> None:  # noqa: ANN401
        """Log nothing."""


# --- ways to deliver an answer ----------------------------------------------------------------------


def whole(answer: Answer, request: _Request) -> None:
    """Send the answer correctly."""
    request.head(answer, len(answer.body))
    request.wfile.write(answer.body)


def never(_answer: Answer, request: _Request) -> None:
    """Send nothing, as long as the fault is active."""
    while not request.healthy(0.05):
        pass


def hold_until_healed(request: _Request) -> None:
    """Keep the request from the server as long as the fault is active."""
    while not request.healthy(0.05):
        pass


def dripping(answer: Answer, request: _Request) -> None:
    """Send a byte at a time: too slowly ever to end, but each soon enough for a read timeout."""
    request.head(answer, len(answer.body) + 100_000)
    for byte in answer.body + b"\n" * 100_000:
        if request.healthy(0.05):
            return
        request.wfile.write(bytes([byte]))


def cut_short(answer: Answer, request: _Request) -> None:
    """Send all headers and half of the body, then end the connection."""
    request.head(answer, max(len(answer.body), 2))
    request.wfile.write(answer.body[: len(answer.body) // 2])


def reset(_answer: Answer, request: _Request) -> None:
    """Reset the connection instead of an answer."""
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# --- ways to spoil an answer ------------------------------------------------------------------------


def status(code: int, **headers: str) -> Callable[[Answer], Answer]:
    """Make another status, with a short text instead of the body."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return lambda _: Answer(code, (("Content-Type", "text/plain"), *named), b"not now")


def garbage(answer: Answer) -> Answer:
    """Make random bytes with the content type of the true answer."""
    return answer.with_body(bytes(range(1, 256)) * 4)


def rows(change: Callable[[list[Any]], list[Any]]) -> Callable[[Answer], Answer]:
    """Change the rows of an answer that is a JSON list, or JSON lines; leave others alone."""

    def spoil(answer: Answer) -> Answer:
        try:
            parsed = json.loads(answer.body)
        except ValueError:
            lines = answer.body.splitlines()
            try:
                found = [json.loads(line) for line in lines]
            except ValueError:
                return answer
            return answer.with_body(b"".join(json.dumps(row).encode() + b"\n" for row in change(found)))
        if not isinstance(parsed, list):
            return answer
        return answer.with_body(json.dumps(change(parsed)).encode())

    return spoil


def key_twice(answer: Answer) -> Answer:
    """Repeat the first key of the first object."""
    return answer.with_body(re.sub(rb'\{("[^"]*": ?)', rb"{\1null, \1", answer.body, count=1))


def not_a_number(answer: Answer) -> Answer:
    """Make sizes and lists of files ``NaN``."""
    return answer.with_body(re.sub(rb'("(?:length|replicas)": ?)(?:\d+|\[[^\]]*\])', rb"\1NaN", answer.body))


def surrogates(answer: Answer) -> Answer:
    """End names of storage, states and files in half a character (a lone surrogate)."""
    return answer.with_body(re.sub(rb'((?:-DISK|ABLE|table\.\d+))"', rb'\1\\ud800"', answer.body))


def elsewhere(answer: Answer) -> Answer:
    """Replace every ``scope`` by another one."""
    return answer.with_body(re.sub(rb'("scope": ?)"[^"]*"', rb'\1"elsewhere"', answer.body))


def skew_clock(seconds: float) -> Callable[[Answer], Answer]:
    """Set the server's clock *seconds* ahead, in the headers that have a time."""

    def spoil(answer: Answer) -> Answer:
        moment = email.utils.formatdate(time.time() + seconds, usegmt=True)
        headers = [
            (name, moment) if re.search("(?i)^date$|expires|modified", name) else (name, value)
            for name, value in answer.headers
        ]
        return replace(answer, headers=tuple(headers))

    return spoil


def _twice(rows: list[Any]) -> list[Any]:
    return [each for row in rows for each in (row, row)]


REPLICAS = "/replicas|/locate"
"""Paths of questions about replicas, as opposed to the questions that come first."""


def _by_name(faults: Sequence[Fault]) -> Mapping[str, Fault]:
    return {fault.name: fault for fault in faults}


FAULTS: Mapping[str, Fault] = _by_name(
    [
        Fault("connection refused", refuses=True),
        Fault("connection reset", deliver=reset),
        Fault("timeout", deliver=never),
        Fault("timeout in mid-poll", deliver=never, only=REPLICAS),
        Fault("slow drip", deliver=dripping),
        Fault("slow drip in mid-poll", deliver=dripping, only=REPLICAS),
        Fault("500", status(500)),
        Fault("500 in mid-poll", status(500), only=REPLICAS),
        Fault("502", status(502)),
        Fault("503 in mid-poll", status(503), only=REPLICAS),
        Fault("429 with Retry-After", status(429, Retry_After="3600")),
        Fault("429 in mid-poll", status(429, Retry_After="3600"), only=REPLICAS),
        Fault("401", status(401)),
        Fault("401 in mid-poll", status(401), only=REPLICAS, after=1),
        Fault("403 in mid-poll", status(403), only=REPLICAS),
        Fault("empty 200", lambda answer: Answer(200, answer.headers, b"")),
        Fault("empty 200 in mid-poll", lambda answer: Answer(200, answer.headers, b""), only=REPLICAS),
        Fault("truncated stream", deliver=cut_short),
        Fault("truncated stream in mid-poll", deliver=cut_short, only=REPLICAS, after=1),
        Fault("garbage", garbage),
        Fault("garbage in mid-poll", garbage, only=REPLICAS),
        Fault("wrong scope", elsewhere),
        Fault("wrong scope in mid-poll", elsewhere, only=REPLICAS),
        Fault("duplicates", rows(_twice)),
        Fault("reordered", rows(lambda found: found[::-1])),
        Fault("clock ahead", skew_clock(DAY)),
        Fault("clock behind", skew_clock(-DAY)),
        Fault("a key given twice in mid-poll", key_twice, only=REPLICAS),
        Fault("NaN in mid-poll", not_a_number, only=REPLICAS),
        Fault("half a character in mid-poll", surrogates, only=REPLICAS),
    ]
)

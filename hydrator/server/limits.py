"""Limits on connections: their number at one time, and the duration of a request.

uvicorn waits without limit for the end of a request's head, and for a client
that does not read its answer. asyncio waits a minute for a TLS hello. A few
thousand clients that send nothing could use up all file descriptors. Therefore
the server counts each connection from accept() on, before TLS. It closes a
connection when a request takes too long.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final, TypeVar

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from .responses import busy_error

MAX_CLIENTS: Final = 10_000
"""Remembered clients; above this number, the client of the oldest request gets a full bucket again."""


class RateLimiter:
    """A bucket of *burst* requests for each client, refilled at *per_second*.

    One number is stored for a client: the time at which its bucket will be full
    again. A full bucket needs no entry, so the limiter forgets a client that pauses.

    Args:
        per_second: sustained requests a second of one client, above 0.
        burst: requests that may come at once, 1 or more.
        clock: seconds that never go back, such as ``time.monotonic``.
    """

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._refill_seconds = 1 / per_second
        self._burst_seconds = (burst - 1) / per_second
        self._clock = clock
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, client: Hashable) -> float:
        """Take a request out of the bucket of *client*.

        Returns:
            0 if the bucket had a request. Else the seconds to wait; the bucket is unchanged.
        """
        now = self._clock()
        wait_seconds = self._full_at.get(client, now) - now - self._burst_seconds
        self.charge(client, 0 if wait_seconds > 0 else 1)
        return max(wait_seconds, 0.0)

    def charge(self, client: Hashable, requests: float) -> None:
        """Take *requests* out of the bucket of *client*, even if it has fewer: then the client waits."""
        now = self._clock()
        full_at = max(self._full_at.pop(client, now), now)
        self._full_at[client] = full_at + requests * self._refill_seconds
        while self._full_at and (
            len(self._full_at) > MAX_CLIENTS or next(iter(self._full_at.values())) <= now
        ):
            self._full_at.popitem(last=False)


QUESTIONS_PER_SECOND: Final = 0.5
MAX_QUESTIONS: Final = 10
"""Questions that run or wait in one queue; the three queues share the 40 threads of the server."""
MAX_QUESTIONS_OF_CLIENT: Final = 4
TURN_WAIT_SECONDS: Final = 5.0
"""The longest wait for the questions of other clients; a request may take 30 s, and a question 20 s."""
_T = TypeVar("_T")


class QuestionQueue:
    """A queue of questions that the catalogues or the schedds answer: one at a time, and few.

    The clients have turns. Each has a bucket of its own; a second of an answer costs as much as a question.

    Args:
        busy: what the daemon does for other clients, for the message to a client that waited in vain.
        burst: questions of one client that may come at once.
        clock: seconds that never go back.
        wait_seconds: the longest wait for a turn.
        changed: notifies the questions that wait.
    """

    def __init__(
        self,
        busy: str,
        burst: int = 30,
        clock: Callable[[], float] = time.monotonic,
        wait_seconds: float = TURN_WAIT_SECONDS,
        changed: threading.Condition | None = None,
    ) -> None:
        self._busy, self._clock, self._wait_seconds = busy, clock, wait_seconds
        self._changed = changed or threading.Condition()
        self._limiter = RateLimiter(QUESTIONS_PER_SECOND, burst, clock)
        self._clients: dict[object, Hashable] = {}
        """The client of each question: first the one that runs, then those that wait, in order."""

    def ask(self, client: Hashable, question: Callable[[], _T]) -> _T:
        """Return the answer to the *question* of *client*, which runs when it has its turn.

        Raises:
            HttpError: the questions of others take too long, or there were too many of this client.
        """
        entry = self._enter(client)
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: next(iter(self._clients)) is entry, self._wait_seconds):
                    raise busy_error(self._busy, TURN_WAIT_SECONDS)
            started_at = self._clock()
            try:
                return question()
            finally:
                with self._changed:  # the client's other questions go behind those of all other clients
                    self._limiter.charge(client, self._clock() - started_at)
                    self._clients = dict(sorted(self._clients.items(), key=lambda item: item[1] == client))
        finally:
            with self._changed:
                del self._clients[entry]
                self._changed.notify_all()

    def _enter(self, client: Hashable) -> object:
        """Return a new entry for a question of *client* that waits for its turn."""
        with self._changed:
            clients = list(self._clients.values())
            if len(clients) >= MAX_QUESTIONS or clients.count(client) >= MAX_QUESTIONS_OF_CLIENT:
                raise busy_error(self._busy, TURN_WAIT_SECONDS)
            if wait_seconds := self._limiter.take(client):
                raise busy_error("too many or too slow questions of this client", wait_seconds)
            entry = object()
            self._clients[entry] = client
            return entry


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address in *text*; None if it is a name."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def client_key(address: str) -> str:
    """Return the key of *address* for limits: for IPv6 the /64 network, since one host may own all of it."""
    parsed = _parse_address(address)
    if parsed is None:
        return address[:40]
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Address(int(parsed) >> 64 << 64)) + "/64"
    return str(parsed)


def build_allowed_hosts(host: str, extra_names: Iterable[str]) -> frozenset[str]:
    """Return the names that a server answers to: *host*, localhost, this machine's name, and *extra_names*.

    The names have no port; ``*.example.org`` stands for every name below ``example.org``.
    """
    names = ("localhost", host, socket.gethostname(), *extra_names)
    return frozenset(name.lower().rstrip(".") for name in names)


def is_allowed_host(header: str, names: AbstractSet[str]) -> bool:
    """Return whether a Host header, with or without a port, is an address or has one of *names*."""
    name = _without_port(header.strip().lower()).rstrip(".")
    if _parse_address(name):
        return True
    return name in names or name.endswith(tuple(each[1:] for each in names if each.startswith("*.")))


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    name, colon, port = header.rpartition(":")
    return name if colon and (not port or (port.isascii() and port.isdigit())) else header


MAX_HEAD_BYTES: Final = 32_768
"""Largest head of a request, in bytes: its first line and its headers."""


@dataclass(slots=True)
class ConnectionLimiter:
    """A limiter of open connections; only the event loop uses it.

    Args:
        max_connections: largest number of open connections.
        max_per_address: largest number of open connections from one address; of IPv6, from one /64 network.
        request_seconds: time limit of one request. The time runs from the start of the connection,
            or from the end of the previous answer, to the end of the answer. The first request includes
            the TLS handshake.
        on_cut: called when a limit closes a connection, with the reason: full or slow.
    """

    max_connections: int = 500
    max_per_address: int = 250
    request_seconds: float = 30
    on_cut: Callable[[str], None] = lambda _reason: None
    _open_by_address: Counter[str] = field(default_factory=Counter)
    _sockets: dict[int, LimitedSocket] = field(default_factory=dict)

    def admit(self, accepted_socket: socket.socket, address: str) -> LimitedSocket | None:
        """Count and return a new connection; if too many are open, close the new one and return None."""
        client = client_key(address)
        if (
            self._open_by_address.total() >= self.max_connections
            or self._open_by_address[client] >= self.max_per_address
        ):
            self.on_cut("full")
            accepted_socket.close()
            return None
        self._open_by_address[client] += 1
        admitted = LimitedSocket(accepted_socket, client, self)
        self._sockets[admitted.fileno()] = admitted
        return admitted

    def find_socket(self, transport: asyncio.Transport) -> LimitedSocket:
        """Return the admitted socket that *transport* uses."""
        return self._sockets[transport.get_extra_info("socket").fileno()]

    def forget(self, descriptor: int, address_key: str) -> None:
        """Stop counting a connection that is about to be closed."""
        if self._sockets.pop(descriptor, None) is not None:
            self._open_by_address[address_key] -= 1
            if not self._open_by_address[address_key]:
                del self._open_by_address[address_key]


class LimitedSocket(socket.socket):
    """One accepted connection with a deadline for each request; the limiter counts the connection."""

    def __init__(self, accepted_socket: socket.socket, address_key: str, limiter: ConnectionLimiter) -> None:
        super().__init__(fileno=accepted_socket.detach())
        self._address_key = address_key
        self._limiter = limiter
        self._deadline: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        """Transport of the connection; set after the TLS handshake, if any."""
        self.restart_deadline()

    def restart_deadline(self) -> None:
        """Start the time limit of the next request."""
        if self._deadline:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._limiter.request_seconds, self._on_deadline)

    def close(self) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._limiter.forget(self.fileno(), self._address_key)
        super().close()

    def _on_deadline(self) -> None:
        self._limiter.on_cut("slow")
        if self.transport:
            self.transport.abort()
        else:  # asyncio still waits for the TLS hello; the shutdown ends this wait
            self.shutdown(socket.SHUT_RDWR)


class LimitedListener(socket.socket):
    """A listening socket that accepts only the connections that the limiter admits."""

    def __init__(self, listening_socket: socket.socket, limiter: ConnectionLimiter) -> None:
        super().__init__(fileno=listening_socket.detach())
        self._limiter = limiter

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection.

        Raises:
            ConnectionAbortedError: there are too many connections, so the limiter closed this one.
        """
        accepted, address = super().accept()
        admitted = self._limiter.admit(accepted, address[0])
        if admitted is None:
            raise ConnectionAbortedError
        return admitted, address


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol on one admitted connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limiter: ConnectionLimiter,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limiter = limiter
        self._limited_socket: LimitedSocket | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limited_socket = self._limiter.find_socket(transport)
        self._limited_socket.transport = transport

    def on_response_complete(self) -> None:
        # while a part of the answer waits for the client, the time limit of this request goes on
        if self._limited_socket and self.transport.get_write_buffer_size() == 0:
            self._limited_socket.restart_deadline()
        super().on_response_complete()

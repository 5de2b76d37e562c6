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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from .rate import client_key

MAX_HEAD_BYTES: Final = 32_768
"""Largest head of a request, in bytes: its first line and its headers."""

FIRST_REQUEST_SECONDS: Final = 1.0
"""Time that a server waits at its end for the first request of a connection, in seconds."""

CutReason = Literal["full", "slow"]


def _ignore_cut(_: CutReason) -> None:
    """Do nothing when a limit closes a connection: the default of ``on_cut``."""


@dataclass(slots=True)
class ConnectionLimiter:
    """A limiter of open connections; only the event loop uses it.

    Args:
        max_connections: largest number of open connections.
        max_per_address: largest number of open connections from one address; of IPv6, from one /64 network.
        request_seconds: time limit of one request. The time runs from the start of the connection,
            or from the end of the previous answer, to the end of the answer. The first request includes
            the TLS handshake.
        on_cut: called with the reason when a limit closes a connection.
    """

    max_connections: int = 500
    max_per_address: int = 250
    request_seconds: float = 30
    on_cut: Callable[[CutReason], None] = _ignore_cut
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
        admitted = self._limiter.admit(accepted, address[0] if isinstance(address, tuple) else "")
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
        self._is_last_request = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limited_socket = self._limiter.find_socket(transport)
        self._limited_socket.transport = transport

    def shutdown(self) -> None:
        """Close the connection after its request; the first request of a new connection may be on its way."""
        if cast("RequestResponseCycle | None", self.cycle) is None:
            self.loop.call_later(FIRST_REQUEST_SECONDS, super().shutdown)
            self._is_last_request = True
        else:
            super().shutdown()

    def on_response_complete(self) -> None:
        # while a part of the answer waits for the client, the time limit of this request goes on
        if self._limited_socket and self.transport.get_write_buffer_size() == 0:
            self._limited_socket.restart_deadline()
        super().on_response_complete()
        if self._is_last_request:
            self.transport.close()

"""Limits on connections: how many there are at one time, and how long each may take.

uvicorn waits for ever for the end of a request's head and for a client that
does not read its answer, and asyncio waits a minute for a TLS hello. So a few
thousand silent clients could take every file descriptor there is. A connection
is therefore counted when the kernel hands it over, before TLS, and closed when
a request takes too long.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from .rate import asker

MAX_HEAD_BYTES: Final = 32_768
"""Bytes of a request's head: its first line and its headers."""

Cut = Literal["full", "slow"]


def _uncounted(_: Cut) -> None:
    """Count nothing."""


@dataclass(slots=True)
class Doorway:
    """The connections there are, touched by the event loop only.

    Args:
        most: connections at one time.
        most_each: of these, from one address, as :func:`hydrator.server.limits.rate.asker` counts addresses.
        seconds: for one request: from the connection, or the last answer, to the
            end of the answer. TLS's handshake is part of the first one.
        cut: called for each connection that was cut, with the reason.
    """

    most: int = 500
    most_each: int = 250
    seconds: float = 30
    cut: Callable[[Cut], None] = _uncounted
    _open: Counter[str] = field(default_factory=Counter)
    _admitted: dict[int, Admitted] = field(default_factory=dict)

    def admit(self, accepted: socket.socket, address: str) -> Admitted | None:
        """Count *accepted* from now until it is closed; close it at once where there are too many."""
        who = asker(address)
        if self._open.total() >= self.most or self._open[who] >= self.most_each:
            self.cut("full")
            accepted.close()
            return None
        self._open[who] += 1
        admitted = Admitted(accepted, who, self)
        self._admitted[admitted.fileno()] = admitted
        return admitted

    def of(self, transport: asyncio.Transport) -> Admitted:
        """Return the socket under *transport*."""
        return self._admitted[transport.get_extra_info("socket").fileno()]

    def forget(self, descriptor: int, who: str) -> None:
        """Stop counting a connection that is about to be closed."""
        if self._admitted.pop(descriptor, None) is not None:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]


class Admitted(socket.socket):
    """One accepted connection with a deadline, counted until it is closed."""

    def __init__(self, accepted: socket.socket, who: str, doorway: Doorway) -> None:
        super().__init__(fileno=accepted.detach())
        self._who = who
        self._doorway = doorway
        self._deadline: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        """What reads and writes it, once TLS (if any) has shaken hands."""
        self.begin()

    def begin(self) -> None:
        """Start the time of the next request."""
        if self._deadline:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._doorway.seconds, self._too_slow)

    def close(self) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._doorway.forget(self.fileno(), self._who)
        super().close()

    def _too_slow(self) -> None:
        self._doorway.cut("slow")
        if self.transport:
            self.transport.abort()
        else:  # asyncio is still waiting for the hello: it sees the end of the connection
            self.shutdown(socket.SHUT_RDWR)


class Listener(socket.socket):
    """A listening socket that hands over only the connections that *doorway* admits."""

    def __init__(self, listening: socket.socket, doorway: Doorway) -> None:
        super().__init__(fileno=listening.detach())
        self._doorway = doorway

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection.

        Raises:
            ConnectionAbortedError: there were too many, so it was closed; asyncio goes on with the next one.
        """
        accepted, address = super().accept()
        admitted = self._doorway.admit(accepted, address[0] if isinstance(address, tuple) else "")
        if admitted is None:
            raise ConnectionAbortedError
        return admitted, address


class Connection(H11Protocol):
    """uvicorn's HTTP over one admitted connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        doorway: Doorway,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._doorway = doorway
        self._admitted: Admitted | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._admitted = self._doorway.of(transport)
        self._admitted.transport = transport

    def on_response_complete(self) -> None:
        # an answer that the client has not taken yet is not over
        if self._admitted and self.transport.get_write_buffer_size() == 0:
            self._admitted.begin()
        super().on_response_complete()

"""Connections that nobody keeps for long: uvicorn's, with a deadline a request and a bound on how many.

uvicorn waits for ever for the end of a request's head and for a client that
does not read its answer, so a few thousand silent clients could take all there is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

Cut = Literal["full", "slow"]


def _nobody(_: Cut) -> None:
    """Cut connections are counted nowhere."""


@dataclass(slots=True)
class Doorway:
    """How many connections there are, touched by the event loop only.

    Args:
        most: connections at one time.
        most_each: of these, from one address.
        seconds: for one request: from the connection, or the last answer, to the
            end of the answer.
        cut: told of each connection that was cut, and why.
    """

    most: int = 500
    most_each: int = 250
    seconds: float = 30
    cut: Callable[[Cut], None] = _nobody
    _open: Counter[str] = field(default_factory=Counter)

    def enter(self, address: str) -> bool:
        """Whether one more from *address* may stay; then it is counted until :meth:`leave`."""
        if self._open.total() >= self.most or self._open[address] >= self.most_each:
            self.cut("full")
            return False
        self._open[address] += 1
        return True

    def leave(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class Connection(H11Protocol):
    """One client; it is cut when there are too many, or when it takes too long."""

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
        self._address: str | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if not self._doorway.enter(address):
            transport.abort()
            return
        self._address = address
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline:
            self._deadline.cancel()
        if self._address is not None:
            self._doorway.leave(self._address)
            self._address = None
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        # an answer that the client has not taken yet is not over
        if self.transport.get_write_buffer_size() == 0:
            self._begin()
        super().on_response_complete()

    def _begin(self) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(self._doorway.seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._doorway.cut("slow")
        self.transport.abort()

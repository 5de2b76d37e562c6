"""The HTTP server: an ASGI app answered from a thread of its own."""

import socket
import threading
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

import uvicorn
from starlette.types import ASGIApp

from .errors import ConfigError
from .ports import Door

MAX_HEAD_BYTES: Final = 32_768


class _Uvicorn(uvicorn.Server):
    """uvicorn that tells when it answers."""

    def __init__(self, config: uvicorn.Config, answering: threading.Event) -> None:
        super().__init__(config)
        self._answering = answering

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._answering.set()


class Server:
    """Serves an ASGI app from a thread of its own; takes no signal handler and prints nothing.

    Args:
        asgi: what :func:`hydrator.serve.app` builds.
        host: an address or a name of this machine; ``0.0.0.0`` or ``::`` for all of them.
        port: 0 to 65535; 0 takes a free one, and ``url`` says which.
        token: what we show when we ask ourselves.
    """

    def __init__(self, asgi: ASGIApp, host: str, port: int, *, token: str | None = None) -> None:
        self._asgi = asgi
        self._host = host
        self._port = port
        self._token = token
        self._url: str | None = None
        self._uvicorn: _Uvicorn | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str | None:
        """``http://host:port`` as this machine reaches it, or None while it does not run."""
        return self._url if self._thread is not None and self._thread.is_alive() else None

    @property
    def door(self) -> Door | None:
        """How this machine reaches it, or None while it does not run."""
        url = self.url
        return Door(url, self._token) if url else None

    def start(self, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Return once requests are answered; starting what runs is no error.

        Raises:
            ConfigError: the address is wrong, in use or forbidden, or nothing
                answered within *timeout*.
        """
        if self.url is not None:
            return
        listening = _listen(self._host, self._port)
        self._url = _url(listening)
        config = uvicorn.Config(
            self._asgi,
            http="h11",
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        answering = threading.Event()
        self._uvicorn = _Uvicorn(config, answering)
        self._thread = threading.Thread(
            target=self._uvicorn.run, args=([listening],), name="hydrator-http", daemon=True
        )
        self._thread.start()
        if not answering.wait(timeout.total_seconds()):
            self.stop()
            listening.close()
            raise ConfigError(
                [f"http: the server at {_url_text(self._host, self._port)} did not start; see the log"]
            )

    def stop(self, timeout: timedelta = timedelta(seconds=5)) -> None:
        """End it: answers under way get two seconds. Stopping what does not run is no error."""
        if self._uvicorn is None or self._thread is None:
            return
        self._uvicorn.should_exit = True
        self._thread.join(timeout.total_seconds())
        if self._thread.is_alive():
            self._uvicorn.force_exit = True
            self._thread.join(1)
        self._uvicorn = self._thread = self._url = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, bound here rather than by uvicorn, so that a bad address is our sentence."""
    where = _url_text(host, port)
    if not 0 <= port <= 65535:  # getaddrinfo would take it modulo 65536
        raise ConfigError([f"http: {where}: a port is a number from 0 to 65535"])
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, OverflowError, UnicodeError) as exc:
        raise ConfigError([f"http: {where} is not an address of this machine: {_words(exc)}"]) from exc
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # inherited by every connection: those of worker nodes that vanished end after some minutes
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        listening.bind(address)
        listening.listen(2048)
    except (OSError, OverflowError) as exc:
        listening.close()
        raise ConfigError(
            [f"http: cannot listen on {where}: {_words(exc)}; choose another host or port"]
        ) from exc
    return listening


def _words(exc: Exception) -> str:
    return exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)


def _url(listening: socket.socket) -> str:
    """Where *listening* is reached from this machine; a wildcard address by loopback."""
    host, port = listening.getsockname()[:2]
    return "http://" + _url_text({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)  # noqa: S104 - read


def _url_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

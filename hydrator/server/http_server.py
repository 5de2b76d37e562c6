"""HTTP server: an ASGI app in its own thread, and its certificate, whose files are read when they change."""

import socket
import ssl
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Self, cast

import structlog
import uvicorn
from starlette.types import ASGIApp

from hydrator.domain.errors import ConfigError
from hydrator.domain.files import WatchedFiles
from hydrator.domain.text import format_address
from hydrator.server.limits import (
    MAX_HEAD_BYTES,
    ConnectionLimiter,
    LimitedListener,
    LimitedProtocol,
)

_log = structlog.get_logger("hydrator")


class TlsCertificate:
    """A certificate and its key for TLS 1.2 and later.

    The server checks the files when a client connects. If it cannot use the new
    pair (for example, because the new key is missing), the server logs this once.
    The old pair stays in use until the files change again.

    Args:
        certificate: PEM, the server's own certificate first, then its chain.
        key: PEM, without a passphrase.

    Attributes:
        context: the TLS context of the server; each handshake uses the current pair.

    Raises:
        ConfigError: the pair cannot be used.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._watched = WatchedFiles(certificate, key)
        try:
            self._current_context = self._load_pair()
        except (OSError, ValueError) as error:
            raise ConfigError([f"publish.http.tls_certificate: {self._describe_error(error)}"]) from error
        self.context = self._load_pair()
        # Python calls this method at the start of every handshake, even if the client sends no host name
        self.context.sni_callback = self._on_handshake

    def _on_handshake(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _: ssl.SSLContext
    ) -> None:
        if self._watched.have_changed():
            self._renew()
        connection.context = self._current_context

    def _renew(self) -> None:
        try:
            self._current_context = self._load_pair()
        except (OSError, ValueError) as error:
            reason = f"{self._describe_error(error)}; the old certificate stays in use"
            _log.error("cannot load the new certificate", why=reason)
        else:
            _log.info("certificate reloaded", file=str(self._files[0]))

    def _load_pair(self) -> ssl.SSLContext:
        context = _build_context()
        context.load_cert_chain(*self._files, _reject_passphrase)
        return context

    def _describe_error(self, error: Exception) -> str:
        pair = f"{self._files[0]} with tls_key {self._files[1]}"
        if isinstance(error, ssl.SSLError):
            return f"{pair} is not a certificate with its key: {error.reason or error}"
        return f"{pair} cannot be read: {getattr(error, 'strerror', None) or error}"


def _build_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 0  # a hook is a new process each time, which has no session to continue
    return context


def _reject_passphrase() -> str:
    """Refuse a key with a passphrase: the daemon cannot ask a person for it."""
    raise ValueError("the key has a passphrase: use a key without one")


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that sets an event once it answers."""

    def __init__(self, config: uvicorn.Config, answering: threading.Event) -> None:
        super().__init__(config)
        self._answering = answering

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._answering.set()


class HttpServer:
    """A server of one ASGI app in its own thread; it installs no signal handler and prints nothing.

    Args:
        asgi: the app of :func:`hydrator.server.app.build_app`.
        host: an address or a name of this machine; ``0.0.0.0`` or ``::`` for all addresses.
        port: 0 to 65535; 0 selects a free port, which ``url`` then names.
        certificate: the certificate for HTTPS; None for HTTP.
        limiter: limits the number of connections, and the time of a request.
    """

    def __init__(
        self,
        asgi: ASGIApp,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        certificate: TlsCertificate | None = None,
        limiter: ConnectionLimiter | None = None,
    ) -> None:
        self._asgi = asgi
        self._host = host
        self._port = port
        self._certificate = certificate
        self._limiter = limiter or ConnectionLimiter()
        self._url: str | None = None
        self._uvicorn: _Uvicorn | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str | None:
        """The address for clients on this machine: ``http://host:port``; None without a running server."""
        return self._url if self._thread is not None and self._thread.is_alive() else None

    def start(self, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Start the server, and return once it answers requests.

        Raises:
            ConfigError: the address is wrong, in use or forbidden, or the server
                did not answer within *timeout*.
        """
        bound = _listen(self._host, self._port)
        address = _address_text(bound)
        listening = LimitedListener(bound, self._limiter)
        self._url = ("https://" if self._certificate else "http://") + address
        answering = threading.Event()
        self._uvicorn = _Uvicorn(self._uvicorn_config(), answering)
        self._thread = threading.Thread(
            target=self._uvicorn.run, args=([listening],), name="hydrator-http", daemon=True
        )
        self._thread.start()
        if not answering.wait(timeout.total_seconds()):
            self.stop()
            listening.close()
            raise ConfigError([f"http: the server at {address} did not start; see the log"])

    def _uvicorn_config(self) -> uvicorn.Config:
        config = uvicorn.Config(
            self._asgi,
            http=cast("type[LimitedProtocol]", partial(LimitedProtocol, limiter=self._limiter)),
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
        config.load()
        config.ssl = self._certificate.context if self._certificate else None
        return config

    def check_address(self) -> None:
        """Check that this server, which does not run, could listen at its address.

        Raises:
            ConfigError: the address is wrong, in use or forbidden.
        """
        _listen(self._host, self._port).close()

    def stop(self, timeout: timedelta = timedelta(seconds=5)) -> None:
        """Stop the server; open requests have two seconds to end. Do nothing if the server does not run."""
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

    def __exit__(self, *_: object) -> None:
        self.stop()


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. uvicorn does not bind the socket, so that an error is one sentence."""
    where = format_address(host, port)
    if not 0 <= port <= 65535:  # getaddrinfo would take the port modulo 65536
        raise ConfigError([f"http: {where}: use a port from 0 to 65535"])
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, OverflowError, UnicodeError) as exc:
        raise ConfigError(
            [f"http: {where} is not an address of this machine: {_os_error_text(exc)}"]
        ) from exc
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # with keep-alive, the kernel closes the connection of a vanished worker node after some minutes
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        listening.bind(address)
        listening.listen(2048)
    except (OSError, OverflowError) as exc:
        listening.close()
        raise ConfigError(
            [f"http: cannot listen on {where}: {_os_error_text(exc)}; choose another host or port"]
        ) from exc
    return listening


def _os_error_text(exc: Exception) -> str:
    return exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)


def _address_text(listening_socket: socket.socket) -> str:
    """Return ``host:port``; ``0.0.0.0`` and ``::`` become loopback addresses."""
    host, port = listening_socket.getsockname()[:2]
    return format_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)  # noqa: S104 - read

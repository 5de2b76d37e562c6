"""Bounded HTTP exchanges: limits on the time and the bytes of a whole answer, whatever the server sends.

The timeout of httpx is for one read of a socket. So a server can block a thread endlessly if it sends a
byte now and then, or endless ``100 Continue``. httpx also decompresses a whole answer before the caller
can check its size. This module limits each read to the remaining time and bytes of the exchange. It
decompresses an answer in small pieces, and receives large answers of one server one after the other.
"""

import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpcore
import httpx

from adapters.bounded_json import Bounds, quote_excerpt
from hydrator.domain.errors import CatalogueGarbled, CatalogueUnreachable, ConfigError

T = TypeVar("T")

_CHUNK_BYTES = 65_536
_MAX_HEAD_BYTES = 262_144
"""The limit in bytes for everything before the body: headers, TLS, and any ``100 Continue``."""
_LARGE_BYTES = 1_000_000
"""An answer of at least so many bytes waits for other large ones, so that only one is in memory."""
_GZIP = 31
"""zlib's ``wbits`` for the gzip format, with its checksum."""


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A server's complete and decompressed answer."""

    status: int
    headers: httpx.Headers
    content: bytearray


class BoundedHttpClient:
    """An HTTP client for one server; safe to use from several threads.

    Args:
        name: the catalogue's name, for errors.
        bounds: the bounds of one answer, compressed or not.
        monotonic: the clock of the deadlines.
        client_options: further arguments of ``httpx.Client``. The client follows no redirects, because a
            token is for one server.
    """

    def __init__(
        self,
        name: str,
        bounds: Bounds,
        monotonic: Callable[[], float] = time.monotonic,
        **client_options: Any,  # noqa: ANN401 - httpx's own arguments
    ) -> None:
        self._name = name
        self._bounds = bounds
        self._budget = _ExchangeBudget(monotonic)
        self._large_lock = threading.Lock()
        self._client = httpx.Client(follow_redirects=False, **client_options)
        self._client.headers["Accept-Encoding"] = "gzip"
        for transport in (self._client._transport, *self._client._mounts.values()):
            if isinstance(transport, httpx.HTTPTransport):  # httpx has no option for the backend
                pool: Any = transport._pool
                pool._network_backend = _BudgetedBackend(pool._network_backend, self._budget)

    def exchange(
        self,
        method: str,
        url: str,
        deadline_at: float,
        read: Callable[[RawResponse], T],
        **request_options: Any,  # noqa: ANN401 - httpx's own arguments
    ) -> T:
        """Send a request, receive the answer before *deadline_at* (monotonic), and pass it to *read*.

        *read* should keep only a small part of a large answer. The next large answer waits until *read*
        returns.

        Raises:
            CatalogueGarbled: the answer is too large, or cannot be decompressed.
            CatalogueUnreachable: the answer did not end before *deadline_at*.
            httpx.HTTPError, httpx.InvalidURL: the exchange failed for another reason.
        """
        self._budget.start(deadline_at, _MAX_HEAD_BYTES)
        with ExitStack() as cleanup:
            try:
                with self._client.stream(method, url, **request_options) as response:
                    self._budget.bytes_left += self._bounds.max_bytes
                    content = self._read_content(response, cleanup)
            except (httpx.TimeoutException, httpx.NetworkError, httpx.ProtocolError):
                if self._budget.remaining_seconds() <= 0:
                    raise CatalogueUnreachable(self._name, "its answer did not end in time") from None
                if self._budget.bytes_left <= 0:
                    raise CatalogueGarbled(self._name, "the headers of its answer are too long") from None
                raise
            return read(RawResponse(response.status_code, response.headers, content))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _read_content(self, response: httpx.Response, cleanup: ExitStack) -> bytearray:
        content = bytearray()
        try:
            for piece in _iter_decoded(response):
                if len(content) < _LARGE_BYTES <= len(content) + len(piece):
                    self._wait_for_others(cleanup)
                content += piece
                if len(content) > self._bounds.max_bytes:
                    raise self._bounds.too_many_bytes_error("its answer")
        except (ValueError, zlib.error) as error:
            reason = (
                str(error) if isinstance(error, ValueError) else f"its answer cannot be decompressed: {error}"
            )
            raise CatalogueGarbled(self._name, reason) from None
        return content

    def _wait_for_others(self, cleanup: ExitStack) -> None:
        if not self._large_lock.acquire(timeout=self._budget.remaining_seconds()):
            raise CatalogueUnreachable(
                self._name, "the query waited too long for other large answers of this server"
            )
        cleanup.callback(self._large_lock.release)


def build_ssl_context(file: Path, setting: str) -> ssl.SSLContext:
    """Build a TLS context that trusts the CA certificates in *file*.

    Raises:
        ConfigError: the file cannot be read; the message has the name of the *setting* for this file.
    """
    try:
        return ssl.create_default_context(cafile=str(file))
    except OSError as error:  # SSLError among them
        raise ConfigError([f"{setting} {file}: {error.strerror or error}"]) from error


def _iter_decoded(response: httpx.Response) -> Iterator[bytes]:
    """Yield the decompressed bytes of an answer, in small pieces.

    Raises:
        ValueError: the answer has a Content-Encoding that the request did not accept.
        zlib.error: the answer is not valid gzip, or is incomplete.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if response.is_stream_consumed:  # the transport of a test has already read the whole body
        yield response.content
    elif encoding in {"", "identity"}:
        yield from response.iter_raw()
    elif encoding in {"gzip", "x-gzip"}:
        yield from _gunzip(response.iter_raw())
    else:
        raise ValueError(
            f"its answer has a Content-Encoding that was not asked for: {quote_excerpt(encoding)}"
        )


def _gunzip(pieces: Iterable[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP)
    for piece in pieces:
        rest = piece
        while rest and not unpacker.eof:
            yield unpacker.decompress(rest, _CHUNK_BYTES)
            rest = unpacker.unconsumed_tail
        if unpacker.unused_data:
            raise zlib.error("there is data after the end of the gzip data")
    if not unpacker.eof:
        raise zlib.error("the gzip data is incomplete")


class _ExchangeBudget(threading.local):
    """The remaining time and bytes of the current exchange; each thread has its own exchange."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.start(float("inf"), _MAX_HEAD_BYTES)

    def start(self, deadline_at: float, max_bytes: int) -> None:
        """Start an exchange that must end before *deadline_at* and receive less than *max_bytes*."""
        self.deadline_at, self.bytes_left = deadline_at, max_bytes

    def remaining_seconds(self) -> float:
        """Return the seconds that are left, from 0 to a million (a socket cannot wait longer)."""
        return min(max(0.0, self.deadline_at - self._monotonic()), 1e6)

    def limit_timeout(self, timeout: float | None, error: type[Exception]) -> float:
        """Return *timeout*, or the remaining time if it is shorter; raise *error* if no time remains."""
        seconds_left = self.remaining_seconds()
        if seconds_left <= 0:
            raise error("the time limit of this query is over")
        return seconds_left if timeout is None else min(timeout, seconds_left)

    def count_bytes(self, count: int) -> None:
        """Count received bytes; raise httpcore.ReadError if the exchange received too many bytes."""
        self.bytes_left -= count
        if self.bytes_left <= 0:
            raise httpcore.ReadError("the server sends more bytes than the limit of its answer")


class _BudgetedBackend(httpcore.NetworkBackend):
    """A network backend of httpcore; its connections observe the limits of *budget*."""

    def __init__(self, real: httpcore.NetworkBackend, budget: _ExchangeBudget) -> None:
        self._real, self._budget = real, budget

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        timeout = self._budget.limit_timeout(timeout, httpcore.ConnectTimeout)
        stream = self._real.connect_tcp(host, port, timeout, local_address, socket_options)
        return _BudgetedStream(stream, self._budget)

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        timeout = self._budget.limit_timeout(timeout, httpcore.ConnectTimeout)
        return _BudgetedStream(self._real.connect_unix_socket(path, timeout, socket_options), self._budget)

    def sleep(self, seconds: float) -> None:
        self._real.sleep(seconds)


class _BudgetedStream(httpcore.NetworkStream):
    """A connection that counts received bytes, and limits each read and write to the remaining time."""

    def __init__(self, real: httpcore.NetworkStream, budget: _ExchangeBudget) -> None:
        self._real, self._budget = real, budget

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._real.read(max_bytes, self._budget.limit_timeout(timeout, httpcore.ReadTimeout))
        self._budget.count_bytes(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._real.write(buffer, self._budget.limit_timeout(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._real.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        timeout = self._budget.limit_timeout(timeout, httpcore.ConnectTimeout)
        return _BudgetedStream(self._real.start_tls(ssl_context, server_hostname, timeout), self._budget)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - httpcore's own
        return self._real.get_extra_info(info)

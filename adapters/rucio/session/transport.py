"""Transport to Rucio: read data in larger pieces, end queries at a deadline, reject unusable responses.

Rucio sends each row of a bulk answer as soon as the row is ready, some 300 bytes at a time. A reader that
reads each piece at once wakes for every row, and uses processor time that a server on the same machine needs.
rucio-clients itself reads and decompresses each answer to its end, with no limit.
"""

import http.client
import io
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import requests
import requests.adapters
import urllib3
import urllib3.connection
import urllib3.connectionpool

from adapters.bounded_json import Bounds, TooLarge, decode, decode_row
from adapters.http.rate_limiter import HttpRateLimiter, http_date
from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.ports import TokenValidity
from hydrator.domain.redaction import SECRETS, sanitize
from hydrator.domain.text import reason_of

from .auth import ExternalToken, IssuedToken, OidcToken
from .settings import RucioSettings

JSON_STREAM = "application/x-json-stream"
_CHUNK_BYTES = 65_536
_MAX_ROW_BYTES = 1_000_000
_CONTENT_ENCODINGS = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})


class _SizeLimitedBody:
    """A raw urllib3 response that raises an error if its body exceeds *bounds*."""

    def __init__(self, raw: Any, name: str, bounds: Bounds) -> None:  # noqa: ANN401 - urllib3's
        self._raw, self._name, self.bounds = raw, name, bounds

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401 - urllib3's
        return getattr(self._raw, attribute)

    def stream(self, _amount: int = _CHUNK_BYTES, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yield the decompressed body; raise CatalogueGarbled if it is too large."""
        size = values = 0
        for piece in self._raw.stream(_CHUNK_BYTES, decode_content=decode_content):
            size += len(piece)
            values += piece.count(b",") + piece.count(b"\n")
            if size > self.bounds.max_bytes:
                raise CatalogueGarbled(self._name, str(self.bounds.too_many_bytes_error("its answer")))
            if values > self.bounds.max_values:
                raise CatalogueGarbled(self._name, str(self.bounds.too_many_values_error("its answer")))
            yield piece


class _StreamedResponse(requests.Response):
    """A streamed response: the library ``requests`` leaves its body unread for :func:`iter_rows`."""

    @property
    def content(self) -> bytes:
        """Return an empty body; :func:`iter_rows` reads the real body."""
        return b""

    @property
    def text(self) -> str:
        """Return the whole body, for a caller that expects one document, not rows."""
        self.raw.bounds = self.raw.bounds.quarter()
        return b"".join(self.iter_content(_CHUNK_BYTES)).decode("utf-8", "replace")


def is_login(request: requests.PreparedRequest) -> bool:
    """Return whether *request* asks Rucio for a token."""
    return "/auth/" in str(request.url)


def limit_response(response: requests.Response, name: str, bounds: Bounds) -> None:
    """Limit *response* to *bounds*; if it is one document and not a stream of rows, to a quarter of *bounds*.

    Raises:
        CatalogueGarbled: the response is too large, or has an encoding that the request did not accept.
    """
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in _CONTENT_ENCODINGS:
        raise CatalogueGarbled(
            name, f"its answer has a Content-Encoding that was not asked for: {encoding[:80]!a}"
        )
    if response.status_code == 200 and response.headers.get("Content-Type") == JSON_STREAM:
        response.raw = _SizeLimitedBody(response.raw, name, bounds)
        response.__class__ = _StreamedResponse
        return
    small = bounds.quarter()
    response.raw = _SizeLimitedBody(response.raw, name, small)
    # without an encoding, the library ``requests`` would try encodings for minutes
    response.encoding = response.encoding or "utf-8"
    if response.status_code != 200 or is_login(response.request):  # these are not decoded
        return
    try:
        decode(response.content, small)
    except TooLarge as error:
        raise CatalogueGarbled(name, f"its answer: {error}") from None
    except ValueError:
        return  # the body is not JSON: the caller reports this


def iter_rows(response: requests.Response) -> Iterator[Any]:
    """Yield the records of an answer, one per line; leave dates as texts.

    rucio-clients itself would search every text of every record for a date. This search takes five times
    as long as all other steps of reading an answer.

    Raises:
        ValueError: a line is not JSON, or too long.
    """
    try:
        for line in _iter_lines(response.iter_content(_CHUNK_BYTES)):
            if line:
                yield decode_row(line)
    finally:
        response.close()  # a caller may stop at an unreadable row


def _iter_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _MAX_ROW_BYTES:
            raise ValueError(f"a row is longer than {_MAX_ROW_BYTES} bytes")
        yield from lines
    yield rest


_NO_REFUSALS = frozenset({"CannotAuthenticate", "DatabaseException"})


class WriteRefused(CatalogueError):
    """Rucio refused a write and changed nothing; *kind* is its name of the reason."""

    def __init__(self, catalogue: str, kind: str, reason: str) -> None:
        super().__init__(catalogue, reason)
        self.kind = kind


class WriteUnconfirmed(CatalogueUnreachable):
    """A write without a usable answer: the server may or may not have executed it."""


def unanswered_write_error(name: str, exc: requests.RequestException, reason: str) -> CatalogueUnreachable:
    """Return the error for a write that failed with *exc*.

    A write was certainly not sent if there was no connection to the server; otherwise its outcome is unknown.
    """
    cause = exc.args[0] if exc.args else None
    is_unsent = isinstance(exc, requests.ConnectTimeout | requests.exceptions.SSLError) or isinstance(
        getattr(cause, "reason", None), urllib3.exceptions.NewConnectionError
    )
    return (CatalogueUnreachable if is_unsent else WriteUnconfirmed)(name, reason)


def write_error(
    name: str, response: requests.Response, unusable: CatalogueError | None
) -> CatalogueError | None:
    """Return the error of a write that Rucio refused, or whose outcome is unknown; None for other answers.

    Rucio rolls its transaction back before it names an exception, whatever the status: a closed RSE has the
    status 500. Without such a name, a status from 500 on may come from a proxy that waited in vain.

    Args:
        unusable: the reason why an answer with status 200 is not one of Rucio.
    """
    status = response.status_code
    if status == 201 or (status == 200 and unusable is None):
        return None  # Rucio calls the JSON of a 201 text/html, too
    if status == 200 and unusable:
        return WriteUnconfirmed(name, unusable.reason)
    kind = sanitize(response.headers.get("ExceptionClass", ""), 100)
    message = " ".join(sanitize(response.headers.get("ExceptionMessage", ""), 300).split())
    if status >= 400 and kind and kind not in _NO_REFUSALS:
        return WriteRefused(name, kind, message or kind)
    if status not in range(400, 500):
        return WriteUnconfirmed(name, f"HTTP {status} {kind} {message}".strip())
    return None


_COALESCE_AFTER_READS = 4  # short answers are complete after so many reads: read them without a wait
_COALESCE_SECONDS = 0.002
_BUFFER_BYTES = 1 << 18
_MAX_LINE_BYTES = 65_536
_MAX_STATUS_LINES = 10


class CoalescingReader(io.RawIOBase):
    """A reader of *source*: in a long answer, it waits a moment if no data has arrived yet.

    Args:
        source: the stream to read.
        is_ready: returns whether there is data to read now, or the stream has ended.
        wait: a function that waits a moment.
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
    """A reader that limits the length of a line, because urllib3 sets no limit."""

    def readline(self, size: int | None = -1, /) -> bytes:
        if size is not None and size >= 0:
            return super().readline(size)
        line = super().readline(_MAX_LINE_BYTES + 1)
        if len(line) > _MAX_LINE_BYTES:
            raise http.client.LineTooLong("line of a chunk")
        return line


class CoalescedResponse(http.client.HTTPResponse):
    """A response that is read in larger pieces; at most 10 status lines (``100 Continue``) may precede it."""

    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        reader = CoalescingReader(
            self.fp.detach(), lambda: bool(poller.poll(0)), lambda: time.sleep(_COALESCE_SECONDS)
        )
        self.fp = _BoundedLineReader(reader, _BUFFER_BYTES)
        self._status_lines = 0

    def _read_status(self) -> tuple[str, int, str]:
        self._status_lines += 1
        if self._status_lines > _MAX_STATUS_LINES:
            raise http.client.HTTPException("the server sends 100 Continue without end")
        return super()._read_status()  # type: ignore[misc, no-any-return]


_MAX_PAUSE_SECONDS = 10.0  # if the server asks for a longer pause, queries fail without a wait


class InvalidRequest(CatalogueGarbled):
    """HTTP 400: Rucio rejects this query, because of one of its DIDs."""


class ServerFault(CatalogueUnreachable):
    """HTTP 500: Rucio failed on this query, perhaps because of one of its DIDs."""


class Forbidden(CatalogueDenied):
    """HTTP 403: Rucio does not allow this query, perhaps because of one of its DIDs."""


class NotFound(CatalogueGarbled):
    """HTTP 404: Rucio does not have the DID, RSE or rule of the query. This may be a valid answer."""


class Deadline:
    """A deadline for all queries of a poll; when it passes, it shuts all sockets given to :meth:`watch`."""

    def __init__(self) -> None:
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._ends_at = float("inf")
        self._has_passed = False
        self.seconds = 0.0

    @contextmanager
    def start(self, seconds: float) -> Iterator[None]:
        """Limit the ``with`` block to *seconds*."""
        self._has_passed, self._ends_at, self.seconds = False, time.monotonic() + seconds, seconds
        timer = threading.Timer(seconds, self.expire_now)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._ends_at = float("inf")

    @property
    def remaining_seconds(self) -> float:
        """Return the seconds until the deadline; never negative."""
        return 0.0 if self.has_passed() else max(0.0, self._ends_at - time.monotonic())

    def has_passed(self) -> bool:
        """Return whether the deadline has passed; a timer thread sets this."""
        return self._has_passed

    def watch(self, connection: socket.socket | None) -> None:
        """Shut the socket *connection* at the deadline."""
        if connection is not None:
            with self._lock:
                self._sockets.add(connection)
        if self.has_passed():
            self.expire_now()

    def expire_now(self) -> None:
        """End all running queries now: shut their sockets."""
        self._has_passed = True
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            try:
                # SSLSocket.shutdown would remove the TLS state while another thread reads
                socket.socket.shutdown(each, socket.SHUT_RDWR)
            except OSError:
                continue


def _build_pool_classes(deadline: Deadline) -> dict[str, type[urllib3.connectionpool.HTTPConnectionPool]]:
    """Build classes of urllib3 connection pools, by scheme; *deadline* watches their connections."""

    class Plain(urllib3.connection.HTTPConnection):
        response_class = CoalescedResponse

        def connect(self) -> None:
            super().connect()
            deadline.watch(self.sock)

    class Tls(urllib3.connection.HTTPSConnection):
        response_class = CoalescedResponse

        def connect(self) -> None:
            super().connect()
            deadline.watch(self.sock)

    class PlainPool(urllib3.connectionpool.HTTPConnectionPool):
        ConnectionCls = Plain

    class TlsPool(urllib3.connectionpool.HTTPSConnectionPool):
        ConnectionCls = Tls

    return {"http": PlainPool, "https": TlsPool}


@dataclass
class SharedSession:
    """Shared state of all connections to one server: rate limit, deadline, a token not from Rucio."""

    rate_limiter: HttpRateLimiter
    token_source: ExternalToken | OidcToken
    deadline: Deadline = field(default_factory=Deadline)
    token: str | None = field(default=None, repr=False)
    """The token that Rucio did not issue; None where rucio-clients logs in."""


class Transport(requests.adapters.HTTPAdapter):
    """The HTTP adapter for the requests of rucio-clients; it rejects unusable responses."""

    def __init__(self, settings: RucioSettings, shared: SharedSession) -> None:
        self.status = 0
        self.last_failure = ""
        self._is_writing = False
        self.sent_token: str | None = None
        """The token of the last request, where Rucio did not issue it."""
        self._issued_token = IssuedToken.of_login(settings)
        self.server_time: datetime | None = None
        self.token_validity: TokenValidity | None = None
        self.deadline = shared.deadline
        self.bounds = Bounds(settings.max_bytes, settings.max_values)
        """The bounds of one answer."""
        self._settings = settings
        self._shared = shared
        self._rate_limiter = shared.rate_limiter
        self._pool_classes = _build_pool_classes(shared.deadline)
        self._responses: weakref.WeakSet[requests.Response] = weakref.WeakSet()
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (requests' own)
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pool_classes

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (requests' own)
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pool_classes
        return manager

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:  # noqa: ANN401
        """Send *request*.

        Raises:
            CatalogueError: the deadline has passed, or the response is one that rucio-clients would handle
                wrongly: by a retry, a wrong result, or a question on the terminal.
        """
        if self.deadline.has_passed():
            raise self.deadline_error()
        self._wait_for_turn()
        self._set_headers(request)
        self.status, self.last_failure = 0, ""
        try:
            response = super().send(request, *args, **kwargs)
        except requests.RequestException as exc:
            self.last_failure = reason_of(exc)  # rucio-clients drops it
            if self._is_write(request):
                raise unanswered_write_error(self._settings.name, exc, self.last_failure) from None
            raise
        self.status = response.status_code
        issued = response.headers.get("X-Rucio-Auth-Token")
        SECRETS.keep(issued)
        if is_login(request):
            self._issued_token.value = issued
        self.server_time = http_date(response.headers.get("Date")) or self.server_time
        if ends := http_date(response.headers.get("X-Rucio-Auth-Token-Expires")):
            self.token_validity = TokenValidity(self.server_time, ends)
        is_write = self._is_write(request)
        if self._should_wait_and_retry(response) and not is_write:
            response.close()
            return self.send(request, *args, **kwargs)
        if failure := self._write_error(response) if is_write else self._read_error(response):
            response.close()
            raise failure
        self._responses.add(response)
        limit_response(response, self._settings.name, self.bounds)
        return response

    def _set_headers(self, request: requests.PreparedRequest) -> None:
        self.sent_token = self._shared.token
        token = self.sent_token or (None if is_login(request) else self._issued_token.value)
        if token is not None:
            request.headers["X-Rucio-Auth-Token"] = token
        request.headers["Accept-Encoding"] = "gzip"

    def close_responses(self) -> None:
        """Close all responses, also those that were refused or not read to their end."""
        for response in list(self._responses):
            response.close()
        self._responses.clear()

    @contextmanager
    def write(self) -> Iterator[None]:
        """Send each request of the ``with`` block at most once, on a new connection.

        rucio-clients sends a request again after a lost connection or a 502, 503 or 504. A server may close
        an idle connection at any time, so a write on an old connection would often have no answer.
        """
        self.poolmanager.clear()
        self._is_writing = True
        try:
            yield
        finally:
            self._is_writing = False

    def _write_error(self, response: requests.Response) -> CatalogueError | None:
        unusable = self._unusable_response_error(response)
        return write_error(self._settings.name, response, unusable) or self._response_error(response)

    def _read_error(self, response: requests.Response) -> CatalogueError | None:
        return self.deadline_error() if self.deadline.has_passed() else self._response_error(response)

    def _is_write(self, request: requests.PreparedRequest) -> bool:
        return self._is_writing and not is_login(request)

    def _wait_for_turn(self) -> None:
        """Wait until the rate limiter allows a call; raise an error if a pause is too long for this poll."""
        if self._rate_limiter.pause_seconds > min(_MAX_PAUSE_SECONDS, self.deadline.remaining_seconds):
            raise CatalogueUnreachable(
                self._settings.name,
                f"the server asked for a pause; {self._rate_limiter.pause_seconds:.0f} s are left",
            )
        self._rate_limiter.wait_for_turn()

    def _should_wait_and_retry(self, response: requests.Response) -> bool:
        """Return whether the server asked for a pause that is short enough for this poll to wait."""
        after = response.headers.get("Retry-After")
        is_refusal = self._rate_limiter.record_response(response.status_code, after, self.server_time)
        longest = min(_MAX_PAUSE_SECONDS, self.deadline.remaining_seconds)
        return is_refusal and after is not None and self._rate_limiter.pause_seconds <= longest

    def deadline_error(self) -> CatalogueUnreachable:
        """Return the error for a query that did not end before the deadline."""
        reason = f"no complete answer within {self.deadline.seconds:g} s"
        return CatalogueUnreachable(self._settings.name, reason)

    def _response_error(self, response: requests.Response) -> CatalogueError | None:
        name, status = self._settings.name, response.status_code
        reason = f"HTTP {status}{_error_text(response)}"
        if status == 503 and "Retry-After" in response.headers:
            return CatalogueUnreachable(name, reason)
        if status in {502, 503, 504} or (status == 401 and self._shared.token is None):
            return None  # rucio-clients retries, or logs in again
        if status in {401, 403}:
            forbidden = status == 403 or response.headers.get("ExceptionClass") == "AccessDenied"
            kind = Forbidden if forbidden and not is_login(response.request) else CatalogueDenied
            return kind(name, reason)
        if response.headers.get("ExceptionClass") == "InvalidObject":
            return InvalidRequest(name, reason)  # the status is 400, but 500 from get_metadata_bulk
        if status == 500:
            return ServerFault(name, reason)
        if status == 429 or status > 500:
            return CatalogueUnreachable(name, reason)
        if 300 <= status < 400:
            target = sanitize(response.headers.get("Location", "nowhere"), 200)
            return CatalogueGarbled(name, f"HTTP {status}: a redirect to {target}; set url to that address")
        if status == 200:
            return self._unusable_response_error(response)
        return None

    def _unusable_response_error(self, response: requests.Response) -> CatalogueError | None:
        kind = response.headers.get("Content-Type", "")
        if "html" in kind and response.headers.get("Content-Length") != "0":  # Rucio confirms a write so
            return CatalogueGarbled(self._settings.name, f"the answer is a web page ({kind}), not data")
        if is_login(response.request) and "X-Rucio-Auth-Token" not in response.headers:
            return CatalogueGarbled(self._settings.name, "the answer to the login has no token")
        chunked = "chunked" in response.headers.get("Transfer-Encoding", "")
        if not chunked and "Content-Length" not in response.headers:
            return CatalogueGarbled(self._settings.name, "the answer has no length, so it may be incomplete")
        return None


def _error_text(response: requests.Response) -> str:
    """Return Rucio's own error text from the headers, on one line."""
    parts = [sanitize(response.headers.get(key, ""), 150) for key in ("ExceptionClass", "ExceptionMessage")]
    return "".join(f" {word}" for part in parts for word in part.split())

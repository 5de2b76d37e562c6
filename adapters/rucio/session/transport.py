"""Transport to Rucio: read data in larger pieces, end queries at a deadline, reject unusable responses.

Rucio sends each row of a bulk answer as soon as the row is ready, some 300 bytes at a time. A reader that
reads each piece at once wakes for every row, and uses processor time that a server on the same machine needs.
"""

import http.client
import io
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import requests
import requests.adapters
import urllib3
import urllib3.connection
import urllib3.connectionpool

from adapters.bounded_json import Bounds
from adapters.http.headers import http_date
from adapters.http.rate_limiter import HttpRateLimiter
from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.ports import TokenValidity
from hydrator.domain.redaction import SECRETS, sanitize
from hydrator.domain.text import reason_of

from .auth import ExternalToken, IssuedToken, OidcToken
from .bodies import is_login, limit_response
from .settings import RucioSettings
from .writes import unanswered_write_error, write_error

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

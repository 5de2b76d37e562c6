"""Answers that come row by row, read in gulps.

Rucio sends a bulk answer as it makes it, some 300 bytes at a time. Who looks whenever there is
something wakes for every row, and takes the processor from a server that shares the machine.
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
from adapters.rucio.session.auth import ExternalToken, OidcToken
from adapters.rucio.session.bodies import limit_response
from adapters.rucio.session.rate_limiter import RucioRateLimiter
from adapters.rucio.session.settings import RucioSettings as RucioSettings
from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.ports import TokenValidity
from hydrator.domain.redaction import SECRETS, sanitize
from hydrator.domain.text import reason_of

_COALESCE_AFTER_READS = 4  # looks: a short answer is whole by then, and never waits
_COALESCE_SECONDS = 0.002
_BUFFER_BYTES = 1 << 18
_MAX_LINE_BYTES = 65_536
_MAX_STATUS_LINES = 10


class CoalescingReader(io.RawIOBase):
    """Reads *source*; of a long answer it lets a little come together where nothing is there yet.

    Args:
        source: what is read.
        ready: whether there is something to read now, or it has ended.
        wait: waits a moment.
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
    """A reader whose lines end: urllib3 asks for lines of any length, and a server may send one."""

    def readline(self, size: int | None = -1, /) -> bytes:
        if size is not None and size >= 0:
            return super().readline(size)
        line = super().readline(_MAX_LINE_BYTES + 1)
        if len(line) > _MAX_LINE_BYTES:
            raise http.client.LineTooLong("line of a chunk")
        return line


class CoalescedResponse(http.client.HTTPResponse):
    """An answer that is read in gulps, and that begins: ``100 Continue`` may come before it, not for ever."""

    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        look = select.poll()
        look.register(sock, select.POLLIN)
        gulps = CoalescingReader(
            self.fp.detach(), lambda: bool(look.poll(0)), lambda: time.sleep(_COALESCE_SECONDS)
        )
        self.fp = _BoundedLineReader(gulps, _BUFFER_BYTES)
        self._status_lines = 0

    def _read_status(self) -> tuple[str, int, str]:
        self._status_lines += 1
        if self._status_lines > _MAX_STATUS_LINES:
            raise http.client.HTTPException("it says 100 Continue, and goes on to say so")
        return super()._read_status()  # type: ignore[misc, no-any-return]


_MAX_PAUSE_SECONDS = 10.0  # seconds a poll waits when it is told to; beyond, the next poll asks


class InvalidRequest(CatalogueGarbled):
    """Rucio will not take this question; asked DID by DID, one of them is to blame."""


class ServerFault(CatalogueUnreachable):
    """HTTP 500: Rucio failed over this question; it may be over one of the DIDs in it."""


class Forbidden(CatalogueDenied):
    """Rucio does not allow this question; it may be one of the DIDs in it that we may not ask about."""


class NotFound(CatalogueGarbled):
    """Rucio knows no such DID, RSE or rule: an answer, where one may be missing."""


class Deadline:
    """Ends whatever is still going on when its time is up, by shutting the sockets it watches."""

    def __init__(self) -> None:
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._ends_at = float("inf")
        self._has_passed = False
        self.seconds = 0.0

    @contextmanager
    def start(self, seconds: float) -> Iterator[None]:
        """Give what runs inside *seconds*."""
        self._has_passed, self._ends_at, self.seconds = False, time.monotonic() + seconds, seconds
        timer = threading.Timer(seconds, self._shut_sockets)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._ends_at = float("inf")

    @property
    def remaining_seconds(self) -> float:
        """Seconds left; never negative."""
        return 0.0 if self.has_passed() else max(0.0, self._ends_at - time.monotonic())

    def has_passed(self) -> bool:
        """Is the time up?"""
        return self._has_passed

    def watch(self, connection: socket.socket | None) -> None:
        """Shut *connected* when the time is up."""
        if connection is not None:
            with self._lock:
                self._sockets.add(connection)
        if self.has_passed():
            self._shut_sockets()

    def expire_now(self) -> None:
        """End what is going on now."""
        self._shut_sockets()

    def _shut_sockets(self) -> None:
        self._has_passed = True
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            try:
                # not SSLSocket.shutdown: it takes the TLS state from under the thread that reads
                socket.socket.shutdown(each, socket.SHUT_RDWR)
            except OSError:
                continue


def _build_pool_classes(deadline: Deadline) -> dict[str, type[urllib3.connectionpool.HTTPConnectionPool]]:
    """urllib3's connection pools, by scheme, with connections that *deadline* watches."""

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
    """What all lines to one server share: how often it is asked, until when, and a *token* made elsewhere."""

    rate_limiter: RucioRateLimiter
    token_source: ExternalToken | OidcToken
    deadline: Deadline = field(default_factory=Deadline)
    token: str | None = field(default=None, repr=False)


class Transport(requests.adapters.HTTPAdapter):
    """Carries rucio-clients' requests; refuses answers that must not be taken for answers."""

    def __init__(self, settings: RucioSettings, shared: SharedSession) -> None:
        self.status = 0
        self.last_failure = ""
        self.sent_token: str | None = None
        """The token of the last request, where it was made elsewhere."""
        self.server_time: datetime | None = None
        self.token_validity: TokenValidity | None = None
        self._settings = settings
        self._shared = shared
        self._pool_classes = _build_pool_classes(shared.deadline)
        super().__init__()

    @property
    def deadline(self) -> Deadline:
        return self._shared.deadline

    @property
    def bounds(self) -> Bounds:
        """The bounds of one answer."""
        return Bounds(self._settings.max_bytes, self._settings.max_values)

    @property
    def token(self) -> str | None:
        """The token that was made elsewhere; None where rucio-clients logs in."""
        return self._shared.token

    @property
    def _rate_limiter(self) -> RucioRateLimiter:
        return self._shared.rate_limiter

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
            CatalogueError: the time is up, or the answer is one of those that
                rucio-clients would retry, misread or ask a person about.
        """
        if self.deadline.has_passed():
            raise self.deadline_error()
        self._wait_for_turn()
        self.sent_token = self.token
        if self.sent_token is not None:
            request.headers["X-Rucio-Auth-Token"] = self.sent_token
        request.headers["Accept-Encoding"] = "gzip"
        self.status, self.last_failure = 0, ""
        try:
            response = super().send(request, *args, **kwargs)
        except requests.RequestException as exc:
            self.last_failure = reason_of(exc)  # rucio-clients keeps it to itself
            raise
        self.status = response.status_code
        SECRETS.keep(response.headers.get("X-Rucio-Auth-Token"))
        self.server_time = http_date(response.headers.get("Date")) or self.server_time
        if ends := http_date(response.headers.get("X-Rucio-Auth-Token-Expires")):
            self.token_validity = TokenValidity(self.server_time, ends)
        if self._should_wait_and_retry(response):
            response.close()
            return self.send(request, *args, **kwargs)
        failure = self.deadline_error() if self.deadline.has_passed() else self._response_error(response)
        if failure:
            response.close()
            raise failure
        limit_response(response, self._settings.name, self.bounds)
        return response

    def _wait_for_turn(self) -> None:
        """Wait for our turn; while the server wants to be let alone for long, none comes in this poll."""
        if self._rate_limiter.pause_seconds > min(_MAX_PAUSE_SECONDS, self.deadline.remaining_seconds):
            raise CatalogueUnreachable(
                self._settings.name,
                f"it asked us to let it alone; {self._rate_limiter.pause_seconds:.0f} s are left",
            )
        self._rate_limiter.wait_for_turn()

    def _should_wait_and_retry(self, response: requests.Response) -> bool:
        """Whether it refused for now and the wait it wants fits into this poll."""
        after = response.headers.get("Retry-After")
        if response.status_code == 429 or (response.status_code == 503 and after is not None):
            self._rate_limiter.record_refusal(after, self.server_time)
            return after is not None and self._rate_limiter.pause_seconds <= min(
                _MAX_PAUSE_SECONDS, self.deadline.remaining_seconds
            )
        self._rate_limiter.record_answer()
        return False

    def deadline_error(self) -> CatalogueUnreachable:
        """The error to raise when the time is up."""
        within = f"{self.deadline.seconds:g} s"
        return CatalogueUnreachable(self._settings.name, f"no complete answer within {within}")

    def _response_error(self, response: requests.Response) -> CatalogueError | None:
        name, status = self._settings.name, response.status_code
        said = f"HTTP {status}{_error_text(response)}"
        if status == 503 and "Retry-After" in response.headers:
            return CatalogueUnreachable(name, said)
        if status in {502, 503, 504} or (status == 401 and self.token is None):
            return None  # rucio-clients tries again, or logs in again
        if status in {401, 403}:
            forbidden = status == 403 or response.headers.get("ExceptionClass") == "AccessDenied"
            kind = Forbidden if forbidden and "/auth/" not in response.url else CatalogueDenied
            return kind(name, said)
        if response.headers.get("ExceptionClass") == "InvalidObject":
            return InvalidRequest(name, said)  # HTTP 400 or, from get_metadata_bulk, 500
        if status == 500:
            return ServerFault(name, said)
        if status == 429 or status > 500:
            return CatalogueUnreachable(name, said)
        if 300 <= status < 400:
            where = response.headers.get("Location", "nowhere")
            return CatalogueGarbled(
                name, f"HTTP {status}: it sends us to {sanitize(where, 200)}; configure that address"
            )
        if status == 200:
            return self._unusable_response_error(response)
        return None

    def _unusable_response_error(self, response: requests.Response) -> CatalogueError | None:
        kind = response.headers.get("Content-Type", "")
        if "html" in kind:
            return CatalogueGarbled(self._settings.name, f"answered a web page ({kind}), not data")
        if "/auth/" in response.url and "X-Rucio-Auth-Token" not in response.headers:
            return CatalogueGarbled(self._settings.name, "the login was answered without a token")
        chunked = "chunked" in response.headers.get("Transfer-Encoding", "")
        if not chunked and "Content-Length" not in response.headers:
            return CatalogueGarbled(self._settings.name, "an answer without a length: its end cannot be told")
        return None


def _error_text(response: requests.Response) -> str:
    """What Rucio says about a failure, in its headers, on one line."""
    parts = [sanitize(response.headers.get(key, ""), 150) for key in ("ExceptionClass", "ExceptionMessage")]
    return "".join(f" {word}" for part in parts for word in part.split())

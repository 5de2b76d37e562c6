"""JSON over HTTP, once for all: limits of time, size and rate, retries, and failures as our errors."""

import math
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import httpx
import stamina

from adapters.bounded_json import Bounds, TooLarge, decode
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
    ConfigError,
)
from hydrator.domain.ports import TokenValidity
from hydrator.domain.redaction import SECRETS
from hydrator.domain.text import reason_of

from .bounded_exchange import BoundedHttpClient, RawResponse
from .headers import MAX_PAUSE_SECONDS, http_date, retry_after

_SECRETS = re.compile(r"(?i)((?:access_|refresh_)?token=)[^&\s\"']+|eyJ[\w-]{8,}(?:\.[\w-]*){0,2}")
_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_BUSY_STATUSES = frozenset({429, 503})
_MAX_DETAIL_CHARS = 400
_MAX_ERROR_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What one server may cost us, and we it.

    ``timeout`` is for one read of a socket, ``deadline`` for one question with all its attempts;
    ``pause`` is how long the first of ``attempts`` waits for the second. An answer has at most
    ``max_bytes``, packed or not, and ``max_values`` JSON values.
    """

    timeout: timedelta = timedelta(seconds=15)
    deadline: timedelta = timedelta(seconds=60)
    attempts: int = 3
    pause: timedelta = timedelta(seconds=0.5)
    max_bytes: int = 16_000_000
    max_values: int = 500_000
    calls_per_second: float = 20.0

    @property
    def bounds(self) -> Bounds:
        """The bounds of one answer."""
        return Bounds(self.max_bytes, self.max_values)


class TokenSource(Protocol):
    """Where a token comes from."""

    @property
    def token_validity(self) -> TokenValidity | None:
        """How long the one is good that we have; None where it is not ours to renew."""

    def token(self) -> str:
        """One that is good now. Raises CatalogueError."""

    def renew(self, refused_token: str) -> str:
        """Another than *refused*. Raises CatalogueError where there is none."""

    def close(self) -> None:
        """Let go of connections, and forget it."""


@dataclass(frozen=True, slots=True)
class JsonResponse:
    """What a server said: ``body`` is its JSON where the status is 200; ``more``: it named a next page."""

    status: int
    body: Any
    detail: str = ""
    has_next_page: bool = False


class _RetryableError(Exception):
    def __init__(self, error: CatalogueError, retry_after_seconds: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after_seconds = retry_after_seconds


class HttpRateLimiter:
    """So many calls a second in the long run; all wait together when the server asks for a pause."""

    def __init__(
        self,
        calls_per_second: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gap_seconds = 1.0 / calls_per_second
        self._next_call_at = 0.0
        self._lock = threading.Lock()
        self._monotonic, self._sleep = monotonic, sleep

    def wait_for_turn(self, within_seconds: float) -> bool:
        """Wait for our turn; False at once where it would not come *within* so many seconds."""
        with self._lock:
            now = self._monotonic()
            turn = max(self._next_call_at, now)
            if turn > now + within_seconds:
                return False
            self._next_call_at = turn + self._gap_seconds
        if turn > now:
            self._sleep(turn - now)
        return True

    def pause_for(self, seconds: float) -> None:
        """Nobody calls for *seconds*."""
        with self._lock:
            self._next_call_at = max(self._next_call_at, self._monotonic() + min(seconds, MAX_PAUSE_SECONDS))


class JsonClient:
    """One server under *url*; safe to use from several threads.

    Args:
        name: the catalogue's, for errors.
        url: what stands before every path.
        bearer: where our token comes from; None: none is sent.
        ca_cert: who signed its certificate; None: whom the system trusts.
        transport, monotonic, pace: for tests.

    Raises:
        ConfigError: *ca_cert* cannot be read.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        token_source: TokenSource | None = None,
        limits: HttpLimits = HttpLimits(),
        ca_cert: Path | None = None,
        transport: httpx.BaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        rate_limiter: HttpRateLimiter | None = None,
    ) -> None:
        self.name = name
        self._url = url.rstrip("/")
        self._token_source = token_source
        self._limits = limits
        self._monotonic = monotonic
        self._rate_limiter = rate_limiter or HttpRateLimiter(limits.calls_per_second, monotonic)
        self._http = BoundedHttpClient(
            name,
            limits.bounds,
            monotonic,
            headers={"Accept": "application/json"},
            verify=_build_ssl_context(name, ca_cert) if ca_cert else True,
            timeout=limits.timeout.total_seconds(),
            transport=transport,
        )

    def get(
        self,
        path: str,
        params: Mapping[str, str | int] | None = None,
        *,
        within_seconds: float = math.inf,
        read: Callable[[Any], Any] = lambda body: body,
    ) -> JsonResponse:
        """Ask for *path*; the answer is 200, with JSON, or 404, which the caller must judge.

        Args:
            path: what is asked for.
            params: of its query.
            within: seconds to give up after, where that is sooner than our own deadline.
            read: makes the answer's ``body`` of the JSON of a 200; of a large one it should keep little.

        Raises:
            CatalogueError: anything else, after the attempts that make sense.
        """
        return self._request("GET", path, within_seconds, read, params=dict(params or {}))

    def post(self, path: str, data: Mapping[str, str], basic_auth: tuple[str, str]) -> JsonResponse:
        """Send a form with a name and a password; see :meth:`http_get`."""
        return self._request("POST", path, math.inf, lambda body: body, data=dict(data), auth=basic_auth)

    @property
    def token_validity(self) -> TokenValidity | None:
        """How long the token is good that we were given; None without one that we renew."""
        return self._token_source.token_validity if self._token_source else None

    def close(self) -> None:
        """Let go of connections and of the token."""
        self._http.close()
        if self._token_source:
            self._token_source.close()

    def _request(
        self,
        method: str,
        path: str,
        within_seconds: float,
        read: Callable[[Any], Any],
        **request_options: Any,  # noqa: ANN401 - httpx's own arguments
    ) -> JsonResponse:
        within_seconds = max(0.0, min(within_seconds, self._limits.deadline.total_seconds()))
        until = self._monotonic() + within_seconds
        try:
            for attempt in stamina.retry_context(
                on=_retry_wait,
                attempts=self._limits.attempts,
                timeout=max(within_seconds, 0.001),
                wait_initial=self._limits.pause,
                wait_max=10.0,
            ):
                with attempt:
                    return self._request_once(method, path, until, read, request_options)
        except _RetryableError as last:
            raise last.error from None
        raise AssertionError("stamina ends by an answer or an error")

    def _request_once(
        self,
        method: str,
        path: str,
        deadline_at: float,
        read: Callable[[Any], Any],
        request_options: dict[str, Any],
    ) -> JsonResponse:
        token = self._token_source.token() if self._token_source else None
        answer = self._exchange(method, path, deadline_at, read, request_options, token)
        if answer.status == 401 and self._token_source and token:
            # a service behind this one may have said so, which looks the same: one renewal, no more
            answer = self._exchange(
                method, path, deadline_at, read, request_options, self._token_source.renew(token)
            )
        if answer.status == 401:
            raise CatalogueDenied(self.name, answer.detail)
        return answer

    def _exchange(
        self,
        method: str,
        path: str,
        deadline_at: float,
        read: Callable[[Any], Any],
        request_options: dict[str, Any],
        token: str | None,
    ) -> JsonResponse:
        if not self._rate_limiter.wait_for_turn(deadline_at - self._monotonic()):
            raise CatalogueUnreachable(self.name, "it asked us to slow down, and our time for it is over")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            return self._http.exchange(
                method,
                self._url + path,
                deadline_at,
                lambda received: self._check_response(received, deadline_at, read),
                headers=headers,
                **request_options,
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            words = reason_of(error)
            raise _RetryableError(CatalogueUnreachable(self.name, hide_secrets(words))) from None

    def _check_response(
        self, response: RawResponse, deadline_at: float, read: Callable[[Any], Any]
    ) -> JsonResponse:
        status, headers = response.status, response.headers
        if status == 200:
            return JsonResponse(
                200,
                self._decode_body(response.content, read),
                has_next_page='rel="next"' in headers.get("link", ""),
            )
        words = _error_detail(response.content)
        text = f"{words} (status {status})"
        if status == 404:
            return JsonResponse(404, None, words)
        if status == 401:
            return JsonResponse(401, None, text)
        if status == 403:
            raise CatalogueDenied(self.name, text)
        if status in _TRANSIENT_STATUSES:
            after = retry_after(headers.get("retry-after"), http_date(headers.get("date")))
            if status in _BUSY_STATUSES:
                self._rate_limiter.pause_for(after if after is not None else 1.0)
            if after is not None and after > deadline_at - self._monotonic():
                raise CatalogueUnreachable(self.name, text)  # later than it could help this question
            raise _RetryableError(CatalogueUnreachable(self.name, text), after)
        raise CatalogueUnreachable(self.name, text)

    def _decode_body(self, content: bytearray, read: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - JSON
        begin = bytes(content[:200])
        try:
            body = decode(content, self._limits.bounds)
        except TooLarge as wrong:
            raise CatalogueGarbled(self.name, f"its answer: {wrong}") from None
        except ValueError:
            body = None
        if body is None:
            said = _error_detail(begin)[:80] or "nothing"
            raise CatalogueGarbled(self.name, f"it answers no JSON: {said!r}")
        return read(body)


def _retry_wait(error: Exception) -> bool | float:
    """What stamina is to do about *error*: nothing, wait as it does, or so many seconds."""
    if not isinstance(error, _RetryableError):
        return False
    return True if error.retry_after_seconds is None else error.retry_after_seconds


def hide_secrets(text: str) -> str:
    """*text* without secrets: some services repeat our URLs, our headers or what we posted."""
    return _SECRETS.sub(lambda found: f"{found[1] or ''}[secret]", SECRETS.hide(text))


def _error_detail(content: bytes | bytearray) -> str:
    """What an answer says for people, on one line."""
    begin = bytes(content[:_MAX_ERROR_BYTES])
    try:
        body = decode(begin, Bounds(max_values=1000))
    except ValueError:
        body = None
    detail = body.get("detail", body) if isinstance(body, dict) else begin.decode("utf-8", "replace")
    return " ".join(hide_secrets(str(detail)).split())[:_MAX_DETAIL_CHARS]


def _build_ssl_context(name: str, file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(file))
    except OSError as error:  # SSLError among them
        raise ConfigError([f"catalogue {name}: ca_cert {file}: {error.strerror or error}"]) from error

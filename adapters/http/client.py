"""JSON client over HTTP: limit time, size and rate; retry; raise each failure as a CatalogueError."""

import json
import math
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
import stamina

from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueGarbled,
    CatalogueUnreachable,
    ConfigError,
)
from hydrator.domain.redaction import redact
from hydrator.domain.text import reason_of
from hydrator.domain.untrusted import is_loopback

from .rate_limiter import HttpRateLimiter

_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_DETAIL_CHARS = 400
_MAX_ERROR_BYTES = 100_000


def build_ssl_context(file: Path, setting: str) -> ssl.SSLContext:
    """Build a TLS context that trusts the CA certificates in *file*.

    Raises:
        ConfigError: the file cannot be read; the message has the name of the *setting* for this file.
    """
    try:
        return ssl.create_default_context(cafile=str(file))
    except OSError as error:  # SSLError among them
        raise ConfigError([f"{setting} {file}: {error.strerror or error}"]) from error


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of the queries to one server, and of its answers.

    ``timeout`` limits one read of a socket. ``deadline`` limits one query with all its ``attempts``.
    ``pause`` is the wait between the first and the second attempt. With ``only_busy``, only a server that
    asks for a pause gets a second attempt.
    """

    timeout: timedelta = timedelta(seconds=15)
    deadline: timedelta = timedelta(seconds=60)
    attempts: int = 3
    pause: timedelta = timedelta(seconds=0.5)
    calls_per_second: float = 20.0
    only_busy: bool = False


class TokenSource(Protocol):
    """A source of bearer tokens."""

    def token(self) -> str:
        """Return a token that is valid now; raise CatalogueError if there is none."""

    def forget(self) -> None:
        """Let the next call of ``token`` look for a newer token, because the server refused the last one."""

    def close(self) -> None:
        """Close the connections, and forget the token."""


@dataclass(frozen=True, slots=True)
class JsonResponse:
    """A server's answer.

    ``body`` is the JSON of an answer with status 200. ``has_next_page`` is true if the answer links to a
    next page.
    """

    status: int
    body: Any
    detail: str = ""
    has_next_page: bool = False


class _TransientError(CatalogueUnreachable):
    """A failure that may be over at the next attempt."""


class JsonClient:
    """A client of the server at *url*; safe to use from several threads.

    Args:
        name: the catalogue's name, for errors.
        url: the prefix of every path.
        token_source: the source of the bearer token; None: send no token.
        ca_cert: the certificate authority of the server; None: trust the authorities that the system
            trusts.
        transport, monotonic, rate_limiter: replacements for tests.

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
        self._http = httpx.Client(
            headers={"Accept": "application/json"},
            verify=build_ssl_context(ca_cert, f"catalogue {name}: ca_cert") if ca_cert else True,
            trust_env=not is_loopback(urlsplit(url).hostname or ""),  # a proxy does not lead to this machine
            transport=transport,
        )

    def get(
        self,
        path: str,
        params: Mapping[str, str | int] | None = None,
        *,
        within_seconds: float = math.inf,
    ) -> JsonResponse:
        """Get *path*; return an answer with status 200 or 404. The caller decides what a 404 means.

        Args:
            path: the path below ``url``.
            params: the parameters of the query string.
            within_seconds: give up after this time, if this is before the client's own deadline.

        Raises:
            CatalogueError: the server sent another status, or no answer. The client retries after a
                transient failure, before it raises the error.
        """
        return self._request(within_seconds, "GET", path, params=dict(params) if params else None)

    def post(self, path: str, data: Mapping[str, str], basic_auth: tuple[str, str]) -> JsonResponse:
        """Post a form with a user name and a password; see :meth:`get`."""
        return self._request(math.inf, "POST", path, data=dict(data), auth=basic_auth)

    def close(self) -> None:
        """Close the connections and forget the token."""
        self._http.close()
        if self._token_source:
            self._token_source.close()

    def _request(
        self,
        within_seconds: float,
        method: str,
        path: str,
        **options: Any,  # noqa: ANN401 - httpx's own arguments
    ) -> JsonResponse:
        within_seconds = max(0.0, min(within_seconds, self._limits.deadline.total_seconds()))
        deadline_at = self._monotonic() + within_seconds
        timeout = min(within_seconds, self._limits.timeout.total_seconds())
        send = partial(self._http.request, method, self._url + path, timeout=timeout, **options)
        for attempt in stamina.retry_context(
            on=self._may_retry,
            attempts=self._limits.attempts,
            timeout=max(within_seconds, 0.001),
            wait_initial=self._limits.pause,
            wait_max=10.0,
        ):
            with attempt:
                return self._request_once(send, deadline_at)
        raise AssertionError("stamina.retry_context ended without an answer and without an error")

    def _may_retry(self, error: Exception) -> bool:
        is_asked = not self._limits.only_busy or self._rate_limiter.pause_seconds > 0
        return is_asked and isinstance(error, _TransientError)

    def _request_once(self, send: Callable[..., httpx.Response], deadline_at: float) -> JsonResponse:
        source = self._token_source
        token = source.token() if source else None
        answer = self._exchange(send, deadline_at, token)
        if answer.status == 401 and source:
            source.forget()
            # a service behind this server may have sent the 401: a new token may not help, so try one only
            if (newest := source.token()) != token:
                answer = self._exchange(send, deadline_at, newest)
        if answer.status == 401:
            raise CatalogueDenied(self.name, answer.detail)
        return answer

    def _exchange(
        self, send: Callable[..., httpx.Response], deadline_at: float, token: str | None
    ) -> JsonResponse:
        if not self._rate_limiter.wait_for_turn(deadline_at - self._monotonic()):
            raise CatalogueUnreachable(
                self.name, "the server asked for a pause that is longer than this query may take"
            )
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            response = send(headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _TransientError(self.name, redact(reason_of(error))) from None
        return self._check_response(response, deadline_at)

    def _check_response(self, response: httpx.Response, deadline_at: float) -> JsonResponse:
        status, headers = response.status_code, response.headers
        self._rate_limiter.record_response(status, headers.get("retry-after"))
        if status == 200:
            body = _parse_json(response.content)
            if body is None:
                excerpt = _error_detail(response.content[:200])[:80] or "nothing"
                raise CatalogueGarbled(self.name, f"its answer is not JSON: {excerpt!r}")
            return JsonResponse(200, body, has_next_page='rel="next"' in headers.get("link", ""))
        detail = _error_detail(response.content)
        reason = f"{detail} (status {status})"
        if status == 404:
            return JsonResponse(404, None, detail)
        if status == 401:
            return JsonResponse(401, None, reason)
        if status == 403:
            raise CatalogueDenied(self.name, reason)
        is_too_long = self._rate_limiter.pause_seconds > deadline_at - self._monotonic()
        if is_too_long or status not in _TRANSIENT_STATUSES:
            raise CatalogueUnreachable(self.name, reason)
        raise _TransientError(self.name, reason)


def _parse_json(content: bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON of an answer; None if it is not JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _error_detail(content: bytes) -> str:
    """Return the error message of an answer, on one line, without secrets."""
    begin = content[:_MAX_ERROR_BYTES]
    body = _parse_json(begin)
    detail = body.get("detail", body) if isinstance(body, dict) else begin.decode("utf-8", "replace")
    return " ".join(redact(str(detail)).split())[:_MAX_DETAIL_CHARS]

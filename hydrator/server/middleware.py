"""Middleware of the server: limits, tokens, security headers, metrics and log of every request."""

import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hydrator.server.auth import Grant, Role, TokenAuthenticator
from hydrator.server.limits import MAX_HEAD_BYTES, RateLimiter, client_key, is_allowed_host
from hydrator.server.pages.html import STYLE_HASH
from hydrator.server.responses import HttpError, busy_error, error_response


def build_cut_counter(registry: CollectorRegistry) -> Callable[[str], None]:
    """Return a function that counts a closed connection, by reason."""
    cut = Counter(
        "hydrator_http_connections_cut",
        "Connections that the server closed. Reason full: too many connections; slow: a slow request.",
        ["reason"],
        registry=registry,
    )
    for reason in ("full", "slow"):
        cut.labels(reason)
    return lambda reason: cut.labels(reason).inc()


class HttpMetrics:
    """Counts of requests: one series for each route and status, not for each path."""

    def __init__(self, registry: CollectorRegistry, routes: list[Route]) -> None:
        self._routes: dict[object, str] = {
            route.endpoint: route.path.replace(":path", "") for route in routes
        }
        self._requests = Counter(
            "hydrator_http_requests", "HTTP requests answered.", ["route", "status"], registry=registry
        )
        for route in self._routes.values():
            self._requests.labels(route, "200")

    def count_request(self, scope: Scope, status: int) -> None:
        self._requests.labels(self.route_label(scope), str(status)).inc()

    def route_label(self, scope: Scope) -> str:
        """Return the route of a request; "other" for unknown paths."""
        return self._routes.get(scope.get("endpoint"), "other")


MAX_URL_BYTES: Final = 8192
REQUEST_ID_HEADER: Final = "X-Request-Id"
_VALID_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_log = structlog.get_logger("hydrator")

_CONTENT_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        f"style-src '{STYLE_HASH}'",
        "script-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_SECURITY_HEADERS: Final = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """The limits of requests, and how the server identifies clients; the default has no limits.

    Attributes:
        rate_limiter: limits the requests of one address, and of one token.
        behind_proxy: True if a proxy sends the requests; the client is the last address
            in ``X-Forwarded-For``.
        hosts: names that the server answers to; None for any name.
    """

    rate_limiter: RateLimiter | None = None
    behind_proxy: bool = False
    hosts: frozenset[str] | None = None


@dataclass(eq=False)
class RequestMiddleware:
    """Limits, security headers and metrics of every request, before all routes.

    Attributes:
        inner: the app behind this middleware.
        http_metrics: counts requests.
        policy: the limits of requests.
    """

    inner: ASGIApp
    http_metrics: HttpMetrics
    policy: RequestPolicy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started_at = time.perf_counter()
        status: int | None = None
        request_id = _request_id(scope, behind_proxy=self.policy.behind_proxy)
        # every request has its own log context; uvicorn's log lines about the request have this context too
        structlog.contextvars.bind_contextvars(request=request_id)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update({**_SECURITY_HEADERS, REQUEST_ID_HEADER: request_id})
            await send(message)

        refusal = _check_limits(scope) or self._check_rate(scope) or self._check_host(scope)
        try:
            if refusal is None:
                await self.inner(scope, receive, send_with_headers)
            else:
                answer = await error_response(Request(scope), refusal)
                await answer(scope, receive, send_with_headers)
        except Exception as bug:
            if status is None:
                answer = await error_response(Request(scope), bug)
                await answer(scope, receive, send_with_headers)
            raise  # uvicorn logs the exception
        finally:
            self._count(scope, status or 500, time.perf_counter() - started_at)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        self.http_metrics.count_request(scope, status)
        # build the fields only for level DEBUG, since the server may get thousands of requests a second
        if logging.getLogger("hydrator").isEnabledFor(logging.DEBUG):
            # log the route, not the path: a path may have any name
            route = self.http_metrics.route_label(scope)
            fields = {"method": scope["method"], "route": route, "status": status}
            _log.debug("request", **fields, seconds=round(seconds, 4))

    def _check_rate(self, scope: Scope) -> HttpError | None:
        client = scope["client_key"] = _client_key(scope, behind_proxy=self.policy.behind_proxy)
        return check_rate(self.policy.rate_limiter, ("address", client), f"from {client}")

    def _check_host(self, scope: Scope) -> HttpError | None:
        """Refuse a request for an unknown host name: a web page of this name could read the answers."""
        host = Headers(scope=scope).get("Host")
        hosts = self.policy.hosts
        if hosts is None or host is None or is_allowed_host(host, hosts):
            return None
        detail = (
            f"this server does not answer to the name {host[:100]!r}: use the server's address, "
            "or add the name to publish.http.allowed_hosts"
        )
        return HttpError(421, "unknown host", detail)


def _request_id(scope: Scope, *, behind_proxy: bool) -> str:
    """Return the id under which the logs name a request: the proxy's id if valid, else a random id."""
    proxy_id = Headers(scope=scope).get(REQUEST_ID_HEADER, "") if behind_proxy else ""
    return proxy_id if _VALID_REQUEST_ID.match(proxy_id) else secrets.token_hex(8)


def check_rate(
    rate_limiter: RateLimiter | None, limit_key: tuple[str, str], client_text: str
) -> HttpError | None:
    """Return a 429 error if the client must wait, else None; the error's text has *client_text*."""
    wait_seconds = 0.0 if rate_limiter is None else rate_limiter.take(limit_key)
    if not wait_seconds:
        return None
    return busy_error(f"too many requests {client_text}", wait_seconds)


def _client_key(scope: Scope, *, behind_proxy: bool) -> str:
    """Return the key by which limits count a client; see :func:`hydrator.server.limits.client_key`."""
    address: str = scope["client"][0]
    if behind_proxy:
        forwarded = ",".join(Headers(scope=scope).getlist("X-Forwarded-For")).rpartition(",")[2].strip()
        address = forwarded or address
    return client_key(address)


@dataclass(eq=False)
class AuthMiddleware:
    """Authorization of one route: refuse a request without a sufficient token."""

    inner: ASGIApp
    authenticator: TokenAuthenticator | None
    required_role: Role
    rate_limiter: RateLimiter | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.authenticator is not None:
            site = scope["path_params"].get("site")
            authorization = Headers(scope=scope).get("Authorization")
            grant = self.authenticator.authorize(authorization, self.required_role, site)
            if refusal := check_rate(self.rate_limiter, ("token", grant.digest), "with this token"):
                raise refusal
            scope["grant"] = grant
        await self.inner(scope, receive, send)


def client_of(scope: Scope) -> tuple[str, str]:
    """Return the address and the token by which a route counts a client; the token is "" without tokens."""
    grant: Grant | None = scope.get("grant")
    return scope["client_key"], grant.digest if grant else ""


def can_see_all_sites(scope: Scope) -> bool:
    """Return whether the client may read the names of all sites."""
    grant: Grant | None = scope.get("grant")
    return grant is None or grant.role is not Role.SITE


def _check_limits(scope: Scope) -> HttpError | None:
    """Refuse a URL or a request head that is too long, and every body."""
    length = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"]) + 1
    if length > MAX_URL_BYTES:
        detail = f"the URL has {length} bytes (limit {MAX_URL_BYTES}): ask for fewer datasets at a time"
        return HttpError(414, "URL too long", detail)
    head = length + sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    if head > MAX_HEAD_BYTES:
        detail = f"the head of the request has {head} bytes (limit {MAX_HEAD_BYTES}): send fewer headers"
        return HttpError(431, "head too long", detail)
    headers = Headers(scope=scope)
    if headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in headers:
        return HttpError(413, "body not allowed", "no path accepts a body: send the request without one")
    return None

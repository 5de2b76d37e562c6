"""Around every request: limits, tokens, security headers, count and time."""

import logging
import math
import re
import secrets
import time
from collections.abc import Mapping
from typing import Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hydrator.server.limits.connections import MAX_HEAD_BYTES
from hydrator.server.limits.hosts import AllowedHosts
from hydrator.server.limits.rate import RateLimiter, client_key
from hydrator.server.pages.html import STYLE_HASH

from .auth import AccessDenied, Grant, Role, TokenAuthenticator
from .metrics import HttpMetrics
from .responses import HttpError, error_response, internal_error_response

MAX_URL_BYTES: Final = 8192
REQUEST_ID_HEADER: Final = "X-Request-Id"
_VALID_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_log = structlog.get_logger("hydrator")

_CONTENT_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        f"style-src '{STYLE_HASH}'",
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


class RequestMiddleware:
    """Before all routes.

    Args:
        inner: what is behind it.
        traffic: counts.
        buckets: how often one address may ask; None for as often as it likes.
        behind_proxy: the client is the last one that ``X-Forwarded-For`` names.
        takes: by path, how large a body may be; elsewhere there may be none.
        hosts: the names that the server answers to; None for any name.
    """

    def __init__(
        self,
        inner: ASGIApp,
        http_metrics: HttpMetrics,
        rate_limiter: RateLimiter | None,
        *,
        behind_proxy: bool,
        body_limits: Mapping[str, int],
        hosts: AllowedHosts | None = None,
    ) -> None:
        self._inner = inner
        self._http_metrics = http_metrics
        self._rate_limiter = rate_limiter
        self._behind_proxy = behind_proxy
        self._body_limits = body_limits
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        began = time.perf_counter()
        status: int | None = None
        request_id = _request_id(scope, behind_proxy=self._behind_proxy)
        # every request has a context of its own, which what uvicorn logs of it has too
        structlog.contextvars.bind_contextvars(request=request_id)

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update({**_SECURITY_HEADERS, REQUEST_ID_HEADER: request_id})
            await send(message)

        refusal = (
            _check_limits(scope, self._body_limits) or self._check_rate(scope) or self._check_host(scope)
        )
        try:
            if refusal is None:
                await self._inner(scope, receive, sending)
            else:
                answer = await error_response(Request(scope), refusal)
                await answer(scope, receive, sending)
        except Exception as bug:
            if status is None:
                answer = await internal_error_response(Request(scope), bug)
                await answer(scope, receive, sending)
            raise  # uvicorn logs it
        finally:
            self._count(scope, status or 500, time.perf_counter() - began)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        self._http_metrics.record_request(scope, status, seconds)
        if logging.getLogger("hydrator").isEnabledFor(logging.DEBUG):  # cheap, for thousands a second
            route = self._http_metrics.route_label(scope)  # not the path: it may name what is private
            told = {"method": scope["method"], "route": route, "status": status}
            _log.debug("request", **told, seconds=round(seconds, 4))

    def _check_rate(self, scope: Scope) -> HttpError | None:
        asker = _client_key(scope, behind_proxy=self._behind_proxy)
        return check_rate(self._rate_limiter, ("address", asker), f"from {asker}")

    def _check_host(self, scope: Scope) -> HttpError | None:
        """Refuse a request for a name that is not ours: a page of that name may be reading our answers."""
        host = Headers(scope=scope).get("Host")
        if self._hosts is None or host is None or self._hosts.is_allowed(host):
            return None
        detail = (
            f"this server does not answer to the name {host[:100]!r}: use its address, "
            "or add the name to publish.http.allowed_hosts"
        )
        return HttpError(421, "unknown host", detail)


def _request_id(scope: Scope, *, behind_proxy: bool) -> str:
    """What this request is called in logs: the proxy's word for it, or one of our own."""
    given = Headers(scope=scope).get(REQUEST_ID_HEADER, "") if behind_proxy else ""
    return given if _VALID_REQUEST_ID.match(given) else secrets.token_hex(8)


def check_rate(
    rate_limiter: RateLimiter | None, limit_key: tuple[str, str], client_text: str
) -> HttpError | None:
    """Why *asker* must wait, or None; *who* names it in the sentence."""
    wait = 0.0 if rate_limiter is None else rate_limiter.take(limit_key)
    if not wait:
        return None
    seconds = str(max(1, math.ceil(wait)))
    detail = f"too many requests {client_text}: ask again in {seconds} s"
    return HttpError(429, "too many requests", detail, headers={"Retry-After": seconds})


def _client_key(scope: Scope, *, behind_proxy: bool) -> str:
    """Return who asks, as far as limits go; see :func:`hydrator.server.limits.rate.client_key`."""
    text = scope["client"][0] if scope.get("client") else "the proxy"
    if behind_proxy:
        named = ",".join(Headers(scope=scope).getlist("X-Forwarded-For")).rpartition(",")[2].strip()
        text = named or text
    return client_key(text)


class AuthMiddleware:
    """Before one route: whoever has no token that allows it is refused."""

    def __init__(
        self,
        inner: ASGIApp,
        authenticator: TokenAuthenticator | None,
        required_role: Role,
        rate_limiter: RateLimiter | None,
    ) -> None:
        self._inner = inner
        self._authenticator = authenticator
        self._required_role = required_role
        self._rate_limiter = rate_limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._authenticator is not None:
            site = scope["path_params"].get("site")
            try:
                grant = self._authenticator.authorize(
                    Headers(scope=scope).get("Authorization"), self._required_role, site
                )
            except AccessDenied as why:
                raise HttpError(why.http_status, _ERROR_BY_STATUS[why.http_status], str(why)) from why
            if refusal := check_rate(self._rate_limiter, ("token", grant.digest), "with this token"):
                raise refusal
            scope["grant"] = grant
        await self._inner(scope, receive, send)


_ERROR_BY_STATUS: Final = {401: "not authenticated", 403: "not authorized", 503: "not ready"}


def can_see_all_sites(scope: Scope) -> bool:
    """Whether the names of other sites are for whoever asks."""
    grant: Grant | None = scope.get("grant")
    return grant is None or grant.role is not Role.SITE


def _check_limits(scope: Scope, body_limits: Mapping[str, int]) -> HttpError | None:
    """Refuse a URL or a head that is too long, and a body that no route here reads."""
    length = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"]) + 1
    if length > MAX_URL_BYTES:
        detail = f"the URL has {length} bytes, {MAX_URL_BYTES} are allowed: ask for fewer datasets at a time"
        return HttpError(414, "URL too long", detail)
    head = length + sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    if head > MAX_HEAD_BYTES:
        detail = f"the request's head has {head} bytes, {MAX_HEAD_BYTES} are allowed: send fewer headers"
        return HttpError(431, "head too long", detail)
    headers = Headers(scope=scope)
    size = headers.get("Content-Length", "0")
    most = body_limits.get(scope["path"], 0)
    if most == 0 and (size != "0" or "Transfer-Encoding" in headers):
        return HttpError(413, "body not allowed", "this server only answers: send no body")
    # of one in pieces nobody knows the size before it was read
    if not _is_at_most(size, most) or "Transfer-Encoding" in headers:
        detail = f"send at most {most} bytes here, whole, with their Content-Length"
        return HttpError(413, "body too large", detail)
    return None


def _is_at_most(digits: str, maximum: int) -> bool:
    """Compare the decimal number in *digits*, of any length and with any leading zeros, with *most*."""
    significant = digits.lstrip("0")
    return (
        digits.isascii() and digits.isdigit() and len(significant) < 10 and int(significant or "0") <= maximum
    )

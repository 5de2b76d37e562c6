"""HTTP server: build the daemon's server from ``[publish.http]``."""

import time
from datetime import timedelta

from prometheus_client import CollectorRegistry

from hydrator.config import HttpServerSettings
from hydrator.server.app import build_app
from hydrator.server.auth import TokenAuthenticator
from hydrator.server.handlers import StateGetter, TokenServices
from hydrator.server.http_server import HttpServer, UnixSocket
from hydrator.server.limits.connections import ConnectionLimiter
from hydrator.server.limits.hosts import build_allowed_hosts
from hydrator.server.limits.rate import RateLimiter
from hydrator.server.metrics import build_cut_counter
from hydrator.server.middleware import RequestPolicy
from hydrator.server.tls import TlsCertificate


def build_http_server(
    http: HttpServerSettings,
    get_state: StateGetter,
    registry: CollectorRegistry,
    services: TokenServices | None = None,
) -> HttpServer:
    """Build the server, but do not start it; only clients with a token may use *services*.

    Raises:
        ConfigError: the tokens or the certificate cannot be used.
    """
    authenticator = TokenAuthenticator.open(http.tokens_file) if http.tokens_file else None
    pair = http.tls_certificate and http.tls_key and TlsCertificate(http.tls_certificate, http.tls_key)
    proxied = http.behind_proxy or http.socket is not None
    asgi = build_app(
        get_state,
        registry,
        max_age=timedelta(seconds=http.max_age_seconds),
        authenticator=authenticator,
        services=services,
        policy=_request_policy(http, has_tokens=authenticator is not None, proxied=proxied),
    )
    limiter = ConnectionLimiter(
        max_connections=http.max_connections,
        # behind a proxy all clients have the proxy's address
        max_per_address=http.max_connections if proxied else http.max_connections // 2,
        request_seconds=http.request_seconds,
        on_cut=build_cut_counter(registry),
    )
    return HttpServer(
        asgi,
        http.host,
        http.port,
        unix=UnixSocket(http.socket, http.socket_mode) if http.socket else None,
        certificate=pair or None,
        token=authenticator.own_token if authenticator else None,
        limiter=limiter,
    )


def _request_policy(http: HttpServerSettings, *, has_tokens: bool, proxied: bool) -> RequestPolicy:
    # With tokens or behind a proxy, any host name is accepted. A foreign web page (DNS rebinding) has no
    # token, so it reads nothing. A proxy checks host names itself.
    accepts_any_host = not http.allowed_hosts and (has_tokens or proxied)
    return RequestPolicy(
        RateLimiter(http.requests_per_second, http.requests_burst, time.monotonic),
        RateLimiter(http.names_per_minute / 60, http.names_burst, time.monotonic),
        proxied,
        None if accepts_any_host else build_allowed_hosts(http.host, http.allowed_hosts),
        timedelta(seconds=http.request_seconds),
    )

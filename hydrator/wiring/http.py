"""HTTP: build the daemon's server from [publish.http]."""

import time

from prometheus_client import CollectorRegistry

from hydrator.config import HttpServerSettings
from hydrator.server.app import build_app
from hydrator.server.auth import TokenAuthenticator
from hydrator.server.handlers import Sources
from hydrator.server.http_server import HttpServer, TlsCertificate
from hydrator.server.limits import ConnectionLimiter, RateLimiter, build_allowed_hosts
from hydrator.server.middleware import RequestPolicy, build_cut_counter

_REQUESTS_PER_SECOND, _REQUESTS_BURST = 500, 2000
"""Of one address, and with one token: a pool of 100,000 slots needs some 350 requests a second."""


def build_http_server(
    http: HttpServerSettings,
    sources: Sources,
    registry: CollectorRegistry,
    limiter: ConnectionLimiter | None = None,
) -> HttpServer:
    """Build the server, but do not start it. *limiter* has the limits of connections, by default its own.

    Raises:
        ConfigError: the tokens or the certificate cannot be used.
    """
    authenticator = TokenAuthenticator(http.tokens_file) if http.tokens_file else None
    limiter = limiter or ConnectionLimiter()
    limiter.on_cut = build_cut_counter(registry)
    if http.behind_proxy:  # all clients have the proxy's address
        limiter.max_per_address = limiter.max_connections
    asgi = build_app(
        sources,
        registry,
        authenticator=authenticator,
        policy=_request_policy(http, has_tokens=authenticator is not None),
    )
    return HttpServer(
        asgi,
        http.host,
        http.port,
        certificate=TlsCertificate(http.tls_certificate, http.tls_key)
        if http.tls_certificate and http.tls_key
        else None,
        limiter=limiter,
    )


def _request_policy(http: HttpServerSettings, *, has_tokens: bool) -> RequestPolicy:
    # With tokens or behind a proxy, any host name is accepted. A foreign web page (DNS rebinding) has no
    # token, so it reads nothing. A proxy checks host names itself.
    accepts_any_host = not http.allowed_hosts and (has_tokens or http.behind_proxy)
    return RequestPolicy(
        RateLimiter(_REQUESTS_PER_SECOND, _REQUESTS_BURST, time.monotonic),
        http.behind_proxy,
        None if accepts_any_host else build_allowed_hosts(http.host, http.allowed_hosts),
    )

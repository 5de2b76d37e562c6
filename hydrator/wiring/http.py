"""HTTP: build the daemon's server from [publish.http]."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from prometheus_client import CollectorRegistry

from hydrator.config import HttpServerSettings
from hydrator.server.api.live import LiveUpdates
from hydrator.server.app import build_app
from hydrator.server.auth import TokenAuthenticator
from hydrator.server.handlers import DatasetFinder, JobExplainer, StateGetter
from hydrator.server.http_server import HttpServer, UnixSocket
from hydrator.server.limits import ConnectionLimiter, RateLimiter, build_allowed_hosts
from hydrator.server.metrics import build_cut_counter
from hydrator.server.middleware import RequestPolicy
from hydrator.server.pages.routes import ChangeReader, read_no_changes
from hydrator.server.pages.run import ClusterReader
from hydrator.server.tls import TlsCertificate


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits that keep one client from the others: a pool of 100,000 slots needs some 350 requests a second.

    Attributes:
        requests_per_second: maximum average rate of requests from one address, and with one token.
        requests_burst: requests that one address, or one token, may send at once.
        max_connections: open connections; one address may have half of them.
        request_seconds: time limit of a request, from its start until its answer is sent.
    """

    requests_per_second: float = 500
    requests_burst: int = 2000
    max_connections: int = 500
    request_seconds: float = 30


def build_http_server(
    http: HttpServerSettings,
    get_state: StateGetter,
    registry: CollectorRegistry,
    explain_job: JobExplainer | None = None,
    get_version: Callable[[], object] = lambda: None,
    read_changes: ChangeReader = read_no_changes,
    read_cluster: ClusterReader | None = None,
    find_datasets: DatasetFinder = lambda _patterns: (),
    limits: ServerLimits = ServerLimits(),
) -> HttpServer:
    """Build the server, but do not start it; only clients with a token may call *explain_job*.

    *get_version* returns a value that changes with the pages. These show *read_changes* and *read_cluster*.
    *find_datasets* searches the catalogues.

    Raises:
        ConfigError: the tokens or the certificate cannot be used.
    """
    authenticator = TokenAuthenticator.open(http.tokens_file) if http.tokens_file else None
    proxied = http.behind_proxy or http.socket is not None
    live = _build_live_updates(limits, get_version)
    asgi = build_app(
        get_state,
        registry,
        authenticator=authenticator,
        explain_job=explain_job,
        policy=_request_policy(http, limits, has_tokens=authenticator is not None, proxied=proxied),
        live=live,
        read_changes=read_changes,
        read_cluster=read_cluster,
        find_datasets=find_datasets,
    )
    return HttpServer(
        asgi,
        http.host,
        http.port,
        unix=UnixSocket(http.socket) if http.socket else None,
        certificate=TlsCertificate(http.tls_certificate, http.tls_key)
        if http.tls_certificate and http.tls_key
        else None,
        limiter=_build_limiter(limits, registry, proxied=proxied),
        on_stop=live.close,
    )


def _build_limiter(limits: ServerLimits, registry: CollectorRegistry, *, proxied: bool) -> ConnectionLimiter:
    """Build the limits of connections."""
    return ConnectionLimiter(
        max_connections=limits.max_connections,
        # behind a proxy all clients have the proxy's address
        max_per_address=limits.max_connections if proxied else limits.max_connections // 2,
        request_seconds=limits.request_seconds,
        on_cut=build_cut_counter(registry),
    )


def _build_live_updates(limits: ServerLimits, get_version: Callable[[], object]) -> LiveUpdates:
    """Build the streams of open pages: they leave most connections to the hooks, and end within the limit."""
    max_streams = min(64, max(1, limits.max_connections // 4))
    max_duration = timedelta(seconds=min(15, limits.request_seconds / 2))
    return LiveUpdates(get_version, max_streams=max_streams, max_duration=max_duration)


def _request_policy(
    http: HttpServerSettings, limits: ServerLimits, *, has_tokens: bool, proxied: bool
) -> RequestPolicy:
    # With tokens or behind a proxy, any host name is accepted. A foreign web page (DNS rebinding) has no
    # token, so it reads nothing. A proxy checks host names itself.
    accepts_any_host = not http.allowed_hosts and (has_tokens or proxied)
    return RequestPolicy(
        RateLimiter(limits.requests_per_second, limits.requests_burst, time.monotonic),
        proxied,
        None if accepts_any_host else build_allowed_hosts(http.host, http.allowed_hosts),
    )

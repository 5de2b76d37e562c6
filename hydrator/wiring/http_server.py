"""From ``[publish.http]`` to the server that it calls for."""

import time
from collections.abc import Callable
from datetime import timedelta

from prometheus_client import CollectorRegistry

from hydrator.config import HttpOutlet
from hydrator.server.app import Exchange, Posted, Question, app
from hydrator.server.auth import Access
from hydrator.server.http_server import Server, UnixSocket
from hydrator.server.limits.connections import Doorway
from hydrator.server.limits.hosts import hosts_of
from hydrator.server.limits.rate import Buckets
from hydrator.server.metrics import cut_counter
from hydrator.server.tls import Certificate
from hydrator.server.view import View


def listener(
    http: HttpOutlet,
    view: Callable[[], View],
    registry: CollectorRegistry,
    *,
    exchange: Exchange | None = None,
    question: Question | None = None,
    events: Posted | None = None,
) -> Server:
    """The server that shows *view*, gives private names, explains jobs and takes *events*; not started yet.

    Raises:
        ConfigError: the tokens or the certificate cannot be used.
    """
    access = Access.open(http.tokens_file) if http.tokens_file else None
    pair = http.tls_certificate and http.tls_key and Certificate(http.tls_certificate, http.tls_key)
    proxied = http.behind_proxy or http.socket is not None
    # with tokens a page of another name reads nothing; a proxy has names of its own, and decides by them
    open_to_names = not http.allowed_hosts and (access is not None or proxied)
    asgi = app(
        view,
        registry,
        max_age=timedelta(seconds=http.max_age_seconds),
        access=access,
        exchange=exchange,
        events=events,
        question=question,
        buckets=Buckets(http.requests_per_second, http.requests_burst, time.monotonic),
        names=Buckets(http.names_per_minute / 60, http.names_burst, time.monotonic),
        behind_proxy=proxied,
        hosts=None if open_to_names else hosts_of(http.host, http.allowed_hosts),
    )
    return Server(
        asgi,
        http.host,
        http.port,
        unix=UnixSocket(http.socket, http.socket_mode) if http.socket else None,
        certificate=pair or None,
        token=access.own if access else None,
        doorway=Doorway(
            most=http.max_connections,
            # a proxy is one address for many clients
            most_each=http.max_connections if proxied else http.max_connections // 2,
            seconds=http.request_seconds,
            cut=cut_counter(registry),
        ),
    )

"""The daemon's HTTP server around a state that a test gives."""

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from hydrator.server.app import build_app
from hydrator.server.http_server import HttpServer
from hydrator.server.limits import ConnectionLimiter
from hydrator.server.tls import TlsCertificate
from hydrator.server.view import ServerState


def app_of(state: ServerState, **parts: Any) -> Starlette:
    """Return an app that answers from *state*; *parts* are those of :func:`hydrator.server.app.build_app`."""
    return build_app(lambda: state, CollectorRegistry(), **parts)


def server_of(
    look: Callable[[], ServerState],
    *,
    certificate: TlsCertificate | None = None,
    limiter: ConnectionLimiter | None = None,
    on_stop: Callable[[], None] | None = None,
    **parts: Any,
) -> HttpServer:
    """Return a server, to be started, that answers from what *look* returns; *parts* as for `app_of`."""
    asgi = build_app(look, CollectorRegistry(), **parts)
    return HttpServer(asgi, certificate=certificate, limiter=limiter, on_stop=on_stop)

"""The daemon's HTTP server around a state that a test gives."""

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from hydrator.server.app import build_app
from hydrator.server.handlers import Sources
from hydrator.server.http_server import HttpServer, TlsCertificate
from hydrator.server.limits import ConnectionLimiter
from hydrator.server.view import ServerState


def app_of(look: ServerState | Callable[[], ServerState], **parts: Any) -> Starlette:
    """Return an app that answers from a state, or from what *look* returns.

    *parts* are those of `Sources`, and of `build_app`.
    """
    sources = {name: parts.pop(name) for name in Sources.__slots__ if name in parts}
    get_state = look if callable(look) else lambda: look
    return build_app(Sources(get_state, **sources), CollectorRegistry(), **parts)


def server_of(
    look: Callable[[], ServerState],
    *,
    certificate: TlsCertificate | None = None,
    limiter: ConnectionLimiter | None = None,
    **parts: Any,
) -> HttpServer:
    """Return a server, to be started, that answers from what *look* returns; *parts* as for `app_of`."""
    asgi = app_of(look, **parts)
    return HttpServer(asgi, certificate=certificate, limiter=limiter)

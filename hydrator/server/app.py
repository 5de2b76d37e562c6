"""ASGI app of the daemon: the routes, and the token role that each route requires.

The app cannot change the state: it only gets a function that returns the present
:class:`ServerState`. docs/operators/security.md, "Over HTTP", has the contract.
"""

from collections.abc import Callable
from dataclasses import replace

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route

from hydrator.server.middleware import HttpMetrics

from .auth import Role, TokenAuthenticator
from .handlers import AdRoute, Sources, StateRoutes
from .middleware import AuthMiddleware, RequestMiddleware, RequestPolicy
from .pages.html import SCRIPT_PATH
from .pages.routes import PageRoutes
from .responses import error_response


def build_app(
    sources: Sources,
    registry: CollectorRegistry,
    *,
    authenticator: TokenAuthenticator | None = None,
    policy: RequestPolicy | None = None,
) -> Starlette:
    """Build the app. Without an *authenticator* every client may read everything, but not ask about jobs.

    Args:
        sources: the functions that it gets its answers from.
        registry: the metrics of ``/metrics``; the app adds the counts of requests.
        authenticator: decides which token may use which route.
        policy: the limits of requests.
    """
    policy = policy or RequestPolicy()
    pages = PageRoutes(sources if authenticator else replace(sources, explain_job=None))
    state = StateRoutes(sources, registry)
    ad_route = AdRoute(sources.get_state, is_public=authenticator is None)

    def guarded(path: str, answer: Callable[[Request], object], role: Role = Role.READ) -> Route:
        """Return a route that requires a token with *role*."""
        guard = Middleware(AuthMiddleware, authenticator, role, policy.rate_limiter)
        return Route(path, answer, middleware=[guard])

    routes = [
        guarded("/", pages.overview),
        guarded("/site", pages.site),
        guarded("/dataset", pages.dataset),
        guarded("/run", pages.run),
        guarded("/why", pages.why),
        guarded("/live", pages.version),
        Route(SCRIPT_PATH, pages.script),  # it has no data
        guarded("/v1/sites", state.sites),
        # a site's name may contain "/", and the path of a request is already decoded
        guarded("/v1/sites/{site:path}/ad", ad_route.get, Role.SITE),
        guarded("/v1/datasets", state.datasets),
        guarded("/v1/sets", state.sets),
        guarded("/v1/search", state.search),
        guarded("/metrics", state.metrics),
        Route("/healthz", state.healthz),  # orchestrators have no token
        Route("/readyz", state.readyz),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(RequestMiddleware, HttpMetrics(registry, routes), policy)],
        exception_handlers={HTTPException: error_response, Exception: error_response},
    )
    app.router.redirect_slashes = False  # no redirects: their URL would repeat the client's Host header
    return app

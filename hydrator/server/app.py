"""ASGI app of the daemon: its routes, and who may use each.

Read-only by construction: the app gets a function that returns the present
:class:`ServerState`, and nothing that could change it. The webhook passes events
on; an event says which dataset to poll, not where the dataset is. DESIGN.md,
"Over HTTP", has the contract.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from hydrator.domain.events import MAX_EVENT_BYTES

from .auth import Role, TokenAuthenticator
from .handlers import (
    AdRoute,
    EventRoute,
    JobExplainer,
    JobRoute,
    NameRoute,
    PseudonymLookup,
    StateGetter,
    StateRoutes,
    WebhookHandler,
)
from .limits.hosts import AllowedHosts
from .limits.rate import RateLimiter
from .metrics import HttpMetrics
from .middleware import AuthMiddleware, RequestMiddleware
from .responses import error_response, internal_error_response

EVENTS_PATH: Final = "/v1/events"


def build_app(
    get_state: StateGetter,
    registry: CollectorRegistry,
    *,
    max_age: timedelta,
    authenticator: TokenAuthenticator | None = None,
    look_up_pseudonyms: PseudonymLookup | None = None,
    on_event: WebhookHandler | None = None,
    explain_job: JobExplainer | None = None,
    rate_limiter: RateLimiter | None = None,
    name_limiter: RateLimiter | None = None,
    behind_proxy: bool = False,
    hosts: AllowedHosts | None = None,
) -> Starlette:
    """Build the app.

    Without an *authenticator* every client may read everything; but names of
    private datasets, explanations of jobs and the webhook are then disabled.

    Args:
        get_state: returns the present state.
        registry: the metrics of ``/metrics``. Requests are counted in it too, and
            the counts go on when another app is built on it.
        max_age: how long caches between the daemon and the hooks may keep an ad.
        rate_limiter: limits the requests of one address, and of one token.
        name_limiter: limits the names of private datasets that one token may exchange.
        behind_proxy: the address of a client is in ``X-Forwarded-For``.
        hosts: names that the server answers to; None for any name.
    """
    if authenticator is None:
        look_up_pseudonyms, on_event, explain_job = None, None, None
    routes = _build_routes(
        StateRoutes(get_state, registry, can_explain_jobs=explain_job is not None),
        JobRoute(get_state, explain_job),
        AdRoute(get_state, max_age, is_public=authenticator is None),
        NameRoute(look_up_pseudonyms, name_limiter),
        EventRoute(on_event),
        partial(_guard, authenticator, rate_limiter),
    )
    outermost = Middleware(
        RequestMiddleware,
        http_metrics=HttpMetrics(registry, routes),
        rate_limiter=rate_limiter,
        behind_proxy=behind_proxy,
        body_limits={EVENTS_PATH: MAX_EVENT_BYTES} if on_event else {},
        hosts=hosts,
    )
    app = Starlette(
        routes=routes,
        middleware=[outermost],
        exception_handlers={HTTPException: error_response, Exception: internal_error_response},
    )
    app.router.redirect_slashes = False  # a redirect would trust the Host header
    return app


def _guard(
    authenticator: TokenAuthenticator | None, rate_limiter: RateLimiter | None, role: Role
) -> list[Middleware]:
    """Build the middleware of a route that requires a token with *role*."""
    return [
        Middleware(AuthMiddleware, authenticator=authenticator, required_role=role, rate_limiter=rate_limiter)
    ]


def _build_routes(
    state: StateRoutes,
    job: JobRoute,
    ad: AdRoute,
    name: NameRoute,
    event: EventRoute,
    guard: Callable[[Role], list[Middleware]],
) -> list[Route]:
    """Build the routes; the last three are open to all, as orchestrators have no token."""
    return [
        Route("/", state.overview, middleware=guard(Role.READ)),
        Route("/why", job.get, middleware=guard(Role.READ)),
        Route("/v1/sites", state.sites, middleware=guard(Role.READ)),
        # the name of a site may contain "/", which arrives decoded
        Route("/v1/sites/{site:path}/ad", ad.get, middleware=guard(Role.SITE)),
        Route("/v1/datasets", state.datasets, middleware=guard(Role.READ)),
        Route("/v1/private", name.get, middleware=guard(Role.SUBMIT)),
        Route(EVENTS_PATH, event.post, methods=["POST"], middleware=guard(Role.EVENT)),
        Route("/metrics", state.metrics, middleware=guard(Role.READ)),
        Route("/v1/openapi.json", state.openapi),
        Route("/healthz", state.healthz),
        Route("/readyz", state.readyz),
    ]

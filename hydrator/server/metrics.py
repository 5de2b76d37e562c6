"""HTTP metrics: requests by route and status, their duration, and closed connections."""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.routing import Route
from starlette.types import Scope

LATENCY_BUCKETS_SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5)


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
    """Counts and durations of requests: one series for each route, not for each path."""

    def __init__(self, registry: CollectorRegistry, routes: list[Route]) -> None:
        self._routes: dict[object, str] = {
            route.endpoint: route.path.replace(":path", "") for route in routes
        }
        self._requests = Counter(
            "hydrator_http_requests", "HTTP requests answered.", ["route", "status"], registry=registry
        )
        self._durations = Histogram(
            "hydrator_http_request_duration_seconds",
            "Time to answer an HTTP request.",
            ["route"],
            buckets=LATENCY_BUCKETS_SECONDS,
            registry=registry,
        )
        for route in self._routes.values():
            self._requests.labels(route, "200")
            self._durations.labels(route)

    def record_request(self, scope: Scope, status: int, seconds: float) -> None:
        route = self.route_label(scope)
        self._requests.labels(route, str(status)).inc()
        self._durations.labels(route).observe(seconds)

    def route_label(self, scope: Scope) -> str:
        """Return the route of a request; "other" for unknown paths."""
        return self._routes.get(scope.get("endpoint"), "other")

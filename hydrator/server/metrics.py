"""HTTP metrics: requests by route and status, and closed connections."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter
from starlette.routing import Route
from starlette.types import Scope


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
    """Counts of requests: one series for each route and status, not for each path."""

    def __init__(self, registry: CollectorRegistry, routes: list[Route]) -> None:
        self._routes: dict[object, str] = {
            route.endpoint: route.path.replace(":path", "") for route in routes
        }
        self._requests = Counter(
            "hydrator_http_requests", "HTTP requests answered.", ["route", "status"], registry=registry
        )
        for route in self._routes.values():
            self._requests.labels(route, "200")

    def count_request(self, scope: Scope, status: int) -> None:
        self._requests.labels(self.route_label(scope), str(status)).inc()

    def route_label(self, scope: Scope) -> str:
        """Return the route of a request; "other" for unknown paths."""
        return self._routes.get(scope.get("endpoint"), "other")

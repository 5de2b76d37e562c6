"""The overview page of a large installation: CPU of a request, and bytes as the page travels."""

import asyncio
import statistics

import httpx
from prometheus_client import CollectorRegistry

from hydrator.config import Settings
from hydrator.domain.model import DatasetState, Replica, Seen, Site, Survey
from hydrator.reconcile.evaluate import evaluate
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.state import ReconcileState
from hydrator.reconcile.view import build_view
from hydrator.server.app import build_app
from hydrator.server.handlers import Sources
from hydrator.server.view import ServerState

from .material import NOW, dids, wants
from .measure import measure_cpu
from .record import Figure, Result

GOAL_MS, GOAL_KB = 100, 150
SITES, DATASETS = 50, 5000
HOW = (
    "Requests of `/` with `Accept-Encoding: gzip` in one process, without a socket: routes, limits, page and"
    " compression. Each dataset is at three sites and has a job. CPU, the median; the page comes in one"
    " piece, so its first byte waits for all of it."
)


def build_state(site_count: int, dataset_count: int) -> ServerState:
    """Return the state of the server after a cycle."""
    sites, names = [Site(f"SITE{number:02}") for number in range(site_count)], dids(dataset_count)
    readings = {
        did: Seen(
            NOW,
            tuple(
                Replica(did, sites[(place * 7 + step) % site_count], DatasetState.AVAILABLE, 1.0)
                for step in range(3)
            ),
            bytes_total=10**10,
        )
        for place, did in enumerate(names)
    }
    answers = {"catalogue": Survey("catalogue", NOW, frozenset(sites), readings)}
    demand = wants(names)
    evaluation = evaluate(
        ReconcileState(), answers, demand, published_generations={}, settings=Settings(), now=NOW
    )
    report = CycleReport(NOW, demand, evaluation, (), {"catalogue": None})
    return ServerState.of_cycle(report, build_view(report, None, confirming_polls=20))


def measure_page(state: ServerState, count: int) -> tuple[list[float], int]:
    """Return the CPU seconds of *count* requests of the overview, and its bytes."""
    transport = httpx.ASGITransport(app=build_app(Sources(lambda: state), CollectorRegistry()))
    client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
    with asyncio.Runner() as runner:
        taken = [measure_cpu(lambda: runner.run(client.get("/"))) for _ in range(count)]
    answer = taken[-1][1]
    assert answer.status_code == 200
    return [seconds for seconds, _ in taken], answer.num_bytes_downloaded


def run(quick: bool = False) -> Result:
    """Measure the page of a large installation, and that of a small one."""
    count = 3 if quick else 50
    large, size = measure_page(build_state(SITES, DATASETS), count)
    small, _ = measure_page(build_state(5, 50), count)
    cost = statistics.median(large)
    name = f"overview of {SITES} sites and {DATASETS:,} datasets"
    figures = (
        Figure(f"{name}: CPU of a request", cost * 1000, "ms", GOAL_MS),
        Figure(f"{name}: as it travels", size / 1000, "kB", GOAL_KB),
        Figure("compared with 5 sites and 50 datasets", cost / statistics.median(small), "times"),
    )
    return Result("page", figures, HOW, {"large": large, "small": small})

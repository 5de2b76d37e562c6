"""The page for people over HTTP: time to the first byte, size as it travels, and time of a live update."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import httpx
from prometheus_client import CollectorRegistry

from hydrator.diagnostics.overview.locality_history import SHOWN_DAYS, LocalityOverview, build_overview
from hydrator.diagnostics.overview.parts import PartKind, PartStatus
from hydrator.diagnostics.overview.placement import Placement
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import (
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Fact,
    Origin,
    Site,
    SiteAd,
    SiteFacts,
    Snapshot,
)
from hydrator.domain.pool_ports import IdleJobs, PoolLoad, ScheddLoad
from hydrator.domain.ports.staging import StagingKind
from hydrator.reconcile.ads.site_ads import Budget, draft_site_ads
from hydrator.reconcile.history import DatasetChange, HistoryEntry
from hydrator.server.api.live import LiveUpdates
from hydrator.server.app import build_app
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from hydrator.staging.overview import RequestRow, StagingOverview
from hydrator.state.locality_hours import LocalityHour

from .material import NOW
from .record import Figure, Result, Spread, round_samples

GOAL_MS = 100
GOAL_KB = 150
GOAL_LIVE_MS = 1000
SIZES = ((100, 3), (5000, 20), (5000, 50))
PATHS = {
    "overview": "/",
    "search": "/?find=49&state=stuck",
    "dataset": "/dataset?did=sim:D000003",
    "site": "/site?site=S00",
    "run": "/run?run=r",
}


def view(datasets: int, sites: int) -> ServerState:
    """Build a state with which no section of the page is empty.

    Every dataset is at a third of the sites, in all states and ages, and some jobs demand it.
    """
    states = list(DatasetState)
    names = [Did(f"sim:D{n:06}") for n in range(datasets)]
    facts = {
        Site(f"S{k:02}"): SiteFacts(
            NOW,
            {
                did: Fact(states[(n + k) % 6], NOW - timedelta(minutes=(n * 7 + k) % 400), 0.5)
                for n, did in enumerate(names)
                if (n + k) % 3 == 0
            },
        )
        for k in range(sites)
    }
    wants = tuple(DemandEntry((did,), n % 9 + 1, Origin.JOB, NOW) for n, did in enumerate(names))
    idle = tuple(IdleJobs(2, set_key([did]), run="r") for did in names[:500])
    drafts = draft_site_ads(Snapshot(facts), Demand(wants[:100]), budget=Budget())
    ads = {site: SiteAd(site, NOW, 1, draft.content) for site, draft in drafts.items()}
    load = PoolLoad(NOW, {"ap1": ScheddLoad(idle)}, ())
    return ServerState(
        ads,
        Snapshot(facts),
        Demand(wants),
        None,
        NOW,
        load=load,
        parts=_parts(),
        staging=_staging(names, list(facts)),
        locality=_locality(),
        changes=[
            HistoryEntry(
                NOW - timedelta(minutes=n), ads[site], (DatasetChange(did, None, "AVAILABLE", _SAYS),)
            )
            for n, (site, did) in enumerate(zip(ads, names, strict=False))
        ],
    )


_SAYS = "its catalogue says that it is there"
_ERROR = "no answer within 10 s"


def _parts() -> tuple[PartStatus, ...]:
    """Return three catalogues and two publishers; one of each had an error."""
    return (
        PartStatus(PartKind.CATALOGUE, "rucio"),
        PartStatus(PartKind.CATALOGUE, "dmapi", _ERROR, NOW - timedelta(minutes=9), _ERROR, NOW),
        PartStatus(PartKind.CATALOGUE, "files"),
        PartStatus(PartKind.PUBLISHER, "collector", None, None, "HTTP 503", NOW - timedelta(hours=7)),
        PartStatus(PartKind.PUBLISHER, "http"),
    )


def _staging(names: list[Did], sites: list[Site]) -> StagingOverview:
    """Return 500 requests of data: more than the page lists."""
    requests = tuple(
        RequestRow(
            tag=f"tag-{n}",
            batch=f"b-{n // 4}",
            catalogue="rucio",
            kind=StagingKind.STAGE,
            site=sites[n % len(sites)],
            did=did,
            state="REPLICATING",
            bytes=10**11 + n,
            bytes_done=10**8 * n,
            files=244,
            files_done=n % 244,
            handle=f"{n:032x}",
            user="",
            job_count=n % 9 + 1,
            asked_at=NOW - timedelta(minutes=n),
            expires_at=None,
            ready_at=NOW + timedelta(minutes=n),
            is_complete=False,
            is_stuck=n % 17 == 0,
            reason="no transfer for 2 h" if n % 17 == 0 else "",
            description=f"request {n}",
        )
        for n, did in enumerate(names[:500])
    )
    return StagingOverview(NOW, "ask", requests=requests)


def _locality() -> LocalityOverview:
    """Return the overview of ended jobs in each hour of all days that the page shows."""
    hours = [
        LocalityHour(
            NOW - timedelta(hours=age), age % 40, age % 7, age % 5, age % 3, 10**12 * age, 10**14, 10**11, 9.5
        )
        for age in range(SHOWN_DAYS * 24)
    ]
    return build_overview(hours, NOW)


class _Pool:
    """A state that is replaced as a cycle replaces it: with a new snapshot and its counts."""

    def __init__(self, state: ServerState) -> None:
        self.state = state
        self.version = 0
        self.count_ms: list[float] = []

    def change(self) -> None:
        snapshot = self.state.snapshot or Snapshot({})
        changed = replace(snapshot)
        begun = time.perf_counter()
        placement = Placement.of(changed)
        self.count_ms.append(1000 * (time.perf_counter() - begun))
        self.state = replace(
            self.state, snapshot=changed, placement=placement, troubles=(f"change {self.version}",)
        )
        self.version += 1


@contextmanager
def _serve(pool: _Pool) -> Iterator[httpx.Client]:
    live = LiveUpdates(lambda: pool.version)
    asgi = build_app(lambda: pool.state, CollectorRegistry(), live=live)
    with (
        HttpServer(asgi, on_stop=live.close) as server,
        httpx.Client(base_url=server.url or "", trust_env=False, timeout=120) as client,
    ):
        yield client


def _get(client: httpx.Client, path: str) -> tuple[float, int]:
    """Return the milliseconds to the first byte of the answer's body, and the bytes as they travel."""
    begun = time.perf_counter()
    with client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as answer:
        parts = answer.iter_raw()
        size = len(next(parts))
        first = 1000 * (time.perf_counter() - begun)
        size += sum(len(part) for part in parts)
        answer.raise_for_status()
    return first, size


def _measure_live(client: httpx.Client, pool: _Pool, count: int) -> list[float]:
    """Return the milliseconds from changes of the state until a reader of the stream has the new page."""
    found = []
    with client.stream("GET", "/live", headers={"Accept": "text/event-stream"}) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data:"))
        next(lines)  # the reader's page is old
        for _ in range(count):
            pool.change()
            begun = time.perf_counter()
            next(lines)
            _get(client, "/")
            found.append(1000 * (time.perf_counter() - begun))
    return found


def run(*, quick: bool) -> Result:
    """Measure the pages of pools of several sizes."""
    figures, raw = [], {}
    for datasets, sites in SIZES:
        pool = _Pool(view(datasets, sites))
        with _serve(pool) as client:
            _get(client, "/")  # templates are compiled once
            for what, path in PATHS.items():
                name = f"{datasets:,} datasets, {sites} sites, {what}"
                samples = []
                for _ in range(5 if quick else 50):
                    pool.change()
                    samples.append(_get(client, path))
                times = [milliseconds for milliseconds, _ in samples]
                figures.append(Figure(f"{name}, first byte", Spread.of(times).p50, "ms", GOAL_MS))
                figures.append(Figure(f"{name}, size", samples[-1][1] / 1000, "kB", GOAL_KB))
                raw[name] = round_samples(times)
            name = f"{datasets:,} datasets, {sites} sites, counts in the cycle"
            figures.append(Figure(name, Spread.of(pool.count_ms).p50, "ms"))
            live = _measure_live(client, pool, 3 if quick else 20)
            name = f"{datasets:,} datasets, {sites} sites, live update"
            figures.append(Figure(name, max(live), "ms", GOAL_LIVE_MS, "the slowest"))
            raw[name] = round_samples(live)
    return Result("page", tuple(figures), __doc__ + _HOW, raw)


_HOW = """
 A client on this machine asks the daemon's HTTP server, with gzip. Before each request the state is replaced,
 as a cycle does it; the cycle also counts where the datasets are, and no reader waits for that (counts in the
 cycle). The first byte is that of the page itself, the median. A live update is the time from the change
 until a reader of the stream has the new page.
"""

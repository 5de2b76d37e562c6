"""Time to render the HTML page, and its size, by datasets and sites."""

import gzip
import time
from datetime import timedelta

from hydrator.domain.model import (
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Fact,
    Origin,
    Site,
    SiteFacts,
    Snapshot,
)
from hydrator.server.pages.filters import Selection
from hydrator.server.pages.overview import render_overview
from hydrator.server.view import ServerState

from .material import NOW
from .record import Figure, Result, Spread, round_samples

GOAL_MS = 100
GOAL_KB = 50
SIZES = ((100, 3), (5000, 3), (5000, 20))
SELECTIONS = {"the first page": Selection(), "a search": Selection(name_contains="49", state="stuck")}


def view(datasets: int, sites: int) -> ServerState:
    """Build a state: every dataset at a third of the sites, in all states and ages, demanded by some jobs."""
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
    return ServerState({}, Snapshot(facts), Demand(wants), None, NOW)


def run(*, quick: bool) -> Result:
    """Measure milliseconds of the server, and kilobytes after gzip."""
    figures, raw = [], {}
    for datasets, sites in SIZES:
        state = view(datasets, sites)
        for what, selected in SELECTIONS.items():
            name = f"{datasets:,} datasets, {sites} sites, {what}"
            seconds, text = [], ""
            for _ in range(5 if quick else 50):
                begun = time.perf_counter()
                text = render_overview(state, selected)
                seconds.append(1000 * (time.perf_counter() - begun))
            kilobytes = len(gzip.compress(text.encode(), 5)) / 1000
            note = f"{len(text.encode()) / 1000:.0f} kB before gzip"
            figures.append(Figure(f"{name}, median", Spread.of(seconds).p50, "ms", GOAL_MS))
            figures.append(Figure(f"{name}, size", kilobytes, "kB", GOAL_KB, note))
            raw[name] = round_samples(seconds)
    return Result("page", tuple(figures), __doc__ + _HOW, raw)


_HOW = """
 The page is rendered in this process from values in memory, as the daemon does it for every reader; HTTP and
gzip come on top (a millisecond or two). One page shows 100 datasets; what is asked for is sought among all.
"""

"""Cost of a cycle at 1,000,000 replicas, and with pacing."""

import gc
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from hydrator.config import Settings
from hydrator.daemon.metrics import Metrics
from hydrator.domain.ads.openings import PacedCycle
from hydrator.domain.model import (
    DatasetState,
    Demand,
    Did,
    PublishedAd,
    Replica,
    Seen,
    Site,
    Snapshot,
    Survey,
)
from hydrator.domain.ports import PoolLoad
from hydrator.reconcile.evaluate import Evaluation, evaluate
from hydrator.reconcile.pacer import Pacer
from hydrator.reconcile.publish import plan
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.state import ReconcileState
from hydrator.reconcile.view import build_view
from hydrator.state.store import Store

from .material import NOW, SITES, SLOTS, MadePool, dids, survey, wants
from .measure import measure_cpu, peak_mib, run_in_process
from .record import Figure, Result

POLL = timedelta(seconds=30)
REFRESH_AFTER = timedelta(minutes=5)
FULL_GOAL, CHANGED_GOAL, MEMORY_GOAL, PACING_GOAL, METRICS_GOAL = 10.0, 4.0, 1024.0, 0.2, 0.2
STATES = (DatasetState.STAGING, DatasetState.PARTIAL, DatasetState.STUCK)


@dataclass(frozen=True, slots=True)
class Shape:
    """Numbers of demanded datasets, of *copies* at *sites* sites of each, and of known sites."""

    name: str
    datasets: int
    sites: int
    storages: int

    @property
    def replicas(self) -> int:
        return self.datasets * self.sites * self.storages


SHAPES = (
    Shape("10,000 wanted of 1,000,000 known, 1,000,000 replicas", 10_000, 20, 5),
    Shape("10,000 wanted, 100,000 replicas", 10_000, 2, 5),
    Shape("all 500,000 wanted, 1,000,000 replicas", 500_000, 2, 1),
)
CHANGES = (0, 100, 10_000)
PACED_SETS = 10_000
HOME_SITES = 2
"""Sites that have a dataset in the measurement with pacing; jobs read it elsewhere."""


def replicas(names: list[Did], shape: Shape) -> list[tuple[Did, list[Replica]]]:
    """Build complete replicas of each dataset at several sites, at each in several storage elements."""
    numbers = [f"_{number}" for number in range(shape.storages)] if shape.storages > 1 else [""]
    rows = []
    for place, did in enumerate(names):
        sites = [SITES[(place + 7 * copy) % len(SITES)] for copy in range(shape.sites)]
        rows.append((did, [complete(did, site, number) for site in sites for number in numbers]))
    return rows


def complete(did: Did, site: Site, number: str) -> Replica:
    storage = sys.intern(f"{site}{number}") if number else ""
    return Replica(did, site, DatasetState.AVAILABLE, storage=storage)


def repeat_survey(last: Survey, changes: int, turn: int) -> Survey:
    """Build the next answer: all replicas read again, *changes* datasets in another state."""
    at, readings = last.started_at + POLL, {}
    step = max(1, len(last.readings) // max(1, changes))
    chosen = {n * step + n % step for n in range(changes)}  # at all sites
    for place, (did, seen) in enumerate(last.readings.items()):
        assert isinstance(seen, Seen)
        mine = seen.replicas
        if place in chosen:
            site, state = mine[0].site, STATES[turn % len(STATES)]
            mine = tuple(Replica(did, r.site, state, 0.5, r.storage) if r.site == site else r for r in mine)
        readings[did] = Seen(at, mine, seen.bytes_total)
    return Survey(last.catalogue, at, last.sites, readings)


def cycle(
    state: ReconcileState,
    answer: Survey,
    demand: Demand,
    make_openings: Callable[[Snapshot], PacedCycle] = lambda _: PacedCycle(),
) -> Evaluation:
    """Evaluate one cycle of the daemon, without polling and publishing."""
    there = {
        site: PublishedAd(site, ad.generation, ad.as_of, answer.started_at - POLL)
        for site, ad in state.ads.items()
    }
    generations = {site: ad.generation for site, ad in there.items()}
    thought = evaluate(
        state,
        {"catalogue": answer},
        demand,
        published_generations=generations,
        settings=Settings(),
        now=answer.started_at,
        make_openings=make_openings,
    )
    plan(there, thought.ads, retired=frozenset(), now=answer.started_at, refresh_after=REFRESH_AFTER)
    return thought


def measure(shape: Shape, repeats: int) -> dict[str, Any]:
    """Measure CPU seconds of a first cycle, of later ones, and of saving after each; memory in MiB."""
    names = dids(shape.datasets)
    demand = wants(names)
    answer = survey(replicas(names, shape), NOW)
    taken: dict[str, Any] = {"inputs": peak_mib(), "changed": {}, "saved": {}}
    with tempfile.TemporaryDirectory() as folder, Store.open_to_write(Path(folder)) as store:
        full, last = measure_cpu(partial(cycle, ReconcileState(), answer, demand))
        taken |= {"full": full, "peak": peak_mib()}
        taken["saved"]["all"] = measure_cpu(partial(store.save, last.state))[0]
        turn = 0
        for changes in CHANGES:
            seconds, saves = [], []
            for _ in range(repeats):
                turn += 1
                answer = repeat_survey(answer, min(changes, shape.datasets), turn)
                spent, last = measure_cpu(partial(cycle, last.state, answer, demand))
                seconds.append(spent)
                saves.append(measure_cpu(partial(store.save, last.state))[0])
            taken["changed"][str(changes)] = seconds
            taken["saved"][str(changes)] = saves
    return taken


def measure_pacing(sets: int, repeats: int) -> dict[str, Any]:
    """Measure CPU seconds of cycles with and without pacing: the first one, and later ones.

    In the later ones 100 datasets have changed, and the pool has another load.
    """
    names = dids(sets)
    demand = wants(names)
    taken: dict[str, Any] = {"rounds": []}

    def pace(pacer: Pacer, snapshot: Snapshot, at: datetime) -> PacedCycle:
        seconds, made = measure_cpu(partial(pacer.make, snapshot, demand, at))
        taken["rounds"].append(seconds)
        return made

    for name in ("off", "on"):
        pool = MadePool(names, POLL)
        pacer = Pacer(Settings(), lambda *_: 100e6)
        shape = Shape(name, sets, HOME_SITES, 1)
        answer = survey(replicas(names, shape), NOW)
        state, spent = ReconcileState(), []
        for turn in range(1 + repeats):
            pool.turn = turn
            if turn:
                answer = repeat_survey(answer, min(100, sets), turn)
            now = NOW + turn * POLL
            pacer.update_load(PoolLoad(now, {"schedd": pool.read_queue(now).load}, SLOTS))
            openings = partial(pace, pacer, at=answer.started_at)
            more = (openings,) if name == "on" else ()
            seconds, evaluation = measure_cpu(partial(cycle, state, answer, demand, *more))
            state = evaluation.state
            spent.append(seconds)
        taken[name] = spent
        made = evaluation.paced.openings
        assert name == "off" or made, evaluation.paced.none_reason
        taken["openings"] = sum(map(len, made.openings.values())) if made else 0
    taken["metrics"] = measure_metrics(CycleReport(now, demand, evaluation, (), {"catalogue": None}))
    taken["peak"] = peak_mib()
    return taken


def measure_metrics(report: CycleReport) -> float:
    """Measure CPU seconds of the metrics of the cycle of *report*: recorded, and scraped once."""
    registry = CollectorRegistry()
    metrics = Metrics(registry, "benchmark")
    view = build_view(report, None, confirming_polls=Settings().removal_guard.confirm_polls)

    def record_and_scrape() -> None:
        metrics.record_cycle(view, 1.0)
        generate_latest(registry)

    return measure_cpu(record_and_scrape)[0]


def figures_of_pacing(sets: int, taken: Mapping[str, Any]) -> list[Figure]:
    name = f"{sets:,} sets at {len(SITES)} sites"
    first, *later = taken["on"]
    first_off, *later_off = taken["off"]
    return [
        Figure(f"{name}, pacing on: full cycle", first, "s", None, f"{first_off:.3g} s without pacing"),
        Figure(
            f"{name}, pacing on: cycle with 100 changes and another load",
            statistics.median(later),
            "s",
            None,
            f"{statistics.median(later_off):.3g} s without pacing; {taken['openings']:,} openings",
        ),
        Figure(f"{name}: a round of pacing", min(taken["rounds"]), "s", PACING_GOAL, "the cheapest of all"),
        Figure(f"{name}: metrics of a cycle", taken["metrics"], "s", METRICS_GOAL, "recorded and scraped"),
        Figure(f"{name}, pacing on: peak memory of the process", taken["peak"], "MiB"),
    ]


def run(quick: bool = False) -> Result:
    """Measure each shape, and the cycle with pacing, in a process of its own."""
    shapes = [Shape(s.name, s.datasets // 100, s.sites, s.storages) for s in SHAPES] if quick else SHAPES
    repeats = 1 if quick else 3
    measurements = {
        shape.name: run_in_process("scale", shape.name, shape.datasets, shape.sites, shape.storages, repeats)
        for shape in shapes
    }
    figures = [figure for shape in shapes for figure in figures_of(shape, measurements[shape.name])]
    large, small = (measurements[SHAPES[number].name] for number in (0, 1))
    grown = middle(large, "100") / middle(small, "100")
    figures.append(Figure("100 changes: ten times the replicas cost", grown, "times", note="10,000 wanted"))
    sets = PACED_SETS // 5 if quick else PACED_SETS
    measurements["pacing"] = run_in_process("scale", "pacing", sets, repeats)
    figures += figures_of_pacing(sets, measurements["pacing"])
    return Result("scale", tuple(figures), " ".join(HOW.split()), measurements)


def middle(taken: Mapping[str, Any], changes: str, what: str = "changed") -> float:
    return float(statistics.median(taken[what][changes]))


def figures_of(shape: Shape, taken: Mapping[str, Any]) -> list[Figure]:
    of_goal = shape.replicas >= 100_000 * 10
    name = shape.name
    literal = shape is SHAPES[0]
    return [
        Figure(f"{name}: full cycle", taken["full"], "s", FULL_GOAL if of_goal else None),
        Figure(
            f"{name}: peak memory of the process",
            taken["peak"],
            "MiB",
            MEMORY_GOAL if of_goal else None,
            f"{taken['inputs']:.0f} of it the catalogue's answer",
        ),
        *(
            Figure(
                f"{name}: cycle with {int(changes):,} changes",
                middle(taken, changes),
                "s",
                CHANGED_GOAL if literal and changes == "100" else None,
            )
            for changes in taken["changed"]
        ),
        Figure(f"{name}: saving the first state", taken["saved"]["all"], "s"),
        Figure(f"{name}: saving after 100 changes", middle(taken, "100", "saved"), "s"),
    ]


HOW = """\
A cycle is `evaluate` (memory, guard, snapshot, drafts inside the default budget, generations) and
`plan` for one publisher. Full: from an empty state. Later polls read all replicas again; this many
datasets have changed their state at one of their sites; each cycle computes all facts and ads again. Datasets
without demand never reach the core. Unchanged readings keep
their replica objects, as with adapters while a file or an answer is the same; the times are new. CPU
seconds, median of 3, each shape in a process of its own. Saving is SQLite. With pacing: each dataset is
at 2 of 20 sites and has idle jobs and a running job of its own; all pairs of sites have a rate; the same
cycles without pacing are measured beside them. The query of the pool's load is not in the figures."""


if __name__ == "__main__":
    gc.set_threshold(100_000)  # as in the daemon's process: hydrator.cli.main
    kind, *numbers = sys.argv[1], *map(int, sys.argv[2:])
    if kind == "pacing":
        json.dump(measure_pacing(*numbers), sys.stdout)
    else:
        *sizes, count = numbers
        json.dump(measure(Shape(kind, *sizes), count), sys.stdout)

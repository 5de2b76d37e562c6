"""Cost of evaluating a cycle: 100,000 replicas at 20 sites, all demanded; full, and after 100 changes."""

import json
import statistics
import sys
import tempfile
import tracemalloc
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from hydrator.config import Settings
from hydrator.domain.model import (
    ActionKind,
    DatasetState,
    Demand,
    Did,
    Plan,
    PublishedAd,
    Replica,
    Survey,
)
from hydrator.reconcile.evaluate import Evaluation, evaluate
from hydrator.reconcile.publish import plan
from hydrator.reconcile.site_ads import Budget
from hydrator.reconcile.state import ReconcileState
from hydrator.state.store import Store

from .material import NOW, SITES, dids, survey, wants
from .measure import measure_cpu, peak_mib, run_in_process
from .record import Figure, Result, round_samples

COPIES = 2
"""Number of sites of each dataset."""

CHANGES = 100
POLL = timedelta(seconds=30)
REFRESH_AFTER = timedelta(minutes=5)


CASES = {"default budget": Budget(), "no budget": Budget(line_bytes=10**9, ad_bytes=10**9)}


def replicas(names: Sequence[Did], changed: int = 0) -> list[tuple[Did, list[Replica]]]:
    """Build replicas of each dataset at two sites; one copy of the first *changed* ones is incoming."""
    rows = []
    for place, did in enumerate(names):
        sites = [SITES[(place + 7 * copy) % len(SITES)] for copy in range(COPIES)]
        states = [DatasetState.STAGING if place < changed else DatasetState.AVAILABLE, DatasetState.AVAILABLE]
        rows.append((did, [Replica(did, *pair) for pair in zip(sites, states, strict=True)]))
    return rows


def cycle(state: ReconcileState, answer: Survey, demand: Demand, budget: Budget) -> tuple[Evaluation, Plan]:
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
        budget=budget,
        now=answer.started_at,
    )
    return thought, plan(
        there, thought.ads, retired=frozenset(), now=answer.started_at, refresh_after=REFRESH_AFTER
    )


def measure(case: str, count: int, repeats: int) -> dict[str, Any]:
    """Measure seconds of the first cycle, one with 100 changes, and of saving after each; memory in MiB."""
    names = dids(count // COPIES)
    demand = wants(names)
    budget = CASES[case]
    first = survey(replicas(names), NOW)
    second = survey(replicas(names, CHANGES), NOW + POLL)
    taken: dict[str, Any] = {"full": [], "changed": [], "saved": [], "saved again": []}
    taken["inputs_mib"] = peak_mib()
    for _ in range(repeats):
        seconds, (thought, _todo) = measure_cpu(partial(cycle, ReconcileState(), first, demand, budget))
        taken["full"].append(seconds)
        seconds, (after, todo) = measure_cpu(partial(cycle, thought.state, second, demand, budget))
        taken["changed"].append(seconds)
        with tempfile.TemporaryDirectory() as folder, Store.open_to_write(Path(folder)) as store:
            taken["saved"].append(measure_cpu(partial(store.save, thought.state))[0])
            taken["saved again"].append(measure_cpu(partial(store.save, after.state))[0])
    taken["peak_mib"] = peak_mib()
    taken["left_out"] = sum(len(draft.omitted_entries) for draft in after.drafts.values())
    taken["ad_bytes"] = sum(len(ad.text) for ad in after.ads.values())
    taken["published"] = sum(action.kind is ActionKind.PUBLISH for action in todo)
    tracemalloc.start()
    cycle(ReconcileState(), first, demand, budget)
    taken["traced_peak_mib"] = tracemalloc.get_traced_memory()[1] / 2**20
    return taken


def run(quick: bool = False) -> Result:
    """Measure each case in a process of its own."""
    count, repeats = (5_000, 1) if quick else (100_000, 5)
    measurements = {case: run_in_process("core", case, count, repeats) for case in CASES}
    figures = [figure for case, each in measurements.items() for figure in figures_of(case, each, count)]
    raw = {
        case: {
            name: round_samples(value) if isinstance(value, list) else round(value, 1)
            for name, value in each.items()
        }
        for case, each in measurements.items()
    }
    how = " ".join(HOW.split()).format(
        count=count, datasets=count // COPIES, changes=CHANGES, copies=COPIES, repeats=repeats
    )
    return Result("core", tuple(figures), how, raw)


def figures_of(case: str, taken: dict[str, Any], count: int) -> list[Figure]:
    full, changed, saved, again = (
        statistics.median(taken[name]) for name in ("full", "changed", "saved", "saved again")
    )
    note = (
        f"{taken['left_out']:,} replicas found no room in their site's ad; {taken['ad_bytes']:,} bytes of ads"
    )
    return [
        Figure(f"full cycle, {case}", full, "s", note=note),
        Figure(f"full cycle, a replica, {case}", full / count * 1e6, "µs"),
        Figure(
            f"cycle with {CHANGES} changes, {case}", changed, "s", note=f"{taken['published']} ads change"
        ),
        Figure(f"peak memory above its inputs, {case}", taken["traced_peak_mib"], "MiB", note="tracemalloc"),
        Figure(
            f"peak memory of the process, {case}",
            taken["peak_mib"],
            "MiB",
            note=f"{taken['inputs_mib']:.0f} of it before the first cycle",
        ),
        Figure(f"for scale: saving the state, all of it, {case}", saved, "s"),
        Figure(f"for scale: saving it after {CHANGES} changes, {case}", again, "s"),
    ]


HOW = """\
{count:,} replicas: {datasets:,} datasets, each at {copies} of 20 sites and each wanted by a job of its
own. A cycle is `think` (memory, snapshot, drafts inside the budget, generations) and `plan` for one
publisher. Full: from an empty state. {changes} changes: the next poll, with every reading newer and as
many replicas in another state. CPU seconds, median of {repeats}, each case in a process of its own. The
default budget (60,000 bytes a line) cuts most of it, as it would with the pattern * and 5,000 datasets at
each site; without a budget everything is written."""


if __name__ == "__main__":
    json.dump(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])), sys.stdout)

"""The result file ``benefit.json``: figures of all cells, verdicts, and where they come from."""

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .arms import ARMS
from .cells import CellFigures, summarize
from .goals import Verdict, judge
from .runs import BenefitRun
from .workload import COMPUTE_SECONDS, JOB_BYTES, SLOTS

NAME = "benefit.json"
HOW = f"""\
Fresh real pools of three sites with {SLOTS} cores each run the same jobs under each policy (arm), with the
real daemon, hook, pool configuration and job wrapper. A job that runs beside its data reads a file; elsewhere
it reads {JOB_BYTES / 1e6:g} MB over the throttled link of the source site, which all readers of that
site share. Then it computes (sleeps) for {COMPUTE_SECONDS:g} s on average, unless its cell says
otherwise. x is the time of a remote read
without other readers, divided by the computing time. Arms with the same seed have the same jobs in the
same order; arms run side by side in random order. Speed-ups are medians over seeds, with a bootstrap
interval of 95 %; with five seeds or fewer that is the least and the largest. The whole method:
benchmarks/results/benefit.md."""


def write(runs: Sequence[BenefitRun], folder: Path) -> Path | None:
    """Write the figures of *runs* to *folder*; return the file, None without a run that can be compared."""
    cells = summarize(runs)
    if not cells:
        return None
    verdicts = judge(cells)
    text = json.dumps(document(runs, cells, verdicts), indent=None, separators=(", ", ": "))
    file = folder / NAME
    file.write_text(_one_cell_a_line(text), "utf-8")
    return file


def document(
    runs: Sequence[BenefitRun], cells: Sequence[CellFigures], verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """Build the content of the result file."""
    machines = [run.machine for run in runs if run.samples]
    loads = [machine["load"][1] for machine in machines]
    return {
        "name": "benefit",
        "date": datetime.fromtimestamp(_last_run_at(machines), UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": "make benefit",
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "versions": {"Python": platform.python_version(), "HTCondor": _all_of(machines, "release")},
        "commit": _all_of(machines, "commit"),
        "links": _all_of(machines, "links"),
        "load_average": [round(min(loads), 1), round(sum(loads) / len(loads), 1), round(max(loads), 1)],
        "how": " ".join(HOW.split()),
        "runs": len(machines),
        "failed_runs": [_failed(run) for run in runs if run.failure],
        "arms": {arm.name: arm.what for arm in ARMS.values()},
        "goals": [_verdict(verdict) for verdict in verdicts],
        "cells": [each.to_json() for each in cells],
    }


def _last_run_at(machines: Sequence[Mapping[str, Any]]) -> float:
    return max((float(machine["at"]) for machine in machines if "at" in machine), default=time.time())


def _failed(run: BenefitRun) -> dict[str, Any]:
    return {**asdict(run.key.cell), "arm": run.key.arm, "seed": run.key.seed, "reason": run.failure}


def _all_of(machines: Sequence[Mapping[str, Any]], name: str) -> str:
    return ", ".join(sorted({str(machine[name]) for machine in machines}))


def _verdict(verdict: Verdict) -> dict[str, Any]:
    cell = verdict.cell
    return {
        "goal": verdict.goal,
        "layout": cell.layout,
        "mix": cell.mix,
        "submitted": cell.submitted,
        "x": cell.x,
        "seconds": cell.seconds,
        "value": round(verdict.value, 3),
        "sign": verdict.sign,
        "limit": verdict.limit,
        "met": verdict.is_met,
        "reason": verdict.reason,
    }


def _one_cell_a_line(text: str) -> str:
    """Break the JSON text so that each cell and goal is a line, for readable differences."""
    for head in ('"cells": [', '"goals": ['):
        text = text.replace(head, f"\n{head}\n")
    return text.replace("}, {", "},\n{") + "\n"

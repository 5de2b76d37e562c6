"""One run in a process of its own: ``python -m benchmarks.benefit.one KEY_AS_JSON`` prints its line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from . import links
from .arms import ARMS
from .pools import execute, median_gap
from .runs import BenefitRun, JobSample, RunKey
from .workload import Cell, generate


def run(key: RunKey, release: str | None = None) -> BenefitRun:
    """Run *key* on a fresh pool; a failed run is returned with its reason."""
    form = links.kind()
    machine: dict[str, object] = {"commit": commit(), "links": form, "at": int(time.time())}
    try:
        done = execute(generate(key.cell, key.seed, key.count), key.cell, ARMS[key.arm], form, release)
    except (AssertionError, OSError, RuntimeError, subprocess.SubprocessError) as failure:
        return BenefitRun(key, {}, machine, str(failure)[:2000] or type(failure).__name__)
    load = done.load
    machine |= {
        "release": done.version,
        "load": [round(value, 1) for value in (load[0], sum(load) / len(load), max(load))],
        "gap_seconds": round(median_gap(done.records), 2),
        "lone_seconds": [round(each, 2) for each in done.lone_seconds],
    }
    samples = {
        each.number: JobSample(
            each.site,
            each.began_at - done.began_at,
            each.read_at - done.began_at,
            each.ended_at - done.began_at,
        )
        for each in done.records
    }
    return BenefitRun(key, samples, machine)


def commit() -> str:
    """Return the commit of this checkout, with ``+`` if files differ from it; empty without git."""
    root = Path(__file__).parents[2]
    words = ["git", "-C", str(root), "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def order_of(key: RunKey, release: str | None) -> str:
    """Return the argument of this program for *key*."""
    cell = key.cell
    return json.dumps(
        [[cell.layout, cell.mix, cell.submitted, cell.x, cell.seconds], key.arm, key.seed, key.count, release]
    )


def _end_by_signal(_number: int, _frame: FrameType | None) -> None:
    """End by unwinding, so that the pool is removed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(argument: str) -> int:
    """Run the order and print the run."""
    signal.signal(signal.SIGTERM, _end_by_signal)
    signal.signal(signal.SIGINT, _end_by_signal)
    cell, arm, seed, count, release = json.loads(argument)
    try:
        print(run(RunKey(Cell(*cell), arm, seed, count), release).to_line(), flush=True)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main(sys.argv[1]))

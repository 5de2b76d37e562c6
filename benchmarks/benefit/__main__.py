"""``python -m benchmarks.benefit [SET…] [options]``: run the experiment, then write its map.

Runs that are stored are not repeated, so an interrupted experiment goes on where it was. ``make benefit``
runs everything that is left; CELLS has these options: ``make benefit CELLS='headline --minutes 60'``.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from testbed.processes import end

from . import figures
from . import map as benefit_map
from .one import order_of
from .plan import SETS, CellSet, estimate_seconds, order, total_seconds
from .runs import BenefitRun, RunKey, RunStore, outcome

RESULTS = Path(__file__).parents[1] / "results"


@dataclass
class Supervisor:
    """Runs side by side, each in a process of its own; ended runs are stored at once."""

    store: RunStore
    release: str | None
    until: float

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run_all(self, keys: Sequence[RunKey], pools: int) -> None:
        """Run *keys* in their order, *pools* at a time, until the time is over."""
        left = iter(keys)
        with ThreadPoolExecutor(pools) as threads:
            workers = [threads.submit(self._work, left) for _ in range(pools)]
            try:
                for worker in workers:
                    worker.result()
            except BaseException:
                self._stop()
                raise

    def _work(self, left: Iterator[RunKey]) -> None:
        while True:
            with self._lock:
                fits = (key for key in left if time.monotonic() + estimate_seconds(key) < self.until)
                key = None if self._stopped else next(fits, None)
            if key is None:
                return
            self._run(key)

    def _run(self, key: RunKey) -> None:
        command = [sys.executable, "-m", "benchmarks.benefit.one", order_of(key, self.release)]
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "TERM", *command]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        with self._lock:
            self._children.add(child)
        assert child.stdout is not None
        output = child.stdout.read().decode()
        child.wait()
        with self._lock:
            self._children.discard(child)
            if not self._stopped:
                self._store(key, output)

    def _store(self, key: RunKey, output: str) -> None:
        if not output.endswith("\n"):
            print(f"   {_label(key)}: the run ended without a result", flush=True)
            return
        run = BenefitRun.parse(output.splitlines()[-1])
        self.store.append(run)
        if run.failure:
            print(f"   {_label(key)}: FAILED: {run.failure}", flush=True)
            return
        done = outcome(run)
        print(
            f"   {_label(key)}: {done.makespan:.0f} s, {done.bytes_local:.0%} local,"
            f" load {run.machine['load'][1]}, slots idle {done.slots_idle:.0%}",
            flush=True,
        )

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            children = list(self._children)
        for child in children:
            end(child, 30)


def _label(key: RunKey) -> str:
    cell = key.cell
    return f"{cell.layout}, {cell.mix}, {cell.submitted}, x {cell.x:g}, {key.arm}, seed {key.seed}"


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.benefit", description=__doc__)
    made.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; default: all")
    for option, what in (
        ("--layout", "layouts"),
        ("--mix", "mixes"),
        ("--submitted", "batch, stream"),
        ("--x", "values of x"),
        ("--arm", "arms"),
    ):
        made.add_argument(option, help=f"other {what} than the set's, with ; between")
    made.add_argument("--seeds", type=int, help="seeds from 1 to this number")
    made.add_argument("--jobs", type=int, help="jobs of a run")
    made.add_argument("--minutes", type=float, help="begin no run that would not end in this time")
    made.add_argument("--pools", type=int, default=3, help="pools side by side (%(default)s)")
    made.add_argument("--release", help="25.14 or 23.9")
    made.add_argument("--results", type=Path, default=RESULTS, help="folder of benefit.json and its runs")
    made.add_argument("--fresh", action="store_true", help="set the stored runs aside and begin again")
    made.add_argument("--again", action="store_true", help="repeat stored runs; the last one of each counts")
    made.add_argument("--plan", action="store_true", help="print what is left, and how long it takes")
    made.add_argument(
        "--map", action="store_true", help="run nothing; write figures and map from the stored runs"
    )
    return made


def choose(options: argparse.Namespace) -> list[CellSet]:
    """Return the sets of cells that the command line asks for.

    Raises:
        ValueError: a name is unknown.
    """
    if unknown := [name for name in options.sets if name not in SETS]:
        raise ValueError(f"no set {unknown[0]!r}: choose from {', '.join(SETS)}")
    changes: dict[str, object] = {}
    for option, field in (
        ("layout", "layouts"),
        ("mix", "mixes"),
        ("submitted", "submitted"),
        ("arm", "arms"),
    ):
        if text := getattr(options, option):
            changes[field] = tuple(part.strip() for part in text.split(";"))
    if options.x:
        changes["xs"] = tuple(float(part) for part in options.x.replace(";", ",").split(","))
    changes |= {"seeds": options.seeds} if options.seeds else {}
    changes |= {"count": options.jobs} if options.jobs else {}
    names = options.sets or (
        ["headline"] if changes.keys() & {"layouts", "mixes", "submitted", "xs", "arms"} else SETS
    )
    return [replace(SETS[name], **changes) for name in names]  # type: ignore[arg-type]


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Stop the runs; a second signal must not interrupt the removal of the pools."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; exit status 0, 2 wrong usage, 130 interrupted."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    made = parser()
    options = made.parse_args(arguments)
    try:
        sets = choose(options)
    except ValueError as wrong:
        made.error(str(wrong))
    store = RunStore(options.results / "benefit_runs.jsonl")
    if options.fresh and not (options.plan or options.map):
        store.set_aside()
    ended = [] if options.again else [run.key for run in store.load() if not run.failure]
    keys = list(order(sets, ended))
    minutes = total_seconds(keys, options.pools) / 60
    print(f"{len(keys)} runs are left: some {minutes:.0f} min with {options.pools} pools", flush=True)
    if options.plan:
        for key in keys:
            print(f"   {_label(key)}: {estimate_seconds(key):.0f} s")
        return 0
    status = 0
    if not options.map:
        until = time.monotonic() + 60 * (options.minutes or 1e6)
        try:
            Supervisor(store, options.release, until).run_all(keys, options.pools)
        except KeyboardInterrupt:
            print("stopped; the runs that ended are stored", file=sys.stderr)
            status = 130
    file = figures.write(store.load(), options.results)
    if file and options.results == RESULTS:
        benefit_map.main([str(file)])
    return status


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())

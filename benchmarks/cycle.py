"""CPU of a whole interval of the daemon as it runs, from the poll to the pages and metrics."""

import gc
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from hydrator.config import Settings
from hydrator.daemon.daemon import Daemon
from hydrator.daemon.logs import configure_logs
from hydrator.daemon.process import ServiceManager, limit_arenas
from hydrator.daemon.runtime import MACHINE
from hydrator.domain.model import Did, Site
from hydrator.domain.ports import PoolSnapshot, ScheddQueue
from hydrator.state.store import Store
from hydrator.wiring.assembly import Parts, assemble

from .material import SITES, SLOTS, MadePool, dids
from .measure import peak_mib, run_in_process
from .record import Figure, Result

DATASETS, CHANGES, CYCLES = 10_000, 100, 5
COPIES = {"100,000 replicas": 10, "1,000,000 replicas": 20}
"""Sites of each dataset. A worker reduces 1,000,000 replicas, five at each of 20 sites, to 200,000 rows."""
GOALS = {"100,000 replicas": 1.5, "1,000,000 replicas": 4.0}
POLL_SECONDS = 20


class CountedPool:
    """The pool in memory, with the CPU seconds of this process at each question."""

    def __init__(self, names: list[Did]) -> None:
        self._made = MadePool(names, timedelta(seconds=POLL_SECONDS))
        self.polled_at: list[float] = []
        self.last: PoolSnapshot | None = None

    def restore(self, queues: Mapping[str, ScheddQueue]) -> None:
        """Ignore the last queues; see :class:`hydrator.domain.ports.PoolReader`."""

    def read_snapshot(self, *, waits: bool = False) -> PoolSnapshot:  # noqa: ARG002
        """Return another load at each call; see :class:`hydrator.domain.ports.PoolReader`."""
        self.polled_at.append(time.process_time())
        now = MACHINE.clock()
        self._made.turn += 1
        self.last = PoolSnapshot(now, {"schedd": self._made.read_queue(now)}, {}, SLOTS)
        return self.last

    def close(self) -> None:
        """Do nothing: no connection is open."""


def write_catalogue(file: Path, names: list[Did], copies: int, turn: int) -> None:
    """Write a list for a file catalogue; in each *turn*, other datasets are staged at one of their sites."""
    datasets = {}
    for place, did in enumerate(names):
        sites: dict[Site, Any] = {
            SITES[(place + 7 * copy) % len(SITES)]: "available" for copy in range(copies)
        }
        if place % (len(names) // CHANGES) == turn:
            sites[SITES[place % len(SITES)]] = {"state": "staging", "fraction": 0.5}
        datasets[did] = {"bytes": 10**10, "sites": sites}
    file.write_text(json.dumps({"sites": SITES, "datasets": datasets}), "utf-8")


def measure(copies: int, dataset_count: int, cycles: int) -> dict[str, Any]:
    """Run the daemon with a file catalogue, a pool in memory, the HTTP server and ads in files.

    Returns the CPU seconds of this process from one query of the pool to the next: the first, and later ones.
    """
    names = dids(dataset_count)
    pool = CountedPool(names)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        file = base / "catalogue.json"
        lists = [base / f"{turn}.new" for turn in range(cycles + 2)]
        for turn, one in enumerate(lists):
            write_catalogue(one, names, copies, turn)
        lists[0].rename(file)
        settings = Settings.model_validate(
            {
                "daemon": {"state_dir": base / "state", "poll_seconds": POLL_SECONDS},
                "catalogue": [{"type": "file", "name": "list", "path": file}],
                "network": {"default_gbit_per_second": 1.0},
                "publish": {
                    "file": {"enabled": True, "directory": base / "ads"},
                    "collector": {"enabled": False},
                    "http": {"port": 0},
                },
            }
        )
        machine = replace(MACHINE, assemble=partial(assemble_with, pool))
        with Store.open_to_write(settings.daemon.state_dir) as store:
            daemon = Daemon(base / "none.toml", settings, store, ServiceManager({}), machine)
            daemon.start()
            for turn in range(1, cycles + 2):
                while len(pool.polled_at) <= turn:
                    time.sleep(0.1)
                lists[turn].rename(file)
            taken = pool.polled_at[: cycles + 2]
            daemon.stop()
    spans = [after - before for before, after in itertools.pairwise(taken)]
    return {"first": spans[0], "later": spans[1:], "peak": peak_mib()}


def assemble_with(pool: CountedPool, settings: Settings, *rest: Any, **named: Any) -> Parts:
    """Build the parts of the daemon, with *pool* in place of the schedds."""
    return replace(assemble(settings, *rest, **named), queues=pool)


def run(quick: bool = False) -> Result:
    """Measure both sizes, each in a process of its own."""
    dataset_count, cycles = (DATASETS // 10, 2) if quick else (DATASETS, CYCLES)
    figures, samples = [], {}
    for name, copies in COPIES.items():
        samples[name] = taken = run_in_process("cycle", copies, dataset_count, cycles)
        figures += [
            Figure(f"{name}: first interval", taken["first"], "s", None, "with the start of the daemon"),
            Figure(f"{name}: a later interval", statistics.median(taken["later"]), "s", GOALS[name]),
            Figure(f"{name}: peak memory of the process", taken["peak"], "MiB"),
        ]
    return Result("cycle", tuple(figures), " ".join(HOW.split()), samples)


HOW = f"""\
The daemon runs with a poll every {POLL_SECONDS} s: a file catalogue in its worker, {DATASETS:,} demanded
datasets at 20 sites, each with idle jobs and a running job of its own, pacing, the state on disk, HTTP
server, pages, metrics, and ads in files and over HTTP. In each interval {CHANGES} datasets are in
another state at one of their sites, and the pool has another load. An interval goes from one query of
the schedds to the next; the pool itself is in memory and builds its answer in the same process. CPU
seconds of the daemon's process, without the worker; median of {CYCLES}."""


if __name__ == "__main__":
    limit_arenas()
    configure_logs("warning")
    gc.set_threshold(100_000)  # as in the daemon's process: hydrator.cli.main
    json.dump(measure(*map(int, sys.argv[1:])), sys.stdout)

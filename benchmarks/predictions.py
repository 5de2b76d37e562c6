"""Predicted against real seconds: the estimates when a job was submitted or began, and what happened."""

import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from testbed.pool import Pool

from .benefit import links
from .benefit.arms import ARMS
from .benefit.pools import Finished, execute
from .benefit.runs import percentile
from .benefit.workload import SITES, Cell, Workload, generate
from .record import Figure, Result

MEDIAN_GOAL, P90_GOAL = 2.0, 4.0
RESOLUTION_SECONDS = {"read": 4, "queue": 8}
"""Shorter times count as this: the least class, and for queues the intervals of daemon and hook, 2 s each."""
JOBS_PER_SECOND = 3.0
RELEASES = ("25.14", "23.9")
_CELL = Cell("62/32/6", "one", "stream", 1.0)
_ENTRY = re.compile(r"'?([^';=\[]+)'?=(\d+)")
_READ = re.compile(r"read (\d+) s")


@dataclass(slots=True)
class Watcher:
    """Reads the queue seconds in the sites' ads again and again, and at the end each start's text."""

    queues: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    """Time (Unix s) and the queue seconds by the set's key, the oldest first."""
    starts: dict[int, str] = field(default_factory=dict)
    """The text MATCH_EXP_DataLocalityStart by the number of the job."""

    @contextmanager
    def watch(self, pool: Pool) -> Iterator[None]:
        """Read the ad files of all sites until the block ends, and then the history of the schedd."""
        end = threading.Event()
        files = [pool.shared / "ads" / f"{site}.v2.ad" for site in SITES]
        reader = threading.Thread(target=self._read_until, args=(end, files), daemon=True)
        reader.start()
        try:
            yield
        finally:
            end.set()
            reader.join()
        count = len(pool.jobs())
        pool.wait(lambda: not pool.jobs(), 120, f"{count} jobs to leave the queue")
        for job in pool.history("true", "Arguments", "Args", "MATCH_EXP_DataLocalityStart"):
            number = str(job.get("Arguments") or job.get("Args")).split()[0]
            self.starts[int(number)] = str(job.get("MATCH_EXP_DataLocalityStart"))

    def _read_until(self, end: threading.Event, files: Sequence[Path]) -> None:
        while not end.wait(0.5):
            self.read_once(files)

    def read_once(self, files: Iterable[Path]) -> None:
        """Add the queue seconds in the ad *files*: the sites that lack a set have the same number."""
        entries: dict[str, int] = {}
        for line in (line for file in files for line in file.read_text("ascii").splitlines()):
            if line.startswith("DataLocalityQueueSeconds = "):
                found = _ENTRY.findall(line.partition(" = ")[2])
                entries |= {key: int(seconds) for key, seconds in found}
        self.queues.append((time.time(), entries))

    def first_queue(self, key: str, since: float) -> tuple[float, int] | None:
        """Return the first queue seconds of *key* that were read after *since*, with the time of reading."""
        return next(
            ((at, entries[key]) for at, entries in self.queues if at >= since and key in entries), None
        )


def compare_reads(done: Finished, watcher: Watcher) -> Iterator[tuple[float, float]]:
    """Yield predicted and real read seconds of each job that read from elsewhere."""
    for record in done.records:
        found = _READ.search(watcher.starts.get(record.number, ""))
        if record.remote_bytes and found:
            yield float(found[1]), record.read_at - record.began_at


def compare_queues(done: Finished, workload: Workload, watcher: Watcher) -> Iterator[tuple[float, float]]:
    """Yield predicted and real waits of each job that ran beside its data, from its first estimate on."""
    for record in done.records:
        job = workload.jobs[record.number]
        key = workload.datasets[job.datasets[0]].did
        first = watcher.first_queue(key, done.began_at + job.submitted_at)
        if not record.remote_bytes and first is not None and first[0] < record.began_at:
            yield float(first[1]), record.began_at - first[0]


def factors(kind: str, pairs: Sequence[Sequence[float]]) -> list[float]:
    """Return for each of *pairs* how many times the larger of both is the smaller."""
    limited = [sorted(max(seconds, RESOLUTION_SECONDS[kind]) for seconds in pair) for pair in pairs]
    return [more / less for less, more in limited]


def measure(
    x: float, seed: int, jobs: int, release: str | None
) -> tuple[dict[str, list[tuple[float, float]]], str]:
    """Run the jobs on a fresh pool; return the predicted and real seconds by kind, and HTCondor's version."""
    workload = generate(replace(_CELL, x=x), seed, jobs)
    stream = tuple(replace(job, submitted_at=job.number / JOBS_PER_SECOND) for job in workload.jobs)
    workload = replace(workload, jobs=stream)
    watcher = Watcher()
    done = execute(workload, x, ARMS["auto"], links.kind(), release, watch=watcher.watch)
    pairs = {
        "read": list(compare_reads(done, watcher)),
        "queue": list(compare_queues(done, workload, watcher)),
    }
    return pairs, done.version


def run(quick: bool = False) -> Result:
    """Run the jobs for two costs of reading on both releases."""
    chosen = os.environ.get("HYDRATOR_TEST_HTCONDOR")
    releases: Sequence[str | None] = (chosen,) if chosen or quick else RELEASES
    raw: dict[str, Any] = {}
    versions: set[str] = set()
    for release in releases:
        for x in (1.0,) if quick else (1.0, 2.0):
            pairs, version = measure(x, 1, 24 if quick else 90, release)
            versions.add(version)
            print(f"   {version}, x = {x:g}: {pairs}", file=sys.stderr)
            for kind, each in pairs.items():
                raw[f"{version}, {kind}, x = {x:g}"] = [[p, round(r, 1)] for p, r in each]
    how = " ".join(HOW.split()).format(rate=JOBS_PER_SECOND, **RESOLUTION_SECONDS)
    return Result("predictions", tuple(figures(raw)), how, raw, {"HTCondor": " and ".join(sorted(versions))})


def figures(raw: Mapping[str, Sequence[Sequence[float]]]) -> Iterator[Figure]:
    """Yield median and 0.9 quantile of the factors, of all runs together and of each run."""
    for kind in RESOLUTION_SECONDS:
        found = [pair for name, pairs in raw.items() if f", {kind}," in name for pair in pairs]
        yield from _quantiles(f"{kind} seconds, all runs", factors(kind, found), MEDIAN_GOAL, P90_GOAL)
    for name, pairs in raw.items():
        yield from _quantiles(name, factors(name.split(", ")[1], pairs), None, None)


def _quantiles(
    name: str, factors: Sequence[float], median: float | None, p90: float | None
) -> Iterator[Figure]:
    if factors:
        note = f"{len(factors)} jobs"
        yield Figure(f"{name}: median factor", statistics.median(factors), "times", median, note)
        yield Figure(f"{name}: 0.9 quantile", percentile(factors, 0.9), "times", p90, note)


HOW = """\
The jobs of the benefit experiment (62/32/6, one dataset a job, links by tc, computing 6 s) on a real pool
with mode auto, submitted at {rate:g} a second: queues grow, and jobs read from elsewhere. Read: the read
seconds that the schedd stored at the job's start (MATCH_EXP_DataLocalityStart), against the time until the
job had read its dataset. Queue: the first queue seconds in a published ad for the job's dataset, against
the wait from then on; only jobs that ran beside their data, and were still idle then. A factor of 2 means
twice or half as long as predicted. Read seconds below {read} s count as {read} s, the least class, and waits
below {queue} s as {queue} s: the daemon queries the pool every 2 s, and the hook runs every 2 s."""

__all__ = ["run"]

"""Runs of the experiment: one line of JSON each, with the sample of every job, and the outcome of a run."""

import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .workload import SITES, SLOTS, BenefitJob, Cell, Workload, generate


@dataclass(frozen=True, slots=True)
class RunKey:
    """One run: a cell, an arm, a seed and the number of jobs."""

    cell: Cell
    arm: str
    seed: int
    count: int


@dataclass(frozen=True, slots=True)
class JobSample:
    """Where a job ran, and when it began, had read its data and ended, in seconds from the run's start."""

    site: str
    began: float
    read: float
    ended: float


@dataclass(frozen=True, slots=True)
class BenefitRun:
    """One run as it is stored.

    ``samples`` has the job's sample by number, without jobs that never ran. ``machine`` has facts about the
    run: commit, release, links, load, gap_seconds, lone_seconds. ``failure`` is the reason
    why a run has no samples.
    """

    key: RunKey
    samples: Mapping[int, JobSample]
    machine: Mapping[str, Any]
    failure: str = ""

    def to_line(self) -> str:
        """Format the run as one line of JSON; times are in tenths of a second."""
        cell = self.key.cell
        samples = [
            [
                number,
                SITES.index(each.site),
                *(round(10 * time) for time in (each.began, each.read, each.ended)),
            ]
            for number, each in sorted(self.samples.items())
        ]
        document = {
            "layout": cell.layout,
            "mix": cell.mix,
            "submitted": cell.submitted,
            "x": cell.x,
            "seconds": cell.seconds,
            "arm": self.key.arm,
            "seed": self.key.seed,
            "count": self.key.count,
            "failure": self.failure,
            "machine": self.machine,
            "samples": samples,
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def parse(cls, line: str) -> Self:
        """Parse a line of :meth:`to_line`."""
        found = json.loads(line)
        cell = Cell(found["layout"], found["mix"], found["submitted"], found["x"], found["seconds"])
        samples = {
            number: JobSample(SITES[site], *(time / 10 for time in times))
            for number, site, *times in found["samples"]
        }
        key = RunKey(cell, found["arm"], found["seed"], found["count"])
        return cls(key, samples, found["machine"], found["failure"])


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of one run. Times are in seconds, from a job's submission; shares are from 0 to 1.

    ``bytes_local`` is the share of bytes that were read at the job's own site. ``no_data_mean`` is the mean
    turnaround of the jobs without datasets, None without such jobs. ``never_ran`` counts jobs that waited
    for ever; the other figures leave these jobs out. ``turnarounds`` has the time of each job by number.
    """

    makespan: float
    turnaround_mean: float
    turnaround_p95: float
    bytes_local: float
    remote_bytes: int
    slots_idle: float
    slots_reading: float
    no_data_mean: float | None
    never_ran: int
    turnarounds: Mapping[int, float]


def outcome(run: BenefitRun, workload: Workload | None = None) -> Outcome:
    """Compute the figures of *run*; *workload* is generated again if it is not given.

    Raises:
        ValueError: the run has no samples.
    """
    if not run.samples:
        raise ValueError(f"{run.key} has no samples: {run.failure}")
    workload = workload or generate(run.key.cell, run.key.seed, run.key.count)
    jobs = {job.number: job for job in workload.jobs if job.number in run.samples}
    ends = {number: run.samples[number].ended - job.submitted_at for number, job in jobs.items()}
    remote = sum(workload.missing_bytes(job, run.samples[number].site) for number, job in jobs.items())
    total = sum(workload.bytes_of(job) for job in jobs.values())
    makespan = max(each.ended for each in run.samples.values())
    capacity = makespan * SLOTS * len(SITES)
    return Outcome(
        makespan=makespan,
        turnaround_mean=statistics.fmean(ends.values()),
        turnaround_p95=percentile(ends.values(), 0.95),
        bytes_local=1 - remote / total if total else 1.0,
        remote_bytes=remote,
        slots_idle=1 - sum(each.ended - each.began for each in run.samples.values()) / capacity,
        slots_reading=_reading(run, jobs, workload) / capacity,
        no_data_mean=_mean([ends[number] for number, job in jobs.items() if not job.datasets]),
        never_ran=len(workload.jobs) - len(jobs),
        turnarounds=ends,
    )


def percentile(values: Iterable[float], share: float) -> float:
    """Return the nearest-rank percentile of *values*; *share* is from 0 to 1."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _reading(run: BenefitRun, jobs: Mapping[int, BenefitJob], workload: Workload) -> float:
    """Return the seconds in which slots read from other sites."""
    remote = [number for number, job in jobs.items() if workload.missing_bytes(job, run.samples[number].site)]
    return sum(run.samples[number].read - run.samples[number].began for number in remote)


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


class RunStore:
    """All runs, in a file with a line for each: an interrupted experiment keeps its runs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[BenefitRun]:
        """Return the runs in the order in which they ended; a torn last line is left out."""
        if not self._path.exists():
            return []
        *lines, _torn = self._path.read_text("utf-8").split("\n")
        return [BenefitRun.parse(line) for line in lines if line]

    def append(self, run: BenefitRun) -> None:
        """Add *run* in one write, in place of a torn last line."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(run.to_line().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def set_aside(self) -> None:
        """Rename the file, so that the store is empty; an older file that was set aside is lost."""
        if self._path.exists():
            self._path.replace(self._path.with_suffix(".old"))

"""Results of a replay: shares, bytes, makespan and waits of each policy, with bootstrap intervals.

An interval is the middle 95 % of the values of RESAMPLES resampled sets of units. A unit is a day of
submissions, a user, or a run with another seed: runs of a generated workload are independent of each
other, and jobs of one day or one user are not. Runs of a history with other seeds draw machines for the same
jobs, so they show no spread of jobs: a history of few days and users has no intervals, and its makespan,
which is one value, never has one.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .model import ReplayRun, Workload

RESAMPLES = 400
MIN_UNITS = 5
"""Fewer units give no interval."""
_DAY_SECONDS = 86_400
_BINS_PER_E = 20
"""Bins of waits for the intervals: a wait is known within 5 %."""

UnitKind = Literal["days", "users", "seeds", "none"]
"""``none``: a history of few days and users, which has no intervals."""


@dataclass(frozen=True, slots=True)
class MeasuredValue:
    """A value with its interval; None if it is unknown, or if there are too few units."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """The results of one policy: shares (0 to 1) of jobs and bytes beside their data, bytes, and seconds."""

    name: str
    share_of_jobs: MeasuredValue
    share_of_bytes: MeasuredValue
    bytes_moved: MeasuredValue
    makespan_seconds: MeasuredValue
    wait_mean_seconds: MeasuredValue
    wait_p95_seconds: MeasuredValue
    never_started: int


@dataclass(slots=True)
class UnitTally:
    """Counts of the jobs of one unit. ``jobs`` and ``local_jobs`` count jobs with data that started."""

    jobs: int = 0
    local_jobs: int = 0
    bytes: int = 0
    bytes_moved: int = 0
    started: int = 0
    wait_sum: float = 0.0
    wait_bins: Counter[int] = field(default_factory=Counter)

    def add(self, other: "UnitTally") -> None:
        """Add the counts of *other*."""
        self.jobs += other.jobs
        self.local_jobs += other.local_jobs
        self.bytes += other.bytes
        self.bytes_moved += other.bytes_moved
        self.started += other.started
        self.wait_sum += other.wait_sum
        self.wait_bins.update(other.wait_bins)


def choose_units(workload: Workload, is_generated: bool) -> UnitKind:
    """Return the units of *workload*; days or users of a history if it has at least MIN_UNITS of them."""
    if is_generated or not workload.job_count:
        return "seeds"
    if len({int(at // _DAY_SECONDS) for at in workload.submitted}) >= MIN_UNITS:
        return "days"
    return "users" if len({one.user for one in workload.classes}) >= MIN_UNITS else "none"


def summarize(runs: Sequence[ReplayRun], kind: UnitKind) -> PolicyResult:
    """Summarize the *runs* of one policy, one for each seed."""
    tallies = [tally_units(run, kind) for run in runs]
    units = _merge_units(tallies, kind)
    total = _sum_units(units)
    draw = random.Random(0)  # noqa: S311 - the same resampled sets in every call
    resampled = [
        _sum_units([units[int(draw.random() * len(units))] for _ in units])
        for _ in range(RESAMPLES if kind != "none" and len(units) >= MIN_UNITS else 0)
    ]

    def measure(value: Callable[[UnitTally], float | None], point: float | None = None) -> MeasuredValue:
        values = sorted(one for tally in resampled if (one := value(tally)) is not None)
        exact = value(total) if point is None else point
        return MeasuredValue(exact, *_middle(values)) if exact is not None else MeasuredValue(None)

    scale = 1 / len(runs)
    waits = sorted(
        run.started[job] - run.workload.submitted[job]
        for run in runs
        for job, site in enumerate(run.site_of)
        if site >= 0
    )
    p95 = waits[max(0, math.ceil(0.95 * len(waits)) - 1)] if waits else None
    return PolicyResult(
        runs[0].policy.name,
        measure(lambda one: one.local_jobs / one.jobs if one.jobs else None),
        measure(lambda one: 1 - one.bytes_moved / one.bytes if one.bytes else None),
        measure(lambda one: one.bytes_moved * scale),
        _measure_makespan([run.makespan_seconds for run in runs], has_interval=kind == "seeds"),
        measure(lambda one: one.wait_sum / one.started if one.started else None),
        measure(lambda one: _bin_quantile(one.wait_bins, 0.95), p95),
        round(sum(run.never_started_count for run in runs) * scale),
    )


def tally_units(run: ReplayRun, kind: UnitKind) -> dict[object, UnitTally]:
    """Count the jobs of *run* by unit: the day, the user, or the seed."""
    workload, tallies = run.workload, dict[object, UnitTally]()
    missing: dict[tuple[int, int], int] = {}
    sites = [site.name for site in workload.sites]
    for job, site in enumerate(run.site_of):
        if site < 0:
            continue
        number = workload.class_of[job]
        one, submitted = workload.classes[number], workload.submitted[job]
        unit: object = run.seed
        if kind in {"days", "users"}:
            unit = int(submitted // _DAY_SECONDS) if kind == "days" else one.user
        tally = tallies.get(unit)
        if tally is None:
            tally = tallies[unit] = UnitTally()
        wait = run.started[job] - submitted
        tally.started += 1
        tally.wait_sum += wait
        tally.wait_bins[_bin_of(wait)] += 1
        if one.inputs:
            if (number, site) not in missing:
                local = one.is_local_at(sites[site])
                missing[number, site] = -1 if local else one.missing_at(sites[site])
            moved = missing[number, site]
            tally.jobs += 1
            tally.local_jobs += moved < 0
            tally.bytes += one.byte_count
            tally.bytes_moved += max(0, moved)
    return tallies


def _merge_units(tallies: Sequence[dict[object, UnitTally]], kind: UnitKind) -> list[UnitTally]:
    """Return one tally for each unit; those of one day or one user in several runs are added."""
    if kind not in {"days", "users"}:
        return [_sum_units(list(one.values())) for one in tallies]
    names = dict.fromkeys(name for one in tallies for name in one)
    return [_sum_units([one[name] for one in tallies if name in one]) for name in names]


def _sum_units(units: Sequence[UnitTally]) -> UnitTally:
    total = UnitTally()
    for unit in units:
        total.add(unit)
    return total


def _measure_makespan(values: Sequence[float], *, has_interval: bool) -> MeasuredValue:
    mean = math.fsum(values) / len(values)
    if not has_interval or len(values) < MIN_UNITS:
        return MeasuredValue(mean)
    draw = random.Random(0)  # noqa: S311
    means = sorted(
        math.fsum(values[int(draw.random() * len(values))] for _ in values) / len(values)
        for _ in range(RESAMPLES)
    )
    return MeasuredValue(mean, *_middle(means))


def _middle(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the limits of the middle 95 % of sorted *values*."""
    if not values:
        return None, None
    last = len(values) - 1
    return values[round(0.025 * last)], values[round(0.975 * last)]


def _bin_of(wait: float) -> int:
    return 0 if wait < 1 else 1 + int(_BINS_PER_E * math.log(wait))


def _bin_quantile(bins: Counter[int], share: float) -> float | None:
    left = share * bins.total()
    for number in sorted(bins):
        left -= bins[number]
        if left <= 0:
            return 0.0 if not number else math.exp((number - 0.5) / _BINS_PER_E)
    return None

"""Figures of each cell and arm: medians over paired seeds. Pure."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .arms import BEST, OFF
from .intervals import bootstrap_interval
from .runs import BenefitRun, JobSample, Outcome, RunKey, outcome
from .schedule import best_found, least_remote_bytes, lower_bound
from .workload import DRAINED, Cell, generate

MIN_REPEATED = 10
"""Seeds from which on the second half of the seeds counts as the repetition of the first."""


@dataclass(frozen=True, slots=True)
class CellFigures:
    """The figures of one arm in one cell; ratios and speed-ups are against the stock pool of the same seeds.

    Times are medians in seconds. ``speedup`` is of the makespan, ``interval`` its bootstrap interval of
    95 %. The ratios of turnarounds are below 1 where the arm is faster. ``remote_bytes_ratio`` compares the
    bytes read from other sites, ``no_data_ratio`` the mean turnaround of jobs without datasets; both are None
    where there is nothing to compare. ``least_remote_ratio`` has the fewest bytes from other sites with which
    any schedule could end as soon (:func:`least_remote_bytes`). ``never_ran`` is the largest number of jobs
    that waited for ever. ``longer_share`` is the share of jobs with a turnaround longer than in the stock
    pool by a tenth or more.
    ``load`` is the mean load average. The computed arm has no slots and no load, but a lower bound.

    ``halves`` has the median speed-up of the first and of the second half of ten or more seeds, each with its
    interval: the experiment and its repetition.
    ``speedups`` has the speed-up of each seed. ``commits`` are those of the runs, sorted.
    """

    cell: Cell
    arm: str
    seeds: tuple[int, ...]
    jobs: int
    makespan_s: float
    speedup: float
    interval: tuple[float, float]
    turnaround_mean_ratio: float | None = None
    turnaround_p95_ratio: float | None = None
    bytes_local: float | None = None
    remote_bytes_ratio: float | None = None
    least_remote_ratio: float | None = None
    no_data_ratio: float | None = None
    slots_idle: float | None = None
    slots_reading: float | None = None
    longer_share: float | None = None
    never_ran: int = 0
    load: float | None = None
    bound_s: float | None = None
    halves: tuple[tuple[float, float, float], ...] | None = None
    speedups: Mapping[int, float] = field(default_factory=dict)
    commits: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the figures with the cell's fields beside them, rounded to three digits after the point."""
        fields = asdict(self)
        cell = fields.pop("cell")
        del fields["speedups"]
        fields["seeds"] = list(self.seeds)
        rounded = {name: _rounded(value) for name, value in fields.items()}
        return {**cell, **{name: value for name, value in rounded.items() if value is not None}}


def _rounded(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_rounded(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value


@dataclass(frozen=True, slots=True)
class _Pair:
    """A run and the run of the stock pool with the same jobs."""

    run: BenefitRun
    ours: Outcome
    stock: Outcome


def summarize(runs: Iterable[BenefitRun]) -> list[CellFigures]:
    """Compute the figures of all cells and arms of *runs*, and of the best schedule of each cell.

    A run without a stock run of the same cell, seed and number of jobs is left out. A run that was
    repeated counts once, by its last time. It is compared with the stock run that began next to it in time,
    so that both had the same load.
    """
    ended = [run for run in runs if run.samples]
    latest = {run.key: run for run in ended}
    stocks: dict[tuple[Cell, int, int], list[BenefitRun]] = defaultdict(list)
    for run in ended:
        if run.key.arm == OFF:
            stocks[run.key.cell, run.key.seed, run.key.count].append(run)
    pairs: dict[tuple[Cell, int, str], list[_Pair]] = defaultdict(list)
    for key, run in latest.items():
        if beside := stocks[key.cell, key.seed, key.count]:
            stock = min(reversed(beside), key=lambda each: abs(_begun(each) - _begun(run)))
            pairs[key.cell, key.count, key.arm].append(_Pair(run, outcome(run), outcome(stock)))
    found = []
    for (cell, count, arm), group in pairs.items():
        found.append(_figures(cell, count, arm, group))
        if arm == OFF and cell.layout not in DRAINED:  # no schedule knows that a site will drain
            found.append(_best(cell, count, group))
    return sorted(found, key=lambda each: (_cell_order(each.cell), each.jobs, each.arm != OFF, each.arm))


def _begun(run: BenefitRun) -> float:
    return float(run.machine.get("at", 0))


def _cell_order(cell: Cell) -> tuple[object, ...]:
    return (cell.layout, cell.mix != "one", cell.mix, cell.submitted, cell.x)


def _figures(cell: Cell, count: int, arm: str, pairs: Sequence[_Pair]) -> CellFigures:
    pairs = sorted(pairs, key=lambda pair: pair.run.key.seed)
    speedups = [pair.stock.makespan / pair.ours.makespan for pair in pairs]

    def middle(figure: Callable[[_Pair], float | None]) -> float | None:
        values = [value for pair in pairs if (value := figure(pair)) is not None]
        return statistics.median(values) if values else None

    return CellFigures(
        cell,
        arm,
        tuple(sorted(pair.run.key.seed for pair in pairs)),
        count,
        statistics.median(pair.ours.makespan for pair in pairs),
        statistics.median(speedups),
        bootstrap_interval(speedups),
        turnaround_mean_ratio=middle(lambda pair: pair.ours.turnaround_mean / pair.stock.turnaround_mean),
        turnaround_p95_ratio=middle(lambda pair: pair.ours.turnaround_p95 / pair.stock.turnaround_p95),
        bytes_local=middle(lambda pair: pair.ours.bytes_local),
        remote_bytes_ratio=middle(_remote_ratio),
        least_remote_ratio=middle(_least_remote_ratio),
        no_data_ratio=middle(_no_data_ratio),
        slots_idle=middle(lambda pair: pair.ours.slots_idle),
        slots_reading=middle(lambda pair: pair.ours.slots_reading),
        longer_share=middle(_longer_share),
        never_ran=max(pair.ours.never_ran for pair in pairs),
        load=statistics.fmean(pair.run.machine["load"][1] for pair in pairs),
        halves=_halves(speedups),
        speedups={pair.run.key.seed: speedup for pair, speedup in zip(pairs, speedups, strict=True)},
        commits=tuple(sorted({str(pair.run.machine["commit"]) for pair in pairs})),
    )


def _halves(speedups: Sequence[float]) -> tuple[tuple[float, float, float], ...] | None:
    """Return median and interval of both halves of *speedups*; None with fewer than ten."""
    if len(speedups) < MIN_REPEATED:
        return None
    middle = len(speedups) // 2
    return tuple(
        (statistics.median(half), *bootstrap_interval(half))
        for half in (speedups[:middle], speedups[middle:])
    )


def _remote_ratio(pair: _Pair) -> float | None:
    return pair.ours.remote_bytes / pair.stock.remote_bytes if pair.stock.remote_bytes else None


def _least_remote_ratio(pair: _Pair) -> float | None:
    key = pair.run.key
    workload = generate(key.cell, key.seed, key.count)
    least = least_remote_bytes(workload, pair.ours.makespan)
    return least / pair.stock.remote_bytes if pair.stock.remote_bytes else None


def _no_data_ratio(pair: _Pair) -> float | None:
    ours, stock = pair.ours.no_data_mean, pair.stock.no_data_mean
    return None if ours is None or stock is None else ours / stock


def _longer_share(pair: _Pair) -> float:
    ours, stock = pair.ours.turnarounds, pair.stock.turnarounds
    return sum(seconds > 1.1 * stock[number] for number, seconds in ours.items()) / max(1, len(ours))


def _best(cell: Cell, count: int, pairs: Sequence[_Pair]) -> CellFigures:
    """Compute the best schedule of the jobs of *pairs*, against the measured stock runs."""
    bounds, ideal = [], []
    for pair in pairs:
        workload = generate(cell, pair.run.key.seed, count)
        schedule = best_found(workload, cell.read_seconds)
        samples = {
            number: JobSample(site, schedule.ends[number], schedule.ends[number], schedule.ends[number])
            for number, site in schedule.sites.items()
        }
        run = BenefitRun(RunKey(cell, BEST, pair.run.key.seed, count), samples, pair.run.machine)
        ideal.append(_Pair(run, outcome(run, workload), pair.stock))
        bounds.append(lower_bound(workload, cell.read_seconds))
    figures = _figures(cell, count, BEST, ideal)
    bound = statistics.median(bounds)
    return replace(figures, bound_s=bound, slots_idle=None, slots_reading=None, load=None, commits=())


def by_arm(cells: Iterable[CellFigures]) -> Mapping[tuple[Cell, int], Mapping[str, CellFigures]]:
    """Group *cells* by cell and number of jobs, then by arm."""
    groups: dict[tuple[Cell, int], dict[str, CellFigures]] = defaultdict(dict)
    for each in cells:
        groups[each.cell, each.jobs][each.arm] = each
    return groups

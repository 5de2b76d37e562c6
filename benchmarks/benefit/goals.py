"""Goals of the experiment, and the reason where one is missed. Pure."""

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .arms import BEST, OFF
from .cells import CellFigures, by_arm
from .workload import Cell

AUTO = "auto"
LEAST_SPEEDUP = 0.97
SHARE_OF_BEST_WAIT = 0.90
"""The least speed of auto, compared with the best fixed wait of the cell; require and rank only count too."""
HEADLINES = {1.0: 1.6, 2.0: 2.5}
"""Speed-ups of auto with 62/32/6 %, one dataset a job, in a batch, by x."""
MOST_P95 = 1.10
MOST_NO_DATA = 1.05
MOST_REMOTE, REMOTE_FROM_X = 0.20, 0.5
HIGH_LOAD = 15.0
"""A load average from which on the reason for a missed goal names it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One goal in one cell: the measured *value*, its *limit*, and the *reason* if it is missed.

    *sign* is ``≥`` or ``≤``: the side of the limit on which the goal is met.
    """

    goal: str
    cell: Cell
    value: float
    sign: str
    limit: float
    reason: str = ""

    @property
    def is_met(self) -> bool:
        """Return True if the value is on the right side of the limit."""
        return self.value >= self.limit if self.sign == "≥" else self.value <= self.limit


def judge(cells: Iterable[CellFigures]) -> list[Verdict]:
    """Compare *cells* with the goals; a cell without the arm that a goal needs has no verdict."""
    verdicts: list[Verdict] = []
    for (cell, _jobs), arms in by_arm(cells).items():
        if OFF in arms:
            verdicts += _of_auto(cell, arms)
            verdicts += _of_wrong(cell, arms)
    return verdicts


def _of_auto(cell: Cell, arms: Mapping[str, CellFigures]) -> Iterator[Verdict]:
    auto = arms.get(AUTO)
    if auto is None:
        return
    why = _reason(auto, arms)
    yield _at_least("auto against the stock pool", cell, auto.speedup, LEAST_SPEEDUP, why)
    yield from _of_best_wait(cell, auto, arms, why)
    if (cell.layout, cell.mix, cell.submitted) == ("62/32/6", "one", "batch") and cell.x in HEADLINES:
        yield _at_least("headline speed-up of auto", cell, auto.speedup, HEADLINES[cell.x], why)
    if auto.halves is not None:
        (_, low, high), (repeated, *_) = auto.halves
        goal = "seeds repeated: the second half's median outside the first half's interval, by"
        first, second = map(describe_half, auto.halves)
        outside = max(0.0, low - repeated, repeated - high)
        yield _at_most(goal, cell, outside, 0.0, f"first half {first}, second half {second}; {why}")
    if auto.turnaround_p95_ratio is not None:
        yield _at_most("p95 turnaround of auto", cell, auto.turnaround_p95_ratio, MOST_P95, why)
    if auto.no_data_ratio is not None:
        yield _at_most("jobs without data under auto", cell, auto.no_data_ratio, MOST_NO_DATA, why)
    if auto.remote_bytes_ratio is not None and cell.x >= REMOTE_FROM_X:
        remote_why = _remote_reason(auto, arms) or why
        yield _at_most("remote bytes under auto", cell, auto.remote_bytes_ratio, MOST_REMOTE, remote_why)


def _of_best_wait(
    cell: Cell, auto: CellFigures, arms: Mapping[str, CellFigures], why: str
) -> Iterator[Verdict]:
    """Compare auto with the fastest fixed wait, by the seeds that both have."""
    fixed = [
        each
        for name, each in arms.items()
        if _is_fixed(name) and not each.never_ran and each.speedups.keys() & auto.speedups.keys()
    ]
    if not fixed:
        return
    best = max(fixed, key=lambda each: each.speedup)
    seeds = sorted(best.speedups.keys() & auto.speedups.keys())
    ratio = statistics.median(auto.speedups[seed] / best.speedups[seed] for seed in seeds)
    count = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    goal = f"auto against the best fixed wait ({best.arm}), {count} of both"
    commits = "" if auto.commits == best.commits else "; the two arms are of different commits"
    yield _at_least(goal, cell, ratio, SHARE_OF_BEST_WAIT, why + commits)


def describe_half(half: tuple[float, float, float]) -> str:
    """Return the median of *half* of the seeds with its interval."""
    middle, low, high = (round(each, 3) for each in half)  # as in the result file
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _remote_reason(auto: CellFigures, arms: Mapping[str, CellFigures]) -> str:
    """Say how many bytes fast schedules read, and what the goal costs; '' if nothing speaks against it."""
    best, least, reasons = arms.get(BEST), auto.least_remote_ratio, []
    if best is not None and (share := best.remote_bytes_ratio) is not None and share > MOST_REMOTE:
        reasons.append(f"the fastest schedule found reads {share:.0%} of the stock pool's remote bytes")
    if least is not None and (reasons or least > MOST_REMOTE):
        reasons.append(f"any schedule as fast as auto reads {least:.0%} or more")
    return "; ".join([*reasons, *_price(auto, arms)]) if reasons else ""


def _price(auto: CellFigures, arms: Mapping[str, CellFigures]) -> list[str]:
    """Return the speed-up of the fastest arm that reaches the goal of remote bytes, if one was measured."""
    reaching = [
        (each, share)
        for name, each in arms.items()
        if _is_fixed(name) and (share := each.remote_bytes_ratio) is not None and share <= MOST_REMOTE
    ]
    if not reaching:
        return []
    first, share = max(reaching, key=lambda pair: pair[0].speedup)
    never = f", but {first.never_ran} jobs never ran" if first.never_ran else ""
    speeds = f"{first.speedup:.2f} times as fast as the stock pool{never} (auto: {auto.speedup:.2f})"
    return [f"{first.arm} reads {share:.0%} and is {speeds}"]


def _of_wrong(cell: Cell, arms: Mapping[str, CellFigures]) -> Iterator[Verdict]:
    """Check the control: a daemon that publishes wrong sites must make the pool slower."""
    if "wrong" in arms:
        yield _at_most(
            "control: wrong sites",
            cell,
            arms["wrong"].speedup,
            0.99,
            "the experiment does not notice wrong sites: no figure of it counts",
        )


def _is_fixed(arm: str) -> bool:
    return arm.startswith("wait ") or arm in {"rank only", "require"}


def _at_least(goal: str, cell: Cell, value: float, limit: float, why: str) -> Verdict:
    return Verdict(goal, cell, value, "≥", limit, "" if value >= limit else why)


def _at_most(goal: str, cell: Cell, value: float, limit: float, why: str) -> Verdict:
    return Verdict(goal, cell, value, "≤", limit, "" if value <= limit else why)


def _reason(auto: CellFigures, arms: Mapping[str, CellFigures]) -> str:
    """Say what slots did under auto and not in the best arm of the cell, and the loads if they were high."""
    best = max((each for each in arms.values() if each.load is not None), key=lambda each: each.speedup)
    load = f"; the load average was {auto.load:.0f}" if auto.load and auto.load > HIGH_LOAD else ""
    if load and best.arm != auto.arm:
        load += f", and {best.load:.0f} under {best.arm}"
    return _idle_reason(auto, arms) + load


def _idle_reason(auto: CellFigures, arms: Mapping[str, CellFigures]) -> str:
    """Say in one clause what slots did under auto that they did not do in the best arm of the cell."""
    best = max((each for each in arms.values() if each.slots_idle is not None), key=lambda each: each.speedup)
    idle = (auto.slots_idle or 0) - (best.slots_idle or 0)
    reading = (auto.slots_reading or 0) - (best.slots_reading or 0)
    if best.arm == auto.arm or max(idle, reading) < 0.03:
        few = "" if len(auto.seeds) >= 5 else f", and seeds are few: {len(auto.seeds)}"
        return f"slots were as busy as in the best arm ({best.arm}){few}"
    if idle >= reading:
        return f"slots were idle {auto.slots_idle:.0%} of the time, {best.slots_idle:.0%} under {best.arm}"
    much, less = auto.slots_reading, best.slots_reading
    return f"slots read from other sites {much:.0%} of the time, {less:.0%} under {best.arm}"

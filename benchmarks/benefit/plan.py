"""The order of the runs: named sets of cells, paired seeds, and arms in random order. Pure."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from .arms import ARMS, OFF
from .runs import RunKey
from .workload import COMPUTE_SECONDS, JOBS, LAYOUTS, MIXES, SITES, SLOTS, SUBMISSIONS, XS, Cell

OVERHEAD_SECONDS = 30
"""A pool's start, the daemon's installation and the pool's end."""


@dataclass(frozen=True, slots=True)
class CellSet:
    """Every combination of the fields is a cell, which has runs of all *arms* for seeds 1 to *seeds*."""

    arms: tuple[str, ...]
    seeds: int
    layouts: tuple[str, ...] = ("62/32/6",)
    mixes: tuple[str, ...] = ("one",)
    submitted: tuple[str, ...] = ("batch",)
    xs: tuple[float, ...] = (1.0, 2.0)
    count: int = JOBS
    seconds: float = COMPUTE_SECONDS

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ValueError: one of them is unknown.
        """
        for what, names, known in (
            ("arm", self.arms, ARMS),
            ("layout", self.layouts, LAYOUTS),
            ("mix", self.mixes, MIXES),
            ("form of submission", self.submitted, SUBMISSIONS),
        ):
            if unknown := [name for name in names if name not in known]:
                raise ValueError(f"no {what} {unknown[0]!r}: choose from {', '.join(known)}")
        if self.seeds < 1 or self.count < 1 or not all(0 < x <= 100 for x in self.xs):
            raise ValueError("seeds and jobs must be 1 or more, and x above 0 and at most 100")

    def cells(self) -> list[Cell]:
        """Return the cells of the set."""
        combined = product(self.layouts, self.mixes, self.submitted, self.xs)
        return [Cell(*fields, self.seconds) for fields in combined]


_MAIN = (OFF, "rank only", "wait 6", "wait 30", "require", "auto")
_FEW = (OFF, "wait 30", "require", "auto")
SETS: dict[str, CellSet] = {
    "headline": CellSet((OFF, "wait 6", "wait 30", "require", "auto"), 10),
    "control": CellSet((OFF, "wrong"), 3, xs=(0.5, 1.0)),
    "map": CellSet(_MAIN, 3, xs=XS),
    "even": CellSet(_MAIN, 3, ("even",), xs=XS),
    "replicas": CellSet(_MAIN, 3, ("two replicas",), xs=(0.05, 0.5, 1.0, 2.0)),
    "drains": CellSet((OFF, "auto"), 3, ("DE drains",), xs=(0.05, 0.5, 1.0)),
    "mixes": CellSet(_FEW, 3, mixes=tuple(mix for mix in MIXES if mix != "one"), xs=(0.05, 0.5, 1.0)),
    "stream": CellSet(_MAIN, 3, submitted=("stream",), xs=(0.05, 0.5, 1.0, 2.0)),
    "long": CellSet((OFF, "auto"), 2, xs=(0.05, 0.5, 1.0), count=60, seconds=60.0),
    "waits": CellSet(("wait 12", "wait 60", "wait 120"), 3, xs=(0.05, 0.5, 1.0, 2.0)),
}
"""The experiment, most important first; a run that several sets have runs once."""


def order(sets: Iterable[CellSet], finished: Iterable[RunKey]) -> Iterator[RunKey]:
    """Yield the runs that are left: all cells of a set for one seed, then for the next seed.

    The arms of a cell and seed follow each other in random order, so that they run side by side.
    """
    done = set(finished)
    for chosen in sets:
        for seed in range(1, chosen.seeds + 1):
            for cell in chosen.cells():
                arms = list(chosen.arms)
                random.Random(f"{cell} {seed}").shuffle(arms)
                for arm in arms:
                    key = RunKey(cell, arm, seed, chosen.count)
                    if key not in done:
                        done.add(key)
                        yield key


def estimate_seconds(key: RunKey) -> float:
    """Return a rough duration of a run in seconds, to plan with; too long rather than too short."""
    busy = key.count * key.cell.seconds / (SLOTS * len(SITES))
    local = {OFF: 0.4, "wrong": 0.0, "rank only": 0.7}.get(key.arm, 0.85)
    reads = 0.62 * key.count * (1 - local) * key.cell.read_seconds
    stream = SUBMISSIONS[key.cell.submitted] * key.count
    return OVERHEAD_SECONDS + max(1.1 * busy + 0.9 * reads, 1.9 * busy if local > 0.8 else 0, stream + 10)


def total_seconds(keys: Sequence[RunKey], pools: int) -> float:
    """Return the estimated duration of *keys* with *pools* side by side."""
    return sum(map(estimate_seconds, keys)) / pools

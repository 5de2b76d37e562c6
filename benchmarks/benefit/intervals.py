"""Medians with bootstrap intervals. Pure: the seed is an argument."""

import math
import random
import statistics
from collections.abc import Sequence


def bootstrap_interval(
    values: Sequence[float], *, level: float = 0.95, rounds: int = 2000, seed: int = 1
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the median of *values*.

    The interval always contains the median. One value gives an interval of that value alone: it says
    nothing about the spread. The order of *values* does not matter.

    Args:
        values: one figure for each seed, all finite.
        level: the share of resampled medians inside the interval, above 0 and below 1.
        rounds: the number of resamples.
        seed: of the resampling.

    Raises:
        ValueError: *values* is empty or not finite, or *level* is not between 0 and 1.
    """
    if not values or not all(map(math.isfinite, values)):
        raise ValueError("an interval needs finite values, one or more")
    if not 0 < level < 1:
        raise ValueError(f"level must be above 0 and below 1, not {level}")
    ordered = sorted(values)
    chance = random.Random(seed)
    medians = sorted(statistics.median(chance.choices(ordered, k=len(ordered))) for _ in range(rounds))
    tail = (1 - level) / 2
    middle = statistics.median(ordered)
    low, high = (medians[min(rounds - 1, int(share * rounds))] for share in (tail, 1 - tail))
    return min(low, middle), max(high, middle)

"""Length of the fault tests: short for every commit, long with HYDRATOR_FAULTS=long."""

import os
import random

LONG = os.environ.get("HYDRATOR_FAULTS") == "long"


def chosen(short: int, long: int) -> int:
    """Return the number of repetitions in this run."""
    return long if LONG else short


def seeded() -> tuple[random.Random, int]:
    """Return a random generator and the seed that repeats it: HYDRATOR_SEED, or a new one."""
    seed = int(os.environ.get("HYDRATOR_SEED") or random.SystemRandom().randrange(2**32))
    return random.Random(seed), seed

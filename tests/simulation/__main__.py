"""Run seeds: ``python -m tests.simulation 17`` tells the story of seed 17; without a number, new seeds.

``--minutes 12`` runs new seeds for that time on all cores, and says how many; ``--hour`` measures an hour.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter

from tests.simulation.run import run, run_hour, tell
from tests.simulation.scenario import make


def _run_until(numbers: tuple[int, int, float]) -> tuple[int, list[int], Counter[str]]:
    """Run every ``step``-th seed from ``first`` until the time ``end``; return how many, and what failed."""
    first, step, end = numbers
    count, failed, events = 0, [], Counter[str]()
    while time.monotonic() < end and len(failed) < 20:
        seed = first + count * step
        outcome = run(make(seed))
        events += outcome.events
        if outcome.broken:
            failed.append(seed)
            print(f"seed {seed}: {', '.join(sorted(outcome.laws))}", flush=True)
        count += 1
    return count, failed, events


def main() -> int:
    """Run what the command line says; return 1 if a law broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="*", help="seeds to tell")
    parser.add_argument("--minutes", type=float, default=12.0, help="run new seeds for so long (default: 12)")
    parser.add_argument("--first", type=int, help="the first new seed (default: from the clock)")
    parser.add_argument("--hour", action="store_true", help="measure a quiet hour of 200 datasets")
    arguments = parser.parse_args()
    if arguments.hour:
        began = time.process_time()
        world = run_hour()
        print(f"{time.process_time() - began:.2f} s of CPU, {world.loop.switches} switches")
        return 0
    if arguments.seeds:
        for seed in arguments.seeds:
            print(tell(seed))
        return 0
    first = int(time.time()) * 1000 if arguments.first is None else arguments.first
    cores, end = os.cpu_count() or 1, time.monotonic() + 60 * arguments.minutes
    with multiprocessing.Pool(cores) as pool:
        results = pool.map(_run_until, [(first + core, cores, end) for core in range(cores)])
    failed = sorted(seed for _, seeds, _ in results for seed in seeds)
    events = sum((one for _, _, one in results), Counter[str]())
    print(f"{sum(count for count, _, _ in results)} seeds from {first}, {len(failed)} failed")
    print("\n".join(f"{count:8d}  {event}" for event, count in sorted(events.items())))
    for seed in failed[:3]:
        print(tell(seed))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

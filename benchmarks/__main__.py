"""``python -m benchmarks [NAME…] [--quick] [--results FOLDER]``."""

import argparse
import importlib
import sys
import time
from pathlib import Path

from .record import RESULTS, Result, shown, update_readme

NAMES = (
    "page",
    "trust",
    "pilots",
    "core",
    "scale",
    "hook_cpu",
    "hooks",
    "slots",
    "bursts",
    "negotiator",
    "freshness",
    "freshness_rucio",
    "rucio_clients",
    "rucio_sweeps",
    "rucio_polls",
)
"""The shortest first."""


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen benchmarks; 0 also where a goal was missed: that is a finding, no failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="a smoke test of each, under a minute")
    parser.add_argument(
        "--results", type=Path, help="where to write; by default benchmarks/results, with --quick nowhere"
    )
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(NAMES)):
        parser.error(f"no benchmark {', '.join(unknown)}: choose from {', '.join(NAMES)}")
    folder = options.results or (None if options.quick else RESULTS)
    for name in options.names or NAMES:
        begun = time.monotonic()
        print(f"== {name}", flush=True)
        result: Result = importlib.import_module(f"benchmarks.{name}").run(quick=options.quick)
        for figure in result.figures:
            goal = "" if figure.goal is None else f"  (goal {shown(figure.goal)})"
            missed = "  MISSED" if figure.met is False else ""
            print(f"   {figure.name}: {shown(figure.value)} {figure.unit}{goal}{missed}", flush=True)
        if folder:
            result.written(folder, quick=options.quick)
        print(f"   took {time.monotonic() - begun:.0f} s", flush=True)
    if folder == RESULTS:
        update_readme(RESULTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``python -m benchmarks [NAME…] [--quick] [--results FOLDER]``."""

import argparse
import importlib
import sys
import time
from pathlib import Path

from .record import RESULTS, Result, format_number, update_readme

NAMES = (
    "core",
    "scale",
    "cycle",
    "page",
    "hook_cpu",
    "hooks",
    "job_weight",
    "negotiator",
    "freshness",
    "rucio_polls",
)
"""All benchmarks, the shortest first."""


def main(arguments: list[str] | None = None) -> int:
    """Run the selected benchmarks; return 0 also after a missed goal, which is a finding, not a failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="run a smoke test of each, under a minute")
    parser.add_argument(
        "--results", type=Path, help="folder to write to; default: benchmarks/results, with --quick none"
    )
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(NAMES)):
        parser.error(f"no benchmark {', '.join(unknown)}: choose from {', '.join(NAMES)}")
    folder = options.results or (None if options.quick else RESULTS)
    for name in options.names or NAMES:
        started_at = time.monotonic()
        print(f"== {name}", flush=True)
        result: Result = importlib.import_module(f"benchmarks.{name}").run(quick=options.quick)
        for figure in result.figures:
            goal = "" if figure.goal is None else f"  (goal {format_number(figure.goal)})"
            missed = "  MISSED" if figure.met is False else ""
            print(f"   {figure.name}: {format_number(figure.value)} {figure.unit}{goal}{missed}", flush=True)
        if folder:
            result.write(folder, quick=options.quick)
        print(f"   took {time.monotonic() - started_at:.0f} s", flush=True)
    if folder == RESULTS:
        update_readme(RESULTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())

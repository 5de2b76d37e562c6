"""``hydrator submit wrapper``: the file that a job takes along."""

import sys
from pathlib import Path


def wrapper() -> None:
    """Print the job's start: one file that finds a job's datasets where it runs, then runs its command."""
    import hydrator

    sys.stdout.write(
        Path(hydrator.__file__).with_name("submit").joinpath("job_wrapper.py").read_text("utf-8")
    )

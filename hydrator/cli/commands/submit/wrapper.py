"""``hydrator submit wrapper``: print the wrapper that travels with a job."""

import sys
from pathlib import Path


def wrapper_text() -> str:
    """Return hydrator/submit/job_wrapper.py as text."""
    import hydrator

    path = Path(hydrator.__file__).with_name("submit") / "job_wrapper.py"
    return path.read_text("utf-8")


def wrapper() -> None:
    """Print the job wrapper: one file that finds a job's datasets at its site, then runs its command."""
    sys.stdout.write(wrapper_text())

"""``hydrator submit wrapper``: print the wrapper script that HTCondor transfers with a job."""

import sys
from pathlib import Path


def wrapper_text() -> str:
    """Return hydrator/submit/job_wrapper.py as text."""
    import hydrator

    path = Path(hydrator.__file__).with_name("submit") / "job_wrapper.py"
    return path.read_text("utf-8")


def wrapper() -> None:
    """Print the job wrapper.

    It is a script that finds a job's datasets at its site and runs the job's command.
    """
    sys.stdout.write(wrapper_text())

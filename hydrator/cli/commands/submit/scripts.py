"""``hydrator submit wrapper`` and ``toil-shim``: print scripts that run elsewhere."""

import sys
from pathlib import Path

import hydrator

_PACKAGES = Path(hydrator.__file__).parents[1]


def wrapper_text() -> str:
    """Return hydrator/submit/job_wrapper.py as text."""
    return (_PACKAGES / "hydrator" / "submit" / "job_wrapper.py").read_text("utf-8")


def wrapper() -> None:
    """Print the job wrapper.

    It is a script that finds a job's datasets at its site and runs the job's command.
    """
    sys.stdout.write(wrapper_text())


def toil_shim() -> None:
    """Print a toil-cwl-runner for Rapthor.

    With it, Rapthor's Slurm jobs become HTCondor jobs where their data is.
    """
    file = _PACKAGES / "toil_batch_system_classad_hydrator" / "toil-cwl-runner"
    sys.stdout.write(file.read_text("utf-8"))

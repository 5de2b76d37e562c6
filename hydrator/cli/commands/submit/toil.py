"""``hydrator submit toil-shim``: print the script that Rapthor calls instead of ``toil-cwl-runner``."""

import sys
from importlib.util import find_spec
from pathlib import Path

from hydrator.domain.errors import HydratorError


def toil_shim() -> None:
    """Print a toil-cwl-runner for Rapthor.

    With it, Rapthor's Slurm jobs become HTCondor jobs where their data is.
    """
    spec = find_spec("toil_batch_system_classad_hydrator")
    if spec is None or spec.origin is None:
        raise HydratorError("the batch system for Toil is not installed: install classad-hydrator again")
    sys.stdout.write(Path(spec.origin).with_name("toil-cwl-runner").read_text("utf-8"))

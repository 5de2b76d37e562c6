"""``hydrator submit toil-shim``: what stands before ``toil-cwl-runner`` when Rapthor calls it."""

import sys
from importlib.util import find_spec
from pathlib import Path

from hydrator.domain.errors import HydratorError


def toil_shim() -> None:
    """Print a toil-cwl-runner for Rapthor: its Slurm calls become HTCondor jobs beside their data."""
    found = find_spec("toil_batch_system_classad_hydrator")
    if found is None or found.origin is None:
        raise HydratorError("the batch system for Toil is not installed: install classad-hydrator again")
    sys.stdout.write(Path(found.origin).with_name("toil-cwl-runner").read_text("utf-8"))

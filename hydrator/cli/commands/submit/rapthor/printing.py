"""Output of ``--as ad`` and ``--as env``: a ClassAd, and exports for a shell that starts Toil."""

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from hydrator.cli.output.printing import print_problems
from hydrator.submit.rapthor.environment import export_lines
from hydrator.submit.rapthor.job import as_ad
from hydrator.submit.rapthor.job import as_json as ad_as_json

from .checks import exit_on_problems, privacy_problems

if TYPE_CHECKING:
    from .run import PreparedRun


def print_ad(prepared: "PreparedRun", *, as_json: bool) -> None:
    """Print the job attributes of the run as a ClassAd or as JSON."""
    text = ad_as_json(prepared.run) if as_json else as_ad(prepared.run)
    exit_on_problems(privacy_problems(prepared.private_dids, {"the ad": text}))
    sys.stdout.write(text)


def print_exports(prepared: "PreparedRun", *, toil: bool) -> None:
    """Print the exports for the shell; *toil* adds TOIL_HTCONDOR_PARAMS."""
    text = export_lines(prepared.run, os.environ, _read_condor_values(), toil=toil)
    exit_on_problems(privacy_problems(prepared.private_dids, {"the exports": text}))
    if len(prepared.run.sizes) > 1:
        print_problems(
            "sizes are left out: they need a ';', which is lost on the way; ranks count datasets instead"
        )
    sys.stdout.write(text)


def _read_condor_values() -> dict[str, str | None]:
    """Query condor_config_val for the values that the exports would replace; None if it has none."""
    tool = shutil.which("condor_config_val")
    names = ("SUBMIT_ATTRS", "APPEND_REQ_VANILLA", "APPEND_RANK_VANILLA")
    values: dict[str, str | None] = dict.fromkeys(names)
    for name in names if tool else ():
        try:
            done = subprocess.run([str(tool), name], capture_output=True, text=True, check=False, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            break
        if done.returncode == 0:
            values[name] = " ".join(done.stdout.split())
    return values

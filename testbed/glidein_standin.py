"""A stand-in for a GlideinWMS glidein: it runs a periodic script at its start and later.

It is not GlideinWMS and has none of its code: these rules were read in its sources and noted down.

- Files of the frontend are in one folder of the working directory. ``glidein_config`` has the settings as
  ``KEY value`` lines, of which the last counts.
- At the start each script runs once, ``script glidein_config client``, with no standard input. Its output
  goes to the pilot's own, and a status other than 0 ends the glidein. Only then it is scheduled.
- Later the startd runs a wrapper, for slot 1 only, in a temporary working directory that is removed after
  it, with ``GLIDEIN_PERIODIC_SCRIPT``. The script's output passes through unchanged, and the wrapper prints
  a block of its own after it, without a tag. A status other than 0 is in that block, and the wrapper ends
  with 1.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .files import write_program
from .processes import run_program

PATH = f"{Path(sys.executable).parent}:{os.defpath}"
"""Folders of Python and of the tools on a node."""

WRAPPER = """#!/bin/sh
# glidein_config, id, name, script, prefix
name=
[ "$5" != NOPREFIX ] || name=GLIDEIN_PS_
away=$(mktemp -d) && cd "$away" || exit 1
GLIDEIN_PERIODIC_SCRIPT=true "$4" "$1" "$2"
status=$?
cd / && rm -rf "$away"
if [ $status -ne 0 ]; then
    echo "${name}FAILED_LAST = true"
    echo "-"
    exit 1
fi
echo "${name}OK = true"
echo "${name}LAST = \\"$4\\""
echo "-"
"""


@dataclass(frozen=True)
class Ran:
    """The result of one run of a script."""

    status: int
    out: str
    err: str


class Glidein:
    """One glidein below *folder*, with *files* of the frontend and *settings* in its glidein_config."""

    def __init__(self, folder: Path, files: Mapping[str, Path], settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.config = folder / "glidein_config"
        self.client = folder / "client"
        self.client.mkdir(parents=True)
        for name, source in files.items():
            shutil.copy(source, self.client / name)
            (self.client / name).chmod(0o755 if name.endswith(".sh") else 0o644)
        self.config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        self.wrapper = write_program(folder / "script_wrapper.sh", WRAPPER)

    def start(self, script: str, **environ: str) -> Ran:
        """Run the script for the first time."""
        return self._run([str(self.client / script), str(self.config), "client"], environ)

    def periodic(self, script: str, **environ: str) -> Ran:
        """Run the script later, as the startd does."""
        return self._run([str(self.wrapper), *self._words(script)], environ)

    def _words(self, script: str) -> tuple[str, ...]:
        return str(self.config), "client", "GLIDEIN_PS_1", str(self.client / script), "NOPREFIX"

    def cron(self, script: str, period: str) -> str:
        """Return the configuration lines that the startd gets for *script*."""
        job = "STARTD_CRON_GLIDEIN_PS_1"
        lines = [
            "STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) GLIDEIN_PS_1",
            f"{job}_MODE = Periodic",
            f"{job}_KILL = True",
            f"{job}_PERIOD = {period}s",
            f"{job}_EXECUTABLE = {self.wrapper}",
            f"{job}_ARGS = {' '.join(self._words(script))}",
            f"{job}_CWD = {self.folder}",
            f"{job}_SLOTS = 1",
            f"{job}_JOB_LOAD = 0.01",
        ]
        return "\n".join((*lines, ""))

    def _run(self, command: list[str], environ: Mapping[str, str]) -> Ran:
        done = run_program(
            command,
            env={"PATH": PATH, "HOME": str(self.folder), **environ},
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

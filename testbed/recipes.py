"""dask-jobqueue, Snakemake and HTMap in one virtual environment: docs/users/tools.md."""

from pathlib import Path

from .cached import venv_python

LOCK = Path(__file__).with_name("recipes.lock")


def python() -> Path:
    """Return the Python that has them; build the environment first where it is missing.

    Raises:
        Unavailable: pip could not install them; the text ends with pip's own words.
    """
    return venv_python("recipes", LOCK, "--no-compile")

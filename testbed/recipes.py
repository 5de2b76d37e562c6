"""dask-jobqueue and HTMap in one virtual environment: recipes of docs/how-to/submit/write-a-job.md."""

from pathlib import Path

from .cached import PipFailed, venv_python

LOCK = Path(__file__).with_name("recipes.lock")


class RecipesUnavailable(Exception):
    """The packages cannot be installed here, most often for lack of a package index."""


def python() -> Path:
    """Return the Python that has them; build the environment first where it is missing.

    Raises:
        RecipesUnavailable: pip could not install them; the text ends with pip's own words.
    """
    try:
        return venv_python("recipes", LOCK, "--no-compile")
    except PipFailed as failed:
        raise RecipesUnavailable(str(failed)) from failed

"""rattler-build as a library, which renders a conda recipe; it runs in a virtual environment of its own."""

import json
import subprocess
from pathlib import Path
from typing import Any

from .cached import PipFailed, venv_python

LOCK = Path(__file__).with_name("conda.lock")
_RENDER = """\
import json, sys
import rattler_build
recipe = rattler_build.Stage0Recipe.from_file(sys.argv[1])
rendered = recipe.render(rattler_build.VariantConfig.from_yaml("python_min: ['3.11']"))
print(json.dumps([each.recipe.to_dict() for each in rendered], default=str))
"""


class CondaUnavailable(Exception):
    """rattler-build cannot be installed here, most often for lack of a package index."""


class RecipeRejected(Exception):
    """rattler-build cannot parse or render the recipe; the text ends with its error."""


def python() -> Path:
    """Return the Python that has rattler-build; build the environment first if it is missing.

    Raises:
        CondaUnavailable: pip could not install it; the text ends with pip's error.
    """
    try:
        return venv_python("conda", LOCK)
    except PipFailed as failed:
        raise CondaUnavailable(str(failed)) from failed


def render(recipe: Path) -> list[dict[str, Any]]:
    """Return the packages that rattler-build would build from *recipe*, without building them.

    Raises:
        CondaUnavailable: see :func:`python`.
        RecipeRejected: the recipe is not valid.
    """
    command = [str(python()), "-I", "-c", _RENDER, str(recipe)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RecipeRejected(done.stderr.strip()[-800:])
    rendered: list[dict[str, Any]] = json.loads(done.stdout)
    return rendered

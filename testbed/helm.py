"""The real engine of Helm 4 for tests of the chart: rendering and linting, no cluster.

It runs in a process of its own: a Go library brings its own signal handlers.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from .cached import built, install_wheels
from .processes import run_program

LOCK = Path(__file__).with_name("helm.lock")
_PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import helm_python, yaml
asked = json.load(sys.stdin)
try:
    if asked["what"] == "lint":
        answer = helm_python.lint(asked["chart"], asked["values"], strict=True, kube_version=asked["kube"])
    else:
        with helm_python.Chart.load(asked["chart"]) as chart:
            texts = chart.render(asked["values"], name=asked["name"], namespace=asked["namespace"])
            answer = {
                path: text if path.endswith(".txt") else [o for o in yaml.safe_load_all(text) if o]
                for path, text in texts.items()
            }
except helm_python.HelmError as error:
    answer = {"refused": str(error)}
json.dump(answer, sys.stdout)
"""


_READ_ALL = """
import json, sys
sys.path.insert(0, sys.argv[1])
import yaml
json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)
"""


class Refused(Exception):
    """Helm did not render; the text is its reason."""


def engine() -> Path:
    """Return the folder with the engine; install it first if it is missing or of another lock.

    Raises:
        Unavailable: pip could not install it; the text ends with pip's error.
    """
    return built("helm", LOCK.read_bytes(), _install)


def _install(home: Path) -> None:
    install_wheels(home, LOCK, "the Helm engine")
    libraries = sorted((home / "helm_python" / "lib").glob("libhelm_c.so*"))
    for copy in libraries[1:]:  # the wheel has the same 85 MB three times
        if copy.read_bytes() == libraries[0].read_bytes():
            copy.unlink()
            copy.symlink_to(libraries[0].name)


def render(chart: Path, values: dict[str, Any], name: str = "demo") -> tuple[list[dict[str, Any]], str]:
    """Return the objects, in the order of their files, and the notes of *chart* with *values*.

    Raises:
        Refused: the schema or a template rejects *values*.
        Unavailable: see `engine`.
    """
    answer = _ask(what="render", chart=str(chart), values=values, name=name, namespace="data")
    if "refused" in answer:
        raise Refused(answer["refused"])
    notes = [text for text in answer.values() if isinstance(text, str)]
    objects = [item for path in sorted(answer) if isinstance(answer[path], list) for item in answer[path]]
    return objects, "\n".join(notes)


def lint(chart: Path, values: dict[str, Any]) -> Any:  # noqa: ANN401 - whatever Helm finds
    """Return Helm's strict findings on *chart* with *values*."""
    return _ask(what="lint", chart=str(chart), values=values, kube=None)


def load_values(path: Path) -> dict[str, Any]:
    """Read a values file with the engine's own YAML reader."""
    values: dict[str, Any] = parse(path.read_text("utf-8"))
    return values


def parse(text: str) -> Any:  # noqa: ANN401 - any YAML
    """Return the one document in *text*, by the same reader."""
    [document] = json.loads(_run(_READ_ALL, text)) or [None]
    return document


def _ask(**question: Any) -> Any:  # noqa: ANN401 - JSON
    return json.loads(_run(_PROGRAM, json.dumps(question)))


@cache
def _run(program: str, given: str) -> str:
    """Return the output of *program* for *given*, cached because starting the engine takes half a second."""
    command = [sys.executable, "-c", program, str(engine())]
    done = run_program(command, input=given, timeout=180)
    if done.returncode != 0:
        raise AssertionError(f"the Helm engine ended with {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout

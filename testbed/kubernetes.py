"""Validation of Kubernetes objects without a cluster.

There are two validators, because neither finds everything. The strict JSON schemas of a release find
unknown and missing fields and wrong types. The npm models also know quantities, enumerations and the
kinds of the Prometheus operator. Neither has the checks in the code of an API server.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry
from referencing.jsonschema import DRAFT7

from .cached import built, install_wheels
from .nodejs import modules

LOCK = Path(__file__).with_name("kubernetes.lock")
OLDEST, NEWEST = "1.25", "1.37"
"""The releases that the chart is tried against; the oldest is Chart.yaml's ``kubeVersion``."""


def problems(item: Mapping[str, Any], release: str) -> list[str]:
    """Return the problems of *item* in the strict schema of *release*, each with its place.

    Raises:
        Unavailable: see there.
        KeyError: that release has no such kind.
    """
    folder = _folder(release)
    group, _, version = str(item["apiVersion"]).rpartition("/")
    name = "-".join(part for part in (str(item["kind"]).lower(), group.split(".")[0], version) if part)
    file = folder / f"{name}.json"
    if not file.is_file():
        raise KeyError(f"Kubernetes {release} has no {item['apiVersion']} {item['kind']}")
    validator = jsonschema.Draft7Validator(json.loads(file.read_text("utf-8")), registry=_registry(folder))
    return list(_describe_errors(validator.iter_errors(item)))


def model_problems(items: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the problems that the npm models find in each of *items*.

    Raises:
        Unavailable: there is no npm, or it could not install.
    """
    command = ["node", str(modules().with_name("models.mjs"))]
    done = subprocess.run(
        command, input=json.dumps(items), capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode != 0:
        raise AssertionError(f"the models ended with {done.returncode}: {done.stderr.strip()[-600:]}")
    found: list[list[str]] = json.loads(done.stdout)
    return found


def _describe_errors(errors: Iterator[Any]) -> Iterator[str]:
    for error in errors:
        place = "/".join(str(part) for part in error.absolute_path)
        yield f"{place}: {error.message}"[:300]


@cache
def _registry(folder: Path) -> Registry[Any]:
    definitions = json.loads((folder / "_definitions.json").read_text("utf-8"))
    registry: Registry[Any] = Registry().with_resource(
        "/api/_definitions.json", DRAFT7.create_resource(definitions)
    )
    return registry


def schemas() -> Path:
    """Return the folder with the schemas of every release; download them first if it is missing.

    Raises:
        Unavailable: see there.
    """
    return built("kubernetes-schemas", LOCK.read_bytes(), _install)


def _folder(release: str) -> Path:
    return schemas() / "kubernetes_validate" / "kubernetes-json-schema" / f"v{release}.0-local-strict"


def _install(home: Path) -> None:
    install_wheels(home, LOCK, "Kubernetes' schemas")

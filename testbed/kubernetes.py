"""Validation of Kubernetes objects without a cluster.

The strict JSON schemas of a release find unknown and missing fields and wrong types. They have neither
the checks in the code of an API server nor the kinds of the Prometheus operator.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry
from referencing.jsonschema import DRAFT7

from .cached import built, install_wheels

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

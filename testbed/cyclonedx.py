"""CycloneDX's own JSON schemas, from a pinned package whose code never runs."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import referencing

from .cached import built

LOCK = Path(__file__).with_name("cyclonedx.lock")


class SchemasUnavailable(Exception):
    """The schemas cannot be downloaded; the text ends with pip's error."""


def problems(bill: Mapping[str, Any]) -> list[str]:
    """Return the violations of the schema of the bill's own version.

    Raises:
        SchemasUnavailable: see there.
    """
    home = built("cyclonedx-schemas", LOCK.read_bytes(), _install) / "cyclonedx" / "schema" / "_res"
    files = [
        home / f"{name}.SNAPSHOT.schema.json" for name in (f"bom-{bill['specVersion']}", "spdx", "jsf-0.82")
    ]
    schemas = [json.loads(file.read_text("utf-8")) for file in files]
    registry: Any = referencing.Registry().with_resources(
        (schema["$id"], referencing.Resource.from_contents(schema)) for schema in schemas
    )
    validator = jsonschema.Draft7Validator(schemas[0], registry=registry)
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(bill)]


def _install(home: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = ["--only-binary=:all:", "--no-deps", "--require-hashes", "-r", str(LOCK), "--target", str(home)]
    done = subprocess.run([*pip, *wanted], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SchemasUnavailable(f"cannot fetch CycloneDX's schemas: {done.stderr.strip()[-600:]}")

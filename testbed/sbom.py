"""The software bill of materials of the shipped wheels, in CycloneDX, from the wheels themselves."""

import hashlib
import json
import uuid
import zipfile
from collections.abc import Mapping
from email.parser import Parser
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "classad-hydrator"
SBOM = f"{NAME}.cdx.json"
VERSION = "1.6"


def write_sbom(folder: Path) -> Path:
    """Write the bill of all wheels in *folder* beside them: equal wheels, equal bytes."""
    wheels = {canonicalize_name(meta["name"]): meta for meta in map(_metadata, sorted(folder.glob("*.whl")))}
    ours = wheels[canonicalize_name(NAME)]
    components = [_component(meta, "library") for name, meta in wheels.items() if meta is not ours]
    body: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": VERSION,
        "version": 1,
        "metadata": {"component": _component(ours, "application")},
        "components": components,
        "dependencies": [
            {
                "ref": _purl(meta),
                "dependsOn": sorted(_purl(wheels[need]) for need in meta["needs"] if need in wheels),
            }
            for meta in wheels.values()
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    path = folder / SBOM
    path.write_text(json.dumps({**body, "serialNumber": f"urn:uuid:{serial}"}, indent=1) + "\n", "utf-8")
    return path


def _metadata(wheel: Path) -> dict[str, Any]:
    """Return a wheel's name, version, needs without extras, and SHA-256."""
    with zipfile.ZipFile(wheel) as archive:
        (file,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(file).decode("utf-8", "replace"))
    asked = [Requirement(text) for text in metadata.get_all("Requires-Dist") or []]
    return {
        "name": str(metadata["Name"]),
        "version": str(metadata["Version"]),
        "needs": sorted(
            {canonicalize_name(r.name) for r in asked if not r.marker or r.marker.evaluate({"extra": ""})}
        ),
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
    }


def _component(meta: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {
        "type": kind,
        "bom-ref": _purl(meta),
        "name": meta["name"],
        "version": meta["version"],
        "purl": _purl(meta),
        "hashes": [{"alg": "SHA-256", "content": meta["sha256"]}],
    }


def _purl(meta: Mapping[str, Any]) -> str:
    return f"pkg:pypi/{canonicalize_name(meta['name'])}@{meta['version']}"

"""Provenance of the shipped wheel and image: in-toto statements with SLSA's predicate, without a signature.

    python -m testbed.provenance dist                       # dist/*.whl and dist/classad-hydrator.cdx.json
    python -m testbed.provenance dist --image image.tar     # and an image, as an OCI archive

A statement names what was built (by SHA-256), from which commit, and from which wheels. It is as good as the
machine that wrote it: sign it with a key that your users know. The formats: in-toto Statement 1, SLSA
Provenance 1.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import sbom

ROOT = Path(__file__).parents[1]
NAME = f"{sbom.NAME}.provenance.json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
LOCAL_BUILDER = "urn:classad-hydrator:builder:local"
"""Default of --builder: a person's machine, which vouches for nothing."""
WHEEL_BUILD = "urn:classad-hydrator:build:wheel:1"
IMAGE_BUILD = "urn:classad-hydrator:build:image:1"


class ProvenanceRefused(Exception):
    """No true statement can be made: files are missing, or the checkout differs from every commit."""


def describe_commit(root: Path) -> dict[str, Any]:
    """Return the checkout at *root* as a resource: its commit.

    Raises:
        ProvenanceRefused: it is no checkout, or has changes that are not in a commit.
    """
    if changes := _git(root, "status", "--porcelain", "--untracked-files=no"):
        changed = ", ".join(line.split(maxsplit=1)[1] for line in changes.splitlines()[:5])
        raise ProvenanceRefused(f"commit the changes of the checkout first: {changed}")
    return {"name": "source", "digest": {"gitCommit": _git(root, "rev-parse", "HEAD")}}


def describe_wheels(folder: Path, commit: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statement about this project's wheel in *folder*, and the bill of materials beside it.

    Args:
        folder: what ``make wheels`` wrote.
        commit: the result of :func:`describe_commit`.
        run: ``runDetails`` of the predicate.

    Raises:
        ProvenanceRefused: the wheel or the bill is missing, or the bill is of other wheels.
    """
    bill_file = folder / sbom.SBOM
    ours = sorted(folder.glob("classad_hydrator-*.whl"))
    if len(ours) != 1 or not bill_file.is_file():
        raise ProvenanceRefused(f"{folder} does not have one wheel and {sbom.SBOM}: run make wheels")
    bill = json.loads(bill_file.read_text("utf-8"))
    listed = bill["metadata"]["component"]["hashes"][0]["content"]
    if listed != _sha256(ours[0]):
        raise ProvenanceRefused(f"{bill_file} is not the bill of {ours[0].name}: run make wheels again")
    lock = {"name": "requirements.lock", "digest": {"sha256": _sha256(ROOT / "requirements.lock")}}
    parameters = {"command": "make wheels", "python": sys.version.split()[0]}
    return _statement([ours[0], bill_file], WHEEL_BUILD, parameters, [commit, lock], run)


def describe_image(
    archive: Path, folder: Path, commit: Mapping[str, Any], run: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the statement about the image in the OCI archive *archive*, built with the wheels of *folder*.

    The subject is the digest of the image's manifest, by which registries and pods name the image.

    Raises:
        ProvenanceRefused: the archive is no OCI archive of one image.
    """
    try:
        with tarfile.open(archive) as tar:
            index = json.loads(tar.extractfile("index.json").read())  # type: ignore[union-attr]
        [manifest] = index["manifests"]
        algorithm, _, digest = manifest["digest"].partition(":")
    except (OSError, tarfile.TarError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ProvenanceRefused(f"{archive} is not an OCI archive of one image: {error}") from error
    wheels = [
        {"name": path.name, "digest": {"sha256": _sha256(path)}} for path in sorted(folder.glob("*.whl"))
    ]
    file = ROOT / "deploy" / "container" / "Containerfile"
    recipe = {"name": "deploy/container/Containerfile", "digest": {"sha256": _sha256(file)}}
    image = {"name": sbom.NAME, "digest": {algorithm: digest}}
    parameters = {"command": "buildah bud -f deploy/container/Containerfile"}
    return _statement([image], IMAGE_BUILD, parameters, [commit, recipe, *wheels], run)


def _statement(
    subjects: Sequence[Path | Mapping[str, Any]],
    build_type: str,
    parameters: Mapping[str, str],
    materials: Sequence[Mapping[str, Any]],
    run: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": each.name, "digest": {"sha256": _sha256(each)}} if isinstance(each, Path) else dict(each)
            for each in subjects
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": build_type,
                "externalParameters": dict(parameters),
                "resolvedDependencies": list(materials),
            },
            "runDetails": dict(run),
        },
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProvenanceRefused(f"{root} is not a git checkout: {done.stderr.strip()}")
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the statements, one JSON document a line; 1 if there can be none, with the reason."""
    parser = argparse.ArgumentParser(prog="provenance", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="what make wheels wrote")
    parser.add_argument("--image", type=Path, help="an OCI archive (podman save --format oci-archive)")
    parser.add_argument("--builder", default=LOCAL_BUILDER, help="URI of the builder (%(default)s)")
    given = parser.parse_args(arguments)
    finished_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")  # noqa: TID251
    run = {"builder": {"id": given.builder}, "metadata": {"finishedOn": finished_at}}
    try:
        commit = describe_commit(root)
        statements = [describe_wheels(given.folder, commit, run)]
        if given.image:
            statements.append(describe_image(given.image, given.folder, commit, run))
    except ProvenanceRefused as reason:
        print(f"provenance: {reason}", file=sys.stderr)
        return 1
    path = given.folder / NAME
    path.write_text("".join(json.dumps(each) + "\n" for each in statements), "utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

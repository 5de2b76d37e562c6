"""Provenance of the wheel and the image: who is named, by which digest, and when no statement is made."""

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from testbed import provenance
from testbed.sbom import SBOM

DIGEST = "a" * 64


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A git checkout with one commit."""
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "file").write_text("1")
    for words in (
        ("init", "--quiet"),
        ("add", "file"),
        ("-c", "user.name=a", "-c", "user.email=a@b.test", "commit", "--quiet", "-m", "one"),
    ):
        subprocess.run(["git", "-C", str(root), *words], check=True)
    return root


@pytest.fixture
def dist(tmp_path) -> Path:
    """A folder as ``make wheels`` writes it."""
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "classad_hydrator-0.1.0-py3-none-any.whl").write_bytes(b"ours")
    (folder / "rich-14.0-py3-none-any.whl").write_bytes(b"rich")
    write_bill(folder, b"ours")
    return folder


def write_bill(folder: Path, wheel: bytes) -> None:
    hashes = [{"alg": "SHA-256", "content": hashlib.sha256(wheel).hexdigest()}]
    (folder / SBOM).write_text(json.dumps({"metadata": {"component": {"hashes": hashes}}}))


def image(tmp_path: Path, *digests: str) -> Path:
    text = json.dumps({"manifests": [{"digest": f"sha256:{digest}"} for digest in digests]}).encode()
    path = tmp_path / "image.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("index.json")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_statements_name_wheel_bill_image_commit_and_materials(dist, checkout, tmp_path):
    words = [str(dist), "--image", str(image(tmp_path, DIGEST)), "--builder", "https://ci.example.org"]
    assert provenance.main(words, checkout) == 0
    wheel, container = map(json.loads, (dist / provenance.NAME).read_text().splitlines())
    ours = dist / "classad_hydrator-0.1.0-py3-none-any.whl"
    assert {each["name"]: each["digest"]["sha256"] for each in wheel["subject"]} == {
        ours.name: sha256(ours),
        SBOM: sha256(dist / SBOM),
    }
    assert container["subject"] == [{"name": "classad-hydrator", "digest": {"sha256": DIGEST}}]
    head = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    commit = subprocess.check_output(head, text=True).strip()
    for statement in (wheel, container):
        assert statement["_type"] == "https://in-toto.io/Statement/v1"
        assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
        assert statement["predicate"]["runDetails"]["builder"] == {"id": "https://ci.example.org"}
        materials = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
        assert materials[0]["digest"] == {"gitCommit": commit}
    names = {each["name"] for each in materials}
    assert names >= {ours.name, "rich-14.0-py3-none-any.whl", "deploy/container/Containerfile"}


def test_a_checkout_with_changes_gets_no_statement(dist, checkout, capsys):
    (checkout / "file").write_text("2")
    assert provenance.main([str(dist)], checkout) == 1
    assert capsys.readouterr().err == "provenance: commit the changes of the checkout first: file\n"
    assert not (dist / provenance.NAME).exists()


def test_a_bill_of_another_wheel_gets_no_statement(dist, checkout, capsys):
    write_bill(dist, b"other")
    assert provenance.main([str(dist)], checkout) == 1
    assert "is not the bill of classad_hydrator-0.1.0" in capsys.readouterr().err


@pytest.mark.parametrize("digests", [(), (DIGEST, "b" * 64)])
def test_an_archive_without_exactly_one_image_gets_no_statement(digests, dist, checkout, tmp_path, capsys):
    assert provenance.main([str(dist), "--image", str(image(tmp_path, *digests))], checkout) == 1
    assert "is not an OCI archive of one image" in capsys.readouterr().err

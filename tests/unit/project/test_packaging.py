"""Packages: wheel and sdist have all required files, and none of the machine that built them."""

import re
import shutil
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from hydrator.domain.text import DOCUMENTATION
from testbed.debian import mirror
from testbed.processes import run_program
from testbed.wheelhouse import build, dependencies, main

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = f"classad_hydrator-{PROJECT['version']}"
TOIL = "toil_batch_system_classad_hydrator"
PACKAGES = ("adapters", "hydrator", TOIL)

needs_git = pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(),
    reason="not a git checkout: tracked files were NOT searched for names of this machine",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    return build("sdist", tmp_path_factory.mktemp("sdist"))


def files_of_the_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def files_of_the_sdist(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def sources(*packages: str) -> set[str]:
    """Return every file of *packages* in this checkout that belongs to the project."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


@pytest.mark.outside
def test_the_wheel_holds_every_file_of_the_packages(wheel):
    shipped = {name for name in files_of_the_wheel(wheel) if not name.startswith(NAME)}
    assert shipped == sources(*PACKAGES)
    assert {"hydrator/startd_cron.py", "adapters/condor/bindings/child.py"} <= shipped


@pytest.mark.outside
def test_the_wheel_installs_every_page_where_links_look_for_it(wheel):
    place = f"{NAME}.data/data/share/doc/classad-hydrator/"
    there = {name.removeprefix(place) for name in files_of_the_wheel(wheel) if name.startswith(place)}
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages | {"SECURITY.md", "CHANGELOG.md", "config.example.toml"} <= there
    assert DOCUMENTATION.endswith("/share/doc/classad-hydrator")


@pytest.mark.outside
def test_the_wheel_carries_its_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        licence = archive.read(f"{NAME}.dist-info/licenses/LICENSE")
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert b"Apache License" in licence


@pytest.mark.outside
def test_the_sdist_holds_what_the_wheel_is_built_from_and_its_tests(sdist):
    files = files_of_the_sdist(sdist)
    wanted = sources(*PACKAGES) | {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"}
    wanted |= {"config.example.toml", "tests/unit/project/test_packaging.py", "testbed/__init__.py"}
    wanted |= {"Makefile", "requirements.lock", "scripts/setup", "deploy/systemd/hydrator.service"}
    assert wanted - files == set()
    assert not any(name.startswith((".venv", ".git/", "dist")) for name in files)


# the lock


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_pins_every_dependency():
    lock = (ROOT / "requirements.lock").read_text()
    pinned = {_canonical(name) for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)}
    asked = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    names = {_canonical(re.match(r"[\w.-]+", requirement)[0]) for requirement in asked}
    assert names - pinned == set()


LOCKS = sorted([*ROOT.glob("*.lock"), *ROOT.glob("docs/*.lock"), *ROOT.glob("testbed/*.lock")])


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_lock_has_a_hash_for_each_package(lock):
    text = lock.read_text()
    pinned = re.findall(r"^([\w.-]+)==\S+(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    assert pinned
    assert len(pinned) == len(re.findall(r"^[^#\s]", text, re.MULTILINE))
    assert [name for name, hashes in pinned if not re.search(r"--hash=sha256:[0-9a-f]{64}", hashes)] == []


# nothing of the machine that made it


def hosts() -> set[str]:
    """The package registries this machine is set up to use."""
    commands = [sys.executable, "-m", "pip", "config", "list"], ["npm", "config", "get", "registry"]
    said = [run_program(command).stdout for command in commands if shutil.which(command[0])]
    found = set(re.findall(r"https?://(?:[^/@\s'\"]*@)?([^/:\s'\"]+)", "\n".join([*said, mirror() or ""])))
    return found - {"localhost", "127.0.0.1"}


def tracked() -> list[Path]:
    """Return every file of the commit, and the untracked ones that the next commit would have."""
    listed = run_program(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def naming(files: list[Path], texts: set[str]) -> list[str]:
    """Return the *files* that contain each of *texts*."""
    return [
        f"{path}: {text}" for path in files for text in sorted(texts) if text.encode() in path.read_bytes()
    ]


@pytest.mark.outside
@needs_git
def test_make_wheels_replaces_its_own_files_and_no_others(wheel, tmp_path):
    """dist/ also has the packages and the docs, which take minutes to build."""
    others = {"packages/classad-hydrator.deb", "docs/html/index.html"}
    outdated = {"classad_hydrator-0.0.1-py3-none-any.whl"}
    for name in others | outdated:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("from before")
    assert main(tmp_path) == 0
    found = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*") if path.is_file()}
    assert {name for name, path in found.items() if path.read_bytes() == b"from before"} == others
    wheels = {path.name for path in dependencies().glob("*.whl")} | {wheel.name}
    assert found.keys() - others == wheels


@pytest.mark.outside
def test_no_file_names_a_registry_of_this_machine():
    files = tracked()
    assert ROOT / "pyproject.toml" in files
    assert naming(files, hosts()) == []


@pytest.mark.outside
@needs_git
def test_no_file_names_a_folder_of_this_machine():
    folders = {str(folder) for folder in (ROOT, Path.home() / ".cache") if len(folder.parts) > 2}
    assert naming(tracked(), folders) == []

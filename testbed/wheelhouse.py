"""Wheels of an installation: this project's, and its dependencies, as requirements.lock pins them."""

import re
import shutil
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Literal

from build import ProjectBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pyproject_hooks import quiet_subprocess_runner

from .cached import built, run_pip

ROOT = Path(__file__).parents[1]
PYTHON = "3.11"
"""Version of Debian 12, where the wheels are installed."""
PACKAGES = ("hydrator", "adapters", "toil_batch_system_classad_hydrator")
_LOCK = ROOT / "requirements.lock"


def dependencies(python: str = PYTHON) -> Path:
    """Return a folder with the wheel of every run-time dependency for this release of Python (60 MB).

    It is downloaded once.

    Raises:
        Unavailable: see there.
    """
    name = "wheelhouse" if python == PYTHON else f"wheelhouse-{python}"
    return built(name, runtime_lock().encode(), lambda home: _fetch(home, python))


def our_wheel(folder: Path, version: str | None = None) -> Path:
    """Build this project's wheel from the checkout into *folder*, as if *version* were its version."""
    with tempfile.TemporaryDirectory() as scratch:
        source = ROOT
        if version:
            source = Path(scratch) / "source"
            ignored = shutil.ignore_patterns("__pycache__")
            for name in PACKAGES:
                shutil.copytree(ROOT / name, source / name, ignore=ignored)
            for name in ("pyproject.toml", "README.md", "LICENSE"):
                shutil.copy(ROOT / name, source)
            text = (source / "pyproject.toml").read_text("utf-8")
            (source / "pyproject.toml").write_text(
                re.sub(r'^version = ".*"$', f'version = "{version}"', text, count=1, flags=re.MULTILINE)
            )
        return build("wheel", folder, source)


def build(kind: Literal["wheel", "sdist"], folder: Path, source: Path = ROOT) -> Path:
    """Build the ``wheel`` or ``sdist`` of *source* into *folder*, by this environment, without a network."""
    builder = ProjectBuilder(source, runner=quiet_subprocess_runner)
    assert builder.check_dependencies(kind) == set()
    return Path(builder.build(kind, folder))


def runtime_lock() -> str:
    """Return the entries of requirements.lock that an installation without extras needs."""
    entries = re.finditer(r"^([A-Za-z0-9._-]+)==.*\n(?: .*\n?)*", _LOCK.read_text("utf-8"), re.MULTILINE)
    wanted = _collect_requirements("classad-hydrator")
    return "".join(entry[0] for entry in entries if canonicalize_name(entry[1]) in wanted)


def _collect_requirements(name: str) -> set[str]:
    """Return *name* and all that it requires, also indirectly, by the installed packages' metadata."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = canonicalize_name(waiting.pop())
        if one in found:
            continue
        found.add(one)
        try:
            requirements = [Requirement(line) for line in requires(one) or []]
        except PackageNotFoundError:  # not for this Python
            continue
        waiting += [r.name for r in requirements if not r.marker or r.marker.evaluate({"extra": ""})]
    return found


def _fetch(home: Path, python: str) -> None:
    home.mkdir()
    lock = home / "runtime.lock"
    lock.write_text(runtime_lock(), "utf-8")
    wanted = ("--only-binary=:all:", "--python-version", python, "--require-hashes", "-r", lock)
    run_pip("our dependencies", "download", *wanted, "--dest", home)


def main(folder: Path) -> int:
    """Put the wheels of this project and its dependencies into *folder*.

    Wheels there are deleted first; other files stay.
    """
    wheels = dependencies()
    for path in folder.glob("*.whl"):
        path.unlink()
    unwanted = shutil.ignore_patterns("runtime.lock", "lock.sha256")
    shutil.copytree(wheels, folder, ignore=unwanted, dirs_exist_ok=True)
    print(our_wheel(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

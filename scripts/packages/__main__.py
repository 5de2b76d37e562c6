"""``make packages``: build the packages for all systems, or only for the systems that are named."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hydrator import __version__
from testbed.wheelhouse import ROOT

from .deb import build_deb
from .rpm import build_rpm
from .targets import PACKAGES, TARGETS, Package, Target
from .tree import build_tree


def build(
    package: Package,
    target: Target,
    folder: Path,
    seconds: int,
    version: str = __version__,
    trees: Path | None = None,
) -> Path:
    """Build *package* for *target* into *folder*; equal sources and *seconds* (Unix s) give equal bytes.

    *trees* is a folder in which builds with the same sources and *seconds* keep the files of the package:
    the next build for a system with the same Python uses them again.
    """
    pack = build_deb if target.kind == "deb" else build_rpm
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "tree"
        kept = trees / f"{package.name}-{target.kind}-{target.python}" if trees else root
        if not kept.exists():
            kept.mkdir()
            build_tree(package, target, kept)
        if kept != root:
            shutil.copytree(kept, root, symlinks=True)
        return pack(package, target, root, version, seconds, folder)


def source_time() -> int:
    """Return SOURCE_DATE_EPOCH, or the time of the last commit, in Unix seconds."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else 0


def main(arguments: Sequence[str]) -> int:
    """Build into the folder ``arguments[0]``; further arguments name the systems."""
    folder, wanted = Path(arguments[0]), set(arguments[1:])
    if unknown := wanted - {target.name for target in TARGETS}:
        known = ", ".join(target.name for target in TARGETS)
        print(f"packages: no system {min(unknown)!r}: use {known}", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    seconds = source_time()
    built: set[Path] = set()
    with tempfile.TemporaryDirectory() as trees:
        for target in TARGETS:
            for package in PACKAGES:
                if not wanted or target.name in wanted:
                    built.add(build(package, target, folder, seconds, trees=Path(trees)))
    print("\n".join(str(path) for path in sorted(built)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

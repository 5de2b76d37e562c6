"""Files of tests that are programs or secrets."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_program(path: Path, text: str) -> Path:
    """Write a file that everybody may run."""
    path.write_text(text, "utf-8")
    path.chmod(0o755)
    return path


def write_secret(path: Path, text: str) -> Path:
    """Write a file that only its owner may ever read."""
    path.touch(mode=0o600)
    path.write_text(text, "utf-8")
    return path


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Make files with *mask* for a while, whatever the mask of this process is."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Have the rights of nobody for a while: root may read everything. Others keep their own rights."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)

"""Files of tests that are programs or secrets."""

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

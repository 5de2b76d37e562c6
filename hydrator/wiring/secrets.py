"""Secrets: find files with secrets that the daemon cannot read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hydrator.config.loader import SECRET_KEY_ENDINGS

from ..config import Settings


def find_unreadable_secrets(settings: Settings) -> dict[Path, str]:
    """Return each of the daemon's secret files that is missing, empty or not readable now, and why.

    A file is missing during a renewal, between the removal of the old file and the creation of the new file.
    """
    sections = {key: getattr(settings, key) for key in type(settings).model_fields if key != "submit"}
    return {file: why for key, section in sections.items() for file, why in _find_problems(section, key)}


def _find_problems(value: Any, key: str) -> Iterator[tuple[Path, str]]:  # noqa: ANN401 - any value of the configuration
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _find_problems(getattr(value, name), f"{key}.{name}")
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _find_problems(each, f"{key}.{name}")
    elif isinstance(value, list):
        for each in value:
            name = getattr(each, "name", "") if isinstance(each, BaseModel) else ""
            yield from _find_problems(each, f"{key} {name}".rstrip())
    elif isinstance(value, Path) and (why := _unreadable_reason(value, key)):
        yield value, f"{key} {value}: {why}"


def _unreadable_reason(path: Path, key: str) -> str | None:
    if not key.endswith((*SECRET_KEY_ENDINGS, "token_directory")):
        return None
    try:
        has_content = any(path.iterdir()) if path.is_dir() else _read_first_byte(path)
    except OSError as error:
        return error.strerror or str(error)
    return None if has_content or key.endswith("tokens_file") else "it is empty"


def _read_first_byte(path: Path) -> bytes:
    with path.open("rb") as opened:
        return opened.read(1)

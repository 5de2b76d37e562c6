"""Secrets of the configuration: register them, so that no log line and no page shows one."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from hydrator.config import Settings
from hydrator.domain.redaction import SECRETS

_MAX_SECRET_BYTES: Final = 16_384
"""Largest size of a file with a secret, in bytes; a larger file is not a secret."""
_NON_SECRET_KEYS: Final = frozenset({"config_file", "tokens_file"})
"""Keys of files without secrets: HTCondor's configuration, and hashes."""
_SECRET_KEY_SUFFIXES: Final = ("password", "passphrase", "secret", "token")


def register_secrets(source: Settings | Mapping[str, object]) -> None:
    """Register the secrets of a configuration, or of one ``[[catalogue]]``, so that the log hides them.

    A secret is the content of a file that a setting names, if the setting's key ends in ``_file`` or
    ``_files``, also in the settings of plugins. A secret is also the value of a setting whose key ends in
    ``password``, ``passphrase``, ``secret`` or ``token``. Skip a file that cannot be read now: nothing can
    log the content of this file.
    """
    tree = source.model_dump() if isinstance(source, Settings) else source
    SECRETS.keep(*_find_secrets("", tree))


def _find_secrets(key: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _find_secrets(str(name), each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _find_secrets(key, each)
    elif isinstance(value, Path) and key.endswith(("_file", "_files")) and key not in _NON_SECRET_KEYS:
        yield from _read_secrets(value)
    elif isinstance(value, str) and key.lower().endswith(_SECRET_KEY_SUFFIXES):
        yield value


def _read_secrets(file: Path) -> Iterator[str]:
    """Yield the secret in *file*; skip a file of more than two lines: a private key, which is never sent."""
    with contextlib.suppress(OSError):
        with file.open("rb") as opened:
            text = opened.read(_MAX_SECRET_BYTES + 1).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if (
            len(lines) <= 2 and len(text) <= _MAX_SECRET_BYTES
        ):  # a line break may split one secret into two lines
            yield from {"".join(lines), *lines}

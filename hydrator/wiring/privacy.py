"""Privacy: build the store of pseudonyms, and the redactor that removes secrets and private names."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from hydrator.config import Settings
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import parse_did
from hydrator.domain.redaction import SECRETS, Redactor
from hydrator.privacy.pseudonym_store import FILE_NAME, PseudonymStore, read_key
from hydrator.privacy.pseudonyms import Pseudonymizer

from .policies import privacy

_MAX_SECRET_BYTES: Final = 16_384
"""Largest size of a file with a secret, in bytes; a larger file is not a secret."""
_NON_SECRET_KEYS: Final = frozenset({"config_file", "tokens_file"})
"""Keys of files without secrets: HTCondor's configuration, and hashes."""
_SECRET_KEY_SUFFIXES: Final = ("password", "passphrase", "secret", "token")


def build_pseudonym_store(settings: Settings, *, is_owner: bool = True) -> PseudonymStore | None:
    """Build the store of pseudonyms of private datasets; None if no dataset is private.

    *is_owner* is True for the daemon. A command passes False, since it may not be able to read the
    file of names.

    Raises:
        ConfigError: lists every key file that cannot be used.
    """
    if not settings.private.patterns:
        return None
    if settings.private.key_file is None:
        raise ConfigError(
            ["private.key_file is not set: the daemon needs a file with 32 random bytes or more, mode 600"]
        )
    files = [("private.key_file", settings.private.key_file)]
    files += [("private.old_key_files", file) for file in settings.private.old_key_files]
    keys: list[bytes] = []
    problems: list[str] = []
    for name, file in files:
        try:
            keys.append(read_key(file, name))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    names = settings.daemon.state_dir / FILE_NAME
    is_readable = is_owner or os.access(names, os.R_OK)
    store = PseudonymStore(
        Pseudonymizer(privacy(settings.private), tuple(keys)), names if is_readable else None
    )
    store.learn(parse_did(pin, settings.daemon.default_scope) for pin in settings.demand.pins)
    return store


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


def build_redactor(settings: Settings) -> Redactor:
    """Build the redactor of the log, for the secrets of *settings* and the names of private datasets."""
    register_secrets(settings)
    try:
        store = build_pseudonym_store(settings, is_owner=False)
    except ConfigError:  # the part that needs the key reports the error
        store = None
    redact = store.pseudonymizer.redact if store else privacy(settings.private).redact
    return Redactor(redact_further=redact)

"""The opaque names of private datasets, and what keeps secrets and names out of all that is shown."""

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
"""Bytes of a file with a secret; what is larger is none."""
_NON_SECRET_KEYS: Final = frozenset({"config_file", "tokens_file"})
"""Files of other things: HTCondor's configuration, and hashes."""
_SECRET_KEY_SUFFIXES: Final = ("password", "passphrase", "secret", "token")


def build_pseudonym_store(settings: Settings, *, is_owner: bool = True) -> PseudonymStore | None:
    """The opaque names of private datasets; None where none are private.

    *owned* is False for who only looks: the file of names may be out of reach then.

    Raises:
        ConfigError: with every key that cannot be used.
    """
    if not settings.private.patterns:
        return None
    if settings.private.key_file is None:
        raise ConfigError(["private.key_file: the daemon needs it: 32 random bytes or more, mode 600"])
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
    readable = is_owner or os.access(names, os.R_OK)
    register = PseudonymStore(Pseudonymizer(privacy(settings), tuple(keys)), names if readable else None)
    register.learn(parse_did(pin, settings.daemon.default_scope) for pin in settings.demand.pins)
    return register


def register_secrets(source: Settings | Mapping[str, object]) -> None:
    """Hide the secrets that a configuration, or one catalogue's part of it, has or names, as they are now.

    These are the files under keys that end in ``_file`` or ``_files``, whatever a plugin calls them, and
    texts under keys that end in ``password``, ``passphrase``, ``secret`` or ``token``. A secret that
    cannot be read now cannot be shown either.
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
    """The secret in *file*; a text of many lines is another thing, or a key that is never sent."""
    with contextlib.suppress(OSError):
        with file.open("rb") as opened:
            text = opened.read(_MAX_SECRET_BYTES + 1).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if len(lines) <= 2 and len(text) <= _MAX_SECRET_BYTES:  # two: one torn by a line's end
            yield from {"".join(lines), *lines}


def build_redactor(settings: Settings) -> Redactor:
    """Build the redactor of the log: of the secrets of *settings*, and of private datasets."""
    register_secrets(settings)
    try:
        register = build_pseudonym_store(settings, is_owner=False)
    except ConfigError:  # told by who needs the key
        register = None
    return Redactor(redact_further=register.pseudonymizer.redact if register else privacy(settings).redact)

"""Examination of secrets: files that other users may read."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hydrator.diagnostics.check.findings import Finding, warning

_SECRET_FILES = ("password_file", "token_file", "tokens_file", "secret_file", "tls_key", "client_key")
"""Endings of the keys of secrets; a certificate is not a secret, and its key may be in a file of its own."""


def examine_secrets(files: Iterable[tuple[str, Path]]) -> Iterator[Finding]:
    """Examine whether other users may read or write the secrets in *files*, each with its key."""
    for key, file in files:
        with suppress(OSError):  # the component that uses the file reports an unreadable file
            if key.endswith(_SECRET_FILES) and _is_open_to_others(file.stat()):
                yield warning("secrets", f"other users may read or write {key} {file}", f"chmod 600 {file}")


def _is_open_to_others(status: os.stat_result) -> bool:
    """Return True if other users than the daemon's may read or write a secret file with this *status*.

    The file's group may read it if another user owns it, because Kubernetes mounts secrets this way.
    """
    allowed = 0o700 if status.st_uid == os.geteuid() else 0o740
    return bool(stat.S_IMODE(status.st_mode) & ~allowed)

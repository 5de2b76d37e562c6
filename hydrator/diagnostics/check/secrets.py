"""Examination of secrets: files that other users may read, and expiring credentials."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from hydrator.diagnostics.check.findings import Finding, Level, warning
from hydrator.diagnostics.credential_expiry import Credential

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


def examine_credentials(credentials: Iterable[Credential], now: datetime) -> Iterator[Finding]:
    """Examine whether tokens and certificates are expired, due for renewal, or valid."""
    for one in credentials:
        is_due = one.is_renewal_due(now)
        level = Level.FAIL if one.expires_at <= now else Level.WARN if is_due else Level.OK
        yield Finding(level, one.name, one.expiry_text(now), one.todo if level is not Level.OK else "")

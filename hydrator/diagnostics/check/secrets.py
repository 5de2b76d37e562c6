"""Examination of secrets: files that other users may read, and expiring credentials."""

import os
import stat
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from hydrator.config import Settings
from hydrator.diagnostics.check.findings import Finding, Level, warning
from hydrator.diagnostics.credential_expiry import Credential


def secret_files(settings: Settings) -> dict[str, Path]:
    """Return every secret file that the configuration names, by its configuration key."""
    http = settings.publish.http
    files: dict[str, Path | None] = {
        "publish.http.tls_key": http.tls_key,
        "publish.http.tokens_file": http.tokens_file,
        "submit.token_file": settings.submit.token_file,
    }
    for source in settings.catalogue:
        for name in ("password_file", "token_file", "client_secret_file"):
            files[f"catalogue {source.name}: {name}"] = getattr(source, name, None)
    return {key: file for key, file in files.items() if file is not None}


def examine_secrets(settings: Settings) -> list[Finding]:
    """Examine whether other users may read or write the files of secrets."""
    findings = []
    for key, file in secret_files(settings).items():
        try:
            status = file.stat()
        except OSError:
            continue  # the component that uses the file reports an unreadable file
        if _is_open_to_others(status):
            findings.append(
                warning("secrets", f"other users may read or write {key} {file}", f"chmod 600 {file}")
            )
    return findings


def _is_open_to_others(status: os.stat_result) -> bool:
    """Return True if other users than the daemon's may read or write a secret file with this *status*.

    The file's group may read it if another user owns it, because Kubernetes mounts secrets this way.
    """
    allowed = 0o700 if status.st_uid == os.geteuid() else 0o740
    return bool(stat.S_IMODE(status.st_mode) & ~allowed)


def examine_credentials(credentials: Iterable[Credential], now: datetime) -> list[Finding]:
    """Examine whether tokens and certificates are expired, due for renewal, or valid."""
    findings = []
    for credential in credentials:
        has_ended = credential.expires_at <= now
        level = Level.FAIL if has_ended else Level.WARN if credential.is_renewal_due(now) else Level.OK
        findings.append(
            Finding(
                level,
                credential.name,
                credential.expiry_text(now),
                "" if level is Level.OK else credential.todo,
            )
        )
    return findings

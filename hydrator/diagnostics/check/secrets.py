"""Examination of secrets: files that other users may read, keys, and expiring credentials."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path

from hydrator.config import Settings
from hydrator.diagnostics.check.findings import Finding, Level, failure, ok, warning
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.domain.errors import ConfigError
from hydrator.privacy.pseudonym_store import is_open_to_others


def secret_files(settings: Settings) -> dict[str, Path]:
    """Return every secret file that the configuration names, by its configuration key."""
    http = settings.publish.http
    files: dict[str, Path | None] = {
        "publish.http.tls_key": http.tls_key,
        "publish.http.tokens_file": http.tokens_file,
        "private.key_file": settings.private.key_file,
        "submit.token_file": settings.submit.token_file,
    }
    for source in settings.catalogue:
        for name in ("password_file", "token_file", "client_secret_file"):
            files[f"catalogue {source.name}: {name}"] = getattr(source, name, None)
    return {key: file for key, file in files.items() if file is not None}


def examine_secrets(settings: Settings, open_pseudonym_store: Callable[[Settings], object]) -> list[Finding]:
    """Examine the files of secrets, and the setup of private datasets.

    Args:
        settings: the configuration.
        open_pseudonym_store: opens the store of private datasets, or raises ConfigError.
    """
    findings = _check_file_modes(secret_files(settings))
    if not settings.private.patterns:
        return findings
    try:
        open_pseudonym_store(settings)
    except ConfigError as error:
        page = "docs/how-to/operate/data/private-datasets.md"
        return [*findings, *(failure("private", text, page) for text in error.problems)]
    count = len(settings.private.patterns)
    findings.append(ok("private", f"the keys are valid; {count} patterns select the private datasets"))
    if not (settings.publish.http.enabled and settings.publish.http.tokens_file):
        findings.append(
            warning(
                "private",
                "submit hosts cannot get pseudonyms of private datasets: the daemon needs its HTTP server and"
                " a file of tokens for this",
                "set publish.http.tokens_file, then run hydrator token new --role submit",
            )
        )
    return findings


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


def _check_file_modes(files: Mapping[str, Path]) -> list[Finding]:
    findings = []
    for key, file in files.items():
        try:
            status = file.stat()
        except OSError:
            continue  # the component that uses the file reports an unreadable file
        if is_open_to_others(status):
            findings.append(
                warning("secrets", f"other users may read or write {key} {file}", f"chmod 600 {file}")
            )
    return findings

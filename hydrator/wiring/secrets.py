"""Secrets: the files with secrets in the configuration, and the credentials in use with their ends."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from adapters.condor.bindings.client import CondorClient
from hydrator.config import DmapiSource, RucioSource, Settings
from hydrator.config.loader import SECRET_KEY_ENDINGS
from hydrator.diagnostics.credential_expiry import (
    Credential,
    parse_certificates,
    parse_idtokens,
    parse_token,
)
from hydrator.domain.errors import PoolError
from hydrator.domain.files import read_limited
from hydrator.domain.redaction import SECRETS

_MAX_SECRET_BYTES: Final = 16_384
"""Largest size of a file with a secret, in bytes; a larger file is not a secret."""
_NON_SECRET_KEYS: Final = frozenset({"config_file", "tokens_file", "sites_file"})
"""Keys of files without secrets: HTCondor's configuration, hashes, and what the daemon publishes."""
_SECRET_KEY_SUFFIXES: Final = ("password", "passphrase", "secret", "token")

if TYPE_CHECKING:
    from hydrator.wiring.assembly import Parts


def register_secrets(source: Settings | Mapping[str, object]) -> None:
    """Register the secrets of a configuration, or of one ``[[catalogue]]``, so that the log hides them.

    A secret is the content of a file that a setting names, if the setting's key ends in ``_file`` or
    ``_files``, also in the settings of plugins. A secret is also the value of a setting whose key ends in
    ``password``, ``passphrase``, ``secret`` or ``token``. Skip a file that cannot be read now: nothing can
    log the content of this file.
    """
    for key, value in _find_values(source):
        name = key.rpartition(".")[2]
        if isinstance(value, Path) and name.endswith(("_file", "_files")) and name not in _NON_SECRET_KEYS:
            SECRETS.keep(*_read_secrets(value))
        elif isinstance(value, str) and name.lower().endswith(_SECRET_KEY_SUFFIXES):
            SECRETS.keep(value)


def _read_secrets(file: Path) -> Iterator[str]:
    """Yield the secret in *file*; skip a file of more than two lines: a private key, which is never sent."""
    with contextlib.suppress(OSError):
        text = read_limited(file, _MAX_SECRET_BYTES).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if len(lines) <= 2:  # a line break may split one secret into two lines
            yield from {"".join(lines), *lines}


_MAX_CREDENTIAL_BYTES = 1 << 20
"""Maximum number of bytes that are read from a file with a credential."""


def read_credentials(settings: Settings, parts: "Parts") -> list[Credential]:
    """Read the daemon's credentials, except those that cannot be read or that do not expire."""
    credentials: list[Credential | None] = []
    for source in settings.catalogue:
        key = f"catalogue {source.name}: "
        if isinstance(source, RucioSource | DmapiSource):
            credentials.append(
                parse_token(f"{key}token_file", "token-files", _read_text_or_empty(source.token_file))
            )
        if isinstance(source, RucioSource) and source.auth == "x509":
            credentials.append(_read_certificate(f"{key}client_cert", "x509", source.client_cert))
    token = settings.site_capabilities.token_file
    credentials.append(parse_token("site_capabilities.token_file", "token-files", _read_text_or_empty(token)))
    tls = settings.publish.http.tls_certificate
    credentials.append(_read_certificate("publish.http.tls_certificate", "tls", tls))
    credentials += _read_idtokens(parts.pool.client) if parts.pool.client else []
    return [each for each in credentials if each]


def _read_certificate(key: str, docs_section: str, file: Path | None) -> Credential | None:
    return parse_certificates(key, docs_section, _read_text_or_empty(file))


def _read_idtokens(client: CondorClient) -> list[Credential]:
    texts = []
    with contextlib.suppress(PoolError):
        for folder in client.token_folders():
            with contextlib.suppress(OSError):
                texts += [_read_text_or_empty(file) for file in sorted(folder.iterdir()) if file.is_file()]
    return parse_idtokens(texts)


def _read_text_or_empty(file: Path | None) -> str:
    """Return the text of a small *file*, or "" on an error; the part that uses the file reports this."""
    if file is None:
        return ""
    try:
        return read_limited(file, _MAX_CREDENTIAL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def find_unreadable_secrets(settings: Settings) -> dict[Path, str]:
    """Return each of the daemon's secret files that is missing, empty or not readable now, and why.

    A file is missing during a renewal, between the removal of the old file and the creation of the new file.
    """
    return {
        file: f"{key} {file}: {why}"
        for key, file in find_files(settings)
        if not key.startswith("submit.") and (why := _unreadable_reason(file, key))
    }


def find_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Yield each path in *settings* with its key, such as ``catalogue rucio.token_file``."""
    return ((key, value) for key, value in _find_values(settings) if isinstance(value, Path))


def _find_values(section: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Yield each value in *section*, a part of the settings, with its key."""
    if isinstance(section, BaseModel | Mapping):
        for name, each in section.items() if isinstance(section, Mapping) else section:
            yield from _find_values(each, f"{key}.{name}" if key else str(name))
    elif isinstance(section, list | tuple):
        for each in section:
            name = getattr(each, "name", "") if isinstance(each, BaseModel) else ""
            yield from _find_values(each, f"{key} {name}".rstrip())
    else:
        yield key, section


def _unreadable_reason(path: Path, key: str) -> str | None:
    if not key.endswith((*SECRET_KEY_ENDINGS, "token_directory")) or key == "publish.sites_file":
        return None
    try:
        has_content = any(path.iterdir()) if path.is_dir() else read_limited(path, _MAX_CREDENTIAL_BYTES)
    except OSError as error:
        return error.strerror or str(error)
    return None if has_content or key.endswith("tokens_file") else "it is empty"

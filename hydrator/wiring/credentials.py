"""What we show to others, read from where the configuration says it is."""

import contextlib
from dataclasses import replace
from pathlib import Path

from adapters.condor import CondorClient
from hydrator.diagnostics.credential_expiry import (
    Credential,
    login_credential,
    parse_certificates,
    parse_idtokens,
    parse_token,
)
from hydrator.domain.errors import PoolError

from ..config import DmapiSource, RucioSource, Settings
from .assembly import Parts

_MAX_CREDENTIAL_BYTES = 1 << 20
"""Bytes of a file with a credential that are read."""


def read_credentials(settings: Settings, parts: Parts) -> list[Credential]:
    """What we show to others, and when it ends; what cannot be read, or has no end, is not listed."""
    found: list[Credential | None] = []
    for source in settings.catalogue:
        key = f"catalogue {source.name}: "
        if isinstance(source, RucioSource | DmapiSource):
            found.append(
                parse_token(f"{key}token_file", "token-files", _read_text_or_empty(source.token_file))
            )
        if isinstance(source, RucioSource) and source.auth == "x509":
            found.append(
                parse_certificates(f"{key}client_cert", "x509", _read_text_or_empty(source.client_cert))
            )
    token = settings.site_capabilities.token_file
    found.append(parse_token("site_capabilities.token_file", "token-files", _read_text_or_empty(token)))
    for broker in settings.events.stomp:
        key = f"events.stomp {broker.name}: client_cert"
        found.append(parse_certificates(key, "x509", _read_text_or_empty(broker.client_cert)))
    tls = settings.publish.http.tls_certificate
    found.append(parse_certificates("publish.http.tls_certificate", "tls", _read_text_or_empty(tls)))
    found += [login_credential(f"{name}: login", login()) for name, login in parts.logins.items()]
    found += _read_idtokens(parts.client) if parts.client else []
    if parts.editor and settings.publish.desired_sites.token_directory:
        found += [replace(one, name=f"{one.name}, for edits") for one in _read_idtokens(parts.editor)]
    return [one for one in found if one]


def _read_idtokens(client: CondorClient) -> list[Credential]:
    texts = []
    with contextlib.suppress(PoolError):
        for folder in client.token_folders():
            with contextlib.suppress(OSError):
                texts += [_read_text_or_empty(file) for file in sorted(folder.iterdir()) if file.is_file()]
    return parse_idtokens(texts)


def _read_text_or_empty(file: Path | None) -> str:
    """The text of a small *file*; empty where it cannot be read, which who needs it says."""
    if file is None:
        return ""
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_CREDENTIAL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""

"""What we show to others, read from where the configuration says it is."""

import contextlib
from dataclasses import replace
from pathlib import Path

from adapters.condor import CondorClient
from hydrator.diagnostics.credential_expiry import (
    Credential,
    of_certificates,
    of_idtokens,
    of_login,
    of_token,
)
from hydrator.domain.errors import PoolError

from ..config import DmapiSource, RucioSource, Settings
from .assembly import Parts

_LARGEST = 1 << 20
"""Bytes of a file with a credential that are read."""


def credentials(settings: Settings, parts: Parts) -> list[Credential]:
    """What we show to others, and when it ends; what cannot be read, or has no end, is not listed."""
    found: list[Credential | None] = []
    for source in settings.catalogue:
        key = f"catalogue {source.name}: "
        if isinstance(source, RucioSource | DmapiSource):
            found.append(of_token(f"{key}token_file", "token-files", _text(source.token_file)))
        if isinstance(source, RucioSource) and source.auth == "x509":
            found.append(of_certificates(f"{key}client_cert", "x509", _text(source.client_cert)))
    token = settings.site_capabilities.token_file
    found.append(of_token("site_capabilities.token_file", "token-files", _text(token)))
    for broker in settings.events.stomp:
        key = f"events.stomp {broker.name}: client_cert"
        found.append(of_certificates(key, "x509", _text(broker.client_cert)))
    tls = settings.publish.http.tls_certificate
    found.append(of_certificates("publish.http.tls_certificate", "tls", _text(tls)))
    found += [of_login(f"{name}: login", login()) for name, login in parts.logins.items()]
    found += _idtokens(parts.client) if parts.client else []
    if parts.editor and settings.publish.desired_sites.token_directory:
        found += [replace(one, name=f"{one.name}, for edits") for one in _idtokens(parts.editor)]
    return [one for one in found if one]


def _idtokens(client: CondorClient) -> list[Credential]:
    texts = []
    with contextlib.suppress(PoolError):
        for folder in client.token_folders():
            with contextlib.suppress(OSError):
                texts += [_text(file) for file in sorted(folder.iterdir()) if file.is_file()]
    return of_idtokens(texts)


def _text(file: Path | None) -> str:
    """The text of a small *file*; empty where it cannot be read, which who needs it says."""
    if file is None:
        return ""
    try:
        with file.open("rb") as opened:
            return opened.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""

"""Bearer tokens for a service: from client credentials (RFC 6749, section 4.4), or from a file.

SKA IAM issues each token for one audience, without a refresh token. So the daemon requests a new token
before the old token expires. Another program renews the token in a file.
"""

import re
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import httpx

from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueGarbled
from hydrator.domain.files import read_limited
from hydrator.domain.ports import Clock
from hydrator.domain.redaction import SECRETS, read_secret
from hydrator.domain.untrusted import expiry_of

from .client import HttpLimits, JsonClient

_TOKEN = re.compile(r"[!-~]{1,100000}")
"""A token that is valid in an HTTP header."""
_MAX_SECRET_BYTES = 1_000_000
_UNKNOWN_LIFETIME = timedelta(minutes=10)
_RENEWAL_MARGIN = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The daemon's client identity at the token provider (``token_url``), and the audience of the tokens."""

    token_url: str
    client_id: str
    secret_file: Path
    audience: str
    scope: str
    ca_cert: Path | None = None


class _CachedToken(NamedTuple):
    token: str
    received_at: datetime
    use_until: datetime


class RenewedToken(ABC):
    """A thread-safe source of tokens; it requests a new one shortly before the end of the last one."""

    min_age = timedelta(seconds=10)
    """A refused token that is younger is not renewed: the client lacks a right, the token is valid."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cached: _CachedToken | None = None
        self._lock = threading.Lock()

    @abstractmethod
    def _request_token(self) -> tuple[str, datetime | None]:
        """Return a new token and its end; None if the end is not known."""

    def token(self) -> str:
        """Return a token that does not expire within two minutes, the time of a poll.

        Raises:
            CatalogueDenied: the provider refuses the client, or a secret cannot be read.
            CatalogueError: the provider does not answer, or answers without a token.
        """
        with self._lock:
            now, cached = self._clock(), self._cached
            if cached is None or not cached.received_at <= now < cached.use_until:
                token, ends = self._request_token()
                last = now + _UNKNOWN_LIFETIME if ends is None else max(now, ends)
                cached = _CachedToken(token, now, last - min(_RENEWAL_MARGIN, (last - now) / 5))
                self._cached = cached
            return cached.token

    def forget(self) -> None:
        """Let the next call request a token, unless the last one is younger than ``min_age``."""
        with self._lock:
            if self._cached and self._clock() - self._cached.received_at >= self.min_age:
                self._cached = None

    def close(self) -> None:
        """Close connections, and forget the token."""
        self._cached = None


class ClientCredentials(RenewedToken):
    """A source of tokens for one audience; the secret file is read again for each new token."""

    def __init__(
        self,
        name: str,
        settings: ClientSettings,
        clock: Clock,
        *,
        limits: HttpLimits = HttpLimits(),  # noqa: B008 - frozen
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(clock)
        self._name = name
        self._settings = settings
        self._server = JsonClient(
            name, settings.token_url, limits=limits, ca_cert=settings.ca_cert, transport=transport
        )

    def close(self) -> None:
        """See :meth:`RenewedToken.close`."""
        self._server.close()
        super().close()

    def _request_token(self) -> tuple[str, datetime | None]:
        """See :class:`RenewedToken`."""
        settings = self._settings
        form = {
            "grant_type": "client_credentials",
            "audience": settings.audience,
            "scope": settings.scope,
        }
        secret = read_secret_file(self._name, settings.secret_file, "client_secret_file")
        SECRETS.keep(f"{settings.client_id}:{secret}")
        try:
            body = self._server.post("", form, (settings.client_id, secret)).body
        except CatalogueError as error:
            # RFC 6749, 5.2, has the status 400 for invalid_scope, unauthorized_client, …
            if isinstance(error, CatalogueDenied) or "(status 400)" in error.reason:
                reason = f"no token for {settings.audience}: {error.reason}"
                raise CatalogueDenied(self._name, reason) from None
            raise
        token = body.get("access_token") if isinstance(body, dict) else None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            reason = f"the answer of {settings.token_url} has no valid access_token"
            raise CatalogueGarbled(self._name, reason)
        SECRETS.keep(token)
        seconds = body.get("expires_in")
        if isinstance(seconds, int | float) and 0 < seconds < 1e8:
            return token, self._clock() + timedelta(seconds=seconds)
        return token, expiry_of(token)


class TokenFile:
    """A token in a file that another program renews; the file is read again for every query."""

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path

    def token(self) -> str:
        """Return the token that is in the file now.

        Raises:
            CatalogueDenied: the file cannot be read, or is empty.
        """
        return read_secret_file(self._name, self._path, "token_file")

    def forget(self) -> None:
        """Do nothing: the next call reads the file."""

    def close(self) -> None:
        """Do nothing: no connection is open."""


def read_secret_file(name: str, file: Path, key: str, encoding: str = "ascii") -> str:
    """Return the secret in *file*, which the setting *key* of the catalogue *name* names.

    Raises:
        CatalogueDenied: the file cannot be read, or has no secret.
    """
    try:
        text = read_secret(read_limited(file, _MAX_SECRET_BYTES).decode(encoding))
    except UnicodeDecodeError:
        raise CatalogueDenied(name, f"{key} {file}: the file does not contain a secret") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CatalogueDenied(name, f"{key} {file}: {reason}") from None
    if not text:
        raise CatalogueDenied(name, f"{key} {file}: the file is empty")
    return text

"""Bearer tokens for a service: client credentials (RFC 6749, section 4.4), or a file that somebody renews.

SKA IAM gives a token for one audience each, and no refresh token: a new one is asked for before the
old one ends.
"""

import re
import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueGarbled
from hydrator.domain.ports import Clock, TokenValidity
from hydrator.domain.redaction import SECRETS, read_secret
from hydrator.domain.untrusted import expiry_of

from .client import HttpLimits, JsonClient

_TOKEN = re.compile(r"[!-~]{1,100000}")
"""What can travel in a header."""
_UNKNOWN_LIFETIME = timedelta(minutes=10)
_RENEWAL_MARGIN = timedelta(seconds=60)
_MIN_TOKEN_AGE = timedelta(seconds=10)
"""A token this young is not replaced: what was refused is our right, not its age."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Who we are to the identity provider at ``token_url``, and for which service."""

    token_url: str
    client_id: str
    secret_file: Path
    audience: str
    scope: str
    ca_cert: Path | None = None


@dataclass(frozen=True, slots=True)
class _CachedToken:
    token: str = field(repr=False)
    received_at: datetime
    use_until: datetime
    expires_at: datetime


class ClientCredentials:
    """Tokens for one audience; safe to use from several threads. The secret is read anew for every token."""

    def __init__(
        self,
        name: str,
        settings: ClientSettings,
        clock: Clock,
        *,
        limits: HttpLimits = HttpLimits(),  # noqa: B008 - frozen
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._name = name
        self._settings = settings
        self._clock = clock
        self._server = JsonClient(
            name, settings.token_url, limits=limits, ca_cert=settings.ca_cert, transport=transport
        )
        self._cached: _CachedToken | None = None
        self._lock = threading.Lock()

    def token(self) -> str:
        """One that is good for a while.

        Raises:
            CatalogueDenied: the provider refuses us, or the secret cannot be read.
            CatalogueError: it cannot be asked, or answers no token.
        """
        with self._lock:
            now = self._clock()
            if self._cached and self._cached.received_at <= now < self._cached.use_until:
                return self._cached.token
            return self._request_token(now)

    def renew(self, refused_token: str) -> str:
        """Another than *refused*, unless that one is quite new: then our rights are what is missing.

        Raises:
            CatalogueError: see :meth:`token`.
        """
        with self._lock:
            now = self._clock()
            held = self._cached
            if held and held.token != refused_token:
                return held.token
            if held and timedelta(0) <= now - held.received_at < _MIN_TOKEN_AGE:
                raise CatalogueDenied(
                    self._name, f"a new token for {self._settings.audience} is refused (status 401)"
                )
            return self._request_token(now)

    @property
    def token_validity(self) -> TokenValidity | None:
        """How long the token is good that we have now."""
        held = self._cached
        return TokenValidity(held.received_at, held.expires_at) if held else None

    def close(self) -> None:
        """Let go of connections, and forget the token."""
        self._server.close()
        self._cached = None

    def _request_token(self, now: datetime) -> str:
        settings = self._settings
        form = {
            "grant_type": "client_credentials",
            "audience": settings.audience,
            "scope": settings.scope,
        }
        secret = _read_secret(self._name, settings.secret_file, "client_secret_file")
        SECRETS.keep(f"{settings.client_id}:{secret}")
        try:
            body = self._server.post("", form, (settings.client_id, secret)).body
        except CatalogueDenied as error:
            raise CatalogueDenied(self._name, f"no token for {settings.audience}: {error.reason}") from None
        except CatalogueError as error:
            if "(status 400)" in error.reason:  # RFC 6749, 5.2: invalid_scope, unauthorized_client, …
                raise CatalogueDenied(
                    self._name, f"no token for {settings.audience}: {error.reason}"
                ) from None
            raise
        token = body.get("access_token") if isinstance(body, dict) else None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise CatalogueGarbled(self._name, f"{settings.token_url} answers no access_token")
        SECRETS.keep(token)
        ends = _expiry_of(body, token, now)
        self._cached = _CachedToken(token, now, ends - min(_RENEWAL_MARGIN, (ends - now) / 5), ends)
        return token


class TokenFile:
    """A token that somebody else renews; the file is read anew for every question."""

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path

    def token(self) -> str:
        """What stands in the file now.

        Raises:
            CatalogueDenied: it cannot be read, or is empty.
        """
        return _read_secret(self._name, self._path, "token_file")

    def renew(self, refused_token: str) -> str:
        """What stands there now, if it is another.

        Raises:
            CatalogueDenied: it is the same.
        """
        token = self.token()
        if token == refused_token:
            raise CatalogueDenied(self._name, f"the token in {self._path} is refused (status 401)")
        return token

    @property
    def token_validity(self) -> TokenValidity | None:
        """None: it is not ours to renew."""
        return None

    def close(self) -> None:
        """Nothing to let go of."""


def _read_secret(name: str, file: Path, key: str) -> str:
    try:
        text = read_secret(file.read_text("ascii"))
    except UnicodeDecodeError:
        raise CatalogueDenied(name, f"{key} {file}: it holds no secret") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CatalogueDenied(name, f"{key} {file}: {why}") from None
    if not text:
        raise CatalogueDenied(name, f"{key} {file}: it is empty")
    return text


def _expiry_of(body: dict[str, Any], token: str, now: datetime) -> datetime:
    """When *token* ends: as the answer says, as the token itself says, or soon."""
    seconds = body.get("expires_in")
    if isinstance(seconds, int | float) and 0 < seconds < 1e8:
        return now + timedelta(seconds=seconds)
    ends = expiry_of(token)
    return now + _UNKNOWN_LIFETIME if ends is None else max(now, ends)

"""Bearer tokens of the HTTP API: one file has their hashes and roles.

A line of the file is ``HASH MADE ROLE``; a ``#`` begins a comment. HASH is the
SHA-256 of the token in hex, and MADE is the date of its creation. A token is
256 random bits, so guessing is hopeless. A slow hash with salt protects
passwords that people choose; for tokens a slow hash would only delay the server.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import structlog

from hydrator.domain.errors import ConfigError
from hydrator.domain.files import WatchedFiles, read_regular
from hydrator.domain.model import Site

from .responses import HttpError

_log = structlog.get_logger("hydrator")

TOKEN_PREFIX: Final = "hydrator_"  # noqa: S105 - not a secret
"""Prefix by which people and secret scanners recognise a token."""
MAX_FILE_BYTES: Final = 1 << 20
_GRANT_LINE: Final = re.compile(r"([0-9a-f]{64}) +(\S+) +(\S.*)")


class Role(StrEnum):
    """The purpose of a token."""

    SITE = "site"  # read the ad of one site, and nothing else
    READ = "read"  # read everything that is published


@dataclass(frozen=True, slots=True)
class Grant:
    """The rights of one token: ``digest`` is its SHA-256 in hex, ``created_on`` a date."""

    digest: str
    created_on: str
    role: Role
    site: Site | None = None

    @property
    def key(self) -> str:
        """A short name of the grant for people; this name does not reveal the token."""
        return self.digest[:12]

    @property
    def role_text(self) -> str:
        """The role as in the file: ``read`` or ``site:NAME``."""
        return self.role.value if self.site is None else f"{self.role.value}:{self.site}"

    @property
    def line(self) -> str:
        return f"{self.digest} {self.created_on} {self.role_text}\n"

    def is_valid_for(self, required_role: Role, site: Site | None) -> bool:
        """Return whether the grant covers *required_role*. For the ad of *site*, this role is SITE."""
        if required_role is Role.SITE and self.role is Role.SITE:
            return self.site == site
        return self.role is Role.READ


def digest(token: str) -> str:
    """Return the SHA-256 of *token* in hex."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def create_token(role: Role, site: Site | None, created_on: str) -> tuple[str, Grant]:
    """Create a random token and its grant."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    return token, Grant(digest(token), created_on, role, site)


def parse_grants(text: str) -> tuple[tuple[Grant, ...], tuple[str, ...]]:
    """Parse the text of a tokens file; return the grants, and one problem for each invalid line."""
    grants: list[Grant] = []
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        grant = _parse_grant(line.strip())
        if grant is None:
            problems.append(f"line {number} is not HASH DATE ROLE with role read or site:NAME")
        else:
            grants.append(grant)
    return tuple(grants), tuple(problems)


def _parse_grant(line: str) -> Grant | None:
    match = _GRANT_LINE.fullmatch(line)
    if match is None:
        return None
    token_digest, created_on, role_text = match.groups()
    role, colon, site = role_text.partition(":")
    if role == Role.SITE and site and site.isprintable():
        return Grant(token_digest, created_on, Role.SITE, Site(site))
    if role == Role.READ and not colon:
        return Grant(token_digest, created_on, Role(role))
    return None


class TokenAuthenticator:
    """Authorization by token; the daemon reads the tokens file again when the file changes.

    An invalid line grants nothing; the daemon logs the line once. If the file is
    unreadable, the server answers every request with 503 and not with 401. Then
    a hook prints its cached ad, and no client concludes that its token is wrong.

    Args:
        file: the tokens file.

    Raises:
        ConfigError: *file* is unreadable, or other users may write to *file*.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._watched = WatchedFiles(file)
        self._grants: tuple[Grant, ...] | None = None
        try:
            self._load_grants()
        except OSError as error:
            hint = "; `hydrator token new` creates it" if isinstance(error, FileNotFoundError) else ""
            raise ConfigError(
                [f"publish.http.tokens_file: {_describe_os_error(file, error)}{hint}"]
            ) from error

    def authorize(self, authorization: str | None, required_role: Role, site: Site | None = None) -> Grant:
        """Return the grant that permits a request.

        Args:
            authorization: the request's Authorization header: ``Bearer TOKEN``, or Basic
                with the token as password, which browsers can send.
            required_role: the role that the route requires; SITE for the ad of *site*.

        Raises:
            HttpError: no grant permits the request; its status is 401, 403, or 503 if the tokens file cannot
                be read.
        """
        token = _extract_token(authorization)
        if token is None:
            raise _not_authenticated("a token is required, in the header Authorization after Bearer")
        grant = self._find_grant(token)
        if grant is None:
            raise _not_authenticated("this token is not known: it was mistyped or revoked")
        if not grant.is_valid_for(required_role, site):
            role = "site for this site, or read," if required_role is Role.SITE else required_role.value
            detail = f"this token has role {grant.role_text}; role {role} is required"
            raise HttpError(403, "not authorized", detail)
        return grant

    def _find_grant(self, token: str) -> Grant | None:
        """Return the grant of *token*; compare digests in constant time, so that timing reveals no digest."""
        token_digest = digest(token)
        grants = self._current_grants()
        matching = [grant for grant in grants if hmac.compare_digest(grant.digest, token_digest)]
        return matching[0] if matching else None

    def _current_grants(self) -> tuple[Grant, ...]:
        try:
            if self._watched.have_changed() or self._grants is None:
                self._load_grants()
        except OSError as error:
            if self._grants is not None:
                _log.error(
                    "cannot read the tokens file",
                    why=f"{_describe_os_error(self._file, error)}; the server refuses requests with tokens",
                )
            self._grants = None
        if self._grants is None:
            raise HttpError(
                503, "not ready", "the tokens file cannot be read; the daemon's log has the reason"
            )
        return self._grants

    def _load_grants(self) -> None:
        """Load the tokens file; raise OSError if it is unreadable or other users may write to the file."""
        self._grants, problems = parse_grants(read_protected_file(self._file))
        if problems:
            _log.error(
                "tokens file has invalid lines",
                why=f"{self._file}: {'; '.join(problems)}; the daemon ignores these lines",
            )


def _not_authenticated(detail: str) -> HttpError:
    return HttpError(401, "not authenticated", detail)


def read_protected_file(file: Path) -> str:
    """Return the text of *file*.

    Raises:
        OSError: *file* is unreadable or too long, or users other than the owner may write to *file*.
    """
    text, status = read_regular(file, MAX_FILE_BYTES)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(0, "other users may write to this file: run chmod 600 on the file")
    return text.decode("utf-8", "replace")


def _describe_os_error(file: Path, error: OSError) -> str:
    return f"{file}: {error.strerror or error}"


def _extract_token(authorization: str | None) -> str | None:
    """Return the token in an Authorization header, or None [1].

    [1] RFC 6750 2.1 (Bearer), RFC 7617 (Basic); the names of schemes ignore letter case.
    """
    scheme, _, rest = (authorization or "").strip().partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip() or None
    if scheme.lower() == "basic":
        try:
            user_and_password = base64.b64decode(rest.strip(), validate=True).decode(
                "utf-8", "surrogateescape"
            )
        except (binascii.Error, ValueError):
            return None
        return user_and_password.partition(":")[2] or None
    return None


def append_grant(text: str, grant: Grant) -> str:
    """Return the text of a tokens file with *grant* at its end."""
    text = text or "# HASH MADE ROLE of each HTTP token; see hydrator token --help\n"
    return text + ("" if text.endswith("\n") else "\n") + grant.line


def remove_grant(text: str, key_prefix: str) -> tuple[str, tuple[Grant, ...]]:
    """Remove the grants whose key starts with *key_prefix*; return the new text and the removed grants."""
    lines, removed = [], []
    for line in text.splitlines(keepends=True):
        grant = None if line.startswith("#") else _parse_grant(line.strip())
        if grant is not None and key_prefix and grant.digest.startswith(key_prefix):
            removed.append(grant)
        else:
            lines.append(line)
    return "".join(lines), tuple(removed)

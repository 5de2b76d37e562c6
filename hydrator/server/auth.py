"""Who may read what over HTTP: bearer tokens, of which one file keeps the hashes.

A line of the file is ``HASH MADE ROLE``, a ``#`` begins a comment. HASH is the
SHA-256 of the token in hex. A token is 256 random bits, so nobody finds one by
trying, and a slow hash with salt, which protects what people choose, would
only slow the server down.
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import structlog

from hydrator.domain.errors import ConfigError, HydratorError
from hydrator.domain.files import file_signature
from hydrator.domain.model import Site

_log = structlog.get_logger("hydrator")

TOKEN_PREFIX: Final = "hydrator_"
"""Tells what a token is for to those who find one, and to scanners for secrets."""
MAX_FILE_BYTES: Final = 1 << 20
_GRANT_LINE: Final = re.compile(r"([0-9a-f]{64}) +(\S+) +(\S.*)")


class Role(StrEnum):
    """What a token is for."""

    SITE = "site"  # the ad of one site, and nothing else
    READ = "read"  # everything that is published
    SUBMIT = "submit"  # that, and the names of private datasets, exchanged for those that jobs carry
    EVENT = "event"  # to tell that a dataset changed, and nothing else


class AccessDenied(HydratorError):
    """A request that may not be answered: *status* is 401, 403, or 503 when the tokens cannot be read."""

    def __init__(self, http_status: int, reason: str) -> None:
        super().__init__(reason)
        self.http_status = http_status


@dataclass(frozen=True, slots=True)
class Grant:
    """What one token allows: *digest* is the token's SHA-256 in hex, *made* the day it was made."""

    digest: str
    created_on: str
    role: Role
    site: Site | None = None

    @property
    def key(self) -> str:
        """What people call it; the token cannot be found from it."""
        return self.digest[:12]

    @property
    def role_text(self) -> str:
        """The role as the file has it: ``read``, ``submit``, ``event`` or ``site:NAME``."""
        return self.role.value if self.site is None else f"{self.role.value}:{self.site}"

    @property
    def line(self) -> str:
        return f"{self.digest} {self.created_on} {self.role_text}\n"

    def is_valid_for(self, required_role: Role, site: Site | None) -> bool:
        """Whether it opens what needs *need*; an ad needs SITE, and *site* is whose ad."""
        if required_role is Role.SITE and self.role is Role.SITE:
            return self.site == site
        if Role.EVENT in (required_role, self.role):
            return required_role is self.role
        return self.role is Role.SUBMIT or (self.role is Role.READ and required_role is not Role.SUBMIT)


def digest(token: str) -> str:
    """The SHA-256 of *token* in hex."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def create_token(role: Role, site: Site | None, created_on: str) -> tuple[str, Grant]:
    """A token that nobody has seen yet, and what it allows."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    return token, Grant(digest(token), created_on, role, site)


def parse_grants(text: str) -> tuple[tuple[Grant, ...], tuple[str, ...]]:
    """The grants in the text of a tokens file, and what is wrong with its other lines."""
    grants: list[Grant] = []
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        grant = _parse_grant(line.strip())
        if grant is None:
            problems.append(f"line {number} is not HASH DATE ROLE with role read, submit, event or site:NAME")
        else:
            grants.append(grant)
    return tuple(grants), tuple(problems)


def _parse_grant(line: str) -> Grant | None:
    found = _GRANT_LINE.fullmatch(line)
    if found is None:
        return None
    hashed, made, what = found.groups()
    kind, colon, site = what.partition(":")
    if kind == Role.SITE and site and site.isprintable():
        return Grant(hashed, made, Role.SITE, Site(site))
    if kind in (Role.READ, Role.SUBMIT, Role.EVENT) and not colon:
        return Grant(hashed, made, Role(kind))
    return None


class TokenAuthenticator:
    """Decides by token, from a file that is read again when it changes.

    A line that cannot be read opens nothing, and is logged once. A file that
    cannot be read opens nothing at all: requests are then refused as 503, so
    that hooks print their copies and nobody is told that a token is wrong.

    Args:
        file: where the hashes are.

    Attributes:
        own: the token of this process, to read back what it serves; on no disk.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.own_token, self._own_grant = create_token(Role.READ, None, "now")
        self._loaded_signature: tuple[int, ...] | None = None
        self._grants: tuple[Grant, ...] | None = None

    @classmethod
    def open(cls, file: Path) -> Self:
        """Decide by *file*.

        Raises:
            ConfigError: it cannot be read, or others may write in it.
        """
        access = cls(file)
        try:
            access._load_grants()
        except OSError as error:
            make = "; `hydrator token new` makes it" if isinstance(error, FileNotFoundError) else ""
            raise ConfigError(
                [f"publish.http.tokens_file: {_describe_os_error(file, error)}{make}"]
            ) from error
        return access

    def authorize(self, authorization: str | None, required_role: Role, site: Site | None = None) -> Grant:
        """The grant by which this request may be answered.

        Args:
            authorization: its Authorization header: ``Bearer TOKEN``, or Basic
                with the token as password, which browsers can send.
            need: what is asked for; SITE is the ad of *site*.

        Raises:
            Refused: who asks must not have this.
        """
        token = _extract_token(authorization)
        if token is None:
            raise AccessDenied(401, "a token is needed here: send the header Authorization: Bearer TOKEN")
        grant = self._find_grant(token)
        if grant is None:
            raise AccessDenied(401, "this token is not known here: it was mistyped, or revoked")
        if not grant.is_valid_for(required_role, site):
            wanted = "this site, or read" if required_role is Role.SITE else required_role.value
            raise AccessDenied(403, f"this token is for {grant.role_text!r}; here one for {wanted} is needed")
        return grant

    def _find_grant(self, token: str) -> Grant | None:
        """The grant of *token*; all are looked at, each in constant time, so that time tells nothing."""
        given = digest(token)
        known = (self._own_grant, *self._current_grants())
        matching = [grant for grant in known if hmac.compare_digest(grant.digest, given)]
        return matching[0] if matching else None

    def _current_grants(self) -> tuple[Grant, ...]:
        try:
            if self._grants is None or file_signature(self._file.stat()) != self._loaded_signature:
                self._load_grants()
        except OSError as error:
            if self._grants is not None:
                _log.error(
                    "cannot read the tokens file",
                    why=f"{_describe_os_error(self._file, error)}; all authenticated requests are refused",
                )
            self._grants = None
        if self._grants is None:
            raise AccessDenied(503, "the tokens cannot be read at present; the daemon's log says why")
        return self._grants

    def _load_grants(self) -> None:
        """Take over what the file says now; raises OSError where it must not be believed."""
        text, self._loaded_signature = read_protected_file(self._file)
        self._grants, problems = parse_grants(text)
        if problems:
            _log.error(
                "tokens file has invalid lines",
                why=f"{self._file}: {'; '.join(problems)}; these lines grant nothing",
            )


def read_protected_file(file: Path) -> tuple[str, tuple[int, ...]]:
    """The text of *file* and what changes when it does.

    Raises:
        OSError: it cannot be read, or others than its owner may write in it.
    """
    with file.open("rb") as opened:
        facts = os.fstat(opened.fileno())
        if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(0, "others may write in it: chmod 600 it")
        text = opened.read(MAX_FILE_BYTES + 1)
    if len(text) > MAX_FILE_BYTES:
        raise OSError(0, f"it has over {MAX_FILE_BYTES} bytes")
    return text.decode("utf-8", "replace"), file_signature(facts)


def _describe_os_error(file: Path, error: OSError) -> str:
    return f"{file}: {error.strerror or error}"


def _extract_token(authorization: str | None) -> str | None:
    """The token in an Authorization header, or None where there is none [1].

    [1] RFC 6750 2.1 (Bearer), RFC 7617 (Basic); the names of schemes ignore letter case.
    """
    scheme, _, rest = (authorization or "").strip().partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip() or None
    if scheme.lower() == "basic":
        try:
            pair = base64.b64decode(rest.strip(), validate=True).decode("utf-8", "surrogateescape")
        except (binascii.Error, ValueError):
            return None
        return pair.partition(":")[2] or None
    return None


def append_grant(text: str, grant: Grant) -> str:
    """The text of a tokens file, *text*, and *grant* at its end."""
    begin = text or "# HASH MADE ROLE of who may read over HTTP; see hydrator token --help\n"
    return begin + ("" if begin.endswith("\n") else "\n") + grant.line


def remove_grant(text: str, key_prefix: str) -> tuple[str, tuple[Grant, ...]]:
    """The text of a tokens file without what *key*, or a beginning of it, names; and what that was."""
    kept, gone = [], []
    for line in text.splitlines(keepends=True):
        grant = None if line.startswith("#") else _parse_grant(line.strip())
        if grant is not None and key_prefix and grant.digest.startswith(key_prefix):
            gone.append(grant)
        else:
            kept.append(line)
    return "".join(kept), tuple(gone)

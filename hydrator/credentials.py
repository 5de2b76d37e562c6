"""When what we show to others ends: tokens and certificates, and who renews them.

Nothing is verified here: who is shown a credential judges it. What has no end
that can be read (a password, a token of Rucio's own in a file) is not listed.
Pure: texts in, values out; ``wiring`` reads the files.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from .model import from_unix, unix
from .ports import Login
from .words import span

SOON = 10
"""A credential that somebody renews ends soon when less than one part in so many of its life is left,"""
SOON_AT_MOST = timedelta(days=30)
"""and it is no sooner than that; the alerts say the same."""
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _INTEGER, _VERSION, _UTC_TIME, _TIME = 0x30, 0x02, 0xA0, 0x17, 0x18


class By(StrEnum):
    """Who renews it."""

    DAEMON = "daemon"
    SOMEBODY = "somebody"


@dataclass(frozen=True, slots=True)
class Credential:
    """Something we show to others, or that others see of us.

    *name* is its key in the configuration, *recipe* its heading in
    docs/credentials.md; *since* is None where it does not say.
    """

    name: str
    recipe: str
    by: By
    until: datetime
    since: datetime | None = None

    @property
    def life(self) -> timedelta | None:
        return self.until - self.since if self.since and self.since < self.until else None

    def soon(self, now: datetime) -> bool:
        """Is it time that somebody renews it, or past that?"""
        left = self.until - now
        if self.by is By.DAEMON or self.life is None:
            return left <= (timedelta(0) if self.by is By.DAEMON else timedelta(days=7))
        return left <= min(self.life / SOON, SOON_AT_MOST)

    def told(self, now: datetime) -> str:
        """One line for people."""
        left = (self.until - now).total_seconds()
        when = f"{self.until:%Y-%m-%d %H:%M} UTC"
        renewed = "; the daemon renews it" if self.by is By.DAEMON else ""
        return f"ended {when}, {span(-left)} ago" if left <= 0 else f"ends {when}, in {span(left)}{renewed}"

    @property
    def todo(self) -> str:
        return f"renew it: docs/credentials.md#{self.recipe}"


def of_token(name: str, recipe: str, text: str) -> Credential | None:
    """The JWT in *text* (RFC 7519); None where it is none, or never ends."""
    claims = claims_of(text.strip())
    until = _time(claims.get("exp"))
    since = _time(claims.get("iat")) or _time(claims.get("nbf"))
    return Credential(name, recipe, By.SOMEBODY, until, since) if until else None


def of_idtokens(texts: Iterable[str]) -> list[Credential]:
    """HTCondor's tokens, one a line: by pool (``iss``) the one that lasts longest, since any of them will do.

    A pool for which one never ends is left out.
    """
    by_pool: dict[str, list[datetime | None]] = {}
    since: dict[tuple[str, datetime], datetime | None] = {}
    for line in (line.strip() for text in texts for line in text.splitlines()):
        claims = claims_of(line) if line and not line.startswith("#") else {}
        pool = claims.get("iss")
        if not isinstance(pool, str) or not pool.isprintable():
            continue
        until = _time(claims.get("exp"))
        by_pool.setdefault(pool[:100], []).append(until)
        if until:
            since[pool[:100], until] = _time(claims.get("iat"))
    found = []
    for pool, ends in sorted(by_pool.items()):
        known = [end for end in ends if end]
        if known and len(known) == len(ends):
            last = max(known)
            found.append(Credential(f"IDTOKEN of {pool}", "idtokens", By.SOMEBODY, last, since[pool, last]))
    return found


def of_certificates(name: str, recipe: str, pem: str) -> Credential | None:
    """The certificate in *pem* that ends first, of a chain or a proxy; None where none can be read."""
    spans = []
    for body in _PEM.findall(pem):
        try:
            spans.append(validity(base64.b64decode("".join(body.split()), validate=True)))
        except (ValueError, IndexError, binascii.Error):
            continue
    if not spans:
        return None
    since, until = min(spans, key=lambda span: span[1])
    return Credential(name, recipe, By.SOMEBODY, until, since)


def of_login(name: str, login: Login | None) -> Credential | None:
    """What a catalogue was given when we logged in; it asks for another before that ends."""
    return Credential(name, "logins", By.DAEMON, login.until, login.since) if login else None


def credential_rows(credentials: Iterable[Credential]) -> list[dict[str, Any]]:
    """For the state, and for programs."""
    return [
        {
            "credential": one.name,
            "until": unix(one.until),
            "since": unix(one.since) if one.since else None,
            "by": one.by.value,
            "recipe": one.recipe,
        }
        for one in credentials
    ]


def credentials_from(rows: Sequence[Mapping[str, Any]]) -> list[Credential]:
    """What :func:`credential_rows` made."""
    return [
        Credential(
            str(row["credential"]),
            str(row["recipe"]),
            By(row["by"]),
            from_unix(row["until"]),
            from_unix(row["since"]) if row["since"] is not None else None,
        )
        for row in rows
    ]


def validity(der: bytes) -> tuple[datetime, datetime]:
    """From when to when an X.509 certificate is good (RFC 5280, 4.1.2.5).

    Raises:
        ValueError, IndexError: it is no certificate.
    """
    _, certificate, _ = _element(der, _SEQUENCE)
    _, rest, _ = _element(certificate, _SEQUENCE)
    tag, _, after = _element(rest)
    if tag == _VERSION:
        _, _, after = _element(after, _INTEGER)
    for _ in ("signature", "issuer"):
        _, _, after = _element(after, _SEQUENCE)
    _, span_of, _ = _element(after, _SEQUENCE)
    first, begins, after = _element(span_of)
    last, ends, _ = _element(after)
    return _asn1_time(first, begins), _asn1_time(last, ends)


def _element(data: bytes, wanted: int | None = None) -> tuple[int, bytes, bytes]:
    """The tag and content of the first element of DER *data*, and what follows it."""
    tag, length, start = data[0], data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    if start + length > len(data) or (wanted is not None and tag != wanted):
        raise ValueError("no certificate")
    return tag, data[start : start + length], data[start + length :]


def _asn1_time(tag: int, text: bytes) -> datetime:
    """UTCTime has two digits for the year: 50 and later are of the last century."""
    said = text.decode("ascii")
    if tag == _UTC_TIME:
        said = ("19" if said[:2] >= "50" else "20") + said
    elif tag != _TIME:
        raise ValueError("no time")
    return datetime.strptime(said, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of *token*, a JWT, unverified; empty if it is not a JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _time(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 37:
        return None
    return from_unix(value)

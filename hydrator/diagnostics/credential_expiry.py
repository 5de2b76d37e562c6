"""Expiry times of tokens and certificates that an operator, or a tool of theirs, renews.

This module verifies no credential; the server that receives a credential verifies it. A credential
without a readable expiry time (a password, or a token in Rucio's own format) is not listed.
Pure: texts in, values out; ``wiring`` reads the files.
"""

import base64
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hydrator.domain.text import format_duration
from hydrator.domain.untrusted import claims_of, valid_time

RENEWAL_LIFE_DIVISOR = 10
"""An operator must renew a credential once less than 1/10 of its lifetime is left."""
MAX_RENEWAL_LEAD = timedelta(days=30)
"""A renewal is due at most this long before the expiry. The alerts use this rule and the 1/10 rule."""
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_TIME = rb"(?:\x17\x0d|\x18\x0f)([0-9]{12,14}Z)"
_VALIDITY = re.compile(rb"\x30[\x1e\x20\x22]" + _TIME + _TIME)
"""The validity, a sequence of a UTCTime or GeneralizedTime each (RFC 5280, 4.1.2.5).

It is the first in a certificate: before it stand a number, an algorithm and the name of the issuer.
"""


@dataclass(frozen=True, slots=True)
class Credential:
    """A token or certificate that the daemon presents.

    *name* is the credential's key in the configuration; *docs_section* is its heading in
    docs/operators/credentials.md. *issued_at* is None if the credential has no time of issue.
    """

    name: str
    docs_section: str
    expires_at: datetime
    issued_at: datetime | None = None

    @property
    def lifetime(self) -> timedelta | None:
        return (
            self.expires_at - self.issued_at if self.issued_at and self.issued_at < self.expires_at else None
        )

    def is_renewal_due(self, now: datetime) -> bool:
        """Return True if an operator should renew the credential."""
        if self.lifetime is None:
            return self.expires_at - now <= timedelta(days=7)
        return self.expires_at - now <= min(self.lifetime / RENEWAL_LIFE_DIVISOR, MAX_RENEWAL_LEAD)

    def expiry_text(self, now: datetime) -> str:
        """Return the expiry time as one line for people."""
        left = (self.expires_at - now).total_seconds()
        when = f"{self.expires_at:%Y-%m-%d %H:%M} UTC"
        return (
            f"ended {when}, {format_duration(-left)} ago"
            if left <= 0
            else f"ends {when}, in {format_duration(left)}"
        )

    @property
    def todo(self) -> str:
        return f"renew it: docs/operators/credentials.md#{self.docs_section}"


def parse_token(name: str, docs_section: str, text: str) -> Credential | None:
    """Parse the JWT in *text* (RFC 7519); return None if *text* is not a JWT, or a JWT that never expires."""
    claims = claims_of(text.strip())
    until = valid_time(claims.get("exp"))
    since = valid_time(claims.get("iat")) or valid_time(claims.get("nbf"))
    return Credential(name, docs_section, until, since) if until else None


def parse_idtokens(texts: Iterable[str]) -> list[Credential]:
    """Parse HTCondor's tokens, one a line; return for each pool (``iss``) the token that expires last.

    One valid token is sufficient, so a pool with a token that never expires is left out.
    """
    by_pool: dict[str, list[tuple[datetime | None, datetime | None]]] = {}
    for line in (line.strip() for text in texts for line in text.splitlines()):
        claims = claims_of(line) if line and not line.startswith("#") else {}
        pool = claims.get("iss")
        if isinstance(pool, str) and pool.isprintable():
            times = valid_time(claims.get("exp")), valid_time(claims.get("iat"))
            by_pool.setdefault(pool[:100], []).append(times)
    credentials = []
    for pool, tokens in sorted(by_pool.items()):
        ending = [(until, since) for until, since in tokens if until]
        if len(ending) == len(tokens):
            until, since = max(ending, key=lambda times: times[0])
            credentials.append(Credential(f"IDTOKEN of {pool}", "idtokens", until, since))
    return credentials


def parse_certificates(name: str, docs_section: str, pem: str) -> Credential | None:
    """Return the certificate in *pem* (a chain or a proxy) that expires first; None if all are unreadable."""
    spans = []
    for body in _PEM.findall(pem):
        with suppress(ValueError):  # it is not base 64, or has a time that does not exist
            if found := _VALIDITY.search(base64.b64decode("".join(body.split()), validate=True)):
                spans.append((_parse_asn1_time(found[1]), _parse_asn1_time(found[2])))
    if not spans:
        return None
    since, until = min(spans, key=lambda span: span[1])
    return Credential(name, docs_section, until, since)


def _parse_asn1_time(element: bytes) -> datetime:
    """Parse an ASN.1 time. The year of a UTCTime has two digits: 50 to 99 mean 1950 to 1999."""
    text = element.decode("ascii")
    century = "" if len(text) > len("YYMMDDhhmmssZ") else "19" if text >= "50" else "20"
    return datetime.strptime(century + text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)

"""Untrusted values: limit the values from ads, files and answers, and check paths and arguments.

Anybody with write access can put any value into an ad: a boolean, NaN, 10**15 seconds, a time after the
year 9999. In Python such values may raise an error only much later. So the code that reads an external
value first passes the value to one of these functions.
"""

import base64
import json
import math
import re
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from .model import from_unix, to_unix

MAX_AHEAD: Final = timedelta(days=1)
"""The daemon rejects a generation or time that is this far ahead of its clock, or further.

The hook rejects a generation that is further ahead than ``MAX_AHEAD`` plus ``MAX_SKEW``, because the
clock of its machine may differ from the daemon's.
"""
MAX_CLOCK_SKEW: Final = timedelta(minutes=5)
"""A time in the record of a job or a transfer that is further in the future is an error of some clock."""
MAX_UNIX_SECONDS: Final = 253_402_300_799
"""Unix seconds of the end of the year 9999, the last time that a Python datetime can have."""
MAX_SPAN_SECONDS: Final = 100 * 365 * 86_400
"""Seconds of the longest span: longer than any age of a fact, and safe to add to a time."""
MAX_CLASSAD_INTEGER: Final = (1 << 63) - 1
"""The largest integer of a ClassAd."""
MAX_TOKEN_CHARS: Final = 100_000
"""Maximum characters of a JWT; the daemon does not read the claims of a longer one."""
MAX_NAME_CHARS: Final = 500
"""Maximum characters of the name of a site or daemon in an ad from a collector."""


def valid_integer(value: object, maximum: int = MAX_CLASSAD_INTEGER) -> int | None:
    """Return *value* if it is an integer from 0 to *maximum*; else None. A boolean is not an integer here."""
    return value if type(value) is int and 0 <= value <= maximum else None


def valid_number(value: object) -> float | int | None:
    """Return *value* if it is a finite number; else None. A boolean is not a number here."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if not isinstance(value, float) or math.isfinite(value) else None


def valid_time(value: object) -> datetime | None:
    """Return the time of *value*, a number of Unix seconds from 0 to the year 9999; else None."""
    number = valid_number(value)
    return from_unix(number) if number is not None and 0 <= number <= MAX_UNIX_SECONDS else None


def moment_in_utc(value: datetime) -> datetime | None:
    """Return *value* in UTC, if it is from 1970 to the year 9999; else None. A time without a zone is UTC."""
    try:
        moment = value.replace(tzinfo=UTC) if value.utcoffset() is None else value.astimezone(UTC)
    except OverflowError:
        return None
    return moment if moment.timestamp() >= 0 else None


def nearest_moment(seconds: float) -> datetime:
    """Return the time of *seconds* since the epoch, or the nearest time from 1970 to the year 9999."""
    return from_unix(min(max(seconds, 0), MAX_UNIX_SECONDS))


def nearest_span(seconds: float) -> timedelta:
    """Return *seconds* as a timedelta, limited to ``MAX_SPAN_SECONDS`` in both directions."""
    return timedelta(seconds=min(max(seconds, -MAX_SPAN_SECONDS), MAX_SPAN_SECONDS))


def is_ahead(seconds: int, now: datetime) -> bool:
    """Return whether *seconds*, a generation or Unix time, is ahead of *now* by ``MAX_AHEAD`` or more."""
    return seconds >= to_unix(now) + int(MAX_AHEAD.total_seconds())


def is_loopback(host: str) -> bool:
    """Return whether *host*, an address or a name, is this machine: 127.0.0.0/8, ::1 or localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def keeps_secrets(url: str) -> bool:
    """Return whether a token may be sent to *url*: it is https, or of this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of *token* without a check of its signature; empty if it is not a JWT (RFC 7519)."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > MAX_TOKEN_CHARS:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def expiry_of(token: str) -> datetime | None:
    """Return the expiry time (claim ``exp``) of the JWT *token*, or None; do not check the signature."""
    return valid_time(claims_of(token).get("exp"))


def has_unsafe_parts(path: str) -> bool:
    """Return whether *path* could leave its folder, because a part of it is empty, ``.`` or ``..``."""
    return any(part in {"", ".", ".."} for part in path.split("/"))


def is_unsafe_argument(did: str) -> bool:
    """Return whether a command could read *did* as an option or as a path to a parent folder."""
    return did.startswith("-") or any(part == ".." for part in re.split("[:/]", did))

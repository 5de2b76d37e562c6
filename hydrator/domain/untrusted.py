"""Untrusted values: bound what an ad, a file or an answer contains, and check paths and arguments.

An ad is whatever its writer wrote: a boolean, NaN, 10**15 seconds, a time past the year 9999. Python raises
on some of these far from where they came in, so every external value passes one of these functions first.
"""

import base64
import json
import math
import re
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any, Final

from .model import from_unix, to_unix

MAX_AHEAD: Final = timedelta(days=1)
"""A generation or time that is this far ahead of the daemon's clock, or further, is not believed.

The hook has the same bound (``MAX_AHEAD``) plus its ``MAX_SKEW``, because its clock is another one.
"""
MAX_UNIX_SECONDS: Final = 253_402_300_799
"""Unix seconds of the end of the year 9999, the last time that Python can write."""
MAX_SPAN_SECONDS: Final = 100 * 365 * 86_400
"""Seconds of the longest span: longer than any age of a fact, and safe to add to a time."""
MAX_CLASSAD_INTEGER: Final = (1 << 63) - 1
"""The largest integer of a ClassAd."""
MAX_TOKEN_CHARS: Final = 100_000
"""Characters of the longest JWT whose claims are read."""
MAX_NAME_CHARS: Final = 500
"""Maximum characters of the name of a site or daemon that is read back."""


def valid_integer(value: object, maximum: int = MAX_CLASSAD_INTEGER) -> int | None:
    """Return *value* if it is an integer from 0 to *maximum*; a boolean is not an integer here."""
    return value if type(value) is int and 0 <= value <= maximum else None


def valid_number(value: object) -> float | int | None:
    """Return *value* if it is a number within the range of ClassAds; not NaN, infinity or a boolean."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if not isinstance(value, float) or math.isfinite(value) else None


def valid_time(value: object) -> datetime | None:
    """Return the time of *value*, a number of Unix seconds from 0 to the year 9999; None for all else."""
    number = valid_number(value)
    return from_unix(number) if number is not None and 0 <= number <= MAX_UNIX_SECONDS else None


def nearest_moment(seconds: float) -> datetime:
    """Return the time of *seconds* since the epoch, or the nearest one that Python can write."""
    return from_unix(min(max(seconds, 0), MAX_UNIX_SECONDS))


def nearest_span(seconds: float) -> timedelta:
    """Return *seconds* as a span of at most ``MAX_SPAN_SECONDS`` in each direction."""
    return timedelta(seconds=min(max(seconds, -MAX_SPAN_SECONDS), MAX_SPAN_SECONDS))


def is_ahead(seconds: int, now: datetime) -> bool:
    """Return whether *seconds*, a generation or Unix time, is too far ahead of *now* to be believed."""
    return seconds >= to_unix(now) + int(MAX_AHEAD.total_seconds())


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches *host*, an address or a name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of *token*, a JWT (RFC 7519), unverified; empty if it is not a JWT."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > MAX_TOKEN_CHARS:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def expiry_of(token: str) -> datetime | None:
    """Return the time at which *token*, a JWT, expires (claim ``exp``), unverified; None if it has none."""
    return valid_time(claims_of(token).get("exp"))


def has_unsafe_parts(path: str) -> bool:
    """Return whether *path* could leave its folder: an empty part, ``.`` or ``..``."""
    return any(part in {"", ".", ".."} for part in path.split("/"))


def is_unsafe_argument(did: str) -> bool:
    """Return whether a command could read *did* as an option or as a path to a parent folder."""
    return did.startswith("-") or any(part == ".." for part in re.split("[:/]", did))

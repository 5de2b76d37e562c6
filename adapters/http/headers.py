"""Times in HTTP headers: what a server sends may be any text, and none of it raises."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_PAUSE_SECONDS = 900.0
"""Seconds that a server is let alone at most, however much longer it asks for."""
_MAX_HEADER_CHARS = 100
"""Characters of a time that are looked at."""


def http_date(header: str | None) -> datetime | None:
    """Parse a date (RFC 9110, 5.6.7); None where there is none, or none that a clock can show."""
    if not header or len(header) > _MAX_HEADER_CHARS:
        return None
    try:
        date = parsedate_to_datetime(header)
        return date.astimezone(UTC) if date.tzinfo else None
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def retry_after(header: str | None, now: datetime | None) -> float | None:
    """Parse ``Retry-After`` (RFC 9110, 10.2.3) as seconds from *now*, from 0 to ``LONGEST_PAUSE``.

    None where it says nothing, as a date does without *now*.
    """
    text = (header or "").strip()
    digits = text.removeprefix("-")
    if digits.isdecimal() and digits.isascii():
        seconds = MAX_PAUSE_SECONDS if len(digits) > 6 else min(MAX_PAUSE_SECONDS, float(digits))
        return seconds if digits == text else 0.0
    date = http_date(text)
    if date is None or now is None:
        return None
    return min(MAX_PAUSE_SECONDS, max(0.0, (date - now).total_seconds()))

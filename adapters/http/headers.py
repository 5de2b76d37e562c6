"""Parsers of times in HTTP headers. A server may send any text, so an invalid text raises no error."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_PAUSE_SECONDS = 900.0
"""The longest pause in seconds, even if a server asks for a longer one."""
_MAX_HEADER_CHARS = 100
"""The longest time header in characters that is parsed."""


def http_date(header: str | None) -> datetime | None:
    """Parse a date (RFC 9110, 5.6.7).

    Return None if the header is missing, is not a date, or is a date that is out of range.
    """
    if not header or len(header) > _MAX_HEADER_CHARS:
        return None
    try:
        date = parsedate_to_datetime(header)
        return date.astimezone(UTC) if date.tzinfo else None
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def retry_after(header: str | None, now: datetime | None) -> float | None:
    """Parse ``Retry-After`` (RFC 9110, 10.2.3) as seconds from *now*, from 0 to ``MAX_PAUSE_SECONDS``.

    Return None if the header is neither seconds nor a date, or if it is a date and *now* is None.
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

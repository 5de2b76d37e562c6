"""The one place where the clock is read."""

from datetime import UTC, datetime


def system_clock() -> datetime:
    """The aware UTC time now, from the system."""
    return datetime.now(UTC)  # noqa: TID251 - the one place where the clock is read

"""Clock: only this module reads the system's clock."""

from datetime import UTC, datetime


def system_clock() -> datetime:
    """Return the aware UTC time now, from the system."""
    return datetime.now(UTC)  # noqa: TID251 - only this function reads the clock

"""Clock: the one place that reads the system's clock."""

from datetime import UTC, datetime


def system_clock() -> datetime:
    """Return the aware UTC time now, from the system."""
    return datetime.now(UTC)  # noqa: TID251 - the one place that reads it

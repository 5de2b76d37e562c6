"""Wiring: build the daemon's objects from the settings. Only this package imports adapters."""

from datetime import UTC, datetime


def system_clock() -> datetime:
    """Return the aware UTC time now, from the system."""
    return datetime.now(UTC)  # noqa: TID251 - only this function reads the clock

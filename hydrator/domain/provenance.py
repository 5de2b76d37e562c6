"""Provenance of each fact (source, time), shown by ``hydrator datasets --why``."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .model import Provenance, from_unix, to_unix
from .text import format_duration

_TIME_FIELDS = ("expires_at", "ready_at")


def provenance_to_row(provenance: Provenance) -> dict[str, Any]:
    """Return the fields of *provenance* that have a value, for JSON."""
    row = {key: value for key in Provenance.__slots__ if (value := getattr(provenance, key))}
    for key in _TIME_FIELDS:
        if key in row:
            row[key] = to_unix(row[key])
    return row


def provenance_from_row(row: Mapping[str, Any]) -> Provenance:
    """Parse the output of :func:`provenance_to_row`; skip fields that only a newer daemon writes."""
    known = {key: value for key, value in row.items() if key in Provenance.__dataclass_fields__}
    for key in _TIME_FIELDS:
        if key in known:
            known[key] = from_unix(known[key])
    return Provenance(**known)


def describe_provenance(provenance: Provenance, now: datetime) -> str:
    """Return one line that explains why a catalogue reports a state; times are relative to *now*."""
    clauses = [provenance.reason] if provenance.reason else []
    if provenance.rule:
        clauses.append(
            f"rule {provenance.rule}" + (f" of {provenance.account}" if provenance.account else "")
        )
    if provenance.expires_at:
        clauses.append(f"its rule ends {_relative_time(provenance.expires_at, now)}")
    if provenance.ready_at:
        clauses.append(f"expected to be complete {_relative_time(provenance.ready_at, now)}")
    return "; ".join(clauses)


def _relative_time(moment: datetime, now: datetime) -> str:
    seconds = (moment - now).total_seconds()
    return f"in {format_duration(seconds)}" if seconds >= 0 else f"{format_duration(-seconds)} ago"

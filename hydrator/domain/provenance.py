"""Provenance of each fact (source, time, call), shown by ``hydrator datasets --why``."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from .model import NO_PROVENANCE, Provenance, from_unix, to_unix
from .text import format_duration

_TIME_FIELDS = ("expires_at", "ready_at")


def provenance_to_row(provenance: Provenance) -> list[dict[str, Any]]:
    """Return *provenance* for JSON: a list with one record of the fields that have a value, or no record."""
    known = {key: value for key, value in asdict(provenance).items() if value}
    for key in _TIME_FIELDS:
        if key in known:
            known[key] = to_unix(known[key])
    if "ready_error" in known:
        known["ready_error"] = known["ready_error"].total_seconds()
    return [known] if known else []


def provenance_from_row(row: Sequence[Mapping[str, Any]]) -> Provenance:
    """Parse the output of :func:`provenance_to_row`; skip fields that only a newer daemon writes."""
    if not row:
        return NO_PROVENANCE
    known = {key: value for key, value in row[0].items() if key in Provenance.__dataclass_fields__}
    for key in _TIME_FIELDS:
        if key in known:
            known[key] = from_unix(known[key])
    if "ready_error" in known:
        known["ready_error"] = timedelta(seconds=known["ready_error"])
    return Provenance(**known)


PUBLIC_FIELDS = ("reason", "rule", "account", "expires_at", "ready_at", "ready_error")
"""The fields that the daemon returns over HTTP; :func:`describe_provenance` uses no other fields."""


def public_provenance(provenance: Provenance) -> dict[str, Any]:
    """Return the PUBLIC_FIELDS of *provenance* that have a value, for JSON."""
    return {
        key: value
        for row in provenance_to_row(provenance)
        for key, value in row.items()
        if key in PUBLIC_FIELDS
    }


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
        error = (
            f", plus or minus {format_duration(provenance.ready_error.total_seconds())}"
            if provenance.ready_error
            else ""
        )
        clauses.append(f"expected to be complete {_relative_time(provenance.ready_at, now)}{error}")
    return "; ".join(clauses)


def _relative_time(moment: datetime, now: datetime) -> str:
    seconds = (moment - now).total_seconds()
    return f"in {format_duration(seconds)}" if seconds >= 0 else f"{format_duration(-seconds)} ago"

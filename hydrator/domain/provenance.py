"""Who said what, when and by which call: provenance, for ``hydrator datasets --why``."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from hydrator.reconcile.snapshot.memory import CatalogueMemory

from .model import NO_PROVENANCE, Did, Fact, Provenance, from_unix, to_unix
from .text import format_duration

_TIME_FIELDS = ("expires_at", "ready_at")


def provenance_to_row(provenance: Provenance) -> list[dict[str, Any]]:
    """*told* for JSON: nothing when there is nothing, else one record of what is known."""
    known = {key: value for key, value in asdict(provenance).items() if value}
    for key in _TIME_FIELDS:
        if key in known:
            known[key] = to_unix(known[key])
    if "ready_error" in known:
        known["ready_error"] = known["ready_error"].total_seconds()
    return [known] if known else []


def provenance_from_row(row: Sequence[Mapping[str, Any]]) -> Provenance:
    """What :func:`provenance_to_row` wrote; words it does not know, of a newer version, are passed over."""
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
"""What the daemon tells over HTTP of how a catalogue came to a state: all that `because` makes words of."""


def public_provenance(provenance: Provenance) -> dict[str, Any]:
    """Return what is known of SERVED, for JSON."""
    return {
        key: value
        for row in provenance_to_row(provenance)
        for key, value in row.items()
        if key in PUBLIC_FIELDS
    }


def describe_provenance(provenance: Provenance, now: datetime) -> str:
    """One line on how a catalogue came to a state, times relative to *now*."""
    clauses = [provenance.reason] if provenance.reason else []
    if provenance.rule:
        clauses.append(
            f"rule {provenance.rule}" + (f" of {provenance.account}" if provenance.account else "")
        )
    if provenance.expires_at:
        clauses.append(f"its rule ends {_relative_time(provenance.expires_at, now)}")
    if provenance.ready_at:
        error = (
            f", give or take {format_duration(provenance.ready_error.total_seconds())}"
            if provenance.ready_error
            else ""
        )
        clauses.append(f"expected whole {_relative_time(provenance.ready_at, now)}{error}")
    return "; ".join(clauses)


def _relative_time(moment: datetime, now: datetime) -> str:
    seconds = (moment - now).total_seconds()
    return f"in {format_duration(seconds)}" if seconds >= 0 else f"{format_duration(-seconds)} ago"


def provenance_rows(
    memories: Mapping[str, CatalogueMemory], dids: Sequence[Did], *, now: datetime
) -> list[dict[str, Any]]:
    """What each catalogue last said of each of *dids*: a record for each site, or one for none.

    ``seen`` is false where the catalogue could not say anything new last time: what stands is older.
    """
    return [
        row
        for did in dids
        for catalogue, memory in sorted(memories.items())
        for row in _catalogue_rows(catalogue, memory, did, now)
    ]


def _catalogue_rows(catalogue: str, memory: CatalogueMemory, did: Did, now: datetime) -> list[dict[str, Any]]:
    known, unseen = memory.records.get(did), memory.unseen_reasons.get(did)
    start = {"did": did, "catalogue": catalogue, "unseen": unseen}
    if known is None:
        return [
            {**start, "site": None, "state": None, "as_of": None, "why": unseen or "it was not asked yet"}
        ]
    if not known.facts:
        why = "it has it at no site it knows"
        return [{**start, "site": None, "state": None, "as_of": to_unix(known.read_at), "why": why}]
    return [{**start, "site": site, **_fact_row(fact, now)} for site, fact in sorted(known.facts.items())]


def _fact_row(fact: Fact, now: datetime) -> dict[str, Any]:
    return {
        "state": fact.state.value,
        "fraction": fact.fraction,
        "as_of": to_unix(fact.as_of),
        "storage": fact.provenance.storage,
        "call": fact.provenance.call,
        "why": describe_provenance(fact.provenance, now),
        "provenance": (provenance_to_row(fact.provenance) or [{}])[0],
    }

"""Who said what, when and by which call: provenance, for ``hydrator datasets --why``."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from hydrator.reconcile.snapshot.memory import Memory

from .model import UNTOLD, Did, Fact, Told, from_unix, unix
from .text import span

_TIMES = ("expires_at", "ready_at")


def told_row(told: Told) -> list[dict[str, Any]]:
    """*told* for JSON: nothing when there is nothing, else one record of what is known."""
    known = {key: value for key, value in asdict(told).items() if value}
    for key in _TIMES:
        if key in known:
            known[key] = unix(known[key])
    if "ready_error" in known:
        known["ready_error"] = known["ready_error"].total_seconds()
    return [known] if known else []


def told_from(row: Sequence[Mapping[str, Any]]) -> Told:
    """What :func:`told_row` wrote; words it does not know, of a newer version, are passed over."""
    if not row:
        return UNTOLD
    known = {key: value for key, value in row[0].items() if key in Told.__dataclass_fields__}
    for key in _TIMES:
        if key in known:
            known[key] = from_unix(known[key])
    if "ready_error" in known:
        known["ready_error"] = timedelta(seconds=known["ready_error"])
    return Told(**known)


SERVED = ("reason", "rule", "account", "expires_at", "ready_at", "ready_error")
"""What the daemon tells over HTTP of how a catalogue came to a state: all that `because` makes words of."""


def served_told(told: Told) -> dict[str, Any]:
    """Return what is known of SERVED, for JSON."""
    return {key: value for row in told_row(told) for key, value in row.items() if key in SERVED}


def because(told: Told, now: datetime) -> str:
    """One line on how a catalogue came to a state, times relative to *now*."""
    clauses = [told.reason] if told.reason else []
    if told.rule:
        clauses.append(f"rule {told.rule}" + (f" of {told.account}" if told.account else ""))
    if told.expires_at:
        clauses.append(f"its rule ends {_when(told.expires_at, now)}")
    if told.ready_at:
        error = f", give or take {span(told.ready_error.total_seconds())}" if told.ready_error else ""
        clauses.append(f"expected whole {_when(told.ready_at, now)}{error}")
    return "; ".join(clauses)


def _when(moment: datetime, now: datetime) -> str:
    seconds = (moment - now).total_seconds()
    return f"in {span(seconds)}" if seconds >= 0 else f"{span(-seconds)} ago"


def provenance(memories: Mapping[str, Memory], dids: Sequence[Did], *, now: datetime) -> list[dict[str, Any]]:
    """What each catalogue last said of each of *dids*: a record for each site, or one for none.

    ``seen`` is false where the catalogue could not say anything new last time: what stands is older.
    """
    return [
        row
        for did in dids
        for catalogue, memory in sorted(memories.items())
        for row in _of_one(catalogue, memory, did, now)
    ]


def _of_one(catalogue: str, memory: Memory, did: Did, now: datetime) -> list[dict[str, Any]]:
    known, unseen = memory.known.get(did), memory.unseen.get(did)
    start = {"did": did, "catalogue": catalogue, "unseen": unseen}
    if known is None:
        return [
            {**start, "site": None, "state": None, "as_of": None, "why": unseen or "it was not asked yet"}
        ]
    if not known.here:
        why = "it has it at no site it knows"
        return [{**start, "site": None, "state": None, "as_of": unix(known.at), "why": why}]
    return [{**start, "site": site, **_fact_row(fact, now)} for site, fact in sorted(known.here.items())]


def _fact_row(fact: Fact, now: datetime) -> dict[str, Any]:
    return {
        "state": fact.state.value,
        "fraction": fact.fraction,
        "as_of": unix(fact.as_of),
        "storage": fact.told.storage,
        "call": fact.told.call,
        "why": because(fact.told, now),
        "told": (told_row(fact.told) or [{}])[0],
    }

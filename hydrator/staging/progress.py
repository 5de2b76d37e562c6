"""Progress: compare the ledger with the requests of a catalogue; adopt, update and end entries. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from hydrator.domain.ports.staging import RefusalKind, RequestProgress, RequestState, StagingKind

from .failures import record_failure
from .ledger import EntryState, Ledger, LedgerEntry, end_entry
from .policy import StagingPolicy

STUCK_STATES = frozenset({RequestState.STUCK, RequestState.SUSPENDED, RequestState.FAILED})
_GONE = "the catalogue does not have the request any more"


def apply_progress(
    ledger: Ledger,
    catalogue: str,
    progress: Mapping[str, RequestProgress],
    now: datetime,
    policy: StagingPolicy,
) -> Ledger:
    """Return *ledger* after *catalogue* listed all our requests in *progress*, by tag.

    An entry whose call had no answer is adopted if the catalogue has its tag. If the catalogue does not have
    it within the grace time, the call had no effect, and its bytes are released. A request of ours without
    an entry (the state was lost, or another daemon asked) gets an entry.
    """
    for tag, entry in ledger.entries.items():
        if entry.catalogue != catalogue:
            continue
        one = progress.get(tag)
        ledger = (
            _end_missing(ledger, entry, now, policy)
            if one is None
            else _update(ledger, entry, one, now, policy)
        )
    strangers = [
        _adopt_stranger(catalogue, one, now, policy)
        for tag, one in progress.items()
        if tag not in ledger.entries and tag.startswith(policy.prefix)
    ]
    return ledger.with_entries(strangers)


def _update(
    ledger: Ledger, entry: LedgerEntry, one: RequestProgress, now: datetime, policy: StagingPolicy
) -> Ledger:
    is_done = one.state is RequestState.DONE
    is_stuck = one.state in STUCK_STATES
    new = replace(
        entry,
        state=EntryState.OPEN if entry.state is EntryState.ASKING else entry.state,
        handle=one.request.handle,
        request_state=one.state,
        is_complete=entry.is_complete or is_done,
        files=entry.files if one.files_total is None else one.files_total,
        files_done=one.files_done,
        bytes_done=entry.bytes if is_done else min(one.bytes_done or 0, entry.bytes),
        expires_at=one.expires_at or entry.expires_at,
        ready_at=None if is_done else one.ready_at,
        reason=one.reason,
        stuck_since=(entry.stuck_since or now) if is_stuck else None,
    )
    ledger = ledger.with_entries([new])
    if is_done and not entry.is_complete and entry.kind is StagingKind.STAGE:
        totals = ledger.totals
        ledger = replace(ledger, totals=replace(totals, staged_bytes=totals.staged_bytes + entry.bytes))
        others = {key: each for key, each in ledger.failures.items() if key != (entry.did, entry.site)}
        ledger = replace(ledger, failures=others)
    if one.state is RequestState.FAILED and entry.request_state is not RequestState.FAILED:
        reason = one.reason or "the catalogue gave up"
        ledger = _fail(ledger, entry, RefusalKind.NO_SOURCE, reason, now, policy)
    return ledger


def _end_missing(ledger: Ledger, entry: LedgerEntry, now: datetime, policy: StagingPolicy) -> Ledger:
    """Return *ledger* after the catalogue listed its requests without *entry*."""
    if entry.state is EntryState.ASKING:
        if now - entry.asked_at < policy.times.grace:
            return ledger  # the call may still take effect
        others = {key: each for key, each in ledger.entries.items() if key != entry.tag}
        reason = "the call had no answer, and the catalogue has no such request"
        return _fail(replace(ledger, entries=others), entry, RefusalKind.OTHER, reason, now, policy)
    is_early = entry.expires_at is not None and now < entry.expires_at
    was_dropped = is_early and entry.is_in_flight and entry.state is EntryState.OPEN
    ledger = end_entry(ledger, entry.tag, now, _ending(entry, is_early=is_early))
    return _fail(ledger, entry, RefusalKind.OTHER, _GONE, now, policy) if was_dropped else ledger


def _ending(entry: LedgerEntry, *, is_early: bool) -> str:
    if entry.state is EntryState.CANCELLING:
        return "cancelled"
    return "removed by others before its lifetime ended" if is_early else "its lifetime ended"


def _fail(
    ledger: Ledger, entry: LedgerEntry, kind: RefusalKind, reason: str, now: datetime, policy: StagingPolicy
) -> Ledger:
    return record_failure(ledger, entry.catalogue, entry.did, entry.site, kind, reason, now, policy.times)


def _adopt_stranger(
    catalogue: str, one: RequestProgress, now: datetime, policy: StagingPolicy
) -> LedgerEntry:
    """Return an entry for a request of ours that the ledger lacks.

    If its size is unknown, it counts with the largest size of a request: the limits must hold all the same.
    """
    request = one.request
    is_done = one.state is RequestState.DONE
    size = one.bytes_total or policy.limits.request_bytes
    times = policy.times
    return LedgerEntry(
        tag=request.tag,
        batch="",
        catalogue=catalogue,
        kind=request.kind,
        site=request.site,
        did=request.did,
        bytes=size,
        files=one.files_total,
        state=EntryState.OPEN,
        asked_at=now,
        lifetime=times.pin_lifetime if request.kind is StagingKind.PIN else times.min_lifetime,
        handle=request.handle,
        request_state=one.state,
        is_complete=is_done,
        files_done=one.files_done,
        bytes_done=size if is_done else min(one.bytes_done or 0, size),
        expires_at=one.expires_at,
        ready_at=one.ready_at,
        reason=one.reason,
    )

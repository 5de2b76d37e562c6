"""Upkeep of requests: their progress, their failures, and when they are renewed or ended. Pure.

Progress compares the ledger with the requests of a catalogue. Failures lead to a backoff of a dataset and
site, a breaker of a site, or a halt of a catalogue. Requests are renewed while jobs need them.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import RefusalKind, RequestProgress, RequestState, StagingKind
from hydrator.domain.text import format_duration

from .ledger import EndedEntry, EntryState, FailureRecord, Ledger, LedgerEntry, end_entry
from .needs import LiveNeeds, is_demand_gone
from .policy import StagingMode, StagingPolicy, StagingTimes

FINAL_KINDS = frozenset({RefusalKind.NO_SOURCE, RefusalKind.UNKNOWN_DATASET})
HALTING_KINDS = frozenset({RefusalKind.PERMISSION, RefusalKind.ACTIVITY})
"""Refusals that every other request at this catalogue would get, too."""
SITE_KINDS = frozenset({RefusalKind.QUOTA, RefusalKind.CLOSED})
"""Refusals that every other request to this site would get, too: they open its breaker at once."""
_JITTER = 0.25
_MIN_FAILURES_OF_SHARE = 3


def record_failure(
    ledger: Ledger,
    catalogue: str,
    did: Did,
    site: Site,
    kind: RefusalKind,
    reason: str,
    now: datetime,
    times: StagingTimes,
) -> Ledger:
    """Return *ledger* with one more failed attempt to bring *did* to *site*.

    The pause before the next attempt doubles, with a jitter that depends on the dataset: many datasets that
    failed together are not all asked for at the same moment again.
    """
    previous = ledger.failures.get((did, site))
    attempts = (previous.attempts if previous else 0) + 1
    pause = times.retry * 2 ** (attempts - 1) * (1 + _JITTER * _fraction(did, site, attempts))
    is_final = kind in FINAL_KINDS or attempts >= times.max_attempts
    failure = FailureRecord(attempts, now, now + pause, kind, reason, is_final, kind in FINAL_KINDS)
    refused = dict(ledger.totals.refused)
    refused[kind] = refused.get(kind, 0) + 1
    count = times.breaker_failures if kind in SITE_KINDS else 1
    site_times = (*ledger.site_failures.get(site, ()), *([now] * count))
    halts = dict(ledger.halts)
    if kind in HALTING_KINDS:
        halts[catalogue] = reason
    return replace(
        ledger,
        failures={**ledger.failures, (did, site): failure},
        site_failures={**ledger.site_failures, site: site_times},
        halts=halts,
        totals=replace(ledger.totals, failed=ledger.totals.failed + 1, refused=refused),
    )


def explain_backoff(ledger: Ledger, did: Did, site: Site, now: datetime) -> str | None:
    """Return why earlier failures forbid a request for *did* to *site* now; None if it is allowed."""
    for (other, place), failure in ledger.failures.items():
        if other != did:
            continue
        is_pausing = not failure.is_final and now < failure.retry_at
        if is_pausing or (failure.is_final and (place == site or failure.is_everywhere)):
            return _explain_failure(failure, now)
    return None


def _explain_failure(failure: FailureRecord, now: datetime) -> str:
    attempts = f"{failure.attempts} attempt{'' if failure.attempts == 1 else 's'} failed ({failure.reason})"
    if failure.is_final:
        return f"{attempts}; no further attempt before `hydrator staging resume`"
    left = format_duration((failure.retry_at - now).total_seconds())
    return f"{attempts}; the next attempt is in {left}"


def explain_open_breaker(ledger: Ledger, site: Site, now: datetime, times: StagingTimes) -> str | None:
    """Return why many failures forbid requests to *site* now; None if they are allowed."""
    recent = [at for at in ledger.site_failures.get(site, ()) if now - at < times.breaker]
    if len(recent) < times.breaker_failures and not _is_large_share(ledger, site, len(recent), now, times):
        return None
    left = format_duration((max(recent) + times.breaker - now).total_seconds())
    return f"requests to {site} failed lately; nothing is asked for there for {left}"


def _is_large_share(ledger: Ledger, site: Site, failures: int, now: datetime, times: StagingTimes) -> bool:
    """Return whether *failures* are many of the requests to *site* in the time of the breaker.

    One or two failures say little: they could be the only requests of this time.
    """
    if failures < _MIN_FAILURES_OF_SHARE:
        return False
    accepted: list[LedgerEntry | EndedEntry] = [*ledger.entries.values(), *ledger.ended]
    count = sum(one.site == site and now - one.asked_at < times.breaker for one in accepted)
    return failures > times.breaker_share * (failures + count)


def _fraction(did: Did, site: Site, attempts: int) -> float:
    digest = hashlib.sha256(f"{did}\n{site}\n{attempts}".encode()).digest()
    return digest[0] / 256


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


MAX_CALLS = 50
"""Renewals and cancellations in one step; further ones follow in the next step."""
_NEARLY_OVER = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class Renewal:
    """Let the entry *tag* end *lifetime* after now; a shorter time than it has is a way to end it."""

    tag: str
    lifetime: timedelta
    reason: str


@dataclass(frozen=True, slots=True)
class Cancellation:
    """End the entry *tag* as soon as the catalogue can."""

    tag: str
    reason: str


def plan_upkeep(
    ledger: Ledger, needs: LiveNeeds, policy: StagingPolicy, now: datetime
) -> tuple[Renewal | Cancellation, ...]:
    """Plan the renewals and cancellations of this step; those whose request ends first come first."""
    actions = []
    latest = now + policy.times.max_lifetime
    for entry in sorted(ledger.entries.values(), key=lambda one: (one.expires_at or latest, one.tag)):
        if policy.mode_of(entry.catalogue, entry.site) is not StagingMode.ASK or not entry.handle:
            continue
        if entry.called_at and now - entry.called_at < _pause(entry, policy):
            continue
        if action := _choose_action(entry, needs, policy, now):
            actions.append(action)
    return tuple(actions[:MAX_CALLS])


def _pause(entry: LedgerEntry, policy: StagingPolicy) -> timedelta:
    """Return the least time between two calls for *entry*; longer after a failure."""
    return policy.times.retry if entry.problem else policy.times.grace


def _choose_action(
    entry: LedgerEntry, needs: LiveNeeds, policy: StagingPolicy, now: datetime
) -> Renewal | Cancellation | None:
    times = policy.times
    left = (entry.expires_at or now + times.max_lifetime) - now
    if entry.state is EntryState.CANCELLING:
        return Cancellation(entry.tag, "its end was not seen yet") if left > _NEARLY_OVER else None
    if entry.expires_at is None and entry.state is EntryState.OPEN:
        return Renewal(entry.tag, entry.lifetime, "it had no end")
    if entry.request_state is RequestState.FAILED:
        return Cancellation(entry.tag, entry.reason or "the catalogue gave up")
    if entry.job_count:
        return _renew(entry, policy, now, left)
    if not is_demand_gone(entry, needs, now, policy) or entry.kind is StagingKind.PIN:
        return None  # a pin ends by itself, soon
    if entry.is_in_flight:
        return Cancellation(entry.tag, "no job needs it any more")
    if entry.is_complete and left > times.keep:
        return Renewal(entry.tag, times.keep, "no job needs it any more")
    return None


def _renew(entry: LedgerEntry, policy: StagingPolicy, now: datetime, left: timedelta) -> Renewal | None:
    times = policy.times
    if entry.kind is StagingKind.PIN:
        lifetime = times.pin_lifetime
    elif entry.is_complete:
        lifetime = times.keep
    else:
        expected = 3 * (entry.ready_at - now) if entry.ready_at else entry.lifetime
        lifetime = max(times.min_lifetime, min(expected, times.max_lifetime))
    if left >= lifetime / 3:
        return None
    jobs = f"{entry.job_count} job{'' if entry.job_count == 1 else 's'}"
    return Renewal(entry.tag, lifetime, f"{jobs} still need it")

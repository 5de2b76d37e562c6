"""Upkeep: renew requests while jobs need them, and end those that no job needs any more. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from hydrator.domain.ports.staging import RequestState, StagingKind

from ..ledger import EntryState, Ledger, LedgerEntry
from ..needs import LiveNeeds, is_demand_gone
from ..policy import StagingMode, StagingPolicy

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

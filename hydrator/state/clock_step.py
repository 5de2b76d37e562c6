"""Clock steps: detect that the wall clock was set, and correct the times in the state.

Ages are differences of wall times. After the clock was set back by an hour, earlier readings have times
in the future, and would count as fresh for that hour. So all of them are moved back by the same hour.
After the clock was set forward nothing is moved: earlier readings look older than they are until they are
read again. A machine that slept looks the same, and there the age is true. Nothing ever looks newer than
it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from hydrator.domain.model import Fact, Site
from hydrator.domain.ports import Clock
from hydrator.reconcile.ads.site_ads import shift_ad_times
from hydrator.reconcile.audit.ledger import Audit, AuditTally, Correction
from hydrator.reconcile.demand import DemandMemory
from hydrator.reconcile.overrides import Rollback
from hydrator.reconcile.snapshot.breaker import HeldLoss
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL, CatalogueMemory, DatasetRecord, DatasetRows
from hydrator.reconcile.state import ReconcileState

MIN_STEP = timedelta(seconds=2)
"""Ages may be wrong by a smaller step."""
TOLERATED_AHEAD = timedelta(minutes=5)
"""A reading no further in the future was taken before a small correction of the clock."""
_MAX_READ_SECONDS = 0.5
"""Seconds that reading both clocks may take; if it takes longer, the thread was interrupted."""
_HOUR = timedelta(hours=1)


class ClockStepDetector:
    """Compares the wall clock with one that is never set.

    Args:
        wall: aware UTC time.
        monotonic: seconds, such as ``time.monotonic``.
    """

    def __init__(self, wall: Clock, monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._start = self._monotonic_origin() or wall() - timedelta(seconds=monotonic())

    def _monotonic_origin(self) -> datetime | None:
        """Return the wall time at which the monotonic clock began; None if the reading took too long."""
        before = self._monotonic()
        wall = self._wall()
        after = self._monotonic()
        return wall - timedelta(seconds=before) if after - before <= _MAX_READ_SECONDS else None

    @property
    def pending_step(self) -> timedelta:
        """Return the clock steps (negative: back) since :meth:`acknowledge`; zero if below MIN_STEP."""
        start = self._monotonic_origin()
        step = start - self._start if start else timedelta()
        return step if abs(step) >= MIN_STEP else timedelta()

    def acknowledge(self, step: timedelta) -> None:
        """Note that *step* was corrected."""
        self._start += step


def shift_back(state: ReconcileState, shift: timedelta) -> ReconcileState:
    """Return *state* with every time earlier by *shift*; nothing else of it changes."""
    return replace(
        state,
        memories={name: _shift_memory(memory, shift) for name, memory in state.memories.items()},
        demand=_shift_demand(state.demand, shift),
        ads={site: shift_ad_times(ad, shift) for site, ad in state.ads.items()},
        held_losses={site: _shift_held_loss(one, shift) for site, one in state.held_losses.items()},
        audit=_shift_audit(state.audit, shift),
        rollbacks={site: _shift_rollback(one, shift) for site, one in state.rollbacks.items()},
    )


def clamp_to_now(
    state: ReconcileState, now: datetime, max_age: timedelta
) -> tuple[ReconcileState, timedelta]:
    """Return a *state* from disk with no time after *now*, and how far ahead it was.

    The clock was set back while no daemon ran. The size of that step is unknown, and so is the age of every
    reading. So if the state is ahead by more than TOLERATED_AHEAD, every fact becomes older than *max_age*
    and reads UNKNOWN.
    """
    ahead = max((at - now for at in _newest_times(state)), default=timedelta())
    if ahead <= timedelta():
        return state, timedelta()
    more = max_age + timedelta(seconds=1) if ahead > TOLERATED_AHEAD else timedelta()
    return shift_back(state, ahead + more), ahead


def _newest_times(state: ReconcileState) -> list[datetime]:
    read = [memory.answered_at for memory in state.memories.values() if memory.answered_at]
    facts = [
        row.read_at
        for memory in state.memories.values()
        for row in DatasetRows.wrap(memory.records).rows.values()
        if row.read_at is not AT_LAST_POLL
    ]
    return [*read, *facts, *(ad.as_of for ad in state.ads.values())]


def _shift_memory(memory: CatalogueMemory, shift: timedelta) -> CatalogueMemory:
    known = DatasetRows.wrap(memory.records)
    rows = {did: _shift_record(row, shift) for did, row in known.rows.items()}
    at = memory.answered_at - shift if memory.answered_at else None
    moved = DatasetRows(
        rows,
        known.polled_at - shift if known.polled_at else None,
        known.individually_dated,
        changed_since_base=frozenset(rows),
    )
    return replace(
        memory, answered_at=at, records=moved, last_read_at=_shift_times(memory.last_read_at, shift)
    )


def _shift_record(row: DatasetRecord, shift: timedelta) -> DatasetRecord:
    if row.read_at is AT_LAST_POLL:  # so are all its facts
        return row
    here = {site: _shift_fact(fact, shift) for site, fact in row.facts.items()}
    before = {site: _shift_fact(fact, shift) for site, fact in row.previous_facts.items()}
    return replace(row, read_at=row.read_at - shift, facts=here, previous_facts=before)


def _shift_fact(fact: Fact, shift: timedelta) -> Fact:
    return fact if fact.as_of is AT_LAST_POLL else replace(fact, as_of=fact.as_of - shift)


def _shift_times(times: Mapping[Site, datetime], shift: timedelta) -> dict[Site, datetime]:
    return {site: at - shift for site, at in times.items()}


def _shift_demand(memory: DemandMemory, shift: timedelta) -> DemandMemory:
    wants = tuple(replace(want, last_demanded_at=want.last_demanded_at - shift) for want in memory.entries)
    return replace(memory, entries=wants)


def _shift_held_loss(held: HeldLoss, shift: timedelta) -> HeldLoss:
    return replace(held, started_at=held.started_at - shift, last_confirmed_at=held.last_confirmed_at - shift)


def _shift_rollback(rollback: Rollback, shift: timedelta) -> Rollback:
    return replace(rollback, started_at=rollback.started_at - shift, ad=shift_ad_times(rollback.ad, shift))


def _shift_audit(audit: Audit, shift: timedelta) -> Audit:
    return replace(
        audit,
        tallies={site: _shift_tally(tally, shift) for site, tally in audit.tallies.items()},
        corrections={claim: _shift_correction(one, shift) for claim, one in audit.corrections.items()},
    )


def _shift_tally(tally: AuditTally, shift: timedelta) -> AuditTally:
    hours = {hour - round(shift / _HOUR): counted for hour, counted in tally.counts_by_hour.items()}
    return replace(
        tally,
        counts_by_hour=hours,
        last_audited_at=tally.last_audited_at - shift if tally.last_audited_at else None,
    )


def _shift_correction(correction: Correction, shift: timedelta) -> Correction:
    return replace(
        correction,
        found_at=correction.found_at - shift,
        first_found_at=correction.first_found_at - shift,
        actual_fact=_shift_fact(correction.actual_fact, shift) if correction.actual_fact else None,
        repeated_at=correction.repeated_at - shift if correction.repeated_at else None,
    )

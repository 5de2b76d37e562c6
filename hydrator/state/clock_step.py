"""Clock steps: detect that the wall clock was set, and correct the times in the state.

Ages are differences of wall times. After the clock was set back by an hour, earlier readings have times
in the future, and would count as fresh for that hour. So all of them are moved back by the same hour.
After the clock was set forward nothing is moved: earlier readings look older than they are until they are
read again. A machine that slept looks the same, and there the age is true. Nothing ever looks newer than
it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from functools import singledispatch
from typing import Any

from hydrator.domain.model import Provenance, Seen, SiteAd
from hydrator.domain.ports import Clock
from hydrator.reconcile.ads.site_ads import shift_ad_times
from hydrator.reconcile.audit.ledger import AuditTally
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL, DatasetRows
from hydrator.reconcile.state import ReconcileState

MIN_STEP = timedelta(seconds=2)
"""The smallest step to correct; ages may be wrong by a smaller one."""
TOLERATED_AHEAD = timedelta(minutes=5)
"""A reading no further in the future was taken before a small correction of the clock."""
_MAX_READ_SECONDS = 0.5
"""Seconds that reading both clocks may take; if it takes longer, the thread was interrupted."""
_HOUR = timedelta(hours=1)


class ClockStepDetector:
    """A detector that compares the wall clock with the monotonic clock, which is never set.

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
        """Record that the caller corrected *step*."""
        self._start += step


def shift_back(state: ReconcileState, shift: timedelta) -> ReconcileState:
    """Return *state* with every time earlier by *shift*; nothing else of it changes."""
    earlier: ReconcileState = _shift(state, shift)
    return earlier


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
    answered_at = [memory.answered_at for memory in state.memories.values() if memory.answered_at]
    read_at = [
        row.read_at
        for memory in state.memories.values()
        for row in DatasetRows.wrap(memory.records).rows.values()
        if row.read_at is not AT_LAST_POLL
    ]
    return [*answered_at, *read_at, *(ad.as_of for ad in state.ads.values())]


@singledispatch
def _shift(value: Any, shift: timedelta) -> Any:  # noqa: ANN401 - any part of the state
    """Return *value* with every time in it earlier by *shift*."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _shift(getattr(value, one.name), shift) for one in fields(value)})
    if isinstance(value, Mapping):
        return {key: _shift(one, shift) for key, one in value.items()}
    return tuple(_shift(one, shift) for one in value) if isinstance(value, tuple) else value


@_shift.register
def _shift_time(value: datetime, shift: timedelta) -> datetime:
    return value if value is AT_LAST_POLL else value - shift


@_shift.register
def _keep_times(value: Provenance | Seen, _: timedelta) -> Provenance | Seen:
    """Return *value* unchanged: its times come from the catalogue's clock."""
    return value


_shift.register(SiteAd, shift_ad_times)


@_shift.register
def _shift_rows(rows: DatasetRows, shift: timedelta) -> DatasetRows:
    """Return *rows* shifted; a row of the last poll, and its facts, use the time of that poll."""
    shifted = {
        did: row if row.read_at is AT_LAST_POLL else _shift(row, shift) for did, row in rows.rows.items()
    }
    polled_at = rows.polled_at - shift if rows.polled_at else None
    return DatasetRows(shifted, polled_at, rows.individually_dated, changed_since_base=frozenset(shifted))


@_shift.register
def _shift_tally(tally: AuditTally, shift: timedelta) -> AuditTally:
    hours = {hour - round(shift / _HOUR): counts for hour, counts in tally.counts_by_hour.items()}
    return replace(tally, counts_by_hour=hours, last_audited_at=_shift(tally.last_audited_at, shift))

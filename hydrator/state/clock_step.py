"""Clock steps: detect that the wall clock was set, and correct the times in the state.

Ages are differences of wall times. If the clock is set back by an hour, earlier readings have times
in the future and would count as fresh for that hour. So the daemon moves the times of these readings back by
an hour too. If the clock is set forward, the daemon moves no times: earlier readings look older than they are
until the next poll. The daemon cannot distinguish a clock that was set forward from a machine that slept.
After a sleep the higher age is right. With these two rules no reading ever looks newer than it is.
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
"""The smallest clock step that is corrected. After smaller steps ages may be wrong by less than this."""
TOLERATED_AHEAD = timedelta(minutes=5)
"""A reading up to this far in the future is explained by a small correction of the clock."""
_MAX_READ_SECONDS = 0.5
"""Maximum seconds to read both clocks. If this takes longer, the thread was interrupted: ignore the times."""
_HOUR = timedelta(hours=1)


class ClockStepDetector:
    """A detector that compares the wall clock with the monotonic clock, which cannot be set.

    Args:
        wall: a function that returns the aware UTC time.
        monotonic: a function that returns seconds, such as ``time.monotonic``.
    """

    def __init__(self, wall: Clock, monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._start = self._monotonic_origin() or wall() - timedelta(seconds=monotonic())

    def _monotonic_origin(self) -> datetime | None:
        """Return the wall time when the monotonic clock was 0; None if reading both clocks took too long."""
        before = self._monotonic()
        wall = self._wall()
        after = self._monotonic()
        return wall - timedelta(seconds=before) if after - before <= _MAX_READ_SECONDS else None

    @property
    def pending_step(self) -> timedelta:
        """Return the sum of the clock steps since :meth:`acknowledge`; zero if the sum is below MIN_STEP.

        A negative step means that the clock was set back.
        """
        start = self._monotonic_origin()
        step = start - self._start if start else timedelta()
        return step if abs(step) >= MIN_STEP else timedelta()

    def acknowledge(self, step: timedelta) -> None:
        """Record that the caller corrected the state for the clock step *step*."""
        self._start += step


def shift_back(state: ReconcileState, shift: timedelta) -> ReconcileState:
    """Return *state* with every time earlier by *shift*; all other values are unchanged."""
    earlier: ReconcileState = _shift(state, shift)
    return earlier


def clamp_to_now(
    state: ReconcileState, now: datetime, max_age: timedelta
) -> tuple[ReconcileState, timedelta]:
    """Correct a *state* from disk that has times after *now*; return it with the largest time difference.

    Such times mean that the clock was set back while no daemon ran. The size of this clock step is unknown,
    so the age of every reading is unknown too. If a time is ahead of *now* by more than TOLERATED_AHEAD,
    make every fact older than *max_age*, so that the daemon advertises it as UNKNOWN.
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
    """Return *value* with every time inside *value* earlier by *shift*."""
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
    """Return *rows* with every time earlier by *shift*.

    A row of the last poll has no time of its own. It uses ``rows.polled_at``, which is moved too.
    """
    shifted = {
        did: row if row.read_at is AT_LAST_POLL else _shift(row, shift) for did, row in rows.rows.items()
    }
    polled_at = rows.polled_at - shift if rows.polled_at else None
    return DatasetRows(shifted, polled_at, rows.individually_dated, changed_since_base=frozenset(shifted))


@_shift.register
def _shift_tally(tally: AuditTally, shift: timedelta) -> AuditTally:
    hours = {hour - round(shift / _HOUR): counts for hour, counts in tally.counts_by_hour.items()}
    return replace(tally, counts_by_hour=hours, last_audited_at=_shift(tally.last_audited_at, shift))

"""Clock steps: notice that the wall clock was set.

Ages are differences of wall times. If the clock is set back by an hour, earlier readings have times in the
future and would count as fresh for that hour. So the daemon ends after a step and is started again, and a
state that is dated in the future is not used: the catalogues are read again, and withholding keeps the
published ads meanwhile. Losses that the removal guard held stay held.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.ports import Clock
from hydrator.reconcile.snapshot.removal_guard import HoldCause
from hydrator.reconcile.state import ReconcileState

from .store import Store

MIN_STEP: Final = timedelta(seconds=2)
"""The smallest clock step that counts. After smaller steps ages may be wrong by less than this."""
TOLERATED_AHEAD_SECONDS: Final = 300.0
"""A reading up to this far in the future is explained by a small correction of the clock."""
_MAX_READ_SECONDS: Final = 0.5
"""Maximum seconds to read both clocks. If this takes longer, the thread was interrupted: ignore the times."""


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
    def step(self) -> timedelta:
        """Return the sum of the clock steps so far, negative if the clock was set back; 0 below MIN_STEP."""
        start = self._monotonic_origin()
        step = start - self._start if start else timedelta()
        return step if abs(step) >= MIN_STEP else timedelta()


def seconds_ahead(state: ReconcileState, now: datetime) -> float:
    """Return by how many seconds the newest time in *state* is after *now*; 0 if none is."""
    newest = [memory.answered_at for memory in state.memories.values() if memory.answered_at]
    newest += [ad.as_of for ad in state.ads.values()]
    for memory in state.memories.values():
        newest += [record.read_at for record in memory.records.values() if record.read_at]
    return max([0.0, *((at - now).total_seconds() for at in newest)])


def load_state(store: Store, now: datetime) -> tuple[ReconcileState, str | None]:
    """Load the state on disk, and the reason why it is lost if its times are in the future.

    Then only the holds of the removal guard stay: no fact may look too new, and while a loss is held, the ad
    of its site is withheld.

    Raises:
        StateError: the state cannot be read.
    """
    state = store.load()
    if (ahead := seconds_ahead(state, now)) <= TOLERATED_AHEAD_SECONDS:
        return state, None
    held_losses = {
        site: replace(one, started_at=now, last_confirmed_at=now, cause=HoldCause.CLOCK)
        for site, one in state.held_losses.items()
    }
    why = f"it is dated {ahead:.0f} s in the future: the clock was set back"
    return ReconcileState(held_losses=held_losses), why

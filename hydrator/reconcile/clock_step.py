"""Clock steps: notice that somebody set the wall clock, and date what is remembered by the clock of today.

Ages are differences of wall times. After the clock was set back by an hour, what was read before is dated in
the future, and would count as fresh for that hour. So all of it is moved back by the same hour. After the
clock was set forward nothing is moved: what was read before looks older than it is until it is read again. A
machine that slept looks the same, and there the age is true. Nothing ever looks newer than it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from hydrator.domain.model import Fact, Site
from hydrator.domain.ports import Clock
from hydrator.reconcile.ads.site_ads import moved_ad
from hydrator.reconcile.audit.ledger import Audit, Correction, Tally
from hydrator.reconcile.snapshot.breaker import Held
from hydrator.reconcile.snapshot.memory import THEN, Datasets, Known, Memory
from hydrator.state.store import State

from .demand import DemandMemory
from .history import Rollback

LEAST_STEP = timedelta(seconds=2)
"""A smaller step is no more than ages may be off by."""
TOLERATED = timedelta(minutes=5)
"""What is dated in the future by no more was read under a clock that was corrected a little."""
_QUICK = 0.5
"""Seconds that reading both clocks may take; beyond, the thread was held up between the two."""
_HOUR = timedelta(hours=1)


class StepWatch:
    """Compares the wall clock with one that is never set.

    Args:
        wall: aware UTC time.
        monotonic: seconds, such as ``time.monotonic``.
    """

    def __init__(self, wall: Clock, monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._start = self._read() or wall() - timedelta(seconds=monotonic())

    def _read(self) -> datetime | None:
        """When the monotonic clock began, by the wall clock; None when that cannot be said now."""
        before = self._monotonic()
        wall = self._wall()
        after = self._monotonic()
        return wall - timedelta(seconds=before) if after - before <= _QUICK else None

    @property
    def stepped(self) -> timedelta:
        """The size of the clock steps (negative: back) since :meth:`taken`; zero below LEAST_STEP."""
        start = self._read()
        step = start - self._start if start else timedelta()
        return step if abs(step) >= LEAST_STEP else timedelta()

    def taken(self, step: timedelta) -> None:
        """*step* is taken into account from now on."""
        self._start += step


def moved_back(state: State, by: timedelta) -> State:
    """Return *state* with every time earlier *by* so much; nothing else of it changes."""
    return replace(
        state,
        memories={name: _memory(memory, by) for name, memory in state.memories.items()},
        demand=_demand(state.demand, by),
        ads={site: moved_ad(ad, by) for site, ad in state.ads.items()},
        held={site: _held(one, by) for site, one in state.held.items()},
        audit=_audit(state.audit, by),
        rollbacks={site: _rollback(one, by) for site, one in state.rollbacks.items()},
    )


def not_ahead(state: State, now: datetime, bound: timedelta) -> tuple[State, timedelta]:
    """Return a *state* from disk with no time after *now*, and how far ahead it was.

    The clock was set back while no daemon ran. By how much is not known, nor how long ago anything was read.
    So where that is more than TOLERATED every fact becomes older than *bound*, which reads UNKNOWN.
    """
    ahead = max((at - now for at in _newest(state)), default=timedelta())
    if ahead <= timedelta():
        return state, timedelta()
    more = bound + timedelta(seconds=1) if ahead > TOLERATED else timedelta()
    return moved_back(state, ahead + more), ahead


def _newest(state: State) -> list[datetime]:
    read = [memory.at for memory in state.memories.values() if memory.at]
    facts = [
        row.at
        for memory in state.memories.values()
        for row in Datasets.of(memory.known).rows.values()
        if row.at is not THEN
    ]
    return [*read, *facts, *(ad.as_of for ad in state.ads.values())]


def _memory(memory: Memory, by: timedelta) -> Memory:
    known = Datasets.of(memory.known)
    rows = {did: _known(row, by) for did, row in known.rows.items()}
    at = memory.at - by if memory.at else None
    moved = Datasets(rows, known.at - by if known.at else None, known.apart, touched=frozenset(rows))
    return replace(memory, at=at, known=moved, ages=_times(memory.ages, by))


def _known(row: Known, by: timedelta) -> Known:
    if row.at is THEN:  # so are all its facts
        return row
    here = {site: _fact(fact, by) for site, fact in row.here.items()}
    before = {site: _fact(fact, by) for site, fact in row.before.items()}
    return replace(row, at=row.at - by, here=here, before=before)


def _fact(fact: Fact, by: timedelta) -> Fact:
    return fact if fact.as_of is THEN else replace(fact, as_of=fact.as_of - by)


def _times(times: Mapping[Site, datetime], by: timedelta) -> dict[Site, datetime]:
    return {site: at - by for site, at in times.items()}


def _demand(memory: DemandMemory, by: timedelta) -> DemandMemory:
    wants = tuple(replace(want, last_wanted=want.last_wanted - by) for want in memory.wants)
    return replace(memory, wants=wants)


def _held(held: Held, by: timedelta) -> Held:
    return replace(held, since=held.since - by, told=held.told - by)


def _rollback(one: Rollback, by: timedelta) -> Rollback:
    return replace(one, since=one.since - by, ad=moved_ad(one.ad, by))


def _audit(audit: Audit, by: timedelta) -> Audit:
    return replace(
        audit,
        tallies={site: _tally(tally, by) for site, tally in audit.tallies.items()},
        corrections={claim: _correction(one, by) for claim, one in audit.corrections.items()},
    )


def _tally(tally: Tally, by: timedelta) -> Tally:
    hours = {hour - round(by / _HOUR): counted for hour, counted in tally.hours.items()}
    return replace(tally, hours=hours, last=tally.last - by if tally.last else None)


def _correction(one: Correction, by: timedelta) -> Correction:
    return replace(
        one,
        at=one.at - by,
        since=one.since - by,
        found=_fact(one.found, by) if one.found else None,
        repeated=one.repeated - by if one.repeated else None,
    )

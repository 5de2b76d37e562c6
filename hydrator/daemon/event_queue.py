"""Event queue: datasets that events ask the daemon to poll early.

An event is a hint, not a fact. A sender of events can only make the daemon query the
catalogues sooner. The daemon publishes only facts from the answers of the catalogues,
in a normal cycle.

The event names and fields are those of Rucio's daemon hermes [1]: an object with
``event_type``, in lower case, ``payload`` and ``created_at``.

[1] Rucio 41.5: daemons/hermes/hermes.py; the payloads in core/did.py, core/request.py, core/rule.py
    and daemons/reaper/reaper.py.
"""

import math
import threading
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.events import RejectReason, parse_event
from hydrator.domain.model import DatasetState, Did, Site
from hydrator.reconcile.snapshot.memory import CatalogueMemory, DatasetRecord

GATHER_SECONDS: Final = 0.1
"""Seconds to wait for further events. Hermes sends its events in a burst, two or three milliseconds apart."""


@dataclass(frozen=True, slots=True)
class EarlyPollRequest:
    """A request for an early poll: the *dids* of events, or the reason why events may be missing."""

    dids: frozenset[Did] = frozenset()
    gap_reason: str | None = None

    def __bool__(self) -> bool:
        return bool(self.dids) or self.gap_reason is not None


def _keep_did(did: Did) -> Collection[Did]:
    return (did,)


class EventQueue:
    """A queue of datasets that events named; safe from any thread.

    The queue has each dataset once, and only datasets in demand. So a flood of events
    about few datasets takes little memory.

    Args:
        names_of: the names that jobs may use for a dataset. For a private dataset these
            are pseudonyms, so that the queue never has the real name.
    """

    def __init__(self, names_of: Callable[[Did], Collection[Did]] = _keep_did) -> None:
        self._names_of = names_of
        self._lock = threading.Lock()
        self._dids: set[Did] = set()
        self._gap_reason: str | None = None

    def __bool__(self) -> bool:
        return bool(self._dids) or self._gap_reason is not None

    def add_event(self, body: bytes, demanded_dids: AbstractSet[Did]) -> frozenset[Did] | RejectReason:
        """Queue and return the demanded datasets of one event, or return why the event is dropped."""
        event_dids = parse_event(body)
        if isinstance(event_dids, RejectReason):
            return event_dids
        queued = frozenset(
            name for did in event_dids for name in self._names_of(did) if name in demanded_dids
        )
        with self._lock:
            self._dids |= queued
        return queued or RejectReason.UNWANTED

    def record_gap(self, reason: str) -> None:
        """Record that events may be missing; until the next poll keep only the first *reason*."""
        with self._lock:
            self._gap_reason = self._gap_reason or reason

    def take(self) -> EarlyPollRequest:
        """Return the request for an early poll, if there is one, and empty the queue."""
        with self._lock:
            due = EarlyPollRequest(frozenset(self._dids), self._gap_reason)
            self._dids.clear()
            self._gap_reason = None
            return due


class PollThrottle:
    """A limit on early polls: an event may trigger a poll at once, but not soon after the last poll.

    Catalogues send events in bursts, so the first event waits a moment for further events. A burst
    within that moment costs one poll. A longer burst costs two polls, however many events it has.
    With an endless flood of events the daemon polls at most half of the time.

    Args:
        spacing_seconds: the minimum time between the end of a poll and a poll that an event triggers.
    """

    def __init__(self, spacing_seconds: float) -> None:
        self._spacing_seconds = spacing_seconds
        self._next_poll_at = -math.inf

    def record_poll(self, now: float, seconds: float) -> None:
        """Record that a poll ended at *now*, a time of a monotonic clock, and that it took *seconds*."""
        self._next_poll_at = now + max(seconds, self._spacing_seconds)

    def is_throttled(self, now: float) -> bool:
        """Return True if no event may trigger a poll yet."""
        return now < self._next_poll_at

    def delay_seconds(self, now: float) -> float:
        """Return how many seconds to wait before the poll that an event at *now* triggers."""
        return max(GATHER_SECONDS, self._next_poll_at - now)


@dataclass(frozen=True, slots=True)
class EventCoverage:
    """Changes that a poll saw: the number announced by events, and the datasets without an event."""

    announced_count: int = 0
    unannounced_dids: frozenset[Did] = frozenset()


class EventCompleteness:
    """A comparison of events with the changes that polls saw; it finds changes without an event.

    An event may come before the poll that sees the change, or up to *max_delay* after
    this poll, since catalogues send events in bursts. Use one instance from one thread only.
    """

    def __init__(self, max_delay: timedelta) -> None:
        self._max_delay = max_delay
        self._announced_at: dict[Did, datetime] = {}
        self._unannounced_since: dict[Did, datetime] = {}
        self._last_poll_at: datetime | None = None

    def record_event(self, dids: Iterable[Did], now: datetime) -> int:
        """Record an event on *dids*; return the number of *dids* whose change a poll had found before."""
        late_count = 0
        for did in dids:
            self._announced_at[did] = now
            late_count += self._unannounced_since.pop(did, None) is not None
        return late_count

    def record_poll(self, changed_dids: AbstractSet[Did], started_at: datetime) -> EventCoverage:
        """Compare the changes that a poll saw with the events; the first poll sees no changes."""
        since, self._last_poll_at = self._last_poll_at, started_at
        if since is None:
            return EventCoverage()
        announced = {
            did
            for did in changed_dids
            if did in self._announced_at and self._announced_at[did] >= since - self._max_delay
        }
        for did in changed_dids - announced:
            self._unannounced_since.setdefault(did, started_at)
        unannounced = frozenset(
            did for did, when in self._unannounced_since.items() if started_at - when >= self._max_delay
        )
        self._unannounced_since = {
            did: when for did, when in self._unannounced_since.items() if did not in unannounced
        }
        self._announced_at = {
            did: when for did, when in self._announced_at.items() if when >= started_at - self._max_delay
        }
        return EventCoverage(len(announced), unannounced)


def find_changed_dids(previous: CatalogueMemory, current: CatalogueMemory) -> frozenset[Did]:
    """Return the datasets for which one catalogue reports another site or state than before.

    A dataset that was not polled before counts as new, not as changed. Progress and ages
    are not changes either, because no event announces them.
    """
    return frozenset(
        did
        for did, record in current.records.items()
        if did in previous.records and _states_by_site(record) != _states_by_site(previous.records[did])
    )


def _states_by_site(record: DatasetRecord) -> dict[Site, DatasetState]:
    return {site: fact.state for site, fact in record.facts.items()}

"""What catalogues tell of their own accord, as far as we heed it: which datasets to look at first.

An event is a hint and never a fact. Whoever can send one can make us ask the
catalogues sooner, and nothing else: what is published comes from their answers
alone, through the same cycle as ever.

The names and the fields are those that Rucio's daemon hermes sends [1]: an
object with ``event_type``, in lower case, ``payload`` and ``created_at``.

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
"""Hermes sends what it has in one go: two or three milliseconds from one event to the next."""


@dataclass(frozen=True, slots=True)
class EarlyPollRequest:
    """Why a poll is brought forward: events spoke of *dids*, or *why* some may have been missed."""

    dids: frozenset[Did] = frozenset()
    gap_reason: str | None = None

    def __bool__(self) -> bool:
        return bool(self.dids) or self.gap_reason is not None


def _keep_did(did: Did) -> Collection[Did]:
    return (did,)


class EventQueue:
    """What events brought to the front of the queue; safe from any thread.

    A storm costs what its datasets cost, not its events: each dataset stands
    here once, and only what is wanted does.

    Args:
        called: what jobs may call a dataset; its opaque names where it is
            private, so that no other name of it is kept.
    """

    def __init__(self, names_of: Callable[[Did], Collection[Did]] = _keep_did) -> None:
        self._names_of = names_of
        self._lock = threading.Lock()
        self._dids: set[Did] = set()
        self._gap_reason: str | None = None

    def __bool__(self) -> bool:
        return bool(self._dids) or self._gap_reason is not None

    def add_event(self, body: bytes, demanded_dids: AbstractSet[Did]) -> frozenset[Did] | RejectReason:
        """Take one event in: the *wanted* datasets of it, which now stand here, or why it is dropped."""
        found = parse_event(body)
        if isinstance(found, RejectReason):
            return found
        heeded = frozenset(name for did in found for name in self._names_of(did) if name in demanded_dids)
        with self._lock:
            self._dids |= heeded
        return heeded or RejectReason.UNWANTED

    def record_gap(self, reason: str) -> None:
        """Events may have been missed: the first reason is the one that is told."""
        with self._lock:
            self._gap_reason = self._gap_reason or reason

    def take(self) -> EarlyPollRequest:
        """What is due now; it stands here no more."""
        with self._lock:
            due = EarlyPollRequest(frozenset(self._dids), self._gap_reason)
            self._dids.clear()
            self._gap_reason = None
            return due


class PollThrottle:
    """When an event may bring a poll: at once, but not before the last poll was digested.

    Catalogues send events in heaps, so the first one waits a moment for the others: a heap that comes
    within it costs one poll, a longer burst one at once and one for the rest, however many events it
    has. A storm that never ends takes at most half of our time.

    Args:
        spacing: the least seconds between the end of a poll and one that an event brings.
    """

    def __init__(self, spacing_seconds: float) -> None:
        self._spacing_seconds = spacing_seconds
        self._next_poll_at = -math.inf

    def record_poll(self, now: float, seconds: float) -> None:
        """A poll ended *now*, in seconds that never go back, and *took* so many."""
        self._next_poll_at = now + max(seconds, self._spacing_seconds)

    def is_throttled(self, now: float) -> bool:
        """May no event bring a poll yet?"""
        return now < self._next_poll_at

    def delay_seconds(self, now: float) -> float:
        """How many seconds after an event that comes *now* the poll is due that it brings."""
        return max(GATHER_SECONDS, self._next_poll_at - now)


@dataclass(frozen=True, slots=True)
class EventCoverage:
    """How many changes that a poll saw events had told of, and which none had in all that time."""

    announced_count: int = 0
    unannounced_dids: frozenset[Did] = frozenset()


class EventCompleteness:
    """Which changes events told of, and which they did not: a stream that lost some is found out by polls.

    An event may come before the poll that sees the change, or up to *late*
    after it, since catalogues send them in heaps. Not safe between threads.
    """

    def __init__(self, max_delay: timedelta) -> None:
        self._max_delay = max_delay
        self._announced_at: dict[Did, datetime] = {}
        self._unannounced_since: dict[Did, datetime] = {}
        self._last_poll_at: datetime | None = None

    def record_event(self, dids: Iterable[Did], now: datetime) -> int:
        """An event told of *dids*; how many of them a poll had seen to change before."""
        late = 0
        for did in dids:
            self._announced_at[did] = now
            late += self._unannounced_since.pop(did, None) is not None
        return late

    def record_poll(self, changed_dids: AbstractSet[Did], started_at: datetime) -> EventCoverage:
        """A poll that *began* then saw datasets *changed*; the first poll cannot tell since when."""
        since, self._last_poll_at = self._last_poll_at, started_at
        if since is None:
            return EventCoverage()
        told = {
            did
            for did in changed_dids
            if did in self._announced_at and self._announced_at[did] >= since - self._max_delay
        }
        for did in changed_dids - told:
            self._unannounced_since.setdefault(did, started_at)
        untold = frozenset(
            did for did, when in self._unannounced_since.items() if started_at - when >= self._max_delay
        )
        self._unannounced_since = {
            did: when for did, when in self._unannounced_since.items() if did not in untold
        }
        self._announced_at = {
            did: when for did, when in self._announced_at.items() if when >= started_at - self._max_delay
        }
        return EventCoverage(len(told), untold)


def find_changed_dids(previous: CatalogueMemory, current: CatalogueMemory) -> frozenset[Did]:
    """The datasets of which one catalogue said a site or a state that it had not said before.

    What it was not asked about before is new and not changed; progress and
    ages, which no event tells of, are no change either.
    """
    return frozenset(
        did
        for did, known in current.records.items()
        if did in previous.records and _states_by_site(known) != _states_by_site(previous.records[did])
    )


def _states_by_site(known: DatasetRecord) -> dict[Site, DatasetState]:
    return {site: fact.state for site, fact in known.facts.items()}

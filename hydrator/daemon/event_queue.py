"""What catalogues tell of their own accord, as far as we heed it: which datasets to look at first.

An event is a hint and never a fact. Whoever can send one can make us ask the
catalogues sooner, and nothing else: what is published comes from their answers
alone, through the same cycle as ever.

The names and the fields are those that Rucio's daemon hermes sends [1]: an
object with ``event_type``, in lower case, ``payload`` and ``created_at``.

[1] Rucio 41.5: daemons/hermes/hermes.py; the payloads in core/did.py, core/request.py, core/rule.py
    and daemons/reaper/reaper.py.
"""

import json
import math
import threading
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from hydrator.domain.errors import BadDid
from hydrator.domain.model import DatasetState, Did, Site, parse_did
from hydrator.reconcile.snapshot.memory import Known, Memory

MAX_EVENT_BYTES: Final = 64 * 1024
"""Rucio's largest, a transfer that failed with a long reason, has some 4 kB."""

GATHER_SECONDS: Final = 0.1
"""Hermes sends what it has in one go: two or three milliseconds from one event to the next."""

_OWN: Final = (("scope", "name"),)
_FILE: Final = (("datasetScope", "dataset"), ("scope", "name"))
_LOST: Final = (("dataset_scope", "dataset_name"), ("scope", "name"))
_CHILD: Final = (("scope", "name"), ("childscope", "childname"))

NAMES: Final = {
    "create_dts": _OWN,
    "create_cnt": _OWN,
    "register_cnt": _CHILD,
    "open": _OWN,
    "close": _OWN,
    "erase": _OWN,
    "lost": _LOST,
    "rule_ok": _OWN,
    "rule_progress": _OWN,
    "datasetlock_ok": _OWN,
    "deletion-planned": _FILE,
    "deletion-done": _FILE,
    "deletion-failed": _FILE,
    "deletion-not-found": _FILE,
    **{
        f"{request}-{state}": _FILE
        for request in ("transfer", "stagein", "stageout")
        for state in ("queued", "submitted", "submission_failed", "done", "failed", "lost")
    },
}
"""By type of event, the pairs of payload fields that name what it concerns; the rest of it is not read."""


class Drop(StrEnum):
    """Why an event is not heeded; the event itself is never repeated, since anybody may have written it."""

    TOO_LARGE = "too_large"
    GARBLED = "garbled"  # not the JSON of an event
    UNKNOWN = "unknown"  # a type that says nothing about where data is
    NAMELESS = "nameless"  # no DID in it that a job could name
    UNWANTED = "unwanted"  # of datasets that nobody wants
    TOO_MANY = "too_many"  # not read: they come faster than we are told to read them


def hinted(body: bytes) -> frozenset[Did] | Drop:
    """The datasets that one event speaks of, or why it is dropped; raises nothing, whatever *body* is."""
    if len(body) > MAX_EVENT_BYTES:
        return Drop.TOO_LARGE
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return Drop.GARBLED
    if not isinstance(event, dict):
        return Drop.GARBLED
    kind, payload = event.get("event_type"), event.get("payload")
    if not isinstance(kind, str) or not isinstance(payload, dict):
        return Drop.GARBLED
    pairs = NAMES.get(kind.lower())
    if pairs is None:
        return Drop.UNKNOWN
    named = (_did(payload.get(scope), payload.get(name)) for scope, name in pairs)
    return frozenset(did for did in named if did is not None) or Drop.NAMELESS


def _did(scope: Any, name: Any) -> Did | None:  # noqa: ANN401 - as it came
    if not isinstance(scope, str) or not isinstance(name, str):
        return None
    try:
        return parse_did(f"{scope}:{name}")
    except BadDid:
        return None


@dataclass(frozen=True, slots=True)
class Due:
    """Why a poll is brought forward: events spoke of *dids*, or *why* some may have been missed."""

    dids: frozenset[Did] = frozenset()
    why: str | None = None

    def __bool__(self) -> bool:
        return bool(self.dids) or self.why is not None


def _as_it_is(did: Did) -> Collection[Did]:
    return (did,)


class Front:
    """What events brought to the front of the queue; safe from any thread.

    A storm costs what its datasets cost, not its events: each dataset stands
    here once, and only what is wanted does.

    Args:
        called: what jobs may call a dataset; its opaque names where it is
            private, so that no other name of it is kept.
    """

    def __init__(self, called: Callable[[Did], Collection[Did]] = _as_it_is) -> None:
        self._called = called
        self._lock = threading.Lock()
        self._dids: set[Did] = set()
        self._why: str | None = None

    def __bool__(self) -> bool:
        return bool(self._dids) or self._why is not None

    def event(self, body: bytes, wanted: AbstractSet[Did]) -> frozenset[Did] | Drop:
        """Take one event in: the *wanted* datasets of it, which now stand here, or why it is dropped."""
        found = hinted(body)
        if isinstance(found, Drop):
            return found
        heeded = frozenset(name for did in found for name in self._called(did) if name in wanted)
        with self._lock:
            self._dids |= heeded
        return heeded or Drop.UNWANTED

    def gap(self, why: str) -> None:
        """Events may have been missed: the first reason is the one that is told."""
        with self._lock:
            self._why = self._why or why

    def take(self) -> Due:
        """What is due now; it stands here no more."""
        with self._lock:
            due = Due(frozenset(self._dids), self._why)
            self._dids.clear()
            self._why = None
            return due


class Pace:
    """When an event may bring a poll: at once, but not before the last poll was digested.

    Catalogues send events in heaps, so the first one waits a moment for the others: a heap that comes
    within it costs one poll, a longer burst one at once and one for the rest, however many events it
    has. A storm that never ends takes at most half of our time.

    Args:
        spacing: the least seconds between the end of a poll and one that an event brings.
    """

    def __init__(self, spacing: float) -> None:
        self._spacing = spacing
        self._rested = -math.inf

    def polled(self, now: float, took: float) -> None:
        """A poll ended *now*, in seconds that never go back, and *took* so many."""
        self._rested = now + max(took, self._spacing)

    def rests(self, now: float) -> bool:
        """May no event bring a poll yet?"""
        return now < self._rested

    def wait(self, now: float) -> float:
        """How many seconds after an event that comes *now* the poll is due that it brings."""
        return max(GATHER_SECONDS, self._rested - now)


@dataclass(frozen=True, slots=True)
class Changes:
    """How many changes that a poll saw events had told of, and which none had in all that time."""

    told: int = 0
    untold: frozenset[Did] = frozenset()


class Ledger:
    """Which changes events told of, and which they did not: a stream that lost some is found out by polls.

    An event may come before the poll that sees the change, or up to *late*
    after it, since catalogues send them in heaps. Not safe between threads.
    """

    def __init__(self, late: timedelta) -> None:
        self._late = late
        self._told: dict[Did, datetime] = {}
        self._waiting: dict[Did, datetime] = {}
        self._since: datetime | None = None

    def heard(self, dids: Iterable[Did], now: datetime) -> int:
        """An event told of *dids*; how many of them a poll had seen to change before."""
        late = 0
        for did in dids:
            self._told[did] = now
            late += self._waiting.pop(did, None) is not None
        return late

    def polled(self, changed: AbstractSet[Did], began: datetime) -> Changes:
        """A poll that *began* then saw datasets *changed*; the first poll cannot tell since when."""
        since, self._since = self._since, began
        if since is None:
            return Changes()
        told = {did for did in changed if did in self._told and self._told[did] >= since - self._late}
        for did in changed - told:
            self._waiting.setdefault(did, began)
        untold = frozenset(did for did, when in self._waiting.items() if began - when >= self._late)
        self._waiting = {did: when for did, when in self._waiting.items() if did not in untold}
        self._told = {did: when for did, when in self._told.items() if when >= began - self._late}
        return Changes(len(told), untold)


def changed(before: Memory, after: Memory) -> frozenset[Did]:
    """The datasets of which one catalogue said a site or a state that it had not said before.

    What it was not asked about before is new and not changed; progress and
    ages, which no event tells of, are no change either.
    """
    return frozenset(
        did
        for did, known in after.known.items()
        if did in before.known and _states(known) != _states(before.known[did])
    )


def _states(known: Known) -> dict[Site, DatasetState]:
    return {site: fact.state for site, fact in known.here.items()}

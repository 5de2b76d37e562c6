"""Hears events for the daemon: bounds how many, counts them, notices gaps, and wakes the schedule early."""

import threading
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from hydrator.domain.model import Did
from hydrator.domain.ports import Clock
from hydrator.domain.text import count
from hydrator.reconcile.snapshot.memory import Memory
from hydrator.server.limits.rate import Buckets

from .event_queue import Changes, Drop, Due, Front, Ledger, changed

_log = structlog.get_logger("hydrator")
_BURST_SECONDS = 10
"""Catalogues send events in heaps: as many as of so many seconds may come at once."""


class Gap(StrEnum):
    """How it was noticed that events may be missing."""

    CONNECTION = "connection"  # the connection to a broker was lost
    UNTOLD = "untold"  # a poll saw a change of which no event told
    TOO_MANY = "too_many"  # some were not read, because they came too fast


class EventMetrics:
    """What is counted of events; by source, the webhook or a broker, never by dataset."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.events = Counter(
            "hydrator_events",
            "Events that came, by source and what became of them: heeded, or why they were dropped.",
            ["source", "outcome"],
            registry=registry,
        )
        self.last = Gauge(
            "hydrator_event_last_timestamp_seconds",
            "When an event last came, heeded or not.",
            ["source"],
            registry=registry,
        )
        self.connected = Gauge(
            "hydrator_event_connected",
            "1 while a broker sends us its events, 0 while it cannot.",
            ["source"],
            registry=registry,
        )
        self.gaps = Counter(
            "hydrator_event_gaps",
            "How often events may have been missed, by why.",
            ["why"],
            registry=registry,
        )
        self.changes = Counter(
            "hydrator_event_changes",
            "Changes that polls saw: events told of them in time, late or not at all.",
            ["told"],
            registry=registry,
        )
        self.early = Counter("hydrator_early_polls", "Polls that events brought forward.", registry=registry)
        for why in Gap:
            self.gaps.labels(why.value)
        for told in ("in_time", "late", "never"):
            self.changes.labels(told)


class Hearing:
    """What the daemon hears of events between its polls; safe from any thread.

    Args:
        metrics: counts.
        wake: asks the schedule to poll soon; called after something came to the front.
        clock: the time now.
        seconds: never goes back, such as ``time.monotonic``; limits the rate.
        called: what jobs may call a dataset; see :class:`Front`.
        per_second: events that are read in the long run.
        late: how long after its change an event may come.
        tells: patterns of the catalogues whose changes events tell of.
    """

    def __init__(
        self,
        metrics: EventMetrics,
        wake: Callable[[], None],
        *,
        clock: Clock,
        seconds: Callable[[], float],
        called: Callable[[Did], Collection[Did]],
        per_second: float,
        late: timedelta,
        tells: Collection[str],
    ) -> None:
        self._metrics = metrics
        self._wake = wake
        self._clock = clock
        self._front = Front(called)
        self._lock = threading.Lock()
        self._ledger = Ledger(late)
        self._rate = Buckets(per_second, max(1, round(per_second * _BURST_SECONDS)), seconds)
        self._tells = tuple(tells)
        self._wanted: AbstractSet[Did] = frozenset()
        self._silent = False
        self._flooded = False
        self._lost: dict[str, datetime] = {}

    @property
    def waiting(self) -> bool:
        """Is a poll due before its time?"""
        return bool(self._front)

    def hear(self, source: str, body: bytes | None) -> Drop | None:
        """Take in one event that *source* sent: None when it is heeded, or why it was dropped."""
        now = self._clock()
        with self._lock:
            too_many = self._rate.wait(source) > 0
        heard: frozenset[Did] | Drop = Drop.TOO_MANY
        if not too_many:
            heard = Drop.TOO_LARGE if body is None else self._front.event(body, self._wanted)
        drop = heard if isinstance(heard, Drop) else None
        self._metrics.events.labels(source, drop.value if drop else "heeded").inc()
        self._metrics.last.labels(source).set(now.timestamp())
        if too_many:
            self._flood(source)
        elif not isinstance(heard, Drop):
            with self._lock:
                late = self._ledger.heard(heard, now)
                self._silent = False
            self._metrics.changes.labels("late").inc(late)
            self._wake()
        return drop

    def _flood(self, source: str) -> None:
        """Told once a poll, which is on time: a flood must not make us poll more often."""
        with self._lock:
            new, self._flooded = not self._flooded, True
        if new:
            self._metrics.gaps.labels(Gap.TOO_MANY.value).inc()
            _log.warning("events missed", why=f"{source} sends more of them than are read")

    def connected(self, source: str) -> None:
        """A broker sends its events from now on; after a loss, what came in between is missed."""
        self._metrics.connected.labels(source).set(1)
        with self._lock:
            lost = self._lost.pop(source, None)
        _log.info("events", source=source, connected=True)
        if lost is not None:
            away = (self._clock() - lost).total_seconds()
            self._missed(Gap.CONNECTION, f"{source} was not connected for {max(away, 0.0):.0f} s")

    def unconnected(self, source: str, why: str) -> None:
        """A broker cannot, or no longer; told in the log once, and counted as a gap when it can again."""
        self._metrics.connected.labels(source).set(0)
        with self._lock:
            new = source not in self._lost
            if new:
                self._lost[source] = self._clock()
        (_log.warning if new else _log.debug)("events", source=source, connected=False, why=why)

    def begin(self) -> Due:
        """A poll begins, which looks at everything: what it was brought forward for, if it was."""
        with self._lock:
            self._flooded = False
        return self._front.take()

    def polled(
        self,
        wanted: AbstractSet[Did],
        before: Mapping[str, Memory],
        after: Mapping[str, Memory],
        began: datetime,
    ) -> None:
        """A poll that *began* then ended: *wanted* is heeded from now on; did events tell what it saw?"""
        self._wanted = wanted
        seen = frozenset(
            did
            for name, memory in after.items()
            if name in before and any(fnmatchcase(name, pattern) for pattern in self._tells)
            for did in changed(before[name], memory)
        )
        with self._lock:
            changes = self._ledger.polled(seen, began)
            new = bool(changes.untold) and not self._silent
            self._silent = self._silent or new
        self._count(changes)
        if new:
            first, several = min(changes.untold), count(len(changes.untold), "dataset")
            self._missed(Gap.UNTOLD, f"no event told that {several} changed, {first} first")

    def _count(self, changes: Changes) -> None:
        self._metrics.changes.labels("in_time").inc(changes.told)
        self._metrics.changes.labels("never").inc(len(changes.untold))

    def _missed(self, gap: Gap, why: str) -> None:
        self._front.gap(why)
        self._metrics.gaps.labels(gap.value).inc()
        _log.warning("events missed", why=why)
        self._wake()

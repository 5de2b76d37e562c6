"""Hears events for the daemon: bounds how many, counts them, notices gaps, and wakes the schedule early."""

import threading
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from hydrator.domain.events import RejectReason
from hydrator.domain.model import Did
from hydrator.domain.ports import Clock
from hydrator.domain.text import format_count
from hydrator.reconcile.snapshot.memory import CatalogueMemory
from hydrator.server.limits.rate import RateLimiter

from .event_queue import (
    EarlyPollRequest,
    EventCompleteness,
    EventCoverage,
    EventQueue,
    find_changed_dids,
)

_log = structlog.get_logger("hydrator")
_BURST_SECONDS = 10
"""Catalogues send events in heaps: as many as of so many seconds may come at once."""


class GapReason(StrEnum):
    """How it was noticed that events may be missing."""

    CONNECTION = "connection"  # the connection to a broker was lost
    UNANNOUNCED = "untold"  # a poll saw a change of which no event told
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
        self.last_event_at = Gauge(
            "hydrator_event_last_timestamp_seconds",
            "When an event last came, heeded or not.",
            ["source"],
            registry=registry,
        )
        self.connection = Gauge(
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
        self.early_polls = Counter(
            "hydrator_early_polls", "Polls that events brought forward.", registry=registry
        )
        for why in GapReason:
            self.gaps.labels(why.value)
        for told in ("in_time", "late", "never"):
            self.changes.labels(told)


class EventListener:
    """What the daemon hears of events between its polls; safe from any thread.

    Args:
        metrics: counts.
        wake: asks the schedule to poll soon; called after something came to the front.
        clock: the time now.
        seconds: never goes back, such as ``time.monotonic``; limits the rate.
        called: what jobs may call a dataset; see :class:`EventQueue`.
        per_second: events that are read in the long run.
        late: how long after its change an event may come.
        tells: patterns of the catalogues whose changes events tell of.
    """

    def __init__(
        self,
        metrics: EventMetrics,
        schedule_poll: Callable[[], None],
        *,
        clock: Clock,
        monotonic: Callable[[], float],
        names_of: Callable[[Did], Collection[Did]],
        events_per_second: float,
        max_delay: timedelta,
        catalogue_patterns: Collection[str],
    ) -> None:
        self._metrics = metrics
        self._schedule_poll = schedule_poll
        self._clock = clock
        self._queue = EventQueue(names_of)
        self._lock = threading.Lock()
        self._completeness = EventCompleteness(max_delay)
        self._rate_limiter = RateLimiter(
            events_per_second, max(1, round(events_per_second * _BURST_SECONDS)), monotonic
        )
        self._catalogue_patterns = tuple(catalogue_patterns)
        self._demanded_dids: AbstractSet[Did] = frozenset()
        self._is_incomplete = False
        self._is_flooded = False
        self._disconnected_at: dict[str, datetime] = {}

    @property
    def is_poll_due(self) -> bool:
        """Is a poll due before its time?"""
        return bool(self._queue)

    def on_event(self, source: str, body: bytes | None) -> RejectReason | None:
        """Take in one event that *source* sent: None when it is heeded, or why it was dropped."""
        now = self._clock()
        with self._lock:
            too_many = self._rate_limiter.take(source) > 0
        heard: frozenset[Did] | RejectReason = RejectReason.TOO_MANY
        if not too_many:
            heard = (
                RejectReason.TOO_LARGE if body is None else self._queue.add_event(body, self._demanded_dids)
            )
        drop = heard if isinstance(heard, RejectReason) else None
        self._metrics.events.labels(source, drop.value if drop else "heeded").inc()
        self._metrics.last_event_at.labels(source).set(now.timestamp())
        if too_many:
            self._report_flood(source)
        elif not isinstance(heard, RejectReason):
            with self._lock:
                late = self._completeness.record_event(heard, now)
                self._is_incomplete = False
            self._metrics.changes.labels("late").inc(late)
            self._schedule_poll()
        return drop

    def _report_flood(self, source: str) -> None:
        """Told once a poll, which is on time: a flood must not make us poll more often."""
        with self._lock:
            new, self._is_flooded = not self._is_flooded, True
        if new:
            self._metrics.gaps.labels(GapReason.TOO_MANY.value).inc()
            _log.warning("events missed", why=f"{source} sends more of them than are read")

    def on_connect(self, source: str) -> None:
        """A broker sends its events from now on; after a loss, what came in between is missed."""
        self._metrics.connection.labels(source).set(1)
        with self._lock:
            lost = self._disconnected_at.pop(source, None)
        _log.info("events", source=source, connected=True)
        if lost is not None:
            away = (self._clock() - lost).total_seconds()
            self._record_gap(GapReason.CONNECTION, f"{source} was not connected for {max(away, 0.0):.0f} s")

    def on_disconnect(self, source: str, reason: str) -> None:
        """A broker cannot, or no longer; told in the log once, and counted as a gap when it can again."""
        self._metrics.connection.labels(source).set(0)
        with self._lock:
            new = source not in self._disconnected_at
            if new:
                self._disconnected_at[source] = self._clock()
        (_log.warning if new else _log.debug)("events", source=source, connected=False, why=reason)

    def begin_poll(self) -> EarlyPollRequest:
        """A poll begins, which looks at everything: what it was brought forward for, if it was."""
        with self._lock:
            self._is_flooded = False
        return self._queue.take()

    def end_poll(
        self,
        demanded_dids: AbstractSet[Did],
        previous: Mapping[str, CatalogueMemory],
        current: Mapping[str, CatalogueMemory],
        started_at: datetime,
    ) -> None:
        """A poll that *began* then ended: *wanted* is heeded from now on; did events tell what it saw?"""
        self._demanded_dids = demanded_dids
        seen = frozenset(
            did
            for name, memory in current.items()
            if name in previous and any(fnmatchcase(name, pattern) for pattern in self._catalogue_patterns)
            for did in find_changed_dids(previous[name], memory)
        )
        with self._lock:
            changes = self._completeness.record_poll(seen, started_at)
            new = bool(changes.unannounced_dids) and not self._is_incomplete
            self._is_incomplete = self._is_incomplete or new
        self._count_changes(changes)
        if new:
            first, several = (
                min(changes.unannounced_dids),
                format_count(len(changes.unannounced_dids), "dataset"),
            )
            self._record_gap(GapReason.UNANNOUNCED, f"no event told that {several} changed, {first} first")

    def _count_changes(self, coverage: EventCoverage) -> None:
        self._metrics.changes.labels("in_time").inc(coverage.announced_count)
        self._metrics.changes.labels("never").inc(len(coverage.unannounced_dids))

    def _record_gap(self, reason: GapReason, detail: str) -> None:
        self._queue.record_gap(detail)
        self._metrics.gaps.labels(reason.value).inc()
        _log.warning("events missed", why=detail)
        self._schedule_poll()

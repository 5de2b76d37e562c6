"""Event listener: limit and count events, notice missing events, and trigger early polls."""

import threading
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from hydrator.domain.bugs import OngoingFailures
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
"""A source may send the events of this many seconds at once: catalogues send events in bursts."""


class GapReason(StrEnum):
    """The reason why the daemon concluded that events may be missing."""

    CONNECTION = "connection"  # the connection to a broker was lost
    UNANNOUNCED = "unannounced"  # a poll saw a change that no event announced
    TOO_MANY = "too_many"  # the daemon dropped events above the rate limit


class EventMetrics:
    """Metrics of events, by source (the webhook or a broker), never by dataset."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.events = Counter(
            "hydrator_events",
            "Events received, by source and outcome: accepted, or the reason for dropping them.",
            ["source", "outcome"],
            registry=registry,
        )
        self.last_event_at = Gauge(
            "hydrator_event_last_timestamp_seconds",
            "Time of the last event, accepted or not.",
            ["source"],
            registry=registry,
        )
        self.connection = Gauge(
            "hydrator_event_connected",
            "1 while the broker is connected, 0 otherwise.",
            ["source"],
            registry=registry,
        )
        self.gaps = Counter(
            "hydrator_event_gaps",
            (
                "Gaps in which events may be missing, by reason: connection (to a broker was lost),"
                " unannounced (a change had no event), too_many (events above the rate limit)."
            ),
            ["reason"],
            registry=registry,
        )
        self.changes = Counter(
            "hydrator_event_changes",
            "Changes that polls saw, by whether events announced them: in_time, late or never.",
            ["announced"],
            registry=registry,
        )
        self.early_polls = Counter("hydrator_early_polls", "Polls that events triggered.", registry=registry)
        for reason in GapReason:
            self.gaps.labels(reason.value)
        for announced in ("in_time", "late", "never"):
            self.changes.labels(announced)


class EventListener:
    """A listener for events between polls; safe from any thread.

    Args:
        metrics: counts the events.
        schedule_poll: asks the schedule to poll soon; called after a dataset was queued.
        clock: returns the present time, aware UTC.
        monotonic: a clock that never goes back, such as ``time.monotonic``; used for the rate limit.
        names_of: the names that jobs may use for a dataset; see :class:`EventQueue`.
        events_per_second: the average rate that each source may have; the listener drops events beyond it.
        max_delay: the longest time between a poll that sees a change and the event about this change.
        catalogue_patterns: patterns of the catalogues whose changes events announce.
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
        self._gaps = OngoingFailures()
        self._disconnected_at: dict[str, datetime] = {}

    @property
    def is_poll_due(self) -> bool:
        """Return True if events request an early poll."""
        return bool(self._queue)

    def on_event(self, source: str, body: bytes | None) -> RejectReason | None:
        """Handle one event from *source*; return None if it was accepted, else why it was dropped."""
        now = self._clock()
        with self._lock:
            is_too_fast = self._rate_limiter.take(source) > 0
        outcome: frozenset[Did] | RejectReason = (
            RejectReason.TOO_MANY if is_too_fast else self._queue_event(body)
        )
        reject_reason = outcome if isinstance(outcome, RejectReason) else None
        self._metrics.events.labels(source, reject_reason.value if reject_reason else "accepted").inc()
        self._metrics.last_event_at.labels(source).set(now.timestamp())
        if is_too_fast:
            self._report_flood(source)
        elif not isinstance(outcome, RejectReason):
            with self._lock:
                late_count = self._completeness.record_event(outcome, now)
                self._gaps.end(GapReason.UNANNOUNCED)
            self._metrics.changes.labels("late").inc(late_count)
            self._schedule_poll()
        return reject_reason

    def _queue_event(self, body: bytes | None) -> frozenset[Did] | RejectReason:
        if body is None:
            return RejectReason.TOO_LARGE
        return self._queue.add_event(body, self._demanded_dids)

    def _report_flood(self, source: str) -> None:
        """Log once per poll that a source exceeds its rate; request no early poll, which would add load."""
        if self._gaps.begin(GapReason.TOO_MANY):
            self._metrics.gaps.labels(GapReason.TOO_MANY.value).inc()
            _log.warning("events may be missing", why=f"{source} sends more events than the daemon reads")

    def on_connect(self, source: str) -> None:
        """Record that a broker is connected; if it was disconnected before, events may be missing."""
        self._metrics.connection.labels(source).set(1)
        with self._lock:
            disconnected_at = self._disconnected_at.pop(source, None)
        _log.info("event broker connected", source=source)
        if disconnected_at is not None:
            seconds = max((self._clock() - disconnected_at).total_seconds(), 0.0)
            self._record_gap(GapReason.CONNECTION, f"{source} was not connected for {seconds:.0f} s")

    def on_disconnect(self, source: str, reason: str) -> None:
        """Record that a broker is not connected; log this once, and count a gap after the reconnection."""
        self._metrics.connection.labels(source).set(0)
        with self._lock:
            is_new = source not in self._disconnected_at
            if is_new:
                self._disconnected_at[source] = self._clock()
        (_log.warning if is_new else _log.debug)("event broker not connected", source=source, why=reason)

    def begin_poll(self) -> EarlyPollRequest:
        """Begin a poll of all datasets; return the events' request for an early poll, or None."""
        self._gaps.end(GapReason.TOO_MANY)
        return self._queue.take()

    def end_poll(
        self,
        demanded_dids: AbstractSet[Did],
        previous: Mapping[str, CatalogueMemory],
        current: Mapping[str, CatalogueMemory],
        started_at: datetime,
    ) -> None:
        """Compare the changes that a poll saw with the events; accept events on *demanded_dids* from now on.

        Args:
            demanded_dids: the datasets in demand.
            previous: the stored answers of each catalogue before the poll.
            current: the stored answers of each catalogue after the poll.
            started_at: when the poll began.
        """
        self._demanded_dids = demanded_dids
        changed_dids = frozenset(
            did
            for name, memory in current.items()
            if name in previous and any(fnmatchcase(name, pattern) for pattern in self._catalogue_patterns)
            for did in find_changed_dids(previous[name], memory)
        )
        with self._lock:
            coverage = self._completeness.record_poll(changed_dids, started_at)
            dids = coverage.unannounced_dids
            is_new = bool(dids) and self._gaps.begin(GapReason.UNANNOUNCED)
        self._count_changes(coverage)
        if is_new:
            detail = f"{format_count(len(dids), 'dataset')} changed without an event, for example {min(dids)}"
            self._record_gap(GapReason.UNANNOUNCED, detail)

    def _count_changes(self, coverage: EventCoverage) -> None:
        self._metrics.changes.labels("in_time").inc(coverage.announced_count)
        self._metrics.changes.labels("never").inc(len(coverage.unannounced_dids))

    def _record_gap(self, reason: GapReason, detail: str) -> None:
        self._queue.record_gap(detail)
        self._metrics.gaps.labels(reason.value).inc()
        _log.warning("events may be missing", why=detail)
        self._schedule_poll()

"""Event listener: accepted events request a poll, gaps are noticed, all events are counted."""

import json
import threading
from datetime import datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hydrator.daemon.event_listener import EventListener, EventMetrics
from hydrator.daemon.event_queue import EarlyPollRequest
from hydrator.domain.events import RejectReason
from hydrator.domain.model import DatasetState, Did, Fact
from hydrator.reconcile.snapshot.update import CatalogueMemory, DatasetRecord
from tests.factories import CAM, L1, L2, NOON


def event(did: Did = L1, kind: str = "rule_ok") -> bytes:
    scope, _, name = did.partition(":")
    return json.dumps({"event_type": kind, "payload": {"scope": scope, "name": name}}).encode()


@pytest.fixture
def logged():
    with capture_logs() as lines:
        yield lines


def told(lines: list) -> list[str]:
    return [line["why"] for line in lines if line["event"] == "events may be missing"]


def memory(**datasets: DatasetState) -> dict[str, CatalogueMemory]:
    known = {
        Did(f"lofar:{name}"): DatasetRecord(NOON, {CAM: Fact(state, NOON)})
        for name, state in datasets.items()
    }
    return {"rucio": CatalogueMemory(NOON, frozenset({CAM}), known)}


STAGING = memory(L1=DatasetState.STAGING, L2=DatasetState.STAGING)
WHOLE = memory(L1=DatasetState.AVAILABLE, L2=DatasetState.STAGING)


class Heard:
    """A Hearing with a clock of its own."""

    def __init__(self, per_second: float = 1000, tells: tuple[str, ...] = ("*",)) -> None:
        self.registry = CollectorRegistry()
        self.woken = 0
        self.after = 0.0
        self.hearing = EventListener(
            EventMetrics(self.registry),
            self.wake,
            clock=self.now,
            monotonic=lambda: self.after,
            names_of=lambda did: (did,),
            events_per_second=per_second,
            max_delay=timedelta(seconds=60),
            catalogue_patterns=tells,
        )
        self.poll(STAGING, STAGING)

    def wake(self) -> None:
        self.woken += 1

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.after)

    def poll(self, before, after, at: float = 0.0) -> EarlyPollRequest:
        self.after = at
        due = self.hearing.begin_poll()
        self.hearing.end_poll(frozenset({L1, L2}), before, after, self.now())
        return due

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    def gaps(self, why: str) -> float:
        return self.count("hydrator_event_gaps_total", reason=why)

    def changes(self) -> list[float]:
        told = ("in_time", "late", "never")
        return [self.count("hydrator_event_changes_total", announced=each) for each in told]


def test_event_on_a_demanded_dataset_requests_a_poll_until_one_begins():
    heard = Heard()
    assert heard.hearing.on_event("rucio", event()) is None
    assert (heard.woken, heard.hearing.is_poll_due) == (1, True)
    assert heard.poll(STAGING, STAGING, 1) == EarlyPollRequest(frozenset({L1}))
    assert not heard.hearing.is_poll_due
    assert heard.count("hydrator_events_total", source="rucio", outcome="accepted") == 1
    assert heard.count("hydrator_event_last_timestamp_seconds", source="rucio") == NOON.timestamp()


@pytest.mark.parametrize(
    ("body", "drop"),
    [
        (event(Did("lofar:L9")), RejectReason.UNWANTED),
        (b"{", RejectReason.GARBLED),
        (event(kind="email"), RejectReason.UNKNOWN),
    ],
)
def test_dropped_event_requests_no_poll_and_is_counted_by_reason(body, drop):
    heard = Heard()
    assert heard.hearing.on_event("rucio", body) is drop
    assert (heard.woken, heard.hearing.is_poll_due) == (0, False)
    assert heard.count("hydrator_events_total", source="rucio", outcome=drop.value) == 1


def test_event_flood_is_dropped_logged_once_a_poll_and_requests_no_poll(logged):
    heard = Heard(per_second=1)
    drops = [heard.hearing.on_event("rucio", event(Did("lofar:L9"))) for _ in range(30)]
    assert drops == [RejectReason.UNWANTED] * 10 + [RejectReason.TOO_MANY] * 20
    assert (heard.gaps("too_many"), heard.woken) == (1, 0)
    assert heard.hearing.on_event("other", event()) is None  # a flood of one source costs no other
    heard.poll(STAGING, STAGING, 30)
    assert heard.hearing.on_event("rucio", event()) is None
    assert heard.hearing.on_event("rucio", None) is RejectReason.TOO_LARGE
    assert told(logged) == ["rucio sends more events than the daemon reads"]


def test_change_that_an_event_announced_is_counted_and_is_not_a_gap():
    heard = Heard()
    heard.hearing.on_event("rucio", event())
    heard.poll(STAGING, WHOLE, 10)
    heard.poll(WHOLE, WHOLE, 80)
    heard.poll(WHOLE, STAGING, 110)
    heard.after = 120
    heard.hearing.on_event("rucio", event())
    heard.poll(STAGING, STAGING, 200)
    assert (heard.changes(), heard.gaps("unannounced")) == ([1, 1, 0], 0)


def test_unannounced_change_is_a_gap_logged_once_with_one_early_poll(logged):
    heard = Heard()
    heard.poll(STAGING, WHOLE, 30)
    assert heard.woken == 0  # an event may be late
    heard.poll(WHOLE, STAGING, 90)
    assert (heard.woken, heard.gaps("unannounced"), heard.changes()) == (1, 1, [0, 0, 1])
    assert told(logged) == ["1 dataset changed without an event, for example lofar:L1"]
    assert heard.poll(STAGING, STAGING, 92).gap_reason
    heard.poll(STAGING, WHOLE, 120)
    heard.poll(WHOLE, STAGING, 200)  # the silence goes on: nothing is polled early for it
    assert (heard.woken, heard.gaps("unannounced"), heard.changes()) == (1, 1, [0, 0, 2])
    heard.hearing.on_event("rucio", event(L2))
    heard.poll(STAGING, WHOLE, 230)
    heard.poll(WHOLE, WHOLE, 300)
    assert heard.gaps("unannounced") == 2  # it had spoken again, and then missed one


def test_change_at_a_catalogue_without_events_is_not_a_gap():
    heard = Heard(tells=("rucio-*",))
    heard.poll(STAGING, WHOLE, 30)
    heard.poll(WHOLE, WHOLE, 300)
    assert (heard.gaps("unannounced"), heard.changes()) == (0, [0, 0, 0])


def test_a_connection_that_was_lost_is_a_gap_answered_by_an_early_poll(logged):
    heard = Heard()
    heard.hearing.on_connect("rucio")
    assert heard.count("hydrator_event_connected", source="rucio") == 1
    for why in ("it closed the connection", "connection refused"):
        heard.hearing.on_disconnect("rucio", why)
    assert (heard.count("hydrator_event_connected", source="rucio"), heard.woken) == (0, 0)
    heard.after = 5
    heard.hearing.on_connect("rucio")
    assert (heard.woken, heard.gaps("connection")) == (1, 1)
    assert heard.poll(STAGING, STAGING, 6) == EarlyPollRequest(gap_reason="rucio was not connected for 5 s")
    assert told(logged) == ["rucio was not connected for 5 s"]
    warned = [
        line
        for line in logged
        if line["log_level"] == "warning" and line["event"] == "event broker not connected"
    ]
    assert [line["why"] for line in warned] == ["it closed the connection"]


@pytest.mark.outside
def test_events_from_many_threads_are_all_counted():
    heard = Heard(per_second=1e6)
    threads = [
        threading.Thread(target=lambda: [heard.hearing.on_event("rucio", event()) for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard.count("hydrator_events_total", source="rucio", outcome="accepted") == 800
    assert heard.hearing.begin_poll() == EarlyPollRequest(frozenset({L1}))

"""Heartbeats: names that two daemons share, and the lease that a call needs that must not be made twice."""

import threading
from datetime import timedelta

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hydrator.config import StandbySettings
from hydrator.daemon.background import Heartbeat
from hydrator.daemon.metrics import Metrics
from hydrator.domain.errors import PoolError
from hydrator.domain.pool_ports import Peer
from hydrator.reconcile.publish.fence import Fence
from tests.unit.daemon.background.shared_pool import LEASE_SECONDS, SharedPool

CALL_SECONDS = 25
TAKEOVER = timedelta(minutes=10)


class Collector:
    """A collector that returns the prepared heartbeats in turn."""

    def __init__(self) -> None:
        self.shared = False
        self.down = False

    def heartbeat(self, name: str, leads_since: int) -> list[Peer]:
        if self.down:
            raise PoolError("collector", "no connection")
        return [Peer(name, leads_since, 0, is_name_shared=self.shared)]


@pytest.fixture
def collector():
    return Collector()


@pytest.fixture
def beat(collector):
    """Gives one sign of life; what was logged by it."""
    beats = Heartbeat(Metrics(CollectorRegistry(), "1"), pytest.fail, lambda: None, threading.Event())
    scheduler = BackgroundScheduler(timezone="UTC", executors={"heartbeat": {"type": "threadpool"}})
    beats.schedule(scheduler, Fence(), StandbySettings(enabled=True, name="one"), collector)
    (job,) = scheduler.get_jobs()

    def once() -> list[str]:
        with capture_logs() as logged:
            job.func(*job.args)
        return [f"{each['log_level']} {each['event']}" for each in logged if each["log_level"] != "debug"]

    return once


def test_heartbeat_logs_a_shared_name_once_and_its_end_once(beat, collector):
    assert beat() == []
    collector.shared = True
    assert (beat(), beat()) == (["error another daemon uses this standby name"], [])
    collector.shared = False
    assert (beat(), beat()) == (["info standby name is unique again"], [])


def test_heartbeat_logs_no_shared_name_while_the_collector_does_not_answer(beat, collector):
    collector.shared = True
    beat()
    collector.down = True
    assert beat() == []
    collector.down = False
    assert beat() == []


def test_a_daemon_alone_may_make_any_call():
    alone = Heartbeat(Metrics(CollectorRegistry(), "1"), pytest.fail, lambda: None, threading.Event())
    assert alone.explain_short_lease(CALL_SECONDS, TAKEOVER) is None


def test_a_leader_makes_no_call_before_the_takeover_time_is_over():
    pool = SharedPool()
    first = pool.start("a")
    assert "on standby: no daemon publishes now" in first.explain_short_lease(CALL_SECONDS, TAKEOVER)
    pool.run("a", seconds=LEASE_SECONDS)
    assert first.standby_reason is None
    assert first.explain_short_lease(CALL_SECONDS, TAKEOVER) == "the lease of this leader ends too soon"
    pool.run("a", seconds=LEASE_SECONDS)  # it has announced that it leads, and seen no other leader
    reason = first.explain_short_lease(CALL_SECONDS, TAKEOVER)
    assert reason == "this daemon became leader; it asks in 9 min"
    pool.run("a", seconds=TAKEOVER.total_seconds() - LEASE_SECONDS - 1)
    assert "this daemon became leader" in first.explain_short_lease(CALL_SECONDS, TAKEOVER)
    pool.run("a", seconds=1)
    assert first.explain_short_lease(CALL_SECONDS, TAKEOVER) is None


def test_a_leader_makes_no_call_that_outlasts_its_lease():
    pool = SharedPool()
    first = pool.start("a")
    pool.run("a", seconds=LEASE_SECONDS + TAKEOVER.total_seconds())
    pool.run(seconds=LEASE_SECONDS - CALL_SECONDS)
    assert first.explain_short_lease(CALL_SECONDS, TAKEOVER) is None
    pool.run(seconds=1)
    assert first.explain_short_lease(CALL_SECONDS, TAKEOVER) == "the lease of this leader ends too soon"


def test_a_daemon_on_standby_makes_no_call_that_must_not_be_made_twice():
    pool = SharedPool()
    pool.start("a")
    second = pool.start("b")
    pool.run("a", "b", seconds=LEASE_SECONDS + TAKEOVER.total_seconds())
    assert second.explain_short_lease(CALL_SECONDS, TAKEOVER) == "on standby: the daemon a publishes"

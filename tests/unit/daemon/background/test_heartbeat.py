"""Heartbeats: the log has a name that two daemons share once, and its end once."""

import threading

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

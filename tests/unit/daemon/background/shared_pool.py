"""Daemons that elect a leader by heartbeats at one collector, on a clock that a test turns."""

import threading

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import CollectorRegistry

from hydrator.config import StandbySettings
from hydrator.daemon.background import Heartbeat
from hydrator.daemon.metrics import Metrics
from hydrator.domain.pool_ports import Peer
from hydrator.reconcile.publish.fence import Fence

LEASE_SECONDS = 60


class SharedPool:
    """A collector with the heartbeats of several daemons."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._heartbeats: dict[str, tuple[int, float]] = {}
        self._jobs = {}

    def heartbeat(self, name: str, leads_since: int) -> list[Peer]:
        self._heartbeats[name] = (leads_since, self.now)
        return [Peer(one, since, self.now - at) for one, (since, at) in self._heartbeats.items()]

    def start(self, name: str) -> Heartbeat:
        """Start a daemon that takes part in the election."""
        metrics = Metrics(CollectorRegistry(), "1")
        one = Heartbeat(metrics, pytest.fail, lambda: None, threading.Event(), monotonic=lambda: self.now)
        scheduler = BackgroundScheduler(timezone="UTC", executors={"heartbeat": {"type": "threadpool"}})
        settings = StandbySettings(enabled=True, name=name, after_seconds=LEASE_SECONDS)
        one.schedule(scheduler, Fence(), settings, self)
        [self._jobs[name]] = scheduler.get_jobs()
        return one

    def run(self, *names: str, seconds: float) -> None:
        """Let *seconds* pass, in which only the daemons *names* send heartbeats."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + LEASE_SECONDS / 3, end)
            for name in names:
                self._jobs[name].func(*self._jobs[name].args)

"""Heartbeat: announce this daemon to the other daemons of the pool, and elect the one that publishes."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Collection
from datetime import timedelta

import structlog
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.config import StandbySettings
from hydrator.daemon.leader_election import LeaderElection
from hydrator.daemon.metrics import Metrics
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.errors import PoolError
from hydrator.domain.model import to_unix
from hydrator.domain.pool_ports import Peer, Peers
from hydrator.domain.text import format_duration
from hydrator.reconcile.publish.fence import Fence
from hydrator.wiring import system_clock

from .worker import BackgroundWorker

_log = structlog.get_logger("hydrator")


class Heartbeat(BackgroundWorker):
    """Heartbeats of this daemon to the collector, and leader election by the heartbeats of its peers.

    Args:
        get_hang_reason: returns why the schedule hangs, or None; a daemon that hangs sends no heartbeat.
        stopping: is set when the daemon stops.
        monotonic: a clock in seconds that cannot be set.
    """

    EXECUTOR_NAMES = ("heartbeat",)

    def __init__(
        self,
        metrics: Metrics,
        report_bug: Callable[[str], None],
        get_hang_reason: Callable[[], object],
        stopping: threading.Event,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(metrics, report_bug)
        self._get_hang_reason = get_hang_reason
        self._stopping = stopping
        self._monotonic = monotonic
        self._election: LeaderElection | None = None
        self._problems = OngoingFailures()

    @property
    def standby_reason(self) -> str | None:
        """Return why this daemon publishes nothing; None if it publishes."""
        return self._election.standby_reason if self._election else None

    @property
    def lease(self) -> str:
        """Return the name of this leadership; another one after each change of the leader."""
        election = self._election
        return f"{election.name}:{election.leads_since}" if election else "alone"

    def explain_short_lease(self, seconds: float, takeover: timedelta) -> str | None:
        """Return why a call of *seconds* that must not be made twice cannot begin now; None if it can.

        A daemon that leads for less than *takeover* makes no such call: a call of the last leader may still
        take effect.
        """
        election = self._election
        if election is None:
            return None
        if election.standby_reason:
            return election.standby_reason
        if election.lease_seconds_left < seconds:
            return "the lease of this leader ends too soon"
        left = takeover.total_seconds() - election.leads_for_seconds
        return f"this daemon became leader; it asks in {format_duration(left)}" if left > 0 else None

    def schedule(
        self, scheduler: BackgroundScheduler, fence: Fence, settings: StandbySettings, peers: Peers | None
    ) -> None:
        """Schedule three heartbeats in each ``standby.after_seconds``; without *peers* this daemon leads."""
        if peers is None:
            self._election = None
            self._metrics.set_leader(is_leader=True)
            return
        name, lease_duration = (
            settings.name or socket.gethostname(),
            timedelta(seconds=settings.after_seconds),
        )
        election = self._election
        if election is None or (election.name, election.lease_duration) != (name, lease_duration):
            election = LeaderElection(name, lease_duration, self._monotonic, lambda: to_unix(system_clock()))
        self._election = election
        self._metrics.set_leader(is_leader=election.is_leader)
        arguments = (election, peers, scheduler)
        self._schedule_every(
            scheduler,
            fence,
            "heartbeat",
            settings.after_seconds / 3,
            self._send_heartbeat,
            *arguments,
            first_run_at=system_clock(),
        )

    def _send_heartbeat(
        self, fence: Fence, election: LeaderElection, peers: Peers, scheduler: BackgroundScheduler
    ) -> None:
        """Send a heartbeat unless the schedule hangs, and run the election with the peers' heartbeats."""
        if self._get_hang_reason():
            return
        sent_at, announced_since = self._monotonic(), election.announced_leader_since
        try:
            heartbeats = peers.heartbeat(election.name, announced_since)
        except PoolError as error:
            _log.debug("standby heartbeat failed", why=str(error))
            return
        with fence.step():
            has_changed = election.observe_peers(heartbeats, announced_since=announced_since, sent_at=sent_at)
            self._apply_heartbeats(heartbeats, election, scheduler, has_changed=has_changed)

    def _apply_heartbeats(
        self,
        heartbeats: Collection[Peer],
        election: LeaderElection,
        scheduler: BackgroundScheduler,
        *,
        has_changed: bool,
    ) -> None:
        self._log_shared_name(election.name, is_shared=any(peer.is_name_shared for peer in heartbeats))
        if has_changed:
            self._metrics.set_leader(is_leader=election.is_leader)
            _log.warning(
                "became leader" if election.is_leader else "became standby", why=election.standby_reason
            )
            if election.is_leader and not self._stopping.is_set():
                with contextlib.suppress(JobLookupError):
                    scheduler.modify_job("poll", next_run_time=system_clock())

    def _log_shared_name(self, name: str, *, is_shared: bool) -> None:
        """Log once that another daemon has the same name, and once that the name is unique again."""
        if is_shared and self._problems.begin("name"):
            todo = "give each daemon its own standby.name"
            _log.error("another daemon uses this standby name", name=name, todo=todo)
        elif not is_shared and self._problems.end("name"):
            _log.info("standby name is unique again", name=name)

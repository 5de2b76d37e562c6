"""Signs of life, where several daemons share a pool and one of them publishes."""

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
from hydrator.domain.errors import PoolError
from hydrator.domain.model import to_unix
from hydrator.domain.ports import Peer, Peers
from hydrator.reconcile.publish.fence import Fence
from hydrator.wiring import system_clock

from .worker import BackgroundWorker

_log = structlog.get_logger("hydrator")


class Heartbeat(BackgroundWorker):
    """Tells the others that we live, and hears whether it is our turn to publish.

    Args:
        hangs: whether our own schedule does; nothing is told then.
        ending: set once we were told to stop.
    """

    EXECUTOR_NAMES = ("standing",)

    def __init__(
        self,
        metrics: Metrics,
        report_bug: Callable[[str], None],
        get_hang_reason: Callable[[], object],
        stopping: threading.Event,
    ) -> None:
        super().__init__(metrics, report_bug)
        self._get_hang_reason = get_hang_reason
        self._stopping = stopping
        self._election: LeaderElection | None = None
        self._is_name_shared = False

    @property
    def standby_reason(self) -> str | None:
        """Why we publish nothing, where another daemon does."""
        return self._election.standby_reason if self._election else None

    def schedule(
        self, scheduler: BackgroundScheduler, fence: Fence, settings: StandbySettings, peers: Peers | None
    ) -> None:
        """Three signs of life while one is waited for; *peers* is None where nobody else is."""
        if peers is None:
            self._election = None
            self._metrics.set_leader(is_leader=True)
            return
        name, after = settings.name or socket.gethostname(), timedelta(seconds=settings.after_seconds)
        standing = self._election
        if standing is None or (standing.name, standing.lease_duration) != (name, after):
            standing = LeaderElection(name, after, time.monotonic, lambda: to_unix(system_clock()))
        self._election = standing
        self._metrics.set_leader(is_leader=standing.is_leader)
        every, now = settings.after_seconds / 3, system_clock()
        given = (standing, peers, scheduler)
        self._schedule_every(
            scheduler, fence, "standing", every, self._send_heartbeat, *given, first_run_at=now
        )

    def _send_heartbeat(
        self, fence: Fence, election: LeaderElection, peers: Peers, scheduler: BackgroundScheduler
    ) -> None:
        """Say that we live, unless we hang, and hear whether it is our turn to publish, or no longer."""
        if self._get_hang_reason():
            return
        try:
            heard = peers.heartbeat(election.name, election.announced_leader_since)
        except PoolError as error:
            _log.debug("no sign of life", why=str(error))
            return
        with fence.step():
            self._apply_peers(heard, election, scheduler)

    def _apply_peers(
        self, peers: Collection[Peer], election: LeaderElection, scheduler: BackgroundScheduler
    ) -> None:
        changed = election.observe_peers(peers)
        self._log_shared_name(election.name, any(peer.is_name_shared for peer in peers))
        if changed:
            self._metrics.set_leader(is_leader=election.is_leader)
            _log.warning(
                "publishes from now on" if election.is_leader else "stands by", why=election.standby_reason
            )
            if election.is_leader and not self._stopping.is_set():
                with contextlib.suppress(JobLookupError):
                    scheduler.modify_job("poll", next_run_time=system_clock())

    def _log_shared_name(self, name: str, is_shared: bool) -> None:
        """Log that two daemons have one name, so that neither knows of the other, and when it is over."""
        if is_shared and not self._is_name_shared:
            _log.error("another daemon has our name", name=name, todo="give each a standby.name of its own")
        elif self._is_name_shared and not is_shared:
            _log.info("our name is ours alone", name=name)
        self._is_name_shared = is_shared

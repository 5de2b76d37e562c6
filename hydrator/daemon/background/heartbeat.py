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
from hydrator.daemon.leader_election import Standing
from hydrator.daemon.metrics import Metrics
from hydrator.domain.errors import PoolError
from hydrator.domain.model import unix
from hydrator.domain.ports import Peer, Peers
from hydrator.reconcile.publish.fence import Fence
from hydrator.wiring import system_clock

from .worker import Turns

_log = structlog.get_logger("hydrator")


class Beats(Turns):
    """Tells the others that we live, and hears whether it is our turn to publish.

    Args:
        hangs: whether our own schedule does; nothing is told then.
        ending: set once we were told to stop.
    """

    NAMES = ("standing",)

    def __init__(
        self,
        metrics: Metrics,
        bug: Callable[[str], None],
        hangs: Callable[[], object],
        ending: threading.Event,
    ) -> None:
        super().__init__(metrics, bug)
        self._hangs = hangs
        self._ending = ending
        self._standing: Standing | None = None
        self._shares = False

    @property
    def stands_by(self) -> str | None:
        """Why we publish nothing, where another daemon does."""
        return self._standing.why if self._standing else None

    def schedule(
        self, scheduler: BackgroundScheduler, fence: Fence, settings: StandbySettings, peers: Peers | None
    ) -> None:
        """Three signs of life while one is waited for; *peers* is None where nobody else is."""
        if peers is None:
            self._standing = None
            self._metrics.leads(yes=True)
            return
        name, after = settings.name or socket.gethostname(), timedelta(seconds=settings.after_seconds)
        standing = self._standing
        if standing is None or (standing.name, standing.after) != (name, after):
            standing = Standing(name, after, time.monotonic, lambda: unix(system_clock()))
        self._standing = standing
        self._metrics.leads(yes=standing.leads)
        every, now = settings.after_seconds / 3, system_clock()
        given = (standing, peers, scheduler)
        self._every(scheduler, fence, "standing", every, self._beat, *given, first=now)

    def _beat(self, fence: Fence, standing: Standing, peers: Peers, scheduler: BackgroundScheduler) -> None:
        """Say that we live, unless we hang, and hear whether it is our turn to publish, or no longer."""
        if self._hangs():
            return
        try:
            heard = peers.beat(standing.name, standing.told)
        except PoolError as error:
            _log.debug("no sign of life", why=str(error))
            return
        with fence.step():
            self._heard(heard, standing, scheduler)

    def _heard(self, heard: Collection[Peer], standing: Standing, scheduler: BackgroundScheduler) -> None:
        changed = standing.hear(heard)
        self._tell_shared(standing.name, any(peer.shared for peer in heard))
        if changed:
            self._metrics.leads(yes=standing.leads)
            _log.warning("publishes from now on" if standing.leads else "stands by", why=standing.why)
            if standing.leads and not self._ending.is_set():
                with contextlib.suppress(JobLookupError):
                    scheduler.modify_job("poll", next_run_time=system_clock())

    def _tell_shared(self, name: str, shares: bool) -> None:
        """Log that two daemons have one name, so that neither knows of the other, and when it is over."""
        if shares and not self._shares:
            _log.error("another daemon has our name", name=name, todo="give each a standby.name of its own")
        elif self._shares and not shares:
            _log.info("our name is ours alone", name=name)
        self._shares = shares

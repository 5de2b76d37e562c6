"""Credentials that end, slots that carry our ads, jobs that ended, merges and desired sites."""

from collections.abc import Callable
from datetime import timedelta

import structlog
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import CollectorRegistry

from hydrator.config import Settings
from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.job_outcomes import Counted, count
from hydrator.diagnostics.slot_coverage import coverage
from hydrator.domain.errors import HydratorError, PoolError
from hydrator.domain.ports import History, Merged, Merger, Slots
from hydrator.reconcile.desired_sites.controller import DesiredTelling, Desiring
from hydrator.reconcile.publish.fence import Fence
from hydrator.reconcile.reconciler import Cycle, Rules
from hydrator.reconcile.snapshot.update import sizes_of
from hydrator.state.store import Store
from hydrator.wiring import Parts, credentials, system_clock

from .worker import Now, Turns

_log = structlog.get_logger("hydrator")
_CREDENTIALS_SECONDS = 60
_FIRST_LOOK = timedelta(seconds=10)
"""After the start, slots are looked at once a first cycle may have ended."""


class Chores(Turns):
    """What is looked at, counted and kept beside the cycles.

    Args:
        registry: where desired sites are counted.
        now: what the cycles have come to.
    """

    NAMES = ("credentials", "slots", "jobs", "merge", "desired")

    def __init__(
        self,
        metrics: Metrics,
        bug: Callable[[str], None],
        registry: CollectorRegistry,
        now: Callable[[], Now],
    ) -> None:
        super().__init__(metrics, bug)
        self._now = now
        self._ending_credentials: set[str] = set()
        self._unmerged: set[str] = set()
        self._desired_telling = DesiredTelling(registry)
        self.credentials: list[Credential] = []

    def schedule(
        self, scheduler: BackgroundScheduler, fence: Fence, settings: Settings, parts: Parts, cycle: Cycle
    ) -> None:
        """Do from now on what *settings* call for and there are *parts* for."""
        now = system_clock()
        soon = now + timedelta(seconds=min(settings.daemon.poll_seconds, 5))
        given = (settings, parts)
        look = self._look_at_credentials
        self._every(scheduler, fence, "credentials", _CREDENTIALS_SECONDS, look, *given, first=soon)
        publish, report = settings.publish, settings.report
        if parts.slots:
            first = now + min(_FIRST_LOOK, timedelta(seconds=report.slots_seconds))
            slots = (self._look_at_slots, parts.slots)
            self._every(scheduler, fence, "slots", report.slots_seconds, *slots, first=first)
        if parts.history:
            asked = (parts.history, cycle, settings)
            self._every(scheduler, fence, "jobs", report.count_seconds, self._count_jobs, *asked)
        if parts.merger:
            every = publish.merge.interval_seconds
            self._every(scheduler, fence, "merge", every, self._merge, parts.merger, parts.rules)
        if parts.desiring:
            every = publish.desired_sites.interval_seconds
            self._every(scheduler, fence, "desired", every, self._desire, parts.desiring, parts.rules)
        else:
            self._desired_telling.forget()

    def _look_at_credentials(self, fence: Fence, settings: Settings, parts: Parts) -> None:
        """When does what we show to others end? Whoever must renew it is told once that it is time."""
        try:
            found = credentials(settings, parts)
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._bug("looking at credentials")
            return
        with fence.step():
            self._tell_credentials(found)

    def _tell_credentials(self, found: list[Credential]) -> None:
        self.credentials = found
        self._metrics.credentials(found)
        now = system_clock()
        ending = {one.name for one in found if one.soon(now)}
        for one in found:
            if one.name in ending - self._ending_credentials:
                _log.warning("credential", name=one.name, why=one.told(now), todo=one.todo)
        self._ending_credentials = ending

    def _look_at_slots(self, fence: Fence, slots: Slots) -> None:
        """Count which slots carry what we publish; what cannot be asked keeps what was counted last."""
        report = self._now().report
        if report is None:
            return
        try:
            counted = coverage(slots.carried(), report.thought.ads)
        except PoolError as error:
            _log.debug("slots not counted", why=str(error))
            return
        with fence.step():
            self._metrics.covered(counted)

    def _count_jobs(self, fence: Fence, history: History, cycle: Cycle, settings: Settings) -> None:
        """Count what became of jobs since the last time; who does not answer is asked again."""
        try:
            with Store.open_to_read(settings.daemon.state_dir) as store:
                sizes = sizes_of(cycle.state.memories)
                counted = count(history, store.history, sizes, settings.daemon.default_scope)
        except HydratorError as error:
            _log.debug("ended jobs not counted", why=str(error))
            return
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._bug("counting ended jobs")
            return
        with fence.step():
            self._tell_ended(counted)

    def _tell_ended(self, counted: Counted) -> None:
        if counted.unasked:
            _log.debug("ended jobs not counted", unasked=counted.unasked)
        if counted.cut:
            _log.warning("ended jobs counted in part: more ended than one answer may have", at=counted.cut)
        self._metrics.ended(counted)

    def _merge(self, fence: Fence, merger: Merger, rules: Rules) -> None:
        """Have slots without a hook say what their sites' ads say; a failure never ends the daemon."""
        now = self._now()
        if now.stands_by:
            return
        ads = {site: ad for site, ad in now.ads.items() if not rules.retires(site)}
        try:
            done = merger.turn(ads, rules.retires)
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._bug("merge")
            return
        with fence.step():
            self._metrics.merged(done)
            for collector, merged in done.items():
                self._tell_unmerged(collector, merged)

    def _tell_unmerged(self, collector: str, merged: Merged) -> None:
        """Log why slots stay without their attributes, once until some show them again."""
        if merged.error and collector not in self._unmerged:
            _log.error("slots not merged", collector=collector, why=merged.error)
            self._unmerged.add(collector)
        elif collector in self._unmerged and merged.confirmed and not merged.error:
            _log.info("slots are merged again", collector=collector)
            self._unmerged.discard(collector)

    def _desire(self, fence: Fence, desiring: Desiring, rules: Rules) -> None:
        """Keep DESIRED_Sites of queued jobs that ask for it; a failure never ends the daemon."""
        now = self._now()
        ads = {site: ad for site, ad in now.ads.items() if not rules.retires(site)}
        if now.stands_by or not (ads or now.report):  # of a lost state nothing follows
            return
        try:
            done = desiring.turn(ads)
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._bug("keeping desired sites")
            return
        with fence.step():
            self._desired_telling.tell(done)

"""Credentials that end, slots that carry our ads, jobs that ended, merges and desired sites."""

from collections.abc import Callable
from datetime import timedelta

import structlog
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import CollectorRegistry

from hydrator.config import Settings
from hydrator.daemon.background.desired_sites import DesiredSitesMetrics
from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.job_outcomes import JobOutcomeBatch, collect_outcomes
from hydrator.diagnostics.slot_coverage import count_coverage
from hydrator.domain.errors import HydratorError, PoolError
from hydrator.domain.ports import JobHistory, Merger, MergeResult, Slots
from hydrator.reconcile.desired_sites.controller import DesiredSitesController
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.publish.fence import Fence
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.snapshot.update import sizes_of
from hydrator.state.store import Store
from hydrator.wiring import Parts, read_credentials, system_clock

from .worker import BackgroundWorker, CycleOutput

_log = structlog.get_logger("hydrator")
_CREDENTIALS_SECONDS = 60
_FIRST_SLOT_COUNT = timedelta(seconds=10)
"""After the start, slots are looked at once a first cycle may have ended."""


class MaintenanceTasks(BackgroundWorker):
    """What is looked at, counted and kept beside the cycles.

    Args:
        registry: where desired sites are counted.
        now: what the cycles have come to.
    """

    EXECUTOR_NAMES = ("credentials", "slots", "jobs", "merge", "desired")

    def __init__(
        self,
        metrics: Metrics,
        report_bug: Callable[[str], None],
        registry: CollectorRegistry,
        get_cycle_output: Callable[[], CycleOutput],
    ) -> None:
        super().__init__(metrics, report_bug)
        self._get_cycle_output = get_cycle_output
        self._expiring_credentials: set[str] = set()
        self._failing_collectors: set[str] = set()
        self._desired_sites_metrics = DesiredSitesMetrics(registry)
        self.credentials: list[Credential] = []

    def schedule(
        self,
        scheduler: BackgroundScheduler,
        fence: Fence,
        settings: Settings,
        parts: Parts,
        reconciler: Reconciler,
    ) -> None:
        """Do from now on what *settings* call for and there are *parts* for."""
        now = system_clock()
        soon = now + timedelta(seconds=min(settings.daemon.poll_seconds, 5))
        given = (settings, parts)
        look = self._check_credentials
        self._schedule_every(
            scheduler, fence, "credentials", _CREDENTIALS_SECONDS, look, *given, first_run_at=soon
        )
        publish, report = settings.publish, settings.report
        if parts.slots:
            first = now + min(_FIRST_SLOT_COUNT, timedelta(seconds=report.slots_seconds))
            slots = (self._count_slots, parts.slots)
            self._schedule_every(scheduler, fence, "slots", report.slots_seconds, *slots, first_run_at=first)
        if parts.history:
            asked = (parts.history, reconciler, settings)
            self._schedule_every(
                scheduler, fence, "jobs", report.count_seconds, self._count_ended_jobs, *asked
            )
        if parts.merger:
            every = publish.merge.interval_seconds
            self._schedule_every(scheduler, fence, "merge", every, self._merge, parts.merger, parts.policy)
        if parts.desired_sites:
            every = publish.desired_sites.interval_seconds
            self._schedule_every(
                scheduler,
                fence,
                "desired",
                every,
                self._update_desired_sites,
                parts.desired_sites,
                parts.policy,
            )
        else:
            self._desired_sites_metrics.clear()

    def _check_credentials(self, fence: Fence, settings: Settings, parts: Parts) -> None:
        """When does what we show to others end? Whoever must renew it is told once that it is time."""
        try:
            found = read_credentials(settings, parts)
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._report_bug("looking at credentials")
            return
        with fence.step():
            self._report_credentials(found)

    def _report_credentials(self, current_credentials: list[Credential]) -> None:
        self.credentials = current_credentials
        self._metrics.set_credentials(current_credentials)
        now = system_clock()
        ending = {one.name for one in current_credentials if one.is_renewal_due(now)}
        for one in current_credentials:
            if one.name in ending - self._expiring_credentials:
                _log.warning("credential", name=one.name, why=one.expiry_text(now), todo=one.todo)
        self._expiring_credentials = ending

    def _count_slots(self, fence: Fence, slots: Slots) -> None:
        """Count which slots carry what we publish; what cannot be asked keeps what was counted last."""
        report = self._get_cycle_output().report
        if report is None:
            return
        try:
            counted = count_coverage(slots.read_ad_versions(), report.evaluation.ads)
        except PoolError as error:
            _log.debug("slots not counted", why=str(error))
            return
        with fence.step():
            self._metrics.set_slot_coverage(counted)

    def _count_ended_jobs(
        self, fence: Fence, history: JobHistory, reconciler: Reconciler, settings: Settings
    ) -> None:
        """Count what became of jobs since the last time; who does not answer is asked again."""
        try:
            with Store.open_to_read(settings.daemon.state_dir) as store:
                sizes = sizes_of(reconciler.state.memories)
                counted = collect_outcomes(history, store.load_history, sizes, settings.daemon.default_scope)
        except HydratorError as error:
            _log.debug("ended jobs not counted", why=str(error))
            return
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._report_bug("counting ended jobs")
            return
        with fence.step():
            self._report_ended_jobs(counted)

    def _report_ended_jobs(self, counts: JobOutcomeBatch) -> None:
        if counts.unreachable_schedds:
            _log.debug("ended jobs not counted", unasked=counts.unreachable_schedds)
        if counts.truncated_schedds:
            _log.warning(
                "ended jobs counted in part: more ended than one answer may have", at=counts.truncated_schedds
            )
        self._metrics.record_ended_jobs(counts)

    def _merge(self, fence: Fence, merger: Merger, policy: ReconcilePolicy) -> None:
        """Have slots without a hook say what their sites' ads say; a failure never ends the daemon."""
        now = self._get_cycle_output()
        if now.standby_reason:
            return
        ads = {site: ad for site, ad in now.ads.items() if not policy.is_retired(site)}
        try:
            done = merger.run_once(ads, policy.is_retired)
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._report_bug("merge")
            return
        with fence.step():
            self._metrics.record_merge(done)
            for collector, merged in done.items():
                self._log_merge_state(collector, merged)

    def _log_merge_state(self, collector: str, result: MergeResult) -> None:
        """Log why slots stay without their attributes, once until some show them again."""
        if result.error and collector not in self._failing_collectors:
            _log.error("slots not merged", collector=collector, why=result.error)
            self._failing_collectors.add(collector)
        elif collector in self._failing_collectors and result.confirmed_count and not result.error:
            _log.info("slots are merged again", collector=collector)
            self._failing_collectors.discard(collector)

    def _update_desired_sites(
        self, fence: Fence, controller: DesiredSitesController, policy: ReconcilePolicy
    ) -> None:
        """Keep DESIRED_Sites of queued jobs that ask for it; a failure never ends the daemon."""
        now = self._get_cycle_output()
        ads = {site: ad for site, ad in now.ads.items() if not policy.is_retired(site)}
        if now.standby_reason or not (ads or now.report):  # of a lost state nothing follows
            return
        try:
            done = controller.run_once(ads)
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._report_bug("keeping desired sites")
            return
        with fence.step():
            self._desired_sites_metrics.record(done)

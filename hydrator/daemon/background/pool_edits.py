"""Pool edits: merge site ads into slots without a hook, and update DESIRED_Sites of queued jobs."""

from collections.abc import Callable, Mapping

import structlog
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import CollectorRegistry

from hydrator.config.publishers import PublishSettings
from hydrator.daemon.metrics import Metrics
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.model import Site, SiteAd
from hydrator.domain.pool_ports import Merger, MergeResult
from hydrator.reconcile.desired_sites.controller import DesiredSitesController
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.publish.fence import Fence

from .desired_sites import DesiredSitesMetrics
from .worker import BackgroundWorker, CycleOutput

_log = structlog.get_logger("hydrator")


class PoolEdits(BackgroundWorker):
    """Edits of slot ads and of queued jobs, according to the site ads of the last cycle.

    Args:
        registry: gets the metrics of DESIRED_Sites.
        get_cycle_output: returns the output of the last cycle.
    """

    EXECUTOR_NAMES = ("merge", "desired")

    def __init__(
        self,
        metrics: Metrics,
        report_bug: Callable[[str], None],
        registry: CollectorRegistry,
        get_cycle_output: Callable[[], CycleOutput],
    ) -> None:
        super().__init__(metrics, report_bug)
        self._get_cycle_output = get_cycle_output
        self._failing_collectors = OngoingFailures()
        self._desired_sites_metrics = DesiredSitesMetrics(registry)

    def schedule(
        self,
        scheduler: BackgroundScheduler,
        fence: Fence,
        publish: PublishSettings,
        policy: ReconcilePolicy,
        merger: Merger | None,
        controller: DesiredSitesController | None,
    ) -> None:
        """Schedule the slot merge and the updates of DESIRED_Sites, if they are enabled."""
        if merger:
            interval = publish.merge.interval_seconds
            self._schedule_every(scheduler, fence, "merge", interval, self._merge, merger, policy)
        if controller:
            interval, work = publish.desired_sites.interval_seconds, self._update_desired_sites
            self._schedule_every(scheduler, fence, "desired", interval, work, controller, policy)
        else:
            self._desired_sites_metrics.clear()

    def _merge(self, fence: Fence, merger: Merger, policy: ReconcilePolicy) -> None:
        """Merge the site ads into slots without a hook; report an exception as a bug, and continue."""
        output = self._get_cycle_output()
        if output.standby_reason:
            return
        try:
            results = merger.run_once(_current_ads(output, policy), policy.is_retired)
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._report_bug("merge")
            return
        with fence.step():
            self._metrics.record_merge(results)
            for collector, result in results.items():
                self._log_merge_state(collector, result)

    def _log_merge_state(self, collector: str, result: MergeResult) -> None:
        """Log once why a collector refuses the slot merge, and once that the collector accepts it again."""
        if result.error and self._failing_collectors.begin(collector):
            _log.error("collector refused the slot merge", collector=collector, why=result.error)
        elif result.confirmed_count and not result.error and self._failing_collectors.end(collector):
            _log.info("collector accepts the slot merge again", collector=collector)

    def _update_desired_sites(
        self, fence: Fence, controller: DesiredSitesController, policy: ReconcilePolicy
    ) -> None:
        """Update DESIRED_Sites of queued jobs that ask for it; report an exception as a bug, and continue."""
        output = self._get_cycle_output()
        ads = _current_ads(output, policy)
        if output.standby_reason or not (
            ads or output.report
        ):  # the daemon lost its state and does not know the facts yet: change no job
            return
        try:
            results = controller.run_once(ads)
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._report_bug("the update of desired sites")
            return
        with fence.step():
            self._desired_sites_metrics.record(results)


def _current_ads(output: CycleOutput, policy: ReconcilePolicy) -> Mapping[Site, SiteAd]:
    return {site: ad for site, ad in output.ads.items() if not policy.is_retired(site)}

"""Pool edits: merge site ads into slots without a hook."""

from collections.abc import Callable, Mapping

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.config import Settings
from hydrator.config.daemon import SitesSettings
from hydrator.daemon.metrics import Metrics
from hydrator.daemon.runtime import Turns
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.model import Site, SiteAd
from hydrator.domain.ports import Merger, MergeResult

from .worker import BackgroundWorker, CycleOutput

_log = structlog.get_logger("hydrator")


class PoolEdits(BackgroundWorker):
    """Edits of slot ads, according to the site ads of the last cycle.

    Args:
        get_cycle_output: returns the output of the last cycle.
    """

    EXECUTOR_NAMES = ("merge",)

    def __init__(
        self,
        metrics: Metrics,
        report_bug: Callable[[str], None],
        get_cycle_output: Callable[[], CycleOutput],
    ) -> None:
        super().__init__(metrics, report_bug)
        self._get_cycle_output = get_cycle_output
        self._failing_collectors = OngoingFailures()

    def schedule(
        self,
        scheduler: BackgroundScheduler,
        turns: Turns,
        settings: Settings,
        merger: Merger | None,
    ) -> None:
        """Schedule the slot merge if it is enabled."""
        if merger:
            interval = settings.daemon.step_seconds
            self._schedule_every(scheduler, turns, "merge", interval, self._merge, merger, settings.sites)

    def _merge(self, merger: Merger, sites: SitesSettings) -> None:
        """Merge the site ads into slots without a hook; report an exception as a bug, and continue."""
        output = self._get_cycle_output()
        try:
            results = merger.run_once(_current_ads(output, sites), sites.is_retired)
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._report_bug("merge")
            return
        self._metrics.record_merge(results)
        for collector, result in results.items():
            self._log_merge_state(collector, result)

    def _log_merge_state(self, collector: str, result: MergeResult) -> None:
        """Log once why a collector refuses the slot merge, and once that the collector accepts it again."""
        if result.error and self._failing_collectors.begin(collector):
            _log.error("collector refused the slot merge", collector=collector, why=result.error)
        elif result.confirmed_count and not result.error and self._failing_collectors.end(collector):
            _log.info("collector accepts the slot merge again", collector=collector)


def _current_ads(output: CycleOutput, sites: SitesSettings) -> Mapping[Site, SiteAd]:
    return {site: ad for site, ad in output.ads.items() if not sites.is_retired(site)}

"""Pool edits: merge site ads into slots without a hook."""

import structlog

from hydrator.config.daemon import SitesSettings
from hydrator.daemon.runtime import DaemonContext, Runtime
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.ports import Merger, MergeResult

from .worker import BackgroundWorker

_log = structlog.get_logger("hydrator")


class PoolEdits(BackgroundWorker):
    """Edits of slot ads, according to the site ads of the last cycle."""

    EXECUTOR_NAMES = ("merge",)

    def __init__(self, context: DaemonContext) -> None:
        super().__init__(context)
        self._failing_collectors = OngoingFailures()

    def schedule(self, runtime: Runtime) -> None:
        """Schedule the slot merge if it is enabled."""
        if merger := runtime.parts.pool.merger:
            settings = runtime.settings
            interval = settings.daemon.step_seconds
            self._schedule_every(runtime, "merge", interval, self._merge, merger, settings.sites)

    def _merge(self, merger: Merger, sites: SitesSettings) -> None:
        """Merge the site ads into slots without a hook."""
        ads = {site: ad for site, ad in self._context.state.ads.items() if not sites.is_retired(site)}
        results = merger.run_once(ads, sites.is_retired)
        self._metrics.record_merge(results)
        for collector, result in results.items():
            self._log_merge_state(collector, result)

    def _log_merge_state(self, collector: str, result: MergeResult) -> None:
        """Log once why a collector refuses the slot merge, and once that the collector accepts it again."""
        if result.error and self._failing_collectors.begin(collector):
            _log.error("collector refused the slot merge", collector=collector, why=result.error)
        elif result.confirmed_count and not result.error and self._failing_collectors.end(collector):
            _log.info("collector accepts the slot merge again", collector=collector)

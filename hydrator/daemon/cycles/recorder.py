"""Recorder of cycles: store, count and log the results of each cycle."""

from dataclasses import dataclass, field

import structlog

from hydrator.daemon.logs import cycle_log_fields, ongoing_failures, status_line
from hydrator.daemon.metrics import Metrics
from hydrator.daemon.process.service_manager import ServiceManager
from hydrator.daemon.runtime import DaemonContext
from hydrator.diagnostics.overview.parts import update_parts
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.model import Unseen
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.result import CycleReport
from hydrator.server.pages.overview import MAX_CHANGES
from hydrator.server.view import ServerState

from .guard import TaskGuard
from .saved_reports import SavedReports

_log = structlog.get_logger("hydrator")


@dataclass(eq=False)
class CycleRecorder:
    """A recorder that gives a cycle's results to the metrics, the log, systemd and other parts of the daemon.

    Attributes:
        context: stores the state, the report and the changes of the last cycle.
        metrics: counts cycles.
        guard: isolates the parts that use a cycle's results: a bug in one part does not stop the others.
        saved_reports: keeps reports for ``hydrator status``.
        service_manager: shows the status line.
    """

    context: DaemonContext
    metrics: Metrics
    guard: TaskGuard
    saved_reports: SavedReports
    service_manager: ServiceManager
    _ongoing_failures: OngoingFailures = field(init=False, default_factory=OngoingFailures)
    _demand_failures: OngoingFailures = field(init=False, default_factory=OngoingFailures)
    _no_estimates_reason: str | None = field(init=False, default="not logged yet")

    def record(
        self,
        reconciler: Reconciler,
        report: CycleReport,
        seconds: float,
    ) -> None:
        """Record the results of one cycle."""
        context = self.context
        self.guard.run_isolated("the pages", lambda: self._build_cycle_state(report))
        context.part_statuses = update_parts(context.part_statuses, report)
        context.recent_changes = (*context.recent_changes, *report.history_entries)[-MAX_CHANGES:]
        # last, because open pages load again when there is another report
        context.state, context.report = reconciler.state, report
        self.guard.run_isolated("metrics", lambda: self.metrics.record_cycle(report, seconds))
        self.saved_reports.save_credentials(context.credentials)
        if context.parts and context.parts.pool.client:
            self.metrics.count_child_restarts(context.parts.pool.child_restarts)
        self._log_estimates(report.estimation.none_reason)
        self._log_cycle(report, seconds)

    def _build_cycle_state(self, report: CycleReport) -> None:
        """Build what the HTTP server shows of the cycle, so that no request waits for this."""
        has_server = self.context.settings.publish.http.enabled
        self.context.cycle_state = ServerState.of_cycle(report) if has_server else None

    def _log_estimates(self, none_reason: str | None) -> None:
        """Log the reason for missing estimates, but only when it changes."""
        if none_reason == self._no_estimates_reason:
            return
        if none_reason is None:
            _log.info("estimates of reads and queues are available")
        else:
            _log.info("no estimates of reads and queues", why=none_reason)
        self._no_estimates_reason = none_reason

    def _log_cycle(self, report: CycleReport, seconds: float) -> None:
        fields = cycle_log_fields(report, seconds)
        has_new, cleared = self._ongoing_failures.replace(ongoing_failures(fields))
        log = _log.debug
        if has_new:
            log = _log.warning
        elif fields["changed"] or cleared:
            log = _log.info
        log("cycle", **fields, **({"cleared": cleared} if cleared else {}))
        self.service_manager.set_status(status_line(fields))

    def log_demand_failures(self, reconciler: Reconciler) -> None:
        """Log which schedds did not answer, but only when the set of these schedds changes."""
        failures = {
            schedd: answer.reason
            for schedd, answer in reconciler.schedd_answers.items()
            if isinstance(answer, Unseen)
        }
        if reconciler.demand_error:
            failures = {"collector": reconciler.demand_error}
        if not any(self._demand_failures.replace(failures)):
            return
        if failures:
            _log.warning("schedds did not answer: their last demand stays in use", unreachable=failures)
        else:
            _log.info("all schedds answer again")

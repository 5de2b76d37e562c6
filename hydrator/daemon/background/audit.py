"""Audit tasks: query catalogues and storage for the audit, and collect jobs' reports of missing datasets."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.config import AuditSettings
from hydrator.daemon.metrics import Metrics
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Unseen
from hydrator.domain.pool_ports import MissReports
from hydrator.reconcile.audit.misses import MISSES_ATTRIBUTE, parse_misses
from hydrator.reconcile.audit.runner import AuditAttempt, AuditRunner
from hydrator.reconcile.publish.fence import Fence
from hydrator.wiring import system_clock

from .worker import BackgroundWorker

_log = structlog.get_logger("hydrator")
_MAX_LOGGED_MISSES = 50
"""Maximum number of missed datasets logged in one run: jobs may report any number of them."""


@dataclass(frozen=True, slots=True)
class _RepeatedQuery:
    """One kind of audit query: *attempt* runs up to *count* times in a row, and again after *interval*."""

    executor_name: str
    interval: timedelta
    attempt: Callable[[], AuditAttempt | None]
    count: int


class AuditTasks(BackgroundWorker):
    """The tasks of the audit: at any time at most one query to a catalogue and one query to a storage.

    Args:
        stopping: is set when the daemon stops; afterwards no query is sent.
    """

    EXECUTOR_NAMES = ("files", "probe", "misses")

    def __init__(
        self, metrics: Metrics, report_bug: Callable[[str], None], stopping: threading.Event
    ) -> None:
        super().__init__(metrics, report_bug)
        self._stopping = stopping
        self._problems = OngoingFailures()

    def schedule(
        self,
        scheduler: BackgroundScheduler,
        fence: Fence,
        settings: AuditSettings,
        audit: AuditRunner | None,
        reports: MissReports | None,
    ) -> None:
        """Schedule the queries of *audit*; with *reports* also query which datasets jobs did not find."""
        if audit is None:
            return
        # run at most once a second; for a higher rate, send several queries in one run
        queries_per_turn = max(1.0, settings.calls_per_second)
        interval = timedelta(seconds=queries_per_turn / settings.calls_per_second)
        files = _RepeatedQuery("files", interval, audit.verify_next, round(queries_per_turn))
        self._schedule_query(scheduler, fence, files, system_clock() + files.interval)
        if audit.has_probe:
            interval = timedelta(minutes=1 / settings.probes_per_minute)
            probe = _RepeatedQuery("probe", interval, audit.probe_next, 1)
            self._schedule_query(scheduler, fence, probe, system_clock() + probe.interval)
        if reports:
            self._schedule_every(
                scheduler, fence, "misses", settings.misses_seconds, self._collect_misses, audit, reports
            )

    def _schedule_query(
        self, scheduler: BackgroundScheduler, fence: Fence, query: _RepeatedQuery, due: datetime
    ) -> None:
        arguments = [scheduler, fence, query, due]
        name = query.executor_name
        scheduler.add_job(self._run_query, "date", arguments, run_date=due, executor=name)

    def _run_query(
        self, scheduler: BackgroundScheduler, fence: Fence, query: _RepeatedQuery, due: datetime
    ) -> None:
        """Run *query* and schedule its next run: one interval after *due*, or now if that time has passed."""
        self._run_turn(fence, query.executor_name, self._run_attempts, query.attempt, query.count)
        if not (fence.is_ending or self._stopping.is_set()):
            self._schedule_query(scheduler, fence, query, max(due + query.interval, system_clock()))

    def _run_attempts(self, fence: Fence, attempt: Callable[[], AuditAttempt | None], count: int) -> None:
        """Run up to *count* queries; report an exception as a bug, not as a verdict on a fact."""
        for _ in range(count):
            if self._stopping.is_set():
                return
            try:
                result = attempt()
            except Exception:  # noqa: BLE001 - a bug must not end the daemon
                self._report_bug("audit")
                return
            if result is None:
                return
            with fence.step():
                self._report_attempt(result)

    def _report_attempt(self, attempt: AuditAttempt) -> None:
        self._metrics.record_audit_attempt(attempt)
        if attempt.reported_did:
            result = (
                {"why": attempt.error}
                if attempt.error
                else {"true": attempt.true_count, "false": attempt.false_count}
            )
            _log.info(
                "checked a dataset that a job reported missing",
                dataset=attempt.reported_did,
                method=attempt.method,
                **result,
            )
        self._log_audit_state(attempt)

    def _log_audit_state(self, attempt: AuditAttempt) -> None:
        """Log once that a catalogue gives the audit no answer, and once that the answers are back."""
        key = (attempt.catalogue, attempt.method)
        fields = {"catalogue": attempt.catalogue, "method": attempt.method}
        if attempt.error and self._problems.begin(key):
            _log.warning("audit gets no answer", **fields, why=attempt.error)
        elif not attempt.error and self._problems.end(key):
            _log.info("audit gets answers again", **fields)

    def _collect_misses(self, fence: Fence, audit: AuditRunner, reports: MissReports) -> None:
        """Query which datasets jobs did not find, and give these datasets to the audit.

        If the query fails, the next run sends a new query.
        """
        try:
            answers = reports.read_reports()
        except PoolError as error:
            _log.debug("cannot read which datasets jobs missed", why=str(error))
            return
        with fence.step():
            self._report_misses(answers, audit)

    def _report_misses(
        self, answers: Mapping[str, Sequence[Sequence[str]] | Unseen], audit: AuditRunner
    ) -> None:
        jobs = [job for answer in answers.values() if not isinstance(answer, Unseen) for job in answer]
        new = audit.report_misses(miss for job in jobs for miss in parse_misses({MISSES_ATTRIBUTE: job}))
        for miss in new[:_MAX_LOGGED_MISSES]:
            _log.info(
                "a job missed a dataset", dataset=miss.did, site=miss.site, when=miss.missed_at.isoformat()
            )
        if len(new) > _MAX_LOGGED_MISSES:
            _log.info("jobs missed more datasets than are listed", more=len(new) - _MAX_LOGGED_MISSES)
        self._metrics.record_misses(new)

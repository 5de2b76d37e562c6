"""The audit's questions, to catalogues and to storage, and what jobs say they missed."""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.config import AuditSettings
from hydrator.daemon.metrics import Metrics
from hydrator.domain.errors import PoolError
from hydrator.domain.misses import MISSES_ATTRIBUTE, parse_misses
from hydrator.domain.model import Unseen
from hydrator.domain.ports import MissReports
from hydrator.reconcile.audit.ledger import VerificationMethod
from hydrator.reconcile.audit.runner import AuditAttempt, AuditRunner
from hydrator.reconcile.publish.fence import Fence
from hydrator.wiring import system_clock

from .worker import BackgroundWorker

_log = structlog.get_logger("hydrator")
_MAX_LOGGED_MISSES = 50
"""Misses that are named in the log at one time: jobs write them."""


class AuditTasks(BackgroundWorker):
    """One question to a catalogue at a time, and one look at the storage.

    Args:
        ending: set once we were told to stop; no question is asked afterwards.
    """

    EXECUTOR_NAMES = ("files", "probe", "misses")

    def __init__(
        self, metrics: Metrics, report_bug: Callable[[str], None], stopping: threading.Event
    ) -> None:
        super().__init__(metrics, report_bug)
        self._stopping = stopping
        self._failing_audits: set[tuple[str, VerificationMethod]] = set()

    def schedule(
        self,
        scheduler: BackgroundScheduler,
        fence: Fence,
        settings: AuditSettings,
        audit: AuditRunner | None,
        reports: MissReports | None,
    ) -> None:
        """Ask from now on, where there is an *audit*; and jobs, where there are *reports* of them."""
        if audit is None:
            return
        pace = max(
            1.0, settings.calls_per_second
        )  # so many calls a tick, and not more than one tick a second
        self._schedule_repeating(
            scheduler, fence, "files", pace / settings.calls_per_second, audit.verify_next, round(pace)
        )
        if audit.has_probe:
            self._schedule_repeating(
                scheduler, fence, "probe", 60 / settings.probes_per_minute, audit.probe_next, 1
            )
        if reports:
            self._schedule_every(
                scheduler, fence, "misses", settings.misses_seconds, self._collect_misses, audit, reports
            )

    def _schedule_repeating(
        self,
        scheduler: BackgroundScheduler,
        fence: Fence,
        executor_name: str,
        interval_seconds: float,
        attempt: Callable[[], AuditAttempt | None],
        times: int,
    ) -> None:
        """Ask *question* every so many *seconds*, or when it was answered, if that takes longer."""
        due = system_clock() + timedelta(seconds=interval_seconds)

        def ask() -> None:
            nonlocal due
            self._run_turn(fence, executor_name, self._run_attempts, attempt, times)
            if not (fence.is_ending or self._stopping.is_set()):
                due = max(due + timedelta(seconds=interval_seconds), system_clock())
                scheduler.add_job(ask, "date", run_date=due, executor=executor_name)

        scheduler.add_job(ask, "date", run_date=due, executor=executor_name)

    def _collect_misses(self, fence: Fence, audit: AuditRunner, reports: MissReports) -> None:
        """Ask what jobs did not find; it is looked into soon. Who does not answer is asked again."""
        try:
            answers = reports.read_reports()
        except PoolError as error:
            _log.debug("misses not heard", why=str(error))
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
            _log.info("jobs missed more datasets", more=len(new) - _MAX_LOGGED_MISSES)
        self._metrics.record_misses(new)

    def _run_attempts(self, fence: Fence, attempt: Callable[[], AuditAttempt | None], times: int) -> None:
        """Ask *question* so often; nothing that goes wrong in it is a verdict, or ends the daemon."""
        for _ in range(times):
            if self._stopping.is_set():
                return
            try:
                asked = attempt()
            except Exception:  # noqa: BLE001 - a bug must not end the daemon
                self._report_bug("audit")
                return
            if asked is None:
                return
            with fence.step():
                self._report_attempt(asked)

    def _report_attempt(self, attempt: AuditAttempt) -> None:
        self._metrics.record_audit_attempt(attempt)
        if attempt.reported_did:
            came = (
                {"why": attempt.error}
                if attempt.error
                else {"true": attempt.true_count, "false": attempt.false_count}
            )
            _log.info("looked at what a job missed", dataset=attempt.reported_did, by=attempt.method, **came)
        self._log_audit_state(attempt)

    def _log_audit_state(self, attempt: AuditAttempt) -> None:
        """Log that the audit gets no answers, once until it gets some."""
        key = (attempt.catalogue, attempt.method)
        if attempt.error and key not in self._failing_audits:
            _log.warning(
                "audit gets no answer", catalogue=attempt.catalogue, by=attempt.method, why=attempt.error
            )
            self._failing_audits.add(key)
        elif not attempt.error and key in self._failing_audits:
            _log.info("audit gets answers again", catalogue=attempt.catalogue, by=attempt.method)
            self._failing_audits.discard(key)

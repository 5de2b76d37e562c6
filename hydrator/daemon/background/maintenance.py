"""Maintenance: checks of credentials, and counts of slots and ended jobs with what is kept of them."""

import contextlib
from collections.abc import Callable
from datetime import timedelta

import structlog

from hydrator.daemon.background.worker import BackgroundWorker
from hydrator.daemon.runtime import DaemonContext, Runtime
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.outcomes import EndedJobBatch, parse_histories
from hydrator.diagnostics.overview.locality_history import build_overview, sum_batch
from hydrator.diagnostics.overview.saved import CREDENTIALS_REPORT
from hydrator.diagnostics.slot_coverage import count_coverage
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.errors import HydratorError, StateError
from hydrator.domain.model import Unseen
from hydrator.domain.ports import MAX_LOAD_AGE, JobHistory, PoolReader
from hydrator.state.locality_hours import MAX_AGE, add_hour, load_hours
from hydrator.wiring.secrets import read_credentials

_log = structlog.get_logger("hydrator")


_CREDENTIALS_SECONDS = 60
_FIRST_SLOT_COUNT = timedelta(seconds=10)
"""Time from the start to the first count of slots; a first cycle has usually ended by then."""


class MaintenanceTasks(BackgroundWorker):
    """Checks of credentials and counts of slots and ended jobs, in their own threads."""

    EXECUTOR_NAMES = ("credentials", "slots", "jobs")

    def __init__(self, context: DaemonContext) -> None:
        super().__init__(context)
        self._expiring_credentials = OngoingFailures()
        self._saved_credentials: list[Credential] | None = None

    def schedule(self, runtime: Runtime) -> None:
        """Schedule the check of credentials, and the counts of slots and ended jobs."""
        settings, parts = runtime.settings, runtime.parts
        now, daemon = self._clock(), settings.daemon
        soon = now + timedelta(seconds=min(daemon.poll_seconds, 5))
        check, read = self._check_credentials, lambda: read_credentials(settings, parts)
        self._schedule_every(runtime, "credentials", _CREDENTIALS_SECONDS, check, read, first_run_at=soon)
        if pool := parts.queues:
            interval = daemon.step_seconds
            first = now + min(_FIRST_SLOT_COUNT, timedelta(seconds=interval))
            self._schedule_every(runtime, "slots", interval, self._count_slots, pool, first_run_at=first)
        if history := parts.pool.history:
            self._save_locality()  # the page shows the days before the start, too
            interval, scope = daemon.history_seconds, daemon.default_scope
            self._schedule_every(runtime, "jobs", interval, self._count_ended_jobs, history, scope)

    def _check_credentials(self, read: Callable[[], list[Credential]]) -> None:
        """Check when the daemon's credentials expire; warn once when a credential must be renewed."""
        credentials = read()
        self._context.credentials = tuple(credentials)
        if credentials != self._saved_credentials:
            with contextlib.suppress(StateError):  # the next check tries again
                self._context.store.save_report(CREDENTIALS_REPORT, credentials)
                self._saved_credentials = credentials
        self._metrics.set_credentials(credentials)
        now = self._clock()
        expiring = dict.fromkeys((one.name for one in credentials if one.is_renewal_due(now)), "")
        new, _ = self._expiring_credentials.replace(expiring)
        for credential in credentials:
            if credential.name in new:
                why = credential.expiry_text(now)
                _log.warning(
                    "credential must be renewed", name=credential.name, why=why, todo=credential.todo
                )

    def _count_slots(self, pool: PoolReader) -> None:
        """Count the slots with their site's attributes; keep the last count if the pool does not answer."""
        report, snapshot = self._context.report, pool.last
        is_old = snapshot and self._clock() - snapshot.as_of > MAX_LOAD_AGE
        if report and snapshot and not is_old and not isinstance(snapshot.slots, Unseen):
            self._metrics.set_slot_coverage(count_coverage(snapshot.slot_ads, report.evaluation.ads))

    def _count_ended_jobs(self, history: JobHistory, default_scope: str | None) -> None:
        """Count the jobs that ended since the last query; repeat a failed query later."""
        try:
            batch = parse_histories(history.read_newly_ended_jobs(), default_scope, self._clock())
        except HydratorError as error:
            _log.debug("cannot count ended jobs", why=str(error))
            return
        unreachable = {one.schedd: one.failure for one in batch.schedds if one.failure}
        truncated = [one.schedd for one in batch.schedds if not (one.is_complete or one.failure)]
        if unreachable:
            _log.debug("cannot count ended jobs", unreachable_schedds=unreachable)
        if truncated:
            _log.warning("job history truncated: more jobs ended than one query returns", schedds=truncated)
        if batch.impossible_jobs:
            _log.warning(
                "job history has impossible times: these jobs are not counted", jobs=batch.impossible_jobs
            )
        self._metrics.record_ended_jobs(batch)
        self._save_locality(batch)

    def _save_locality(self, batch: EndedJobBatch | None = None) -> None:
        """Save the sums of *batch*, and share their overview with the page.

        The cycle reports why the state cannot be written. Then the sums of *batch* are lost.
        """
        now, store = self._clock(), self._context.store
        try:
            if batch and (hour := sum_batch(batch, now)):
                add_hour(store, hour)
            self._context.locality = build_overview(load_hours(store, now - MAX_AGE), now)
        except StateError as error:
            _log.debug("cannot save the locality of ended jobs", why=str(error))

"""Maintenance: checks of credentials, and counts of slots and ended jobs with what is kept of them."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.config import Settings
from hydrator.daemon.background.worker import BackgroundWorker, CycleOutput
from hydrator.daemon.metrics import Metrics
from hydrator.daemon.runtime import Turns
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.outcomes import EndedJobBatch, parse_histories
from hydrator.diagnostics.overview.locality_history import LocalityOverview, build_overview, sum_batch
from hydrator.diagnostics.slot_coverage import count_coverage
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.errors import HydratorError, PoolError, StateError
from hydrator.domain.ports import Clock, JobHistory, Slots
from hydrator.state.locality_hours import MAX_AGE, LocalityHours
from hydrator.wiring import system_clock
from hydrator.wiring.assembly import Parts
from hydrator.wiring.secrets import read_credentials

_log = structlog.get_logger("hydrator")


class LocalityKeeper:
    """The hours of the locality in the state, and their overview for the page.

    Args:
        share: gives the newest overview to the HTTP server.
    """

    def __init__(
        self,
        table: LocalityHours,
        share: Callable[[LocalityOverview], None],
        clock: Clock = system_clock,
    ) -> None:
        self._clock = clock
        self._table = table
        self._share = share

    def add(self, batch: EndedJobBatch | None = None) -> None:
        """Save the sums of *batch*, and share the overview; any thread may call this.

        The cycle reports why the state cannot be written. Then the sums of *batch* are lost.
        """
        now = self._clock()
        try:
            if batch and (hour := sum_batch(batch, now)):
                self._table.add(hour)
            overview = build_overview(self._table.load(now - MAX_AGE), now)
        except StateError as error:
            _log.debug("cannot save the locality of ended jobs", why=str(error))
            return
        self._share(overview)


_CREDENTIALS_SECONDS = 60
_FIRST_SLOT_COUNT = timedelta(seconds=10)
"""Time from the start to the first count of slots; a first cycle has usually ended by then."""


class MaintenanceTasks(BackgroundWorker):
    """Checks of credentials and counts of slots and ended jobs, in their own threads.

    Args:
        get_cycle_output: returns the output of the last cycle.
        locality: keeps the locality of ended jobs over time.
        share_credentials: gets the credentials in use after each check.
    """

    EXECUTOR_NAMES = ("credentials", "slots", "jobs")

    def __init__(
        self,
        metrics: Metrics,
        report_bug: Callable[[str], None],
        get_cycle_output: Callable[[], CycleOutput],
        locality: LocalityKeeper,
        share_credentials: Callable[[Sequence[Credential]], None],
        clock: Clock = system_clock,
    ) -> None:
        super().__init__(metrics, report_bug, clock)
        self._locality = locality
        self._get_cycle_output = get_cycle_output
        self._expiring_credentials = OngoingFailures()
        self._share_credentials = share_credentials

    def schedule(
        self,
        scheduler: BackgroundScheduler,
        turns: Turns,
        settings: Settings,
        parts: Parts,
    ) -> None:
        """Schedule the check of credentials, and the counts of slots and ended jobs."""
        now, daemon = self._clock(), settings.daemon
        soon = now + timedelta(seconds=min(daemon.poll_seconds, 5))
        check, read = self._check_credentials, lambda: read_credentials(settings, parts)
        self._schedule_every(
            scheduler, turns, "credentials", _CREDENTIALS_SECONDS, check, read, first_run_at=soon
        )
        if parts.pool.slots:
            first = now + min(_FIRST_SLOT_COUNT, timedelta(seconds=daemon.step_seconds))
            interval, count_slots = daemon.step_seconds, self._count_slots
            self._schedule_every(
                scheduler, turns, "slots", interval, count_slots, parts.pool.slots, first_run_at=first
            )
        if parts.pool.history:
            self._locality.add()  # the page shows the days before the start, too
            interval, count_jobs, scope = daemon.history_seconds, self._count_ended_jobs, daemon.default_scope
            self._schedule_every(scheduler, turns, "jobs", interval, count_jobs, parts.pool.history, scope)

    def _check_credentials(self, read: Callable[[], list[Credential]]) -> None:
        """Check when the daemon's credentials expire; warn once when a credential must be renewed."""
        try:
            credentials = read()
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._report_bug("the check of credentials")
            return
        self._report_credentials(credentials)

    def _report_credentials(self, credentials: list[Credential]) -> None:
        self._share_credentials(credentials)
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

    def _count_slots(self, slots: Slots) -> None:
        """Count the slots with their site's attributes; keep the last count if the pool does not answer."""
        report = self._get_cycle_output().report
        if report is None:
            return
        try:
            versions = slots.read_ad_versions()
        except PoolError as error:
            _log.debug("cannot count slots", why=str(error))
            return
        self._metrics.set_slot_coverage(count_coverage(versions, report.evaluation.ads))

    def _count_ended_jobs(self, history: JobHistory, default_scope: str | None) -> None:
        """Count the jobs that ended since the last query; repeat a failed query later."""
        try:
            batch = parse_histories(history.read_newly_ended_jobs(), default_scope, self._clock())
        except HydratorError as error:
            _log.debug("cannot count ended jobs", why=str(error))
            return
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._report_bug("the count of ended jobs")
            return
        self._report_ended_jobs(batch)

    def _report_ended_jobs(self, batch: EndedJobBatch) -> None:
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
        self._locality.add(batch)

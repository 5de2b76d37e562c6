"""Staging tasks: run the steps of staging beside the cycles, and share what they show."""

import contextlib
from collections.abc import Callable
from datetime import timedelta

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.daemon.metrics import Metrics
from hydrator.daemon.metrics.staging import StagingMetrics
from hydrator.daemon.runtime import Turns
from hydrator.domain.bugs import BugReporter, OngoingFailures
from hydrator.domain.errors import StateError
from hydrator.domain.ports import Clock
from hydrator.domain.staging_ports import StagingError, StagingRefused
from hydrator.staging.controller import StagingController
from hydrator.staging.overview import REPORT_NAME, StagingOverview, build_overview, overview_to_row
from hydrator.staging.plan import Plan
from hydrator.staging.table import Request, Write
from hydrator.state.store import Store
from hydrator.wiring import system_clock
from hydrator.wiring.assembly import Parts

from .worker import BackgroundWorker, CycleOutput

_log = structlog.get_logger("hydrator")
_audit_log = structlog.get_logger("hydrator.staging")
_FIRST_STEP = timedelta(seconds=10)


class StagingTasks(BackgroundWorker):
    """Steps of staging, each in the thread ``staging``.

    Args:
        store: keeps the table and the overview.
        get_cycle_output: returns the output of the last cycle.
        share_overview: gives the overview to the HTTP server.
        bugs: counts and logs exceptions of adapters.
        staging_metrics: records the overview and the calls.
    """

    EXECUTOR_NAMES = ("staging",)

    def __init__(
        self,
        metrics: Metrics,
        report_bug: Callable[[str], None],
        store: Store,
        get_cycle_output: Callable[[], CycleOutput],
        share_overview: Callable[[StagingOverview], None],
        bugs: BugReporter,
        staging_metrics: StagingMetrics,
        clock: Clock = system_clock,
    ) -> None:
        super().__init__(metrics, report_bug, clock)
        self._store = store
        self._get_cycle_output = get_cycle_output
        self._share_overview = share_overview
        self._bugs = bugs
        self._staging_metrics = staging_metrics
        self._problems = OngoingFailures()

    def schedule(
        self, scheduler: BackgroundScheduler, turns: Turns, interval_seconds: float, parts: Parts
    ) -> None:
        """Schedule the steps; with the mode off, only save that it is off."""

        def guard() -> str | None:
            return "the daemon ends" if turns.is_ending else None

        try:
            controller = parts.staging.build_controller(
                self._store.load_staging,
                self._store.save_staging,
                self._clock,
                guard,
                audit=self._record_call,
                rates=parts.network.rates.current,
                bugs=self._bugs,
            )
        except StateError as error:
            _log.error("staging cannot start", why=str(error))
            controller = None
        if controller is None:
            with contextlib.suppress(StateError):  # the requests of an earlier mode end by themselves
                table, settings = self._store.load_staging(), parts.staging.settings
                self._record(build_overview(table, settings, self._clock(), Plan()))
            return
        first = self._clock() + min(_FIRST_STEP, timedelta(seconds=interval_seconds))
        self._schedule_every(
            scheduler,
            turns,
            "staging",
            interval_seconds,
            self._run_step,
            controller,
            first_run_at=first,
        )

    def _run_step(self, controller: StagingController) -> None:
        self._record(controller.run_once(self._get_cycle_output().report))

    def _record(self, overview: StagingOverview) -> None:
        """Share the result of one step; log each problem when it begins and when it ends."""
        self._share_overview(overview)
        self._staging_metrics.record(overview)
        with contextlib.suppress(StateError):  # the step reported the same reason
            self._store.save_report(REPORT_NAME, overview_to_row(overview))
        problems = dict(overview.problems)
        new, ended = self._problems.replace(problems)
        for part in sorted(new):
            _log.warning("staging has a problem", part=part, why=problems[part])
        for part in ended:
            _log.info("staging has no problem any more", part=part)

    def _record_call(self, write: Write, one: Request, error: StagingError | None) -> None:
        """Count and log one call that changes something in a catalogue, for the data manager."""
        self._staging_metrics.count_call(write, error)
        outcome = "done"
        if error:
            is_certain = isinstance(error, StagingRefused)
            outcome = f"{'refused' if is_certain else 'outcome unknown'}: {error.reason}"
        verb = {"ask": "asked", "renew": "renewed", "cancel": "cancelled"}[write.verb]
        _audit_log.info(
            f"staging {verb} a request at the catalogue",
            catalogue=one.catalogue,
            kind=one.kind.value,
            dataset=one.did,
            site=one.site,
            bytes=one.bytes,
            lifetime_seconds=one.lifetime_seconds,
            request=one.rule,
            user=one.user,
            jobs=one.job_count,
            outcome=outcome,
            **({"why": write.reason} if write.reason else {}),
        )

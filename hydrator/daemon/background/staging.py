"""Staging tasks: run the steps of staging beside the cycles, and share what they show."""

import contextlib
from datetime import timedelta
from functools import partial

import structlog

from hydrator.daemon.metrics.staging import StagingMetrics
from hydrator.daemon.runtime import DaemonContext, Runtime
from hydrator.diagnostics.overview.saved import STAGING_REPORT
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.errors import StateError
from hydrator.domain.staging_ports import StagingError, StagingRefused
from hydrator.staging.controller import StagingController
from hydrator.staging.overview import StagingOverview, build_overview
from hydrator.staging.plan import Plan
from hydrator.staging.table import Request, Table, Write
from hydrator.state.staging import TABLE_REPORT

from .worker import BackgroundWorker

_log = structlog.get_logger("hydrator")
_audit_log = structlog.get_logger("hydrator.staging")
_FIRST_STEP = timedelta(seconds=10)


class StagingTasks(BackgroundWorker):
    """Steps of staging, each in the thread ``staging``.

    Args:
        context: what the daemon's parts share.
        staging_metrics: records the overview and the calls.
    """

    EXECUTOR_NAMES = ("staging",)

    def __init__(self, context: DaemonContext, staging_metrics: StagingMetrics) -> None:
        super().__init__(context)
        self._staging_metrics = staging_metrics
        self._problems = OngoingFailures()

    def schedule(self, runtime: Runtime) -> None:
        """Schedule the steps; with the mode off, only save that it is off."""
        parts, store = runtime.parts, self._context.store

        def load_table() -> Table:
            return store.load_report(TABLE_REPORT, Table) or Table()

        def guard() -> str | None:
            return "the daemon ends" if runtime.turns.is_ending else None

        try:
            controller = parts.staging.build_controller(
                load_table,
                partial(store.save_report, TABLE_REPORT),
                self._clock,
                guard,
                audit=self._record_call,
                rates=parts.network.rates.current,
                bugs=self._context.bugs,
            )
        except StateError as error:
            _log.error("staging cannot start", why=str(error))
            controller = None
        if controller is None:
            with contextlib.suppress(StateError):  # the requests of an earlier mode end by themselves
                table, settings = load_table(), parts.staging.settings
                self._record(build_overview(table, settings, self._clock(), Plan()))
            return
        interval = runtime.settings.daemon.step_seconds
        first = self._clock() + min(_FIRST_STEP, timedelta(seconds=interval))
        self._schedule_every(runtime, "staging", interval, self._run_step, controller, first_run_at=first)

    def _run_step(self, controller: StagingController) -> None:
        self._record(controller.run_once(self._context.report))

    def _record(self, overview: StagingOverview) -> None:
        """Share the result of one step; log each problem when it begins and when it ends."""
        self._context.staging = overview
        self._staging_metrics.record(overview)
        with contextlib.suppress(StateError):  # the step reported the same reason
            self._context.store.save_report(STAGING_REPORT, overview)
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

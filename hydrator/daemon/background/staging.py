"""Staging tasks: run the steps of staging beside the cycles, and share what they show."""

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.daemon.metrics import Metrics
from hydrator.daemon.metrics.staging import StagingMetrics
from hydrator.daemon.runtime import Turns
from hydrator.diagnostics.outcomes import EndedJobBatch
from hydrator.domain.bugs import BugReporter, OngoingFailures
from hydrator.domain.errors import StateError
from hydrator.domain.ports import Clock
from hydrator.staging.controller import StagingController
from hydrator.staging.needs import DataUse
from hydrator.staging.overview import (
    REPORT_NAME,
    STATE_PROBLEM,
    StagingOverview,
    build_overview,
    overview_to_row,
)
from hydrator.staging.policy import StagingPolicy
from hydrator.state.store import Store
from hydrator.wiring import Parts, system_clock

from .worker import BackgroundWorker, CycleOutput

_log = structlog.get_logger("hydrator")
_audit_log = structlog.get_logger("hydrator.staging")
_FIRST_STEP = timedelta(seconds=10)
MAX_USES = 100_000
"""Uses of data by ended jobs that are kept for the next step; the oldest are dropped."""


class StagingTasks(BackgroundWorker):
    """Steps of staging, each in the thread ``staging``.

    Args:
        store: keeps the ledger and the overview.
        get_cycle_output: returns the output of the last cycle.
        share_overview: gives the overview to the HTTP server.
        bugs: counts and logs exceptions of adapters.
        staging_metrics: records the overview.
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
        with contextlib.suppress(StateError):  # the first step reports the same reason
            staging_metrics.begin(store.staging_ledger.load().totals)
        self._problems = OngoingFailures()
        self._uses: deque[DataUse] = deque(maxlen=MAX_USES)

    def add_ended_jobs(self, batch: EndedJobBatch) -> None:
        """Give the next step the data that the jobs of *batch* used, also of jobs that no query saw run."""
        for job in batch.jobs:
            if job.site and job.last_started_at:
                site, started_at = job.site, job.last_started_at
                self._uses.extend(DataUse(did, site, started_at) for did in sorted(job.datasets or ()))

    def schedule(
        self, scheduler: BackgroundScheduler, turns: Turns, interval_seconds: float, parts: Parts
    ) -> None:
        """Schedule the steps; with the mode off, only save that it is off."""

        def guard() -> str | None:
            return "the daemon ends" if turns.is_ending else None

        try:
            controller = parts.staging.build_controller(
                self._store.staging_ledger,
                self._clock,
                guard,
                audit=log_call,
                rates=parts.network.rates.current,
                is_retired=parts.policy.is_retired,
                bugs=self._bugs,
            )
        except StateError as error:
            _log.error("staging cannot start", why=str(error))
            controller = None
        if controller is None:
            self._save_off(parts.staging.policy)
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
        """Run one step; log each problem when it begins and when it ends."""
        output = self._get_cycle_output()
        uses = [self._uses.popleft() for _ in range(len(self._uses))]
        overview = controller.run_once(output.report, uses)
        if STATE_PROBLEM in overview.problems:
            self._uses.extendleft(reversed(uses))  # the ledger was not saved
        self._record(overview)

    def _record(self, overview: StagingOverview) -> None:
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

    def _save_off(self, policy: StagingPolicy) -> None:
        """Save that the mode is off, with the requests of the ledger: these end by themselves."""
        with contextlib.suppress(StateError):
            self._record(build_overview(self._store.staging_ledger.load(), policy, self._clock()))


def log_call(event: str, fields: Mapping[str, Any]) -> None:
    """Log one call that changed something in a catalogue, for the operator and the data manager."""
    _audit_log.info(f"staging {event} a request at the catalogue", **fields)

"""Staging beside the cycles: run its steps, share what they show, and keep its metrics.

Labels of metrics are never datasets or users.
"""

import contextlib
from collections import Counter as Tally
from datetime import datetime, timedelta

import structlog

from hydrator.daemon.metrics import Instruments
from hydrator.daemon.runtime import DaemonContext, Runtime
from hydrator.domain.errors import StateError
from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import StagingError, StagingKind, StagingRefused
from hydrator.staging.controller import StagingController
from hydrator.staging.overview import StagingOverview
from hydrator.staging.table import Request, Table, Write
from hydrator.state.command_files import TABLE_REPORT
from hydrator.state.store import STAGING_REPORT

from .background import BackgroundWorker


class StagingMetrics:
    """Metrics of the last step of staging; the counters begin at 0 with each start of the daemon."""

    def __init__(self, metrics: Instruments) -> None:
        self._metrics = metrics
        self._last_ended_at: datetime | None = None
        self._complete: frozenset[tuple[Did, Site]] | None = None

    def count_call(self, write: Write, error: StagingError | None) -> None:
        """Count one call at a catalogue; any thread may call this."""
        one = write.request
        if isinstance(error, StagingRefused):
            self._metrics.count("staging_refusals", error.kind.value)
        if error:
            self._metrics.count("staging_requests", "failed")
            return
        is_pin = one.kind is StagingKind.PIN
        asked = "pinned" if is_pin else "asked"
        outcome = {"renew": "renewed", "cancel": "cancelled"}.get(write.verb, asked)
        self._metrics.count("staging_requests", outcome)
        if write.verb == "ask" and not is_pin:
            self._metrics.count("staging_bytes", "asked", by=one.bytes)

    def record(self, overview: StagingOverview) -> None:
        """Record one step of staging; any thread may call this."""
        self._count_ends(overview)
        unserved_jobs = sum(row.job_count for row in overview.not_asked if not row.is_waiting)
        self._metrics.set("staging_problems", len(overview.problems))
        self._metrics.set("staging_unserved_jobs", unserved_jobs)
        with self._metrics.replacing("staging_"):
            self._set_requests(overview)
            self._set_limits(overview)

    def _count_ends(self, overview: StagingOverview) -> None:
        """Count the bytes that arrived, or ended unused, since the last step; none at the start."""
        last, self._last_ended_at = self._last_ended_at or overview.as_of, overview.as_of
        new = [row for row in overview.ended if row.ended_at and last < row.ended_at <= overview.as_of]
        stages = [row for row in (*overview.requests, *new) if row.kind is StagingKind.STAGE]
        complete = frozenset(row.key for row in stages if row.is_complete)
        before, self._complete = self._complete, complete
        arrived = complete - (complete if before is None else before)
        staged = sum(row.bytes for row in stages if row.key in arrived)
        self._metrics.count("staging_bytes", "staged", by=staged)
        unused = sum(row.bytes for row in new if row in stages and row.is_complete and not row.is_used)
        self._metrics.count("staging_bytes", "unused", by=unused)

    def _set_requests(self, overview: StagingOverview) -> None:
        counts = Tally((row.site, row.kind) for row in overview.requests)
        stuck = Tally(row.site for row in overview.requests if row.is_stuck)
        in_flight = overview.in_flight_bytes
        for site in {row.site for row in overview.requests}:
            for kind in StagingKind:
                self._metrics.set("staging_open_requests", counts[site, kind], site, kind.value)
            self._metrics.set("staging_stuck_requests", stuck[site], site)
            self._metrics.set("staging_in_flight_bytes", in_flight.get(site, 0), site)

    def _set_limits(self, overview: StagingOverview) -> None:
        shares: dict[str, float] = {}
        for row in overview.limits:
            share = row.used / row.limit if row.limit else float(row.used > 0)
            shares[row.name] = max(share, shares.get(row.name, 0.0))
        for name, share in shares.items():
            self._metrics.set("staging_limit_used_ratio", share, name)


_log = structlog.get_logger("hydrator")
_audit_log = structlog.get_logger("hydrator.staging")
_FIRST_STEP = timedelta(seconds=10)


class StagingTasks(BackgroundWorker):
    """Steps of staging, each in the thread ``staging``."""

    def __init__(self, context: DaemonContext) -> None:
        super().__init__(context)
        self._staging_metrics = StagingMetrics(context.metrics.instruments)

    def schedule(self, runtime: Runtime) -> None:
        """Schedule the steps; with the mode off, only save that it is off."""
        parts, store = runtime.parts.staging, self._context.store
        controller = StagingController(
            parts,
            lambda: store.load_report(TABLE_REPORT, Table) or Table(),
            lambda table: store.save_reports({TABLE_REPORT: table}),
            self._clock,
            is_ending=lambda: runtime.turns.is_ending,
            audit=self._record_call,
            find_rate=runtime.parts.network.find_rate,
            bugs=self._context.bugs,
        )
        if not parts.stagers:
            self._record(controller.run_once(None))  # the requests of an earlier mode end by themselves
            return
        with contextlib.suppress(StateError):  # each step tries again, and reports it
            parts.control.prepare()
        interval = self._context.settings.daemon.step_seconds
        first = self._clock() + min(_FIRST_STEP, timedelta(seconds=interval))
        self._schedule_every(runtime, "staging", interval, self._run_step, controller, first_run_at=first)

    def _run_step(self, controller: StagingController) -> None:
        self._record(controller.run_once(self._context.report))

    def _record(self, overview: StagingOverview) -> None:
        """Share the result of one step; log each problem when it begins and when it ends."""
        self._context.staging = overview
        self._staging_metrics.record(overview)
        with contextlib.suppress(StateError):  # the step reported the same reason
            self._context.store.save_reports({STAGING_REPORT: overview})
        begun, ended = "staging has a problem", "staging has no problem any more"
        self._log_problems(overview.problems, "part", begun, ended)

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

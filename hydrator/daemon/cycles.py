"""Cycles: run polls, cycles for new demand and for late answers, and record their results."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import structlog

from hydrator.daemon.logs import cycle_log_fields, ongoing_failures, status_line
from hydrator.daemon.process import ServiceManager, Watchdog, trim_heap
from hydrator.daemon.runtime import DaemonContext, Machine, Runtime
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.errors import HydratorError, StateError
from hydrator.domain.model import Unseen
from hydrator.domain.ports import PoolSnapshot, ScheddQueue
from hydrator.reconcile.poll import PoolAnswer
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.view import CycleView
from hydrator.server.pages.overview import MAX_CHANGES
from hydrator.server.view import ServerState
from hydrator.state.reports import save_queues

_log = structlog.get_logger("hydrator")
_QUEUES_INTERVAL = timedelta(minutes=1)


class CycleRunner:
    """A runner that runs one cycle at a time, and gives its results to the metrics, the log and systemd.

    Args:
        context: the values that the daemon's parts share.
        watchdog: records when a task begins and ends.
        service_manager: shows the status line.
        stopping: is set when the daemon stops; afterwards no cycle is requested.
        is_clock_stepping: returns True after a step of the wall clock: the daemon ends.
        machine: has the clocks.
    """

    def __init__(
        self,
        context: DaemonContext,
        watchdog: Watchdog,
        service_manager: ServiceManager,
        *,
        stopping: threading.Event,
        is_clock_stepping: Callable[[], bool],
        machine: Machine,
    ) -> None:
        self._context = context
        self._watchdog = watchdog
        self._service_manager = service_manager
        self._ongoing_failures, self._demand_failures = OngoingFailures(), OngoingFailures()
        self._no_openings_reason: str | None = "not logged yet"
        self._is_clock_stepping = is_clock_stepping
        self._machine = machine
        self._stopping = stopping
        self._turn_numbers = itertools.count(1)
        self._is_answer_cycle_requested = False
        self._queues_saved_at: datetime | None = None

    def request_answer_cycle(self) -> None:
        """Schedule a cycle for an answer that came after the end of the cycle that sent the query.

        Any thread may call this. If two threads do so at once, a second cycle runs, which does no harm.
        """
        runtime = self._context.runtime
        if runtime and not self._is_answer_cycle_requested and not self._stopping.is_set():
            self._is_answer_cycle_requested = True
            work, now = [self._run_answer_cycle, runtime], self._machine.clock()
            runtime.scheduler.add_job(self._run_turn, "date", work, run_date=now)

    def schedule(self, runtime: Runtime) -> None:
        """Schedule polls, with the first poll now, and queries of the schedds."""
        add, now = runtime.scheduler.add_job, self._machine.clock()
        seconds = self._context.settings.daemon.poll_seconds
        add(self._run_poll, "interval", [runtime], seconds=seconds, id="poll", next_run_time=now)
        add(self._run_demand, "interval", [runtime], seconds=seconds, id="demand", executor="demand")

    def _run_task(self, task: str, work: Callable[[], bool]) -> bool:
        """Run *work* and return its result; after a failure, count and log the failure and return False."""
        self._watchdog.record_step(f"a {task} began")
        try:
            return work()
        except HydratorError as error:
            _log.error(f"{task} failed", why=str(error))
        except Exception as error:  # noqa: BLE001 - a bug must not end the daemon
            self._context.bugs.report(task, error)
        finally:
            self._watchdog.record_step(f"a {task} ended")
        self._context.metrics.instruments.count("cycles", "failed")
        return False

    def _run_turn(self, work: Callable[[Reconciler], object], runtime: Runtime) -> None:
        """Run *work* with the reconciler of *runtime*, unless the daemon ends; log lines have its number."""
        with (
            runtime.turns.turn("cycle") as may_run,
            structlog.contextvars.bound_contextvars(cycle=next(self._turn_numbers)),
        ):
            if may_run and not self._is_clock_stepping():
                work(runtime.reconciler)

    def _run_demand(self, runtime: Runtime, *, runs_cycle: bool = True) -> None:
        """Query the schedds while cycles continue; then use the answers in a turn of cycles."""
        with runtime.turns.turn("demand") as may_run:
            if may_run:
                answers = runtime.reconciler.schedds.query()
                self._run_turn(lambda one: self._use_demand(one, answers, runs_cycle=runs_cycle), runtime)

    def _use_demand(self, reconciler: Reconciler, answers: PoolAnswer | None, *, runs_cycle: bool) -> None:
        """Apply *answers*. Run a cycle at once if jobs name new datasets, since the jobs wait for these."""
        has_new = self._run_task("demand", lambda: self._apply_demand(reconciler, answers))
        if has_new and runs_cycle:
            self._run_task("cycle", lambda: self._run_cycle(reconciler, is_poll=False))

    def _run_poll(self, runtime: Runtime) -> None:
        """Run a poll by :meth:`_run_turn`; before the first cycle, query the schedds."""
        if self._context.report is None:
            self._run_demand(runtime, runs_cycle=False)
        self._run_turn(self._poll, runtime)

    def _poll(self, reconciler: Reconciler) -> None:
        is_demand_unknown = self._context.report is None and reconciler.schedds.error
        if is_demand_unknown and not reconciler.state.demand.entries and not reconciler.demand.entries:
            return  # the demand is unknown: publishing now would remove all datasets from the ads
        self._run_task("cycle", lambda: self._run_cycle(reconciler))

    def _apply_demand(self, reconciler: Reconciler, answers: PoolAnswer | None) -> bool:
        new_dids = reconciler.apply_demand(answers)
        self._context.state = reconciler.state
        self._log_demand_failures(reconciler)
        if isinstance(answers, PoolSnapshot):
            self._save_queues(answers.queues)
        if new_dids:
            _log.info("jobs name new datasets", new=len(new_dids), first=min(new_dids))
        return bool(new_dids)

    def _save_queues(self, queues: Mapping[str, ScheddQueue]) -> None:
        """Save the last queue of each schedd, once a minute; the cycle reports why the state is not saved."""
        now = self._machine.clock()
        if self._queues_saved_at is None or abs(now - self._queues_saved_at) >= _QUEUES_INTERVAL:
            with contextlib.suppress(StateError):
                save_queues(self._context.store, queues)
                self._queues_saved_at = now

    def _run_answer_cycle(self, reconciler: Reconciler) -> None:
        """Run a cycle for a late answer; it queries the catalogues only for new datasets."""
        self._is_answer_cycle_requested = False  # before the polls: a later answer needs a cycle of its own
        self._run_task("cycle", lambda: self._run_cycle(reconciler, is_poll=False))

    def _run_cycle(self, reconciler: Reconciler, *, is_poll: bool = True) -> bool:
        """Run a cycle. If nothing is new after a poll, wait for the next answer, which requests a cycle."""
        begun_at = self._machine.monotonic()
        answers = reconciler.poll(is_due=is_poll)
        if is_poll and self._context.report and not answers.has_news:
            return True
        report = reconciler.run(answers, is_clock_stepping=self._is_clock_stepping)
        self.record(reconciler, report, self._machine.monotonic() - begun_at)
        trim_heap()
        return True

    def record(self, reconciler: Reconciler, report: CycleReport, seconds: float) -> None:
        """Record the results of one cycle."""
        context, view = self._context, reconciler.view
        context.bugs.attempt("the pages", lambda: self._build_cycle_state(report, view))
        context.recent_changes = (*context.recent_changes, *report.history_entries)[-MAX_CHANGES:]
        # after the pages' state, because open pages load again when there is another report
        context.state, context.report = reconciler.state, report
        context.bugs.attempt("metrics", lambda: context.metrics.record_cycle(view, seconds))
        if context.parts and context.parts.pool.client:
            context.metrics.count_child_restarts(context.parts.pool.child_restarts)
        self._log_openings(report.evaluation.paced.none_reason)
        self._log_cycle(view, seconds)

    def _build_cycle_state(self, report: CycleReport, view: CycleView) -> None:
        """Build what the HTTP server shows of the cycle, so that no request waits for this."""
        has_server = self._context.settings.publish.http.enabled
        self._context.cycle_state = ServerState.of_cycle(report, view) if has_server else None

    def _log_openings(self, none_reason: str | None) -> None:
        """Log the reason for missing openings, but only when it changes."""
        if none_reason == self._no_openings_reason:
            return
        if none_reason is None:
            _log.info("reads from other sites are paced")
        else:
            _log.info("reads from other sites are not paced", why=none_reason)
        self._no_openings_reason = none_reason

    def _log_cycle(self, view: CycleView, seconds: float) -> None:
        fields = cycle_log_fields(view, seconds)
        has_new, cleared = self._ongoing_failures.replace(ongoing_failures(fields))
        log = _log.debug
        if has_new:
            log = _log.warning
        elif fields["changed"] or cleared:
            log = _log.info
        log("cycle", **fields, **({"cleared": cleared} if cleared else {}))
        self._service_manager.set_status(status_line(fields))

    def _log_demand_failures(self, reconciler: Reconciler) -> None:
        """Log which schedds did not answer, but only when the set of these schedds changes."""
        failures = {
            schedd: answer.reason
            for schedd, answer in reconciler.schedds.answers.items()
            if isinstance(answer, Unseen)
        }
        if reconciler.schedds.error:
            failures = {"collector": reconciler.schedds.error}
        if not any(self._demand_failures.replace(failures)):
            return
        if failures:
            _log.warning("schedds did not answer: their last demand stays in use", unreachable=failures)
        else:
            _log.info("all schedds answer again")

"""Runner of cycles: run polls, cycles for new demand, and cycles for late answers."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import structlog

from hydrator.daemon.process.malloc import trim_heap
from hydrator.daemon.runtime import DaemonContext, Runtime
from hydrator.domain.model import ScheddDemand, Unseen
from hydrator.reconcile.reconciler import Reconciler
from hydrator.wiring import system_clock

from .early import EarlyCycles
from .guard import TaskGuard
from .recorder import CycleRecorder

_log = structlog.get_logger("hydrator")

_ScheddAnswers = Mapping[str, ScheddDemand | Unseen] | str
"""The demand of each schedd, or why the schedds could not be listed."""


class CycleRunner:
    """A runner that runs one cycle at a time.

    Args:
        context: the values that the daemon's parts share.
        guard: counts and logs failures.
        recorder: records the results of cycles.
        stopping: is set when the daemon stops.
        is_clock_stepping: returns True after a step of the wall clock: the daemon ends.
    """

    def __init__(
        self,
        context: DaemonContext,
        guard: TaskGuard,
        recorder: CycleRecorder,
        *,
        stopping: threading.Event,
        is_clock_stepping: Callable[[], bool],
    ) -> None:
        self._context = context
        self._guard = guard
        self._recorder = recorder
        self._is_clock_stepping = is_clock_stepping
        self._turn_count = 0
        self.early_cycles = EarlyCycles(
            context,
            stopping,
            lambda runtime: self._run_turn(self._run_answer_cycle, runtime),
        )

    def schedule(self, runtime: Runtime) -> None:
        """Schedule polls, with the first poll now, and queries of the schedds."""
        runtime.scheduler.add_job(
            self._run_poll,
            "interval",
            [runtime],
            seconds=runtime.settings.daemon.poll_seconds,
            id="poll",
            next_run_time=system_clock(),
        )
        runtime.scheduler.add_job(
            self._run_with_demand,
            "interval",
            [self._run_demand_cycle, runtime],
            seconds=runtime.settings.daemon.poll_seconds,
            id="demand",
            executor="demand",
        )

    def _run_turn(self, work: Callable[[Reconciler], object], runtime: Runtime) -> None:
        """Run *work* with the reconciler of *runtime*, unless the daemon ends."""
        with runtime.turns.turn("cycle") as may_run, self._number_turn():
            if may_run and not self._is_clock_stepping():
                work(runtime.reconciler)

    @contextlib.contextmanager
    def _number_turn(self) -> Iterator[None]:
        """Give this run of work the next number, from 1, and add the number to all log lines of this run."""
        self._turn_count += 1
        with structlog.contextvars.bound_contextvars(cycle=self._turn_count):
            yield

    def _run_with_demand(
        self, work: Callable[[Reconciler, _ScheddAnswers], object], runtime: Runtime
    ) -> None:
        """Query the schedds while cycles continue; then run *work* with the answers by :meth:`_run_turn`."""
        with runtime.turns.turn("demand") as may_run:
            if may_run:
                answers = runtime.reconciler.query_schedds()
                self._run_turn(lambda reconciler: work(reconciler, answers), runtime)

    def _run_poll(self, runtime: Runtime) -> None:
        """Run a poll by :meth:`_run_turn`; before the first cycle, query the schedds."""
        if self._context.report is None:
            self._run_with_demand(self._try_apply_demand, runtime)
        self._run_turn(self._poll, runtime)

    def _poll(self, reconciler: Reconciler) -> None:
        is_demand_unknown = self._context.report is None and reconciler.demand_error
        if is_demand_unknown and not reconciler.state.demand.entries and not reconciler.demand.entries:
            return  # the demand is unknown: publishing now would remove all datasets from the ads
        self._guard.run("cycle", lambda: self._run_cycle(reconciler))

    def _run_demand_cycle(self, reconciler: Reconciler, answers: _ScheddAnswers) -> None:
        """Run a cycle at once if jobs name new datasets, since the jobs wait for these datasets."""
        if self._try_apply_demand(reconciler, answers):
            self._guard.run("cycle", lambda: self._run_cycle(reconciler, is_poll=False))

    def _try_apply_demand(self, reconciler: Reconciler, answers: _ScheddAnswers) -> bool:
        return self._guard.run("demand", lambda: self._apply_demand(reconciler, answers))

    def _apply_demand(self, reconciler: Reconciler, answers: _ScheddAnswers) -> bool:
        new_dids = reconciler.apply_demand(answers)
        self._context.state = reconciler.saved_state
        self._recorder.log_demand_failures(reconciler)
        if new_dids:
            _log.info("jobs name new datasets", new=len(new_dids), first=min(new_dids))
        return bool(new_dids)

    def _run_answer_cycle(self, reconciler: Reconciler) -> None:
        """Run a cycle for a late answer; it queries the catalogues only for new datasets."""
        self.early_cycles.begin_answer_cycle()
        self._guard.run("cycle", lambda: self._run_cycle(reconciler, is_poll=False))

    def _run_cycle(self, reconciler: Reconciler, *, is_poll: bool = True) -> bool:
        begun_at = time.monotonic()
        report = reconciler.run(is_due=is_poll)
        self._recorder.record(reconciler, report, time.monotonic() - begun_at)
        trim_heap()
        return True

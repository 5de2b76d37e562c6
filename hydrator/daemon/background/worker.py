"""Background worker: run work at an interval. Each kind of work runs in its own thread, once at a time."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import ClassVar

from hydrator.daemon.runtime import DaemonContext, Runtime, Turns


class BackgroundWorker(ABC):
    """A worker beside the cycles. For each name in ``EXECUTOR_NAMES`` the scheduler needs an executor."""

    EXECUTOR_NAMES: ClassVar[tuple[str, ...]]

    def __init__(self, context: DaemonContext) -> None:
        self._context = context
        self._metrics = context.metrics
        self._clock = context.clock

    @abstractmethod
    def schedule(self, runtime: Runtime) -> None:
        """Schedule the work that the configuration of *runtime* needs."""

    def _report_bug(self, part: str) -> None:
        """Log and count the unexpected exception of the present ``except`` block."""
        if error := sys.exception():
            self._context.bugs.report(part, error)

    def _run_turn(self, turns: Turns, name: str, work: Callable[..., None], *args: object) -> None:
        """Run *work* once under the name *name*, unless the daemon ends.

        Report an exception of *work* as a bug; the exception does not affect the next run.
        """
        with turns.turn(name) as may_run:
            try:
                if may_run:
                    work(*args)
            except BaseException:  # noqa: BLE001 - a plugin may even raise SystemExit
                self._report_bug(f"the turn of {name}")

    def _schedule_every(
        self,
        runtime: Runtime,
        name: str,
        interval_seconds: float,
        work: Callable[..., None],
        *args: object,
        first_run_at: datetime | None = None,
    ) -> None:
        """Schedule the call ``work(*args)`` every *interval_seconds*."""
        when = {"next_run_time": first_run_at} if first_run_at else {}
        turn = (runtime.turns, name, work, *args)
        runtime.scheduler.add_job(
            self._run_turn, "interval", turn, seconds=interval_seconds, id=name, executor=name, **when
        )

"""Background worker: run work at an interval. Each kind of work runs in its own thread, once at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.daemon.metrics import Metrics
from hydrator.daemon.runtime import Turns
from hydrator.domain.model import Site, SiteAd
from hydrator.domain.ports import Clock
from hydrator.reconcile.result import CycleReport
from hydrator.wiring import system_clock


@dataclass(frozen=True, slots=True)
class CycleOutput:
    """Output of the last cycle: its report and the site ads."""

    report: CycleReport | None
    ads: Mapping[Site, SiteAd]


class BackgroundWorker:
    """A worker beside the cycles. For each name in ``EXECUTOR_NAMES`` the scheduler needs an executor.

    Args:
        metrics: the metrics of the daemon.
        report_bug: logs and counts the present exception; its argument names the work that failed.
        clock: aware UTC time.
    """

    EXECUTOR_NAMES: ClassVar[tuple[str, ...]]

    def __init__(
        self, metrics: Metrics, report_bug: Callable[[str], None], clock: Clock = system_clock
    ) -> None:
        self._metrics = metrics
        self._report_bug = report_bug
        self._clock = clock

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
        scheduler: BackgroundScheduler,
        turns: Turns,
        name: str,
        interval_seconds: float,
        work: Callable[..., None],
        *args: object,
        first_run_at: datetime | None = None,
    ) -> None:
        """Schedule the call ``work(*args)`` every *interval_seconds*."""
        when = {"next_run_time": first_run_at} if first_run_at else {}
        turn = (turns, name, work, *args)
        scheduler.add_job(
            self._run_turn, "interval", turn, seconds=interval_seconds, id=name, executor=name, **when
        )

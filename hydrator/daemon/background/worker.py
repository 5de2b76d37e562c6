"""Background worker: run work at an interval. Each kind of work runs in its own thread, once at a time."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.daemon.metrics import Metrics
from hydrator.daemon.runtime import Turns
from hydrator.domain.model import Site, SiteAd
from hydrator.reconcile.result import CycleReport


@dataclass(frozen=True, slots=True)
class CycleOutput:
    """Output of the last cycle: its report and the site ads."""

    report: CycleReport | None
    ads: Mapping[Site, SiteAd]


class DaemonScheduler(BackgroundScheduler):  # type: ignore[misc]
    """A scheduler that may be shut down while one of its scheduled calls is due.

    apscheduler 3.11 removes a scheduled call (a *job* in apscheduler) after the last run of the call. If the
    scheduler was shut down meanwhile, the call is missing, and the scheduler's thread ends with a traceback.
    """

    def remove_job(self, job_id: str, jobstore: str | None = None) -> None:
        """Remove a scheduled call if the call still exists."""
        with contextlib.suppress(JobLookupError):
            super().remove_job(job_id, jobstore)


class BackgroundWorker:
    """A worker beside the cycles. For each name in ``EXECUTOR_NAMES`` the scheduler needs an executor.

    Args:
        metrics: the metrics of the daemon.
        report_bug: logs and counts the present exception; its argument names the work that failed.
    """

    EXECUTOR_NAMES: ClassVar[tuple[str, ...]]

    def __init__(self, metrics: Metrics, report_bug: Callable[[str], None]) -> None:
        self._metrics = metrics
        self._report_bug = report_bug

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

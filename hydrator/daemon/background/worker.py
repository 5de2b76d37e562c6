"""Turns of one kind of work at a time, each kind in a thread of its own."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.daemon.metrics import Metrics
from hydrator.domain.errors import Fenced
from hydrator.domain.model import Site, SiteAd
from hydrator.reconcile.publish.fence import Fence
from hydrator.reconcile.reconciler import Report


@dataclass(frozen=True, slots=True)
class Now:
    """What the cycles have come to: the last report, the site ads, and why we publish none of them, if so."""

    report: Report | None
    ads: Mapping[Site, SiteAd]
    stands_by: str | None


class Schedule(BackgroundScheduler):  # type: ignore[misc]
    """A scheduler that may be shut down while a job of its own is due.

    apscheduler 3.11 removes a job after its last run. In a scheduler that was shut down meanwhile it does not
    find the job, and its thread ends with a traceback.
    """

    def remove_job(self, job_id: str, jobstore: str | None = None) -> None:
        """Remove a job, where it is still there."""
        with contextlib.suppress(JobLookupError):
            super().remove_job(job_id, jobstore)


class Turns:
    """Work of the kinds ``NAMES``, which the scheduler must have executors for.

    Args:
        metrics: where it is counted.
        bug: logs and counts the exception at hand; what it is given is the work that failed.
    """

    NAMES: ClassVar[tuple[str, ...]]

    def __init__(self, metrics: Metrics, bug: Callable[[str], None]) -> None:
        self._metrics = metrics
        self._bug = bug

    def _taken(self, fence: Fence, name: str, work: Callable[..., None], *given: object) -> None:
        """Do *work* as a turn of the kind *name*; its fence ends it once a reload has replaced its parts.

        Whatever else it raises is its own failure, and it has its turn again.
        """
        with contextlib.suppress(Fenced), fence.turn(name):
            try:
                work(fence, *given)
            except Fenced:
                raise
            except BaseException:  # noqa: BLE001 - a plugin may even raise SystemExit
                self._bug(f"the turn of {name}")

    def _every(
        self,
        scheduler: BackgroundScheduler,
        fence: Fence,
        name: str,
        seconds: float,
        work: Callable[..., None],
        *given: object,
        first: datetime | None = None,
    ) -> None:
        """Have *work* done with *fence* and what is *given* every so many *seconds*; *first* at that time."""
        when = {"next_run_time": first} if first else {}
        turn = (fence, name, work, *given)
        scheduler.add_job(self._taken, "interval", turn, seconds=seconds, id=name, executor=name, **when)

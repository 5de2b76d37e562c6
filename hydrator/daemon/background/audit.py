"""The audit's questions, to catalogues and to storage, and what jobs say they missed."""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.config import AuditSettings
from hydrator.daemon.metrics import Metrics
from hydrator.domain.errors import PoolError
from hydrator.domain.misses import MISSES_ATTRIBUTE, misses
from hydrator.domain.model import Unseen
from hydrator.domain.ports import Misses
from hydrator.reconcile.audit.ledger import By
from hydrator.reconcile.audit.runner import Asked, Auditing
from hydrator.reconcile.publish.fence import Fence
from hydrator.wiring import system_clock

from .worker import Turns

_log = structlog.get_logger("hydrator")
_MOST_TOLD = 50
"""Misses that are named in the log at one time: jobs write them."""


class Questions(Turns):
    """One question to a catalogue at a time, and one look at the storage.

    Args:
        ending: set once we were told to stop; no question is asked afterwards.
    """

    NAMES = ("files", "probe", "misses")

    def __init__(self, metrics: Metrics, bug: Callable[[str], None], ending: threading.Event) -> None:
        super().__init__(metrics, bug)
        self._ending = ending
        self._unaudited: set[tuple[str, By]] = set()

    def schedule(
        self,
        scheduler: BackgroundScheduler,
        fence: Fence,
        settings: AuditSettings,
        audit: Auditing | None,
        reports: Misses | None,
    ) -> None:
        """Ask from now on, where there is an *audit*; and jobs, where there are *reports* of them."""
        if audit is None:
            return
        pace = max(
            1.0, settings.calls_per_second
        )  # so many calls a tick, and not more than one tick a second
        self._again(scheduler, fence, "files", pace / settings.calls_per_second, audit.ask, round(pace))
        if audit.probes:
            self._again(scheduler, fence, "probe", 60 / settings.probes_per_minute, audit.probe, 1)
        if reports:
            self._every(scheduler, fence, "misses", settings.misses_seconds, self._hear, audit, reports)

    def _again(
        self,
        scheduler: BackgroundScheduler,
        fence: Fence,
        executor: str,
        seconds: float,
        question: Callable[[], Asked | None],
        times: int,
    ) -> None:
        """Ask *question* every so many *seconds*, or when it was answered, if that takes longer."""
        due = system_clock() + timedelta(seconds=seconds)

        def ask() -> None:
            nonlocal due
            self._taken(fence, executor, self._audit, question, times)
            if not (fence.ends or self._ending.is_set()):
                due = max(due + timedelta(seconds=seconds), system_clock())
                scheduler.add_job(ask, "date", run_date=due, executor=executor)

        scheduler.add_job(ask, "date", run_date=due, executor=executor)

    def _hear(self, fence: Fence, audit: Auditing, reports: Misses) -> None:
        """Ask what jobs did not find; it is looked into soon. Who does not answer is asked again."""
        try:
            answers = reports.reported()
        except PoolError as error:
            _log.debug("misses not heard", why=str(error))
            return
        with fence.step():
            self._tell_missed(answers, audit)

    def _tell_missed(self, answers: Mapping[str, Sequence[Sequence[str]] | Unseen], audit: Auditing) -> None:
        jobs = [job for answer in answers.values() if not isinstance(answer, Unseen) for job in answer]
        new = audit.suspect(miss for job in jobs for miss in misses({MISSES_ATTRIBUTE: job}))
        for miss in new[:_MOST_TOLD]:
            _log.info("a job missed a dataset", dataset=miss.did, site=miss.site, when=miss.when.isoformat())
        if len(new) > _MOST_TOLD:
            _log.info("jobs missed more datasets", more=len(new) - _MOST_TOLD)
        self._metrics.missed(new)

    def _audit(self, fence: Fence, question: Callable[[], Asked | None], times: int) -> None:
        """Ask *question* so often; nothing that goes wrong in it is a verdict, or ends the daemon."""
        for _ in range(times):
            if self._ending.is_set():
                return
            try:
                asked = question()
            except Exception:  # noqa: BLE001 - a bug must not end the daemon
                self._bug("audit")
                return
            if asked is None:
                return
            with fence.step():
                self._tell(asked)

    def _tell(self, asked: Asked) -> None:
        self._metrics.audited(asked)
        if asked.missed:
            came = {"why": asked.error} if asked.error else {"true": asked.true, "false": asked.false}
            _log.info("looked at what a job missed", dataset=asked.missed, by=asked.by, **came)
        self._tell_unaudited(asked)

    def _tell_unaudited(self, asked: Asked) -> None:
        """Log that the audit gets no answers, once until it gets some."""
        key = (asked.catalogue, asked.by)
        if asked.error and key not in self._unaudited:
            _log.warning("audit gets no answer", catalogue=asked.catalogue, by=asked.by, why=asked.error)
            self._unaudited.add(key)
        elif not asked.error and key in self._unaudited:
            _log.info("audit gets answers again", catalogue=asked.catalogue, by=asked.by)
            self._unaudited.discard(key)

"""Miss tasks: read which datasets jobs did not find, and let the catalogues count these datasets again."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from hydrator.daemon.runtime import DaemonContext, Runtime
from hydrator.domain.model import Did
from hydrator.domain.ports import MissReports
from hydrator.reconcile.misses import MISSES_ATTRIBUTE, Miss, parse_misses

from .worker import BackgroundWorker

_log = structlog.get_logger("hydrator")
_READ_SECONDS: Final = 60.0
"""Interval between two reads of the reports: a catalogue is polled about as often."""
_MAX_LOGGED_MISSES: Final = 50
"""Maximum number of missed datasets logged in one run: jobs may report any number of them."""
_MAX_KNOWN_MISSES: Final = 10_000


class MissTasks(BackgroundWorker):
    """The task that reads jobs' reports of missing datasets.

    A miss is not a verdict: the job's owner may write any report. So a miss is logged and counted, and each
    catalogue that counts files counts those of the dataset again in its next poll.
    """

    EXECUTOR_NAMES = ("misses",)

    def __init__(self, context: DaemonContext) -> None:
        super().__init__(context)
        self._known_misses: dict[Miss, None] = {}

    def schedule(self, runtime: Runtime) -> None:
        """Schedule reading the reports, if the daemon queries schedds."""
        parts = runtime.parts
        if reports := parts.pool.misses:
            work = self._collect_misses
            self._schedule_every(runtime, "misses", _READ_SECONDS, work, reports, parts.recounts)

    def _collect_misses(
        self, reports: MissReports, recounts: Sequence[Callable[[frozenset[Did]], None]]
    ) -> None:
        """Read the reports; each of *recounts* gets the datasets that jobs missed."""
        jobs = reports.read_reports()
        new = self._add_misses(miss for job in jobs for miss in parse_misses({MISSES_ATTRIBUTE: job}))
        for recount in recounts if new else ():
            recount(frozenset(miss.did for miss in new))
        self._report_misses(new)

    def _add_misses(self, misses: Iterable[Miss]) -> Sequence[Miss]:
        """Remember *misses*; return those that were not known before."""
        reported = dict.fromkeys(misses)
        new = [miss for miss in reported if miss not in self._known_misses]
        # Move each miss to the end of the dict: the code below forgets misses from the beginning.
        for miss in reported:
            self._known_misses.pop(miss, None)
            self._known_misses[miss] = None
        while len(self._known_misses) > _MAX_KNOWN_MISSES:
            del self._known_misses[next(iter(self._known_misses))]
        return new

    def _report_misses(self, new: Sequence[Miss]) -> None:
        for miss in new[:_MAX_LOGGED_MISSES]:
            _log.info(
                "a job missed a dataset", dataset=miss.did, site=miss.site, when=miss.missed_at.isoformat()
            )
        if len(new) > _MAX_LOGGED_MISSES:
            _log.info("jobs missed more datasets than are listed", more=len(new) - _MAX_LOGGED_MISSES)
        self._metrics.record_misses(new)

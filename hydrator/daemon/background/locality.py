"""Keeper of the locality over time: saves each count of ended jobs, and shares the overview of the past."""

from collections.abc import Callable

import structlog

from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.job_outcomes import JobOutcomeBatch
from hydrator.diagnostics.overview.locality_history import (
    DayComparison,
    LocalityOverview,
    build_overview,
    sum_batch,
)
from hydrator.domain.errors import StateError
from hydrator.state.locality_hours import MAX_AGE, LocalityHourTable
from hydrator.wiring import system_clock

_log = structlog.get_logger("hydrator")


class LocalityKeeper:
    """The hours of the locality in the state, and their overview for the page and the metrics.

    Args:
        share: gives the newest overview to the HTTP server.
    """

    def __init__(
        self, table: LocalityHourTable, metrics: Metrics, share: Callable[[LocalityOverview], None]
    ) -> None:
        self._table = table
        self._metrics = metrics
        self._share = share
        self._day = DayComparison()

    def add(self, batch: JobOutcomeBatch | None = None) -> None:
        """Save the sums of *batch*, and share the overview; any thread may call this.

        The cycle reports why the state cannot be written. Then the sums of *batch* are lost.
        """
        now = system_clock()
        try:
            if batch and (hour := sum_batch(batch, self._day, now)):
                self._table.add(hour)
            overview = build_overview(self._table.load(now - MAX_AGE), now)
        except StateError as error:
            _log.debug("cannot save the locality of ended jobs", why=str(error))
            return
        self._share(overview)
        self._metrics.set_locality_estimates(overview.bytes_not_moved, overview.seconds_gained)

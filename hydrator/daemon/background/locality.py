"""Keeper of the locality over time: saves each count of ended jobs, and shares the overview of the past."""

from collections.abc import Callable

import structlog

from hydrator.diagnostics.job_outcomes import JobOutcomeBatch
from hydrator.diagnostics.overview.locality_history import (
    LocalityOverview,
    build_overview,
    sum_batch,
)
from hydrator.domain.errors import StateError
from hydrator.state.locality_hours import MAX_AGE, LocalityHourTable
from hydrator.wiring import system_clock

_log = structlog.get_logger("hydrator")


class LocalityKeeper:
    """The hours of the locality in the state, and their overview for the page.

    Args:
        share: gives the newest overview to the HTTP server.
    """

    def __init__(self, table: LocalityHourTable, share: Callable[[LocalityOverview], None]) -> None:
        self._table = table
        self._share = share

    def add(self, batch: JobOutcomeBatch | None = None) -> None:
        """Save the sums of *batch*, and share the overview; any thread may call this.

        The cycle reports why the state cannot be written. Then the sums of *batch* are lost.
        """
        now = system_clock()
        try:
            if batch and (hour := sum_batch(batch, now)):
                self._table.add(hour)
            overview = build_overview(self._table.load(now - MAX_AGE), now)
        except StateError as error:
            _log.debug("cannot save the locality of ended jobs", why=str(error))
            return
        self._share(overview)

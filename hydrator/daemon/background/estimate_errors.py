"""Keeper of the estimates' errors: adds those of ended jobs, and saves them for ``hydrator report``."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import structlog

from hydrator.diagnostics.prediction_errors import REPORT_NAME, ErrorFactors
from hydrator.domain.errors import StateError
from hydrator.reconcile.estimates.predictions import EstimateKind
from hydrator.wiring import system_clock

_log = structlog.get_logger("hydrator")


class ReportTable(Protocol):
    """The part of the state that keeps reports."""

    def save_report(self, key: str, body: Mapping[str, Any]) -> None:
        """Save *body* as the report named *key*."""

    def load_report(self, key: str) -> dict[str, Any]:
        """Return the report named *key*; empty if there is none."""


class EstimateErrorKeeper:
    """The factors between predicted and real seconds, also those of the daemon before its restart."""

    def __init__(self, reports: ReportTable) -> None:
        self._reports = reports
        self._factors: ErrorFactors | None = None

    def add(self, factors: Iterable[tuple[EstimateKind, float]] = ()) -> Mapping[EstimateKind, list[float]]:
        """Add and save the *factors* of jobs that have just ended; return all factors by kind.

        The cycle reports why the state cannot be read or written. Then the factors are only in memory.
        """
        if self._factors is None:
            self._factors = self._load()
        if self._factors.add(factors, system_clock()):
            try:
                self._reports.save_report(REPORT_NAME, self._factors.to_rows())
            except StateError as error:
                _log.debug("cannot save the errors of the estimates", why=str(error))
        return self._factors.by_kind()

    def _load(self) -> ErrorFactors:
        try:
            return ErrorFactors.of_rows(self._reports.load_report(REPORT_NAME))
        except StateError as error:
            _log.debug("cannot read the errors of the estimates", why=str(error))
            return ErrorFactors()

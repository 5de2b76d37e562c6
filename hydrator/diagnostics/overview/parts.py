"""Catalogues and publishers over time: since when each fails or works, and its last error. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from hydrator.reconcile.result import CycleReport


class PartKind(StrEnum):
    """The kind of a part that a cycle uses."""

    CATALOGUE = "catalogue"
    PUBLISHER = "publisher"


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One catalogue or publisher: ``error`` is its present error; None if it works.

    ``failing_since`` is the first cycle of the present failure. ``last_error`` is the newest error, also
    after its end. The daemon forgets it when it restarts.
    """

    kind: PartKind
    name: str
    error: str | None = None
    failing_since: datetime | None = None
    last_error: str | None = None
    last_error_at: datetime | None = None

    def update(self, error: str | None, now: datetime) -> "PartStatus":
        """Return the status after a cycle at *now*."""
        if error is None:
            return replace(self, error=None, failing_since=None)
        since = self.failing_since or now
        return replace(self, error=error, failing_since=since, last_error=error, last_error_at=now)


def update_parts(previous: tuple[PartStatus, ...], report: CycleReport) -> tuple[PartStatus, ...]:
    """Return the status of each part of *report*; parts that the cycle did not use are forgotten."""
    before = {(part.kind, part.name): part for part in previous}
    return tuple(
        before.get((kind, name), PartStatus(kind, name)).update(error, report.started_at)
        for kind, errors in _find_errors(report).items()
        for name, error in sorted(errors.items())
    )


def _find_errors(report: CycleReport) -> Mapping[PartKind, Mapping[str, str | None]]:
    return {
        PartKind.CATALOGUE: report.catalogue_errors,
        PartKind.PUBLISHER: {result.publisher: result.error for result in report.results},
    }

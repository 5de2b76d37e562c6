"""Requests of data on the overview page: progress, and what staging would request; no names of users."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hydrator.domain.staging_ports import StagingKind
from hydrator.staging.overview import StagingOverview
from hydrator.staging.plan import Batch
from hydrator.staging.table import Request

MAX_ROWS: Final = 100
"""Largest number of requests, and of planned requests, that the page lists."""

MAX_ARRIVALS: Final = 4
"""Largest number of requests that the top of the page shows."""


@dataclass(frozen=True, slots=True)
class StagingSection:
    """The section of the page about requests of data, with the first of the requests, stuck ones first."""

    overview: StagingOverview
    requests: Sequence[Request]
    planned: Sequence[Batch]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Data on its way, at the top of the page: the requests that end first, and the number of the others."""

    requests: Sequence[Request]
    more_count: int
    bytes: int
    bytes_done: int


def build_arrivals(overview: StagingOverview | None) -> Arrivals | None:
    """Select the requests of data that have not arrived; None if there are none."""
    if overview is None:
        return None
    rows = [row for row in overview.requests if row.kind is StagingKind.STAGE and not row.is_complete]
    if not rows:
        return None
    first = sorted(rows, key=lambda row: (row.ready_at is None, row.ready_at or row.asked_at, row.did))
    return Arrivals(
        first[:MAX_ARRIVALS],
        len(rows) - len(first[:MAX_ARRIVALS]),
        sum(row.bytes for row in rows),
        sum(round(row.bytes * (row.share_done or 0)) for row in rows),
    )


def build_staging_section(overview: StagingOverview | None) -> StagingSection | None:
    """Build the section; None if staging is off and no request is open."""
    if overview is None or (overview.mode == "off" and not overview.requests):
        return None
    requests = sorted(overview.requests, key=lambda row: (not row.is_stuck, row.is_complete, row.asked_at))
    return StagingSection(overview, requests[:MAX_ROWS], overview.planned[:MAX_ROWS])

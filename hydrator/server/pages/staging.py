"""Requests of data on the overview page: progress, and what staging would request; no names of users."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hydrator.domain.staging_ports import StagingKind
from hydrator.domain.text import comma_separated, format_bytes, format_time
from hydrator.staging.overview import StagingOverview
from hydrator.staging.plan import Batch
from hydrator.staging.table import Request

MAX_ROWS: Final = 100
"""Largest number of requests, and of planned requests, that the page lists."""

MAX_ARRIVALS: Final = 4
"""Largest number of requests that the top of the page shows."""


@dataclass(frozen=True, slots=True)
class RequestLine:
    """Table row of one request; ``percent`` is None without a progress, ``ready`` is empty if unknown."""

    dataset: str
    site: str
    kind: str
    size: str
    percent: int | None
    progress: str
    ready: str
    jobs: int
    state: str
    ready_at: datetime | None = None

    @classmethod
    def of(cls, row: Request, now: datetime) -> "RequestLine":
        """Build the table row of one request."""
        is_stage = row.kind is StagingKind.STAGE
        percent = None
        progress = "kept" if not is_stage else ""
        if is_stage and row.is_complete:
            percent, progress = 100, "complete"
        elif is_stage and row.files:
            percent = min(100, 100 * row.files_done // row.files)
            progress = f"{row.files_done:,} of {row.files:,} files"
        why = row.problem or row.reason
        state = f"{row.status}: {why}" if why else row.status
        ready = format_time(row.ready_at.timestamp(), now) if row.ready_at else ""
        return cls(
            row.did, row.site, row.kind.value, format_bytes(row.bytes), percent, progress, ready,
            row.job_count, state, row.ready_at,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlannedLine:
    """Table row of one planned request; ``reason`` says why it is not made."""

    batch: str
    datasets: str
    site: str
    size: str
    jobs: int
    reason: str

    @classmethod
    def of(cls, row: Batch) -> "PlannedLine":
        """Build the table row of one planned request."""
        dids, first = [one.did for one in row.requests], row.first
        names = comma_separated(dids[:3]) + (f" and {len(dids) - 3} more" if dids[3:] else "")
        return cls(first.batch, names, first.site, format_bytes(row.bytes), row.job_count, row.description)


@dataclass(frozen=True, slots=True)
class StagingSection:
    """The section of the page about requests of data."""

    as_of: datetime
    mode: str
    stop_reason: str | None
    problems: Sequence[tuple[str, str]]
    requests: Sequence[RequestLine]
    more_requests: int
    planned: Sequence[PlannedLine]
    more_planned: int


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


def build_staging_section(overview: StagingOverview | None, now: datetime) -> StagingSection | None:
    """Build the section; None if staging is off and no request is open. Stuck requests come first."""
    if overview is None or (overview.mode == "off" and not overview.requests):
        return None
    requests = sorted(overview.requests, key=lambda row: (not row.is_stuck, row.is_complete, row.asked_at))
    return StagingSection(
        overview.as_of,
        overview.mode,
        overview.stop_reason,
        sorted(overview.problems.items()),
        [RequestLine.of(row, now) for row in requests[:MAX_ROWS]],
        max(0, len(requests) - MAX_ROWS),
        [PlannedLine.of(row) for row in overview.planned[:MAX_ROWS]],
        max(0, len(overview.planned) - MAX_ROWS),
    )

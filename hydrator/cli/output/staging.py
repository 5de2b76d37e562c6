"""Output of ``hydrator staging list``, and the part of ``hydrator status`` about staging."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from hydrator.cli.output.plain_table import print_lines, print_table
from hydrator.domain.staging_ports import StagingKind
from hydrator.domain.text import (
    comma_separated,
    format_bytes,
    format_count,
    format_duration,
    format_time,
)
from hydrator.staging.overview import StagingOverview
from hydrator.staging.plan import NotAsked
from hydrator.staging.table import Request


@dataclass(frozen=True, slots=True)
class StagingList:
    """Pins and requests of data.

    Attributes:
        mode: off, propose or request, in the configuration.
        stopped: reason why nothing is requested or renewed now; null: the operator has not stopped it.
        last_step: result of the daemon's last step; null: there was none.
    """

    mode: str
    stopped: str | None
    last_step: StagingOverview | None


def print_staging(shown: StagingList, now: datetime) -> None:
    """Print the requests with their progress, the planned requests, and the jobs without any."""
    print_lines(_head_lines(shown, now))
    overview = shown.last_step
    if overview is None:
        return
    if overview.requests:
        columns = ("request", "kind", "site", "dataset", "progress", "bytes", "ready", "jobs", "state")
        print_table(columns, [_request_cells(row, now) for row in overview.requests])
    print_lines(
        f"{row.first.batch}: {row.description} (for {_jobs_text(row.first)})" for row in overview.planned
    )
    print_lines(
        f"not asked: {comma_separated(row.dids)}: {row.reason} ({_jobs_text(row)})"
        for row in overview.not_asked
    )
    print_lines(f"{where}: {rule} serves the jobs" for where, rule in sorted(overview.joined.items()))
    print_lines(
        f"limit reached: {' '.join(filter(None, (row.name, row.subject)))}, {row.used:,} of {row.limit:,}"
        for row in overview.limits
        if row.used and row.is_reached
    )


def _head_lines(shown: StagingList, now: datetime) -> Iterator[str]:
    overview = shown.last_step
    if overview is None and shown.mode == "off":
        yield "staging is off ([staging] mode): the daemon requests no data"
    elif overview is None:
        yield "the daemon has not made a step of staging yet"
    else:
        age = format_duration((now - overview.as_of).total_seconds())
        yield f"mode {overview.mode}, as of {age} ago, {format_count(len(overview.requests), 'request')}"
    if reason := shown.stopped or (overview.stop_reason if overview else None):
        yield f"nothing is requested or renewed: {reason}"
    for part, problem in sorted(overview.problems.items()) if overview else ():
        yield f"{part}: {problem}"


def _request_cells(row: Request, now: datetime) -> tuple[str, ...]:
    ready = format_time(row.ready_at.timestamp(), now) if row.ready_at else ""
    why = row.problem or row.reason
    state = " ".join(filter(None, (row.status, why and f"({why})")))
    return (
        row.batch, row.kind.value, row.site, row.did, describe_progress(row),
        format_bytes(row.bytes), ready, str(row.job_count), state,
    )  # fmt: skip


def describe_progress(row: Request) -> str:
    """Return the progress in files, such as ``40 of 100``; a pin has none."""
    if row.kind is StagingKind.PIN:
        return ""
    if row.is_complete:
        return "complete"
    return f"{row.files_done:,} of {row.files:,}" if row.files else ""


def _jobs_text(row: Request | NotAsked) -> str:
    owner = f" of {row.user}" if row.user else ""
    example = f" such as {row.example}" if row.example else ""
    return f"{format_count(row.job_count, 'job')}{owner}{example}"

"""Output of ``hydrator staging list``, and the part of ``hydrator status`` about staging."""

from collections.abc import Iterator
from datetime import datetime

from hydrator.cli.output.json_models.staging import (
    EndedRequestJson,
    NotAskedJson,
    StagingJson,
    StagingLimitJson,
    StagingPlanJson,
    StagingRequestJson,
)
from hydrator.cli.output.tables import print_lines, print_table
from hydrator.domain.model import to_unix
from hydrator.domain.text import (
    comma_separated,
    format_bytes,
    format_count,
    format_duration,
    format_percent,
    format_time,
)
from hydrator.staging.candidates import NotAsked
from hydrator.staging.ledger import EndedEntry
from hydrator.staging.overview import LimitRow, PlannedRow, RequestRow, StagingOverview

_NO_STEP = "the daemon has not made a step of staging yet"
_BAR_CHARS = 20


def staging_rows(overview: StagingOverview | None, stop_reason: str | None) -> StagingJson:
    """Return *overview* as JSON values; *stop_reason* is that of the operator's switch at this moment."""
    one = overview
    return {
        "as_of": to_unix(one.as_of) if one else None,
        "mode": one.mode if one else None,
        "stopped": stop_reason or (one.stop_reason if one else None),
        "problems": [
            {"part": part, "reason": reason} for part, reason in (sorted(one.problems.items()) if one else ())
        ],
        "requests": [_request_row(row) for row in (one.requests if one else ())],
        "planned": [_plan_row(row) for row in (one.planned if one else ())],
        "not_asked": [_not_asked_row(row) for row in (one.not_asked if one else ())],
        "joined": [
            {"dataset_at_site": where, "rule": rule}
            for where, rule in (sorted(one.joined.items()) if one else ())
        ],
        "limits": [_limit_row(row) for row in (one.limits if one else ())],
        "ended": [_ended_row(row) for row in (reversed(one.ended) if one else ())],
        "unused_share": min(1.0, one.unused_share) if one else 0.0,
    }


def _request_row(row: RequestRow) -> StagingRequestJson:
    return {
        "tag": row.tag,
        "batch": row.batch,
        "catalogue": row.catalogue,
        "kind": row.kind.value,
        "site": row.site,
        "dataset": row.did,
        "state": row.state,
        "bytes": row.bytes,
        "bytes_done": row.bytes_done,
        "files": row.files,
        "files_done": row.files_done,
        "request_id": row.handle,
        "user": row.user,
        "jobs": row.job_count,
        "asked_at": to_unix(row.asked_at),
        "ready_at": to_unix(row.ready_at) if row.ready_at else None,
        "expires_at": to_unix(row.expires_at) if row.expires_at else None,
        "complete": row.is_complete,
        "stuck": row.is_stuck,
        "reason": row.reason,
        "text": row.description,
    }


def _plan_row(row: PlannedRow) -> StagingPlanJson:
    return {
        "batch": row.batch,
        "catalogue": row.catalogue,
        "kind": row.kind.value,
        "site": row.site,
        "datasets": list(row.dids),
        "bytes": row.bytes,
        "files": row.files,
        "user": row.user,
        "jobs": row.job_count,
        "example": row.example,
        "needs_approval": row.needs_approval,
        "text": row.description,
    }


def _not_asked_row(row: NotAsked) -> NotAskedJson:
    return {
        "datasets": list(row.dids),
        "site": row.site,
        "user": row.user,
        "jobs": row.job_count,
        "example": row.example,
        "reason": row.reason,
        "waiting": row.is_waiting,
    }


def _limit_row(row: LimitRow) -> StagingLimitJson:
    return {
        "limit": row.name,
        "subject": row.subject,
        "used": row.used,
        "allowed": row.limit,
        "reached": row.used > 0 and row.is_reached,
    }


def _ended_row(row: EndedEntry) -> EndedRequestJson:
    return {
        "kind": row.kind.value,
        "site": row.site,
        "dataset": row.did,
        "bytes": row.bytes,
        "asked_at": to_unix(row.asked_at),
        "ended_at": to_unix(row.ended_at),
        "complete": row.is_complete,
        "used": row.was_used,
        "reason": row.reason,
    }


def print_staging(rows: StagingJson, now: datetime) -> None:
    """Print the requests with their progress, the planned requests, and the jobs without any."""
    print_lines(_head_lines(rows, now))
    if rows["requests"]:
        columns = ("request", "kind", "site", "dataset", "progress", "bytes", "ready", "jobs", "state")
        print_table(columns, [_request_cells(row, now) for row in rows["requests"]])
    print_lines(f"{row['batch']}: {row['text']} (for {_jobs_text(row)})" for row in rows["planned"])
    print_lines(
        f"not asked: {comma_separated(row['datasets'])}: {row['reason']} ({_jobs_text(row)})"
        for row in rows["not_asked"]
    )
    print_lines(f"{row['dataset_at_site']}: {row['rule']} serves the jobs" for row in rows["joined"])
    print_lines(
        f"limit reached: {' '.join(filter(None, (row['limit'], row['subject'])))},"
        f" {row['used']:,} of {row['allowed']:,}"
        for row in rows["limits"]
        if row["reached"]
    )


def _head_lines(rows: StagingJson, now: datetime) -> Iterator[str]:
    if rows["as_of"] is None:
        yield _NO_STEP
    else:
        age = format_duration(to_unix(now) - rows["as_of"])
        yield f"mode {rows['mode']}, as of {age} ago, {format_count(len(rows['requests']), 'request')}"
    if rows["stopped"]:
        yield f"nothing is requested or renewed: {rows['stopped']}"
    for problem in rows["problems"]:
        yield f"{problem['part']}: {problem['reason']}"
    if rows["unused_share"]:
        yield f"{format_percent(rows['unused_share'])} of the staged bytes ended without use"


def _request_cells(row: StagingRequestJson, now: datetime) -> tuple[str, ...]:
    ready = format_time(row["ready_at"], now) if row["ready_at"] is not None else ""
    state = " ".join(filter(None, (row["state"], row["reason"] and f"({row['reason']})")))
    return (
        row["batch"], row["kind"], row["site"], row["dataset"], describe_progress(row),
        format_bytes(row["bytes"]), ready, str(row["jobs"]), state,
    )  # fmt: skip


def describe_progress(row: StagingRequestJson) -> str:
    """Return the progress as a bar and a count, such as ``[########            ] 40/100``."""
    if row["kind"] == "pin":
        return ""
    if row["complete"]:
        return f"[{'#' * _BAR_CHARS}] complete"
    if not row["files"]:
        return ""
    done = min(1.0, row["files_done"] / row["files"])
    filled = int(done * _BAR_CHARS)
    return f"[{'#' * filled}{' ' * (_BAR_CHARS - filled)}] {row['files_done']:,}/{row['files']:,}"


def _jobs_text(row: StagingPlanJson | NotAskedJson) -> str:
    example = f" such as {row['example']}" if row["example"] else ""
    user = f" of {row['user']}" if row["user"] else ""
    return f"{format_count(row['jobs'], 'job')}{user}{example}"

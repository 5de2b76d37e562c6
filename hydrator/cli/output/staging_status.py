"""The part of ``hydrator status`` about staging."""

from collections.abc import Iterator

from hydrator.cli.output.json_models.staging import StagingStatusJson
from hydrator.domain.model import to_unix
from hydrator.domain.text import format_bytes, format_count
from hydrator.staging.overview import StagingOverview


def staging_status_row(overview: StagingOverview | None) -> StagingStatusJson | None:
    """Return the state of staging; None if it is off and no request is open."""
    if overview is None or (overview.mode == "off" and not overview.requests):
        return None
    return {
        "as_of": to_unix(overview.as_of),
        "mode": overview.mode,
        "stopped": overview.stop_reason,
        "requests": len(overview.requests),
        "stuck": sum(row.is_stuck for row in overview.requests),
        "in_flight_bytes": sum(overview.in_flight_bytes.values()),
        "planned": [row.description for row in overview.planned],
        "planned_bytes": sum(row.bytes for row in overview.planned),
        "problems": [f"{part}: {reason}" for part, reason in sorted(overview.problems.items())],
    }


def staging_lines(row: StagingStatusJson | None) -> Iterator[str]:
    """Yield the state of staging in lines for people, with what the mode propose would request."""
    if row is None:
        return
    requests = format_count(row["requests"], "request")
    stuck = f", {row['stuck']} stuck" if row["stuck"] else ""
    in_flight = format_bytes(row["in_flight_bytes"])
    yield f"staging: mode {row['mode']}, {requests}{stuck}, {in_flight} on the way (hydrator staging list)"
    yield from (f"staging: {text}" for text in row["planned"])


def staging_problem_lines(row: StagingStatusJson | None) -> Iterator[str]:
    """Yield the reasons why staging requests nothing, or less."""
    if row and row["stopped"]:
        yield f"staging requests and renews nothing: {row['stopped']}"
    yield from (f"staging: {problem}" for problem in (row["problems"] if row else ()))

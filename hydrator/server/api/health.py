"""The answer of ``/v1/health``: overall health, locality over time, requests of data. Pure."""

from datetime import datetime
from typing import Final

from hydrator.diagnostics.overview.locality_history import LocalitySpan
from hydrator.diagnostics.overview.parts import PartStatus
from hydrator.domain.model import to_unix
from hydrator.server.view import ServerState
from hydrator.staging.overview import RequestRow

from .models import LocalityShares, Overview, PartAnswer, RequestAnswer

MAX_REQUESTS: Final = 100


def build_health_answer(state: ServerState) -> Overview:
    """Build the answer from the present *state*."""
    health, locality = state.health, state.locality
    requests = state.staging.requests if state.staging else ()
    shown = sorted(requests, key=lambda row: (not row.is_stuck, row.is_complete, row.asked_at))[:MAX_REQUESTS]
    return {
        "version": 1,
        "now": to_unix(state.now),
        "status": health.status.value,
        "summary": health.summary,
        "needs": [
            {"subject": need.subject, "text": need.text, "command": need.command} for need in health.needs
        ],
        "parts": [_build_part(part) for part in state.parts],
        "locality": {
            "day": _build_shares(locality.last_day) if locality.last_day else None,
            "week": _build_shares(locality.last_week) if locality.last_week else None,
            "hours": [_build_shares(hour) for hour in locality.hours],
        },
        "staging": [_build_request(row) for row in shown],
    }


def _build_part(part: PartStatus) -> PartAnswer:
    return {
        "kind": part.kind.value,
        "name": part.name,
        "error": part.error,
        "failing_since": _unix_or_none(part.failing_since),
        "last_error": part.last_error,
        "last_error_at": _unix_or_none(part.last_error_at),
        "last_ok_at": _unix_or_none(part.last_ok_at),
    }


def _build_shares(span: LocalitySpan) -> LocalityShares:
    return {
        "at": to_unix(span.started_at),
        "jobs": span.job_count,
        "share_of_jobs": span.share_of_jobs,
        "share_of_bytes": span.share_of_bytes,
    }


def _build_request(row: RequestRow) -> RequestAnswer:
    return {
        "did": row.did,
        "site": row.site,
        "kind": row.kind.value,
        "state": row.state,
        "bytes": row.bytes,
        "share": row.share_done,
        "ready_at": _unix_or_none(row.ready_at),
        "jobs": row.job_count,
        "is_stuck": row.is_stuck,
    }


def _unix_or_none(time: datetime | None) -> int | None:
    return None if time is None else to_unix(time)

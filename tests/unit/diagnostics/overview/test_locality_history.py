"""Locality over time: hours become days."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.diagnostics.outcomes import EndedJob, EndedJobBatch, Start
from hydrator.diagnostics.overview.locality_history import (
    SHOWN_DAYS,
    build_overview,
    sum_batch,
)
from hydrator.domain.model import Snapshot
from hydrator.state.reports import LocalityHour
from tests.factories import HOUR, L1, MINUTE, NOON

DAY = timedelta(days=1)
NEVER = EndedJob(datasets=frozenset({L1}), start=Start.UNKNOWN)
PLAIN = EndedJob(last_started_at=NOON)
STARTED = [replace(NEVER, last_started_at=NOON, start=start) for start in list(Start)[:3]]
BATCH = EndedJobBatch((*STARTED, NEVER, PLAIN))


def test_batch_becomes_the_sums_of_its_hour():
    assert sum_batch(BATCH, None, NOON + 5 * MINUTE) == LocalityHour(NOON, 1, 3)
    assert sum_batch(EndedJobBatch((NEVER, PLAIN)), None, NOON) is None


@pytest.mark.parametrize(
    ("start", "read", "local"),
    [
        (Start.LOCAL, 0, 500),
        (Start.LOCAL, 10, 490),
        (Start.READ, 10, 490),
        (Start.READ, 0, 0),
        (Start.UNKNOWN, 0, 0),
        (Start.UNKNOWN, 900, 0),
    ],
)
def test_bytes_are_local_that_the_job_did_not_read_from_elsewhere(start, read, local):
    sized, unsized = Snapshot({}, bytes_total={L1: 500}), Snapshot({})
    batch = EndedJobBatch((replace(STARTED[0], start=start, read_bytes=read),))
    is_local = start is Start.LOCAL
    assert sum_batch(batch, sized, NOON) == LocalityHour(NOON, is_local, 1, local, 500)
    assert sum_batch(batch, unsized, NOON) == LocalityHour(NOON, is_local, 1)


def test_spans_have_the_share_of_bytes_among_those_of_known_size():
    hours = [
        LocalityHour(NOON, 1, 2, 30, 40),
        LocalityHour(NOON - HOUR, 0, 5, 0, 60),
        LocalityHour(NOON - DAY, 1, 1),
    ]
    overview = build_overview(hours, NOON)
    assert [(day.byte_count, day.share_of_bytes) for day in overview.days[-2:]] == [(0, None), (100, 0.3)]


def test_days_have_the_share_of_jobs_that_started_beside_their_data():
    hours = [
        LocalityHour(NOON - DAY, 6, 6),
        LocalityHour(NOON, 2, 4),
        LocalityHour(NOON - HOUR, 1, 1),
        LocalityHour(NOON - SHOWN_DAYS * DAY, 9, 9),
    ]
    days = build_overview(hours, NOON).days
    assert len(days) == SHOWN_DAYS
    assert [day.started_at for day in days[-2:]] == [(NOON - DAY).replace(hour=0), NOON.replace(hour=0)]
    assert [(day.job_count, day.share_of_jobs) for day in days[-2:]] == [(6, 1), (5, 0.6)]
    assert {(day.job_count, day.share_of_jobs) for day in days[:-2]} == {(0, None)}


def test_hours_after_now_do_not_count():
    overview = build_overview([LocalityHour(NOON + HOUR, 1, 1)], NOON)
    assert overview.days[-1].job_count == 0

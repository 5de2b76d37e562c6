"""Locality over time: hours become days."""

from dataclasses import replace
from datetime import timedelta

from hydrator.diagnostics.outcomes import EndedJob, EndedJobBatch, Start
from hydrator.diagnostics.overview.locality_history import (
    SHOWN_DAYS,
    build_overview,
    sum_batch,
)
from hydrator.state.reports import LocalityHour
from tests.factories import HOUR, L1, MINUTE, NOON

DAY = timedelta(days=1)
NEVER = EndedJob(datasets=frozenset({L1}), start=Start.UNKNOWN)
PLAIN = EndedJob(last_started_at=NOON)
STARTED = [replace(NEVER, last_started_at=NOON, start=start) for start in list(Start)[:3]]
BATCH = EndedJobBatch((*STARTED, NEVER, PLAIN))


def test_batch_becomes_the_sums_of_its_hour():
    assert sum_batch(BATCH, NOON + 5 * MINUTE) == LocalityHour(NOON, 1, 3)
    assert sum_batch(EndedJobBatch((NEVER, PLAIN)), NOON) is None


def test_days_have_the_share_of_jobs_that_started_beside_their_data():
    hours = [
        LocalityHour(NOON - DAY, 6, 6),
        LocalityHour(NOON, 2, 4),
        LocalityHour(NOON - HOUR, 1, 1),
        LocalityHour(NOON - SHOWN_DAYS * DAY, 9, 9),
    ]
    days = build_overview(hours, NOON).days
    assert len(days) == SHOWN_DAYS
    assert [day.started_at for day in days[-2:]] == [(NOON - DAY).date(), NOON.date()]
    assert [(day.job_count, day.share_of_jobs) for day in days[-2:]] == [(6, 1), (5, 0.6)]
    assert {(day.job_count, day.share_of_jobs) for day in days[:-2]} == {(0, None)}


def test_hours_after_now_do_not_count():
    overview = build_overview([LocalityHour(NOON + HOUR, 1, 1)], NOON)
    assert overview.days[-1].job_count == 0

"""Locality over time: hours become days."""

from datetime import timedelta

import pytest

from hydrator.daemon.background import maintenance as locality
from hydrator.diagnostics.job_outcomes import JobOutcomeBatch
from hydrator.diagnostics.outcomes import JobOutcome, LocalityResult, parse_ended_job
from hydrator.diagnostics.overview.locality_history import (
    SHOWN_DAYS,
    build_overview,
    sum_batch,
)
from hydrator.domain.errors import StateError
from hydrator.state.locality_hours import LocalityHour
from hydrator.state.store import Store
from tests.factories import HOUR, MINUTE, NOON

DAY = timedelta(days=1)
JOB = parse_ended_job({})
BATCH = JobOutcomeBatch(
    (
        JobOutcome(JOB, LocalityResult.ALL, 70, 0),
        JobOutcome(JOB, LocalityResult.SOME, 20, 10),
        JobOutcome(JOB, LocalityResult.UNKNOWN),
    ),
)


def test_batch_becomes_the_sums_of_its_hour():
    expected = LocalityHour(NOON, 1, 1, 0, 1, 90, 10)
    assert sum_batch(BATCH, NOON + 5 * MINUTE) == expected
    assert sum_batch(JobOutcomeBatch(jobs=(JOB,)), NOON) is None


def test_days_have_shares_without_unknown_results():
    hours = [
        LocalityHour(NOON - DAY, 1, 0, 0, 5, 0, 0),
        LocalityHour(NOON, 2, 1, 1, 0, 60, 40),
        LocalityHour(NOON - HOUR, 1, 0, 0, 0, 100, 0),
        LocalityHour(NOON - SHOWN_DAYS * DAY, 9),
    ]
    days = build_overview(hours, NOON).days
    assert len(days) == SHOWN_DAYS
    assert [day.day for day in days[-2:]] == [(NOON - DAY).date(), NOON.date()]
    assert (days[-1].job_count, days[-1].share_of_jobs, days[-1].share_of_bytes) == (5, 0.6, 0.8)
    assert (days[-2].job_count, days[-2].share_of_jobs, days[-2].share_of_bytes) == (6, 1, None)
    assert {(day.job_count, day.share_of_jobs) for day in days[:-2]} == {(0, None)}


def test_hours_after_now_do_not_count():
    overview = build_overview([LocalityHour(NOON + HOUR, 1)], NOON)
    assert overview.days[-1].job_count == 0


@pytest.fixture(autouse=True)
def noon(monkeypatch) -> None:
    monkeypatch.setattr(locality, "system_clock", lambda: NOON)


def test_keeper_saves_each_batch_and_shares_the_overview(tmp_path):
    shared = []
    with Store.open_to_write(tmp_path) as store:
        keeper = locality.LocalityKeeper(store.locality_hours, shared.append)
        keeper.add()
        keeper.add(BATCH)
        keeper.add(BATCH)
    assert [overview.days[-1].job_count for overview in shared] == [0, 3, 6]


def test_state_that_cannot_be_written_keeps_the_last_overview():
    class Full:
        def add(self, hour):
            raise StateError("the disk is full")

    keeper = locality.LocalityKeeper(Full(), pytest.fail)  # type: ignore[arg-type]
    keeper.add(BATCH)

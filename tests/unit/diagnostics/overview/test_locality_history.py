"""Locality over time: hours become days."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.daemon.background import maintenance as locality
from hydrator.diagnostics.outcomes import EndedJob, EndedJobBatch, Start
from hydrator.diagnostics.overview.locality_history import (
    SHOWN_DAYS,
    build_overview,
    sum_batch,
)
from hydrator.domain.errors import StateError
from hydrator.state.locality_hours import LocalityHour
from hydrator.state.store import Store
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

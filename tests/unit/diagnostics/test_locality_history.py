"""Locality over time: hours become days and the estimates of a week."""

from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from hydrator.daemon.background import locality
from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.counterfactual import Counterfactual, Estimate
from hydrator.diagnostics.job_outcomes import JobOutcomeBatch
from hydrator.diagnostics.locality_history import SHOWN_DAYS, build_overview, sum_batch
from hydrator.diagnostics.outcomes import JobOutcome, LocalityResult, parse_ended_job
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
    comparison=Counterfactual(Estimate(30.0), None),
)


def test_batch_becomes_the_sums_of_its_hour():
    expected = LocalityHour(NOON, 1, 1, 0, 1, 90, 10, 30.0, None)
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


def test_week_adds_the_estimates_of_7_days_with_an_interval_over_days():
    hours = [LocalityHour(NOON - age * DAY, bytes_not_moved=10.0 * age) for age in range(10)]
    estimate = build_overview(hours, NOON).bytes_not_moved
    assert estimate.value == sum(10 * age for age in range(8))
    assert 0 < estimate.low < estimate.value < estimate.high < 8 * 70
    assert build_overview(hours, NOON).seconds_gained is None
    few = build_overview(hours[:3], NOON).bytes_not_moved
    assert few == Estimate(30.0)


def test_hours_after_now_do_not_count():
    overview = build_overview([LocalityHour(NOON + HOUR, 1, bytes_not_moved=5.0)], NOON)
    assert (overview.bytes_not_moved, overview.days[-1].job_count) == (None, 0)


@pytest.fixture
def registry(monkeypatch) -> CollectorRegistry:
    monkeypatch.setattr(locality, "system_clock", lambda: NOON)
    return CollectorRegistry()


def test_keeper_saves_each_batch_and_shares_the_overview(tmp_path, registry):
    shared, metrics = [], Metrics(registry, "0")
    with Store.open_to_write(tmp_path) as store:
        keeper = locality.LocalityKeeper(store.locality_hours, metrics, shared.append)
        keeper.add()
        assert registry.get_sample_value("hydrator_estimated_not_moved_bytes", {"bound": "value"}) is None
        keeper.add(BATCH)
        keeper.add(BATCH)
    assert [overview.days[-1].job_count for overview in shared] == [0, 3, 6]
    assert shared[-1].bytes_not_moved == Estimate(60.0)
    for bound, expected in (("value", 60), ("low", None)):
        assert registry.get_sample_value("hydrator_estimated_not_moved_bytes", {"bound": bound}) == expected
    assert registry.get_sample_value("hydrator_estimated_gained_seconds", {"bound": "value"}) is None


def test_estimate_that_is_not_made_any_more_leaves_the_metrics(registry):
    metrics = Metrics(registry, "0")
    metrics.set_locality_estimates(Estimate(5.0, -1.0, 9.0), Estimate(2.0))
    assert registry.get_sample_value("hydrator_estimated_not_moved_bytes", {"bound": "low"}) == -1
    assert registry.get_sample_value("hydrator_estimated_gained_seconds", {"bound": "value"}) == 2
    metrics.set_locality_estimates(Estimate(5.0), None)
    assert registry.get_sample_value("hydrator_estimated_not_moved_bytes", {"bound": "low"}) is None
    assert registry.get_sample_value("hydrator_estimated_gained_seconds", {"bound": "value"}) is None


def test_state_that_cannot_be_written_keeps_the_last_overview(registry):
    class Full:
        def add(self, hour):
            raise StateError("the disk is full")

    keeper = locality.LocalityKeeper(Full(), Metrics(registry, "0"), pytest.fail)  # type: ignore[arg-type]
    keeper.add(BATCH)

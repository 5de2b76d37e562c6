"""Locality over time: hours become days and the estimates of a week."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from hydrator.daemon.background import locality
from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.counterfactual import Estimate, compare
from hydrator.diagnostics.counterfactual.placement import ComparedJobs, PlacedJob, place_jobs
from hydrator.diagnostics.job_outcomes import JobOutcomeBatch
from hydrator.diagnostics.outcomes import AdHistory, JobOutcome, LocalityResult, parse_ended_job
from hydrator.diagnostics.overview import locality_history
from hydrator.diagnostics.overview.locality_history import (
    SHOWN_DAYS,
    DayComparison,
    build_overview,
    sum_batch,
)
from hydrator.domain.ads.estimates import Rate
from hydrator.domain.errors import StateError
from hydrator.domain.model import Site, to_unix
from hydrator.reconcile.history import HistoryEntry
from hydrator.state.locality_hours import LocalityHour
from hydrator.state.store import Store
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, OSO, RAL, ad

DAY = timedelta(days=1)
JOB = parse_ended_job({})
SAVED = PlacedJob(("ann", NOON.date()), CAM, {CAM: 0.0, RAL: 60.0}, None, None, {CAM: 1.0, RAL: 1.0})
BATCH = JobOutcomeBatch(
    (
        JobOutcome(JOB, LocalityResult.ALL, 70, 0),
        JobOutcome(JOB, LocalityResult.SOME, 20, 10),
        JobOutcome(JOB, LocalityResult.UNKNOWN),
    ),
    placed=ComparedJobs([SAVED], started_count=3),
)


class OneRate:
    """The same rate between all sites."""

    def rate(self, source: Site, destination: Site) -> Rate:
        return Rate(10.0, "test")


def test_batch_becomes_the_sums_of_its_hour():
    expected = LocalityHour(NOON, 1, 1, 0, 1, 90, 10, 30.0, None)
    day = DayComparison()
    assert sum_batch(BATCH, day, NOON + 5 * MINUTE) == expected
    assert sum_batch(JobOutcomeBatch(jobs=(JOB,)), day, NOON) is None


@pytest.mark.parametrize("batch_size", [1, 7, 60])
def test_batches_add_up_to_the_comparison_of_all_their_jobs(batch_size):
    """Jobs of one batch alone would be a pool in which every slot reads what these few jobs read."""
    ads = AdHistory(
        HistoryEntry(NOON - DAY, ad(*dids, site=site), ())
        for site, dids in ((CAM, [L1]), (RAL, [L2]), (OSO, []))
    )
    slots = {NOON - MINUTE: dict.fromkeys((CAM, RAL, OSO), 40.0)}
    jobs = [job_beside_its_data(L1, CAM)] * 40 + [job_beside_its_data(L2, RAL)] * 20
    day, hours = DayComparison(), []
    for start in range(0, len(jobs), batch_size):
        placed = place_jobs(jobs[start : start + batch_size], ads, {}, slots, OneRate())
        batch = JobOutcomeBatch((JobOutcome(JOB, LocalityResult.ALL),), placed=placed)
        hours.append(sum_batch(batch, day, NOON))
    whole = compare(jobs, ads, {}, slots, OneRate())
    assert sum(hour.bytes_not_moved for hour in hours) == pytest.approx(whole.bytes_not_moved.value)
    assert sum(hour.seconds_gained for hour in hours) == pytest.approx(whole.seconds_gained.value)


def job_beside_its_data(did, site):
    start = to_unix(NOON)
    row = {"QDate": start, "JobStartDate": start, "EnteredCurrentStatus": start + 60, "Owner": "ann"}
    return parse_ended_job(row | {"site": site, "datasets": [did], "bytes": {did: 600}})


def test_comparison_of_a_day_holds_some_jobs_and_begins_again_on_the_next_day(monkeypatch):
    monkeypatch.setattr(locality_history, "MAX_HELD_JOBS", 1)
    day = DayComparison()
    others = {(("bob", NOON.date()), RAL): 30}
    held = [
        ComparedJobs([SAVED]),
        ComparedJobs([SAVED]),
        ComparedJobs([SAVED]),
        ComparedJobs(others=Counter(others)),
    ]
    times = [NOON, NOON, NOON, NOON + DAY]
    parts = [day.add(placed, at) for placed, at in zip(held, times, strict=True)]
    assert parts == [[30.0, None]] * 3 + [[None, None]]


def test_jobs_without_data_that_change_the_estimate_are_saved():
    """The first jobs had no sample of the slots, so they are placed where jobs without data ran."""
    day = DayComparison()
    unsampled = ComparedJobs([replace(SAVED, slots=None)])
    assert day.add(unsampled, NOON) == [None, None]
    others = ComparedJobs(others=Counter({(("bob", NOON.date()), RAL): 30}))
    assert sum_batch(JobOutcomeBatch(placed=others), day, NOON) == LocalityHour(NOON, bytes_not_moved=60.0)


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

"""Metrics of staging: from the overview of a step, without names of datasets or users."""

from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hydrator.daemon.metrics import Instruments
from hydrator.daemon.staging import StagingMetrics
from hydrator.domain.staging_ports import RefusalKind, RequestState
from hydrator.staging.overview import LimitRow
from tests.factories import CAM, L1, L2, OSO
from tests.staging_world import ANN, TERABYTE, StagingWorld, need, run


class Recorder:
    """The metrics of a world, recorded after each step."""

    def __init__(self, world: StagingWorld) -> None:
        self.world = world
        self.registry = CollectorRegistry()
        self.metrics = StagingMetrics(Instruments(self.registry))
        world.restart(audit=lambda write, _one, error: self.metrics.count_call(write, error))

    def step(self, after: timedelta = timedelta(minutes=1)) -> None:
        self.metrics.record(self.world.step(after))

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"hydrator_staging_{name}", labels)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(StagingWorld(L1=1, L2=3))


def test_open_requests_and_bytes_in_flight_end_with_the_request(recorder):
    recorder.world.queue(need(L1))
    recorder.step()
    assert recorder.value("open_requests", site=CAM, kind="stage") == 1
    assert recorder.value("open_requests", site=CAM, kind="pin") == 0
    assert recorder.value("in_flight_bytes", site=CAM) == TERABYTE
    recorder.world.arrive()
    recorder.step()
    assert recorder.value("in_flight_bytes", site=CAM) == 0
    assert recorder.value("bytes_total", outcome="staged") == TERABYTE


def test_stuck_request_counts_at_its_site(recorder):
    recorder.world.queue(need(L1))
    recorder.step()
    (handle,) = recorder.world.stager.rules
    recorder.world.stager.set(handle, state=RequestState.STUCK)
    recorder.step()
    assert recorder.value("stuck_requests", site=CAM) == 0
    recorder.step(timedelta(hours=25))
    assert recorder.value("stuck_requests", site=CAM) == 1


def test_refusals_count_by_kind_and_begin_at_zero(recorder):
    assert recorder.value("refusals_total", kind="quota") == 0
    recorder.world.stager.refusals[L1] = (RefusalKind.QUOTA, "the account's limit is 0")
    recorder.world.queue(need(L1))
    recorder.step()
    assert recorder.value("refusals_total", kind="quota") == 1


def test_jobs_that_only_wait_are_not_unserved(recorder):
    recorder.world.add_dataset(L1, 9)
    recorder.world.queue(need(L1, jobs=4), need(L2, jobs=7, queued_since=recorder.world.clock.now))
    recorder.step()
    assert recorder.value("unserved_jobs") == 4


def test_largest_share_of_a_limit_is_shown_once(recorder):
    overview = recorder.world.step()
    rows = (
        LimitRow("site_tb", CAM, 5, 10),
        LimitRow("site_tb", OSO, 9, 10),
        LimitRow("pins", "", 0, 0),
    )
    recorder.metrics.record(replace(overview, limits=rows))
    assert recorder.value("limit_used_ratio", limit="site_tb") == 0.9
    assert recorder.value("limit_used_ratio", limit="pins") == 0


def test_problems_are_shown(recorder):
    recorder.world.stager.is_broken = True
    recorder.world.queue(need(L1))
    recorder.step()
    assert recorder.value("problems") >= 1


def test_no_label_names_a_dataset_or_a_user(recorder):
    recorder.world.queue(need(L1), need(L2))
    recorder.step()
    text = generate_latest(recorder.registry).decode()
    assert CAM in text
    assert not [name for name in (L1, L2, ANN) if name in text]


def test_outcomes_and_bytes_are_counted_from_the_start_of_the_daemon(recorder):
    world = recorder.world
    world.queue(need(L1))
    recorder.step()
    assert recorder.value("requests_total", outcome="asked") == 1
    assert recorder.value("bytes_total", outcome="asked") == TERABYTE
    world.arrive()
    recorder.step()
    world.queue()
    recorder.step()
    for _ in range(3):
        recorder.step(timedelta(days=7))
    assert recorder.value("bytes_total", outcome="unused") == TERABYTE
    again = Recorder(world)
    again.step()
    assert again.value("bytes_total", outcome="unused") == 0


def test_data_that_a_job_used_is_not_unused(recorder):
    world = recorder.world
    world.queue(need(L1))
    recorder.step()
    recorder.step()
    world.arrive()
    world.queue(run(L1, site=CAM))
    recorder.step()
    recorder.step()
    world.queue()
    for _ in range(3):
        recorder.step(timedelta(days=7))
    assert recorder.value("bytes_total", outcome="unused") == 0

"""The estimator: queries beside the cycles, failures that stop no cycle, and saved estimates."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hydrator.daemon.metrics import Metrics
from hydrator.domain.ads.estimates import RateLookup
from hydrator.domain.bugs import BugReporter
from hydrator.domain.model import Unseen
from hydrator.domain.ports import PoolLoad, ScheddLoad
from hydrator.reconcile.estimates.estimate import EstimatePolicy, Estimation, Estimator
from hydrator.reconcile.estimates.report import (
    REPORT_NAME,
    RUN_TIMES_NAME,
    SAVE_INTERVAL,
    EstimatesSaver,
    load_estimation,
    parse_estimates,
)
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.state.store import Store
from tests.factories import CAM, L1, MINUTE, NOON, RAL, replica
from tests.memory import MemoryPoolLoads
from tests.unit.reconcile.estimates.test_estimate import BASE
from tests.unit.reconcile.estimates.worlds import DE, GB, UK, Rates, SiteSlots, idle, numbers, running
from tests.unit.reconcile.test_reconciler import World as Cycles


def estimator(loads: MemoryPoolLoads | None, rates: RateLookup | None = Rates(), **more) -> Estimator:  # noqa: B008
    return Estimator(loads, lambda: rates, **more)


def make(one: Estimator, now: datetime = NOON, *, ask: bool = True) -> Estimation:
    if ask:
        one.begin_query()
        one.await_query()
    one.make(BASE.snapshot(), BASE.demand(), now)
    return one.last


@pytest.mark.outside
def test_estimates_are_made_from_the_last_load() -> None:
    loads = MemoryPoolLoads(BASE.load())
    one = estimator(loads)
    assert numbers(make(one), DE) == (256, 256)
    loads.load = BASE.with_(idle=()).load(NOON + MINUTE)
    assert numbers(make(one, NOON + MINUTE), DE)[1] == 1024  # 1 h / 4 slots: the run time is the default


def test_without_a_query_there_are_no_estimates() -> None:
    one = estimator(MemoryPoolLoads(BASE.load()))
    assert make(one, ask=False).none_reason == "the jobs and slots of the pool were not queried yet"
    assert make(estimator(None)).none_reason == "the daemon does not query the schedds ([demand] ask_schedds)"


@pytest.mark.outside
def test_a_failed_query_keeps_the_last_load_until_it_is_too_old() -> None:
    loads = MemoryPoolLoads(BASE.load())
    one = estimator(loads)
    make(one)
    loads.is_broken = True
    assert make(one, NOON + 5 * MINUTE).estimates is not None
    assert "broken" in str(make(one, NOON + 6 * MINUTE).none_reason)


@pytest.mark.outside
def test_schedds_that_fail_in_turn_count_with_their_last_answers() -> None:
    """Each answers every other minute, never both at once."""
    jobs = {"ap1": ScheddLoad((idle(6, "t:a"),)), "ap2": ScheddLoad((idle(4, "t:a"),))}
    loads = MemoryPoolLoads(PoolLoad(NOON, {**jobs}, BASE.slots))
    one = estimator(loads)
    assert numbers(make(one), DE) == (256, 256)
    for minute in range(1, 12):
        silent = ("ap1", "ap2")[minute % 2]
        answers = {**jobs, silent: Unseen("timeout")}
        loads.load = PoolLoad(NOON + minute * MINUTE, answers, BASE.slots)
        assert numbers(make(one, NOON + minute * MINUTE), DE) == (256, 256), minute
    for minute in (12, 16, 17):  # ap1 answered last in minute 11, and that counts for 5 minutes
        loads.load = PoolLoad(NOON + minute * MINUTE, {**jobs, "ap1": Unseen("timeout")}, BASE.slots)
        reason = make(one, NOON + minute * MINUTE).none_reason
        assert reason == (None if minute <= 16 else "schedd ap1: timeout")
    loads.load = PoolLoad(NOON + 30 * MINUTE, {"ap2": jobs["ap2"]}, BASE.slots)
    assert make(one, NOON + 30 * MINUTE).none_reason is None, "a schedd that the pool no longer has"


def test_estimates_that_are_switched_off_query_nothing() -> None:
    loads = Slow(BASE.load())
    one = estimator(loads, policy=EstimatePolicy(is_enabled=False))
    assert make(one).none_reason == "estimates are switched off ([estimates] enabled)"
    assert loads.queries == 0


class Slow(MemoryPoolLoads):
    """A load that answers only when the test allows it."""

    def __init__(self, load: PoolLoad) -> None:
        super().__init__(load)
        self.may_answer = threading.Event()
        self.queries = 0

    def read_load(self) -> PoolLoad:
        self.queries += 1
        assert self.may_answer.wait(60)
        return super().read_load()


@pytest.mark.outside
def test_a_slow_query_delays_no_cycle_and_is_not_repeated_meanwhile() -> None:
    loads = Slow(BASE.load())
    one = estimator(loads)
    for _ in range(3):
        one.begin_query()
        one.await_query(timedelta(milliseconds=1))
        one.make(BASE.snapshot(), BASE.demand(), NOON)
        assert one.last.none_reason == "the jobs and slots of the pool were not queried yet"
    loads.may_answer.set()
    one.await_query()
    assert make(one, ask=False).estimates is not None
    assert loads.queries == 1


class Buggy(MemoryPoolLoads):
    """A load whose query has a bug."""

    def read_load(self) -> PoolLoad:
        raise ZeroDivisionError


class BuggyRates(Rates):
    """Rates whose look-up has a bug."""

    def rate(self, source, destination):
        raise ZeroDivisionError


@pytest.mark.outside
def test_a_bug_in_a_query_or_in_rates_means_no_estimates() -> None:
    counted: list[str] = []
    bugs = BugReporter(counted.append)
    assert "ZeroDivisionError" in str(make(estimator(Buggy(BASE.load()), bugs=bugs)).none_reason)
    assert "ZeroDivisionError" in str(
        make(estimator(MemoryPoolLoads(BASE.load()), BuggyRates(), bugs=bugs)).none_reason
    )
    assert counted == ["the query of jobs and slots", "the estimates"]


# in the cycle


def cycles(loads: MemoryPoolLoads, *, rates: RateLookup | None = Rates(), **more) -> Cycles:  # noqa: B008
    rules = ReconcilePolicy(pins=frozenset({L1}))
    made = Cycles(replica(L1, CAM), rules=rules, estimator=estimator(loads, rates), **more)
    made.catalogue.bytes_total = {L1: 10 * GB}
    return made


LOAD = PoolLoad(
    NOON,
    {"ap1": ScheddLoad((idle(10, L1),))},
    (SiteSlots(CAM, 1, 0, 4), SiteSlots(RAL, 1, 1, 4)),
)


@pytest.mark.outside
def test_ads_without_rates_have_the_own_queue_alone() -> None:
    world = cycles(MemoryPoolLoads(LOAD), rates=None)
    report = world.ask_and_run(timedelta())
    assert report.estimates is None
    ad = dict(world.collector.ads[CAM].attributes)
    assert ad["DataLocalityOwnQueueSeconds"] == "256"
    assert "DataLocalityEstimatesUntil" in ad
    for site in (CAM, RAL):
        lines = dict(world.collector.ads[site].attributes)
        for name in ("DataLocalityReadSeconds", "DataLocalityQueueSeconds"):
            assert lines.get(name, "[]") == "[]", (site, name)
    registry = CollectorRegistry()
    Metrics(registry, "0").record_cycle(report, 1.0)
    assert registry.get_sample_value("hydrator_estimates_made") == 0
    assert registry.get_sample_value("hydrator_site_own_queue_seconds", {"site": CAM}) == 256


@pytest.mark.outside
def test_ads_that_change_for_estimates_alone_are_counted() -> None:
    loads = MemoryPoolLoads(LOAD)
    world = cycles(loads)
    registry = CollectorRegistry()
    metrics = Metrics(registry, "0")

    def run() -> list[float | None]:
        metrics.record_cycle(world.ask_and_run(timedelta()), 1.0)
        return [
            registry.get_sample_value("hydrator_estimate_rewrites_total", {"site": site})
            for site in (CAM, RAL)
        ]

    assert run() == [0, 0], "new ads"
    assert run() == [0, 0], "no change"
    loads.load = replace(LOAD, schedds={"ap1": ScheddLoad((idle(100, L1),))})
    assert run() == [1, 1], "a longer queue"
    loads.load = LOAD
    world.catalogue.replicas = [replica(L1, CAM), replica(L1, RAL)]
    assert run() == [2, 1], "RAL has the dataset now, so its ad changes for another reason"


@pytest.mark.outside
def test_a_pool_without_an_answer_stops_no_cycle() -> None:
    world = cycles(MemoryPoolLoads(LOAD, is_broken=True))
    report = world.ask_and_run(timedelta())
    assert report.is_complete
    assert report.estimates is None
    assert "broken" in str(report.estimation.none_reason)
    assert set(world.collector.ads) == {CAM, RAL}


@pytest.mark.outside
def test_the_state_has_the_estimates_of_the_last_cycle(tmp_path) -> None:
    with Store.open_to_write(tmp_path) as store:
        world = cycles(MemoryPoolLoads(LOAD), store=store)
        report = world.ask_and_run(timedelta())
        saved = parse_estimates(store.load_report(REPORT_NAME))
        restarted = load_estimation(store.load_report)
    assert saved is not None
    assert saved.estimates == report.estimates
    assert saved.at == NOON
    assert restarted.estimates == report.estimates


@pytest.mark.outside
def test_a_restarted_daemon_has_the_run_times_of_jobs_that_ended(tmp_path) -> None:
    """A job that is 400 s old at noon has ended a minute later: the daemon takes 430 s, half of it."""
    with Store.open_to_write(tmp_path) as store:
        loads = MemoryPoolLoads(
            replace(LOAD, schedds={"ap1": ScheddLoad((), (running(CAM, L1, ages=[400], seconds=None),))})
        )
        world = cycles(loads, store=store)
        world.ask_and_run(timedelta())
        loads.load = replace(LOAD, as_of=NOON + MINUTE, schedds={"ap1": ScheddLoad((), ())})
        world.ask_and_run()
    with Store.open_to_read(tmp_path) as store:
        restarted = load_estimation(store.load_report)
    assert restarted.history.samples["pool", "", "beside"] == (430.0,)
    assert restarted.history.running == {}


class Reports:
    """A store that counts the saved estimates, and keeps the last run times."""

    def __init__(self) -> None:
        self.count = 0
        self.run_times: list[Mapping[str, Any]] = []

    def save_report(self, key: str, body: Mapping[str, Any]) -> None:
        if key == RUN_TIMES_NAME:
            self.run_times.append(body)
        else:
            self.count += 1


def test_run_times_are_saved_when_a_job_has_ended_at_most_once_a_minute() -> None:
    store, saver = Reports(), EstimatesSaver()
    begun = BASE.with_(running=(running(UK, "t:a", ages=[400, 90], seconds=None),))
    first = begun.estimate()
    saver.save(store, first, NOON)
    assert store.run_times == [], "no job has ended"
    one_left = BASE.with_(running=(running(UK, "t:a", ages=[400], seconds=None),))
    second = one_left.estimate(previous=first, at=NOON + SAVE_INTERVAL)
    saver.save(store, second, NOON + SAVE_INTERVAL)
    assert len(store.run_times) == 1
    saver.save(
        store, one_left.estimate(previous=second, at=NOON + 3 * SAVE_INTERVAL), NOON + 3 * SAVE_INTERVAL
    )
    assert len(store.run_times) == 1, "no other job has ended"
    third = BASE.estimate(previous=second, at=NOON + 4 * SAVE_INTERVAL)
    saver.save(store, third, NOON + 1.5 * SAVE_INTERVAL)
    assert len(store.run_times) == 1, "too soon"
    saver.save(store, third, NOON + 4 * SAVE_INTERVAL)
    assert len(store.run_times) == 2
    saver.save(store, Estimation(none_reason="a bug"), NOON + 9 * SAVE_INTERVAL)
    assert len(store.run_times) == 2, "a bug forgets nothing on disk"


def test_estimates_are_saved_when_they_change_and_once_a_minute() -> None:
    store, saver = Reports(), EstimatesSaver()
    first = BASE.estimate()
    saver.save(store, first, NOON)
    saver.save(store, BASE.estimate(), NOON + SAVE_INTERVAL / 2)
    assert store.count == 1
    saver.save(store, BASE.with_(idle=()).estimate(), NOON + SAVE_INTERVAL / 2)
    assert store.count == 2
    saver.save(store, BASE.with_(idle=()).estimate(), NOON + 2 * SAVE_INTERVAL)
    assert store.count == 3

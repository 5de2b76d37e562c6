"""Two daemons on one pool by accident: each notices the other, and one alone notices nobody."""

from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from hydrator.daemon.logs import cycle_log_fields
from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.overview.saved import Status
from hydrator.diagnostics.problems import find_problems
from hydrator.reconcile.publish import RIVAL_WINDOW
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.state import ReconcileState
from tests.factories import CAM, L1, MINUTE, NOON, RAL, replica, settings_with, view_of
from tests.memory import MemoryCatalogue, MemoryPublisher
from tests.unit.reconcile.cycles import build_cycle


class Pool:
    """A collector, a catalogue and a clock that several daemons share."""

    def __init__(self) -> None:
        self.now = NOON
        self.collector = MemoryPublisher("collector", clock=self.clock)
        self.catalogue = MemoryCatalogue("rucio", [replica(L1, CAM)], (CAM, RAL), clock=self.clock)

    def clock(self):
        return self.now

    def daemon(self, state: ReconcileState | None = None) -> Reconciler:
        return build_cycle(
            [self.collector],
            self.clock,
            catalogues=[self.catalogue],
            settings=settings_with(pins={L1}),
            state=state or ReconcileState(),
        )

    def turns(self, *daemons: Reconciler, polls: int) -> list[CycleReport]:
        """What the last poll of each daemon came to, after so many polls of all, a minute apart."""
        reports = []
        for _ in range(polls):
            reports = []
            for one in daemons:
                self.now += MINUTE / len(daemons)
                reports.append(one.run())
        return reports


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_two_daemons_notice_each_other_within_some_polls(pool):
    for report in pool.turns(pool.daemon(), pool.daemon(), polls=15):
        assert "another daemon also writes to this publisher" in report.rivals["collector"]
        assert str(CAM) in report.rivals["collector"]


def test_rival_is_in_log_metrics_check_and_status(pool):
    report, _ = pool.turns(pool.daemon(), pool.daemon(), polls=15)
    assert cycle_log_fields(view_of(report), 1.0)["rivals"] == report.rivals
    registry = CollectorRegistry()
    metrics = Metrics(registry, "1")
    metrics.record_cycle(view_of(report), 1.0)
    assert registry.get_sample_value("hydrator_rivals", {"publisher": "collector"}) == 1
    problems = find_problems(Status(view_of(report), None, (), None, None), pool.now)
    (found,) = [one for one in problems if "another daemon" in one.message]
    assert "docs/operators/monitoring.md#hydratorrival" in found.todo
    metrics.record_cycle(view_of(pool.turns(Pool().daemon(), polls=1)[0]), 1.0)
    assert registry.get_sample_value("hydrator_rivals", {"publisher": "collector"}) == 0


def test_one_daemon_is_no_rival_of_itself_through_changes_and_restarts(pool):
    one = pool.daemon()
    for number in range(6):
        pool.catalogue.replicas = (replica(L1, CAM if number % 2 else RAL),)
        (report,) = pool.turns(one, polls=8)
        assert report.rivals == {}
        one = pool.daemon(one.state if number % 3 else None)


def test_a_daemon_that_just_ended_is_no_rival(pool):
    old, new = pool.daemon(), pool.daemon()
    pool.turns(old, new, polls=1)
    pool.turns(new, polls=1)
    pool.turns(old, polls=1)
    (report,) = pool.turns(new, polls=8)
    assert report.rivals == {}


def test_a_rival_that_ended_is_forgotten(pool):
    one, other = pool.daemon(), pool.daemon()
    assert pool.turns(one, other, polls=15)[0].rivals
    pool.now += RIVAL_WINDOW + timedelta(minutes=5)
    (report,) = pool.turns(one, polls=2)
    assert report.rivals == {}


def test_the_only_cycle_of_once_names_a_running_daemon_of_the_pool(pool):
    daemon, once = pool.daemon(), pool.daemon()
    pool.turns(daemon, polls=3)
    why = once.run(is_only=True).rivals["collector"]
    assert "another daemon published 2 sites here, CAM" in why


def test_a_second_once_with_the_same_state_is_no_rival(pool):
    first = pool.daemon()
    assert first.run(is_only=True).rivals == {}
    pool.now += timedelta(minutes=5)
    assert pool.daemon(first.state).run(is_only=True).rivals == {}


def test_a_daemon_that_ended_long_ago_is_no_rival_of_once(pool):
    pool.turns(pool.daemon(), polls=3)
    pool.now += RIVAL_WINDOW + timedelta(minutes=5)
    assert pool.daemon().run(is_only=True).rivals == {}

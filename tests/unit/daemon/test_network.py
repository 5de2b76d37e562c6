"""The worker that reads rates: samples are kept and used, and a source that fails affects no other."""

import sys
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hydrator.config import Settings
from hydrator.daemon.background import NetworkTasks
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Site
from hydrator.domain.network import TransferLogAnswer, TransferOrigin, TransferSample
from hydrator.reconcile.rates import RateTable
from hydrator.reconcile.state import ReconcileState
from hydrator.state.reports import NETWORK_REPORT, NetworkRecord
from hydrator.state.store import Store
from hydrator.wiring import system_clock
from hydrator.wiring.assembly import NetworkParts
from tests.factories import CAM, RAL
from tests.unit.daemon.contexts import context_with, runtime_with

NOW = system_clock()


@pytest.fixture(autouse=True)
def _now_is_the_start_of_the_test(monkeypatch):
    """The worker reads the machine's clock, perhaps an hour after this file was read."""
    monkeypatch.setattr(sys.modules[__name__], "NOW", system_clock())


@dataclass
class Log:
    """A log of transfers that answers as it is told."""

    origin: TransferOrigin = TransferOrigin.WRAPPER
    answer: TransferLogAnswer | Exception = field(default_factory=TransferLogAnswer)

    def read_samples(self) -> TransferLogAnswer:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self) -> None:
        """Close nothing."""


def samples(count=3, source=CAM, destination=RAL, origin=TransferOrigin.WRAPPER):
    return [
        TransferSample(
            source,
            destination,
            10**9,
            10.0,
            NOW - timedelta(minutes=n),
            origin,
            "alice",
            f"{n}",
        )
        for n in range(1, count + 1)
    ]


class World:
    """A worker with two logs; sites CAM and RAL have ads."""

    def __init__(self, folder) -> None:
        self.store = Store.open_to_write(folder)
        self.registry = CollectorRegistry()
        self.bugs: list[str] = []
        self.log, self.records = Log(), Log(TransferOrigin.SCHEDD)
        rates = RateTable((), now=NOW, network=Settings().network)
        self.network = NetworkParts([self.log, self.records], Settings().network, rates)
        self.tasks = NetworkTasks(
            context_with(
                state=ReconcileState(ads=dict.fromkeys((CAM, RAL))),
                store=self.store,
                bugs=self.bugs.append,
                registry=self.registry,
            )
        )
        scheduler = BackgroundScheduler(timezone="UTC")
        self.tasks.schedule(runtime_with(scheduler, network=self.network))
        (self.job,) = scheduler.get_jobs()

    def turn(self) -> list[tuple[str, str]]:
        with capture_logs() as logged:
            self.job.func(*self.job.args)
        return [(each["event"], each["source"]) for each in logged if "source" in each]

    def rate(self):
        found = self.network.rates.rate(CAM, RAL)
        return found and found.bytes_per_second


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    with made.store:
        yield made


def test_new_samples_become_the_rate_and_are_saved(world):
    world.log.answer = TransferLogAnswer(samples())
    assert world.turn() == []
    assert world.rate() == 1e8
    assert set(world.store.load_report(NETWORK_REPORT, NetworkRecord).samples) == set(samples())


def test_samples_of_earlier_turns_stay_and_count_once(world):
    for found in (samples(2), samples(3), []):
        world.log.answer = TransferLogAnswer(found)
        world.turn()
    assert world.rate() == 1e8
    assert len(world.store.load_report(NETWORK_REPORT, NetworkRecord).samples) == 3


def test_samples_of_unknown_sites_are_dropped(world):
    world.log.answer = TransferLogAnswer(samples(3, source=Site("nowhere")))
    world.turn()
    assert world.store.load_report(NETWORK_REPORT, NetworkRecord).samples == ()


@pytest.mark.parametrize("error", [PoolError("collector", "no connection"), ValueError("a bug")])
def test_log_that_fails_does_not_affect_another_and_is_logged_once(world, error):
    world.log.answer = error
    world.records.answer = TransferLogAnswer(samples(3, origin=TransferOrigin.SCHEDD))
    (event, source), *more = world.turn()
    assert event == "source of rates gives no answer"
    assert source.startswith("job wrapper")
    assert more == []
    assert world.rate() == 1e8
    assert world.turn() == []
    assert bool(world.bugs) == isinstance(error, ValueError)
    world.log.answer = TransferLogAnswer(samples())
    assert [event for event, _ in world.turn()] == ["source of rates answers again"]


def test_failing_schedd_is_named_in_the_state(world):
    world.log.answer = TransferLogAnswer([], {"ap1": "no history"})
    world.turn()
    failures = {
        each.name: dict(each.failures)
        for each in world.store.load_report(NETWORK_REPORT, NetworkRecord).sources
    }
    assert failures == {"job wrapper": {"ap1": "no history"}, "transfer records": {}}

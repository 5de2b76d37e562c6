"""The simulation's parts keep the promises of the real ones: the same contract suites, and one for time."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from apscheduler.executors.pool import ThreadPoolExecutor

from hydrator import startd_cron
from hydrator.daemon.runtime import build_scheduler
from hydrator.domain.model import Site, to_unix
from hydrator.reconcile.threads import THREADS
from hydrator.testing.catalogue_contract import SiteBySiteCatalogueContract
from hydrator.testing.scenarios import RECORDS_STATES_ONLY
from hydrator.wiring import system_clock
from tests.contracts.publisher import PublisherContract, site_ad
from tests.factories import NOON
from tests.memory import MemoryCatalogue
from tests.simulation.faults import Fault
from tests.simulation.loop import Loop, Process, VirtualScheduler, VirtualThreads
from tests.simulation.parts import SimulatedCatalogue, SimulatedPublisher
from tests.simulation.run import run_hour
from tests.simulation.scenario import make
from tests.simulation.world import Hook, World

HERE = Process("test")
FOR_EVER = 1e9


def world(*faults: Fault) -> World:
    scenario = make(1)
    return World(1, scenario.truth, (), faults, [dict(scenario.configurations[0])])


class InTime:
    """A part whose methods run in virtual time."""

    def __init__(self, world: World, part: Any) -> None:
        self._world, self._part = world, part

    @property
    def name(self) -> str:
        return self._part.name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            loop = self._world.loop
            future = VirtualThreads(loop, HERE).start(name, lambda: getattr(self._part, name)(*arguments))
            while not future.done():
                loop.run(loop.now + 1)
            return future.result()

        return call


class GivenCatalogue(SimulatedCatalogue):
    """The simulated catalogue, with replicas of any state in place of the truth."""

    def __init__(self, world: World, given: MemoryCatalogue) -> None:
        super().__init__(world, HERE, "memory")
        self._given = given

    def _holdings(self, *_: Any) -> MemoryCatalogue:
        return self._given


class TestSimulatedCatalogue(SiteBySiteCatalogueContract):
    cannot_happen = RECORDS_STATES_ONLY

    def make_catalogue(self, *replicas):
        return self._in_time(MemoryCatalogue("memory", replicas, clock=lambda: NOON))

    def make_failing_catalogue(self):
        sick = Fault("fail", "catalogue memory", 0, FOR_EVER)
        return self._in_time(MemoryCatalogue("memory", clock=lambda: NOON), sick)

    def make_catalogue_with_unreachable_site(self, site, *replicas):
        given = MemoryCatalogue("memory", replicas, clock=lambda: NOON, unreachable_sites=[site])
        return self._in_time(given)

    @staticmethod
    def _in_time(given: MemoryCatalogue, *faults: Fault) -> InTime:
        made = world(*faults)
        return InTime(made, GivenCatalogue(made, given))


@pytest.mark.parametrize("name", ["file", "collector"])
class TestSimulatedPublisher(PublisherContract):
    @pytest.fixture(autouse=True)
    def _named(self, name):
        self.name = name

    def publisher(self):
        made = world()
        return InTime(made, SimulatedPublisher(made, HERE, self.name, 900.0))

    def unreachable(self):
        made = world(Fault("fail", f"publisher {self.name}", 0, FOR_EVER))
        return InTime(made, SimulatedPublisher(made, HERE, self.name))


def test_the_simulated_slot_shows_what_the_hook_prints(tmp_path):
    made, published = world(), site_ad("UK", to_unix(NOON), as_of=NOON)
    InTime(made, SimulatedPublisher(made, HERE, "file")).publish([published])
    slot = Hook(made, Site("UK"), "file", 60.0)
    slot.run()
    now = to_unix(made.clock())
    (tmp_path / "UK.ad").write_text(published.text)
    ad = startd_cron.ask_file(str(tmp_path), "UK", now)
    printed = (startd_cron.openings_block(ad, True) + startd_cron.locality_block(ad, True)).decode()
    for name, literal in slot.shown.literals.items():
        assert f"{name} = {literal}\n" in printed


# ---- time: the same small contract for real threads and for virtual ones


def with_executors(scheduler: Any, names: Sequence[str]) -> Any:
    for name in names:
        scheduler.add_executor(ThreadPoolExecutor(1), name)
    return scheduler


class RealTime:
    """The threads and the schedule of this process; a second of the contract is 50 ms."""

    unit = 0.05
    threads = THREADS
    clock = staticmethod(system_clock)

    def scheduler(self, *names: str) -> Any:
        return with_executors(build_scheduler(), names)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds * self.unit)

    def run(self, work: Callable[[], Any]) -> Any:
        return work()


class VirtualTime:
    unit = 1.0

    def __init__(self) -> None:
        made = world()
        self.loop, self.clock = made.loop, made.clock
        self.threads = VirtualThreads(self.loop, HERE)

    def scheduler(self, *names: str) -> VirtualScheduler:
        return with_executors(VirtualScheduler(self.loop, HERE, self.clock), names)

    def sleep(self, seconds: float) -> None:
        self.loop.sleep(seconds)

    def run(self, work: Callable[[], Any]) -> Any:
        future = self.threads.start("test", work)
        self.loop.run(1e6)
        return future.result(timeout=0)


@pytest.fixture(params=[VirtualTime, pytest.param(RealTime, marks=pytest.mark.outside)])
def machine(request):
    return request.param()


def test_a_call_that_still_runs_when_it_is_due_is_left_out(machine):
    began = []

    def slow() -> None:
        began.append(len(began))
        machine.sleep(2.5)

    def work() -> None:
        schedule = machine.scheduler("other")
        schedule.add_job(
            slow, "interval", seconds=machine.unit, id="slow", next_run_time=machine.clock(), executor="other"
        )
        schedule.start()
        machine.sleep(7)
        schedule.shutdown(wait=False)

    machine.run(work)
    assert len(began) in {2, 3}  # not 7


def test_calls_of_one_executor_follow_each_other_and_delay_no_other(machine):
    running, seen = set(), []

    def call(name: str, seconds: float) -> None:
        running.add(name)
        seen.append(frozenset(running))
        machine.sleep(seconds)
        running.discard(name)

    def work() -> None:
        schedule = machine.scheduler("one", "two")
        for name, executor, seconds in (("a", "one", 4), ("b", "one", 4), ("c", "two", 1)):
            schedule.add_job(
                call, "date", [name, seconds], run_date=machine.clock(), executor=executor, id=name
            )
        schedule.start()
        machine.sleep(12)
        schedule.shutdown(wait=False)

    machine.run(work)
    assert not any({"a", "b"} <= together for together in seen)
    assert any({"c"} < together for together in seen)
    assert len(seen) == 3


def test_work_ends_with_its_result_or_its_error_and_a_wait_with_its_limit(machine):
    def work() -> None:
        threads = machine.threads
        good, bad = threads.start("good", lambda: 7), threads.start("bad", lambda: 1 // 0)
        slow = threads.start("slow", lambda: machine.sleep(20))
        threads.wait([good, bad])
        assert good.result() == 7
        assert isinstance(bad.exception(), ZeroDivisionError)
        threads.wait([slow, good], timedelta(seconds=machine.unit))
        assert not slow.done()
        threads.wait([slow])
        assert slow.done()

    machine.run(work)


def test_a_condition_wakes_who_waits_for_it(machine):
    def work() -> None:
        condition, told = machine.threads.condition(), []

        def tell() -> None:
            machine.sleep(1)
            with condition:
                told.append(1)
                condition.notify_all()

        teller = machine.threads.start("tell", tell)
        with condition:
            assert not condition.wait_for(lambda: len(told) > 1, 0.1 * machine.unit)
            assert condition.wait_for(lambda: told == [1], 60 * machine.unit)
        machine.threads.wait([teller])

    machine.run(work)


def test_a_killed_process_does_nothing_more():
    loop, process, done = Loop(1), Process("killed"), []

    def work() -> None:
        try:
            loop.sleep(5)
        finally:
            with pytest.raises(BaseException):  # noqa: B017, PT011 - it may not even wait
                loop.sleep(5)
        done.append("went on")

    loop.spawn("work", process, work)
    loop.spawn("killer", Process("killer"), lambda: (loop.sleep(1), loop.kill(process)))
    loop.run(100)
    assert done == []
    assert loop.failures == []


def test_a_simulated_hour_needs_few_steps():
    """5 sites, 200 datasets and 3 schedds: the time is measured by ``python -m tests.simulation --hour``."""
    assert run_hour().loop.switches < 20_000

"""A part that hangs, or has a bug, takes nothing with it; a late answer is used once, with its own age."""

import threading
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hydrator.config import Settings
from hydrator.daemon.metrics import Metrics
from hydrator.domain.bugs import BugReporter
from hydrator.domain.model import Did, QueuedJobs, ScheddDemand, Survey, Unseen, to_unix
from hydrator.domain.ports import PoolSnapshot, ScheddQueue
from hydrator.reconcile.reconciler import CycleTimeouts
from hydrator.reconcile.result import CycleReport
from testbed.patience import wait_for
from tests.factories import CAM, L1, L2, L3, MINUTE, NOON, RAL, replica, settings_with, view_of
from tests.memory import MemoryCatalogue, MemoryPublisher
from tests.unit.reconcile.cycles import build_cycle

SOON = timedelta(seconds=2)
"""How long a cycle waits here for somebody who hangs: long enough for the healthy on a busy machine."""


class Hanging(MemoryCatalogue):
    """Hangs in what it is asked while ``hangs`` is set to its name: ``read``, ``find``, or both."""

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self.hangs: set[str] = set()
        self.goes_on = threading.Event()
        self.asked = []

    def read(self, dids):
        self.asked.append(dids)
        answer = super().read(dids)
        self._hang("read")
        read = {did: replace(reading, as_of=self._clock()) for did, reading in answer.readings.items()}
        return replace(answer, started_at=self._clock(), readings=read)  # as a plugin may, too late

    def find(self, patterns):
        self._hang("find")
        return super().find(patterns)

    def _hang(self, what):
        if what in self.hangs:
            self.goes_on.wait(300)


class World:
    """Two catalogues, of which ``sick`` may hang, over a cycle that has no patience with it."""

    def __init__(self, rules=settings_with(pins={L1, L2, L3}), **more):  # noqa: B008
        self.now = NOON
        self.well = MemoryCatalogue("well", (), (CAM,), clock=self.clock)
        self.sick = Hanging("sick", (), (RAL,), clock=self.clock)
        self.collector = MemoryPublisher("collector", clock=self.clock)
        self.rules = rules
        self.answers = 0
        parts = {
            "catalogues": [self.well, self.sick],
            "timeouts": CycleTimeouts(poll=SOON, read_back=SOON),
            **more,
        }
        self.cycle = build_cycle(
            [self.collector], self.clock, settings=rules, on_late_answer=self.answered, **parts
        )

    def publish_to(self, publisher: MemoryPublisher, timeouts=CycleTimeouts()) -> None:  # noqa: B008
        """Let the cycle read the healthy catalogue only, and publish to both."""
        publishers = [publisher, self.collector]
        self.cycle = build_cycle(
            publishers, self.clock, catalogues=[self.well], settings=self.rules, timeouts=timeouts
        )

    def clock(self) -> datetime:
        return self.now

    def answered(self) -> None:
        self.answers += 1

    def run(self, after: timedelta = timedelta(), *, due: bool = True) -> CycleReport:
        self.now += after
        return self.cycle.run(self.cycle.poll(is_due=due))

    def shows(self, site=CAM) -> dict:
        return dict(self.collector.ads[site].attributes)

    def heal(self) -> None:
        """Let the sick one go on, and wait until its answer is there."""
        before = self.answers
        self.sick.hangs = set()
        self.sick.goes_on.set()
        wait_for(lambda: self.answers > before, "the late answer")


@pytest.fixture
def world():
    made = World()
    yield made
    made.sick.goes_on.set()


def available(lines) -> str:
    return lines["AvailableDatasets"]


@pytest.mark.outside
def test_hanging_catalogue_is_asked_once_and_reported_when_overdue(world):
    world.run()
    world.sick.hangs = {"read"}
    reports = [world.run(MINUTE) for _ in range(4)]
    assert len(world.sick.asked) == 2
    told = "no answer yet to the query of 2026-11-21 12:01:00 UTC"
    assert [report.catalogue_errors["sick"] for report in reports] == [None, None, told, told]
    assert [report.is_complete for report in reports] == [True, True, False, False]
    assert reports[-1].poll_durations["sick"] == 3 * MINUTE
    assert all(report.catalogue_errors["well"] is None for report in reports)
    registry = CollectorRegistry()
    Metrics(registry, "1").record_cycle(view_of(reports[-1]), 1)

    def counted(name, **labels):
        return registry.get_sample_value(f"hydrator_catalogue_{name}", labels)

    assert counted("pending_seconds", catalogue="sick") == 180
    assert counted("pending_seconds", catalogue="well") == 0
    assert counted("reads_total", catalogue="sick", outcome="failed") == 1
    assert counted("reads_total", catalogue="well", outcome="answered") == 1


@pytest.mark.outside
def test_poll_has_no_news_until_an_answer_comes_or_is_missing_for_an_interval(world):
    alone = World(catalogues=[world.sick])
    alone.sick = world.sick
    assert alone.cycle.poll().has_news
    alone.sick.hangs = {"read"}
    assert not alone.cycle.poll().has_news
    assert alone.cycle.poll().has_news
    alone.heal()
    assert alone.cycle.poll(is_due=False).has_news


@pytest.mark.outside
def test_late_answer_starts_a_cycle_without_polls_and_has_its_polls_age(world):
    world.run()
    world.sick.hangs = {"read"}
    world.sick.replicas = (replica(L2, RAL),)
    world.run(MINUTE)
    world.sick.replicas = ()  # after it was asked: what it saw is what counts
    world.run(MINUTE)
    assert world.answers == 0
    world.heal()
    calls = len(world.sick.asked)
    report = world.run(MINUTE, due=False)
    assert available(world.shows(RAL)) == f'{{"{L2}"}}'
    assert world.cycle.state.ads[RAL].as_of == NOON + MINUTE
    assert world.shows(RAL)["DatasetAsOf"] == "[]"
    assert world.cycle.state.memories["sick"].find_fact(L2, RAL).as_of == NOON + MINUTE
    assert len(world.sick.asked) == calls
    assert report.poll_durations.keys() == {"sick"}
    assert world.cycle.state.ads[CAM].as_of == NOON + 2 * MINUTE


@pytest.mark.outside
def test_one_answer_is_one_poll_for_the_guard_however_many_cycles_follow():
    many = [Did(f"lofar:M{n}") for n in range(6)]
    world = World(settings_with(pins=(many), confirm_polls=2))
    world.sick.replicas = tuple(replica(did, RAL) for did in many)
    world.run()
    world.sick.replicas = ()
    assert world.run(MINUTE).held_reasons.keys() == {RAL}
    world.sick.hangs = {"read"}
    world.run(MINUTE)
    for _ in range(3):
        report = world.run(MINUTE, due=False)
        assert report.evaluation.state.held_losses[RAL].confirmations == 0
    world.heal()
    assert world.run(MINUTE, due=False).evaluation.state.held_losses[RAL].confirmations == 1
    assert world.run(MINUTE, due=False).evaluation.state.held_losses[RAL].confirmations == 1
    assert "AvailableDatasets" in world.shows(RAL)
    assert len(available(world.shows(RAL)).split(",")) == 6


@pytest.mark.outside
def test_dataset_demanded_during_a_poll_is_unseen_and_asked_about_next():
    class Jobs:
        dids = (L1,)

        def read_snapshot(self, *, waits):
            queue = ScheddQueue(ScheddDemand(NOON, (QueuedJobs(self.dids, 1),)))
            return PoolSnapshot(NOON, {"ap1": queue})

    jobs = Jobs()
    world = World(Settings(), queues=jobs)
    world.sick.replicas = (replica(L1, RAL), replica(L2, RAL))
    world.well.replicas = (replica(L2, CAM),)
    world.cycle.refresh_demand()
    world.sick.hangs = {"read"}
    world.run()
    jobs.dids = (L1, L2)
    assert world.cycle.refresh_demand() == {L2}
    report = world.run(MINUTE, due=False)
    assert available(world.shows(CAM)) == f'{{"{L2}"}}'  # new demand reached the healthy one
    assert report.pending_since.keys() == {"sick"}
    world.heal()
    report = world.run(MINUTE, due=False)
    assert available(world.shows(RAL)) == f'{{"{L1}"}}'
    assert "before the dataset was demanded" in report.evaluation.state.memories["sick"].unseen_reasons[L2]
    world.run(MINUTE, due=False)  # it is asked about what is new without being due
    assert available(world.shows(RAL)) == f'{{"{L1}","{L2}"}}'
    calls = len(world.sick.asked)
    world.run(MINUTE, due=False)
    assert len(world.sick.asked) == calls


# ---- bugs


@pytest.mark.parametrize(
    "error", [OverflowError("out of range"), SystemExit(3), KeyboardInterrupt()], ids=repr
)
def test_a_bug_of_a_catalogue_is_told_as_its_own_and_all_else_goes_on(error):
    class Sick(MemoryCatalogue):
        def read(self, dids):
            raise error

    sick = Sick("sick", (), (RAL,), clock=lambda: NOON)
    world = World(catalogues=[MemoryCatalogue("well", (replica(L1, CAM),), clock=lambda: NOON), sick])
    with capture_logs() as logged:
        reports = [world.run(MINUTE) for _ in range(3)]
    assert available(world.shows(CAM)) == f'{{"{L1}"}}'
    assert reports[-1].catalogue_errors["well"] is None
    assert reports[-1].catalogue_errors["sick"].startswith("bug in catalogue sick: ")
    assert len([line for line in logged if line["log_level"] == "error"]) == 1  # once until it changes
    sick.read = partial(MemoryCatalogue.read, sick)
    world.run(MINUTE)
    del sick.read
    with capture_logs() as logged:
        world.run(MINUTE)
    assert len([line for line in logged if line["log_level"] == "error"]) == 1  # it had answered meanwhile


class Odd(MemoryPublisher):
    """Shows, or takes, nothing for a reason that nobody foresaw."""

    def __init__(self, shows=None, takes=None):
        super().__init__("odd", clock=lambda: NOON)
        self._shown, self._takes = shows, takes

    def published(self):
        return self._shown() if self._shown else super().published()

    def publish(self, ads):
        if self._takes:
            self._takes()
        super().publish(ads)


def dividing():
    return 1 / 0


@pytest.mark.outside
@pytest.mark.parametrize(
    "odd",
    [
        Odd(shows=dividing),
        Odd(takes=dividing),
        Odd(takes=lambda: (_ for _ in ()).throw(SystemExit)),
    ],
    ids=["shows", "takes", "ends us"],
)
def test_bug_of_a_publisher_is_reported_as_its_own_and_others_get_their_ads(odd):
    world = World()
    world.well.replicas = (replica(L1, CAM),)
    world.publish_to(odd)
    outcomes = {one.publisher: one.error for one in world.run().results}
    assert outcomes["collector"] is None
    assert outcomes["odd"].startswith("bug in publisher odd: ")
    assert available(world.shows(CAM)) == f'{{"{L1}"}}'


@pytest.mark.outside
def test_bugs_of_orders_the_queues_and_the_store_leave_the_ads_alone():
    class Broken:
        def read_pending(self):
            raise RecursionError

        def remove_processed(self, pending):
            raise AssertionError

        def read_snapshot(self, *, waits):
            raise OverflowError

        def save(self, state, changes):
            raise OverflowError("Python int too large to convert to SQLite INTEGER")

        def save_reports(self, reports):
            raise OverflowError

    broken = Broken()
    broken.remove_processed = lambda pending: None
    world = World(commands=broken, queues=broken, store=broken)
    world.well.replicas = (replica(L1, CAM),)
    assert world.cycle.refresh_demand() == frozenset()
    assert world.cycle.schedds.error.startswith("bug in the query of schedds: OverflowError at ")
    report = world.run()
    assert available(world.shows(CAM)) == f'{{"{L1}"}}'
    assert report.save_error.startswith("bug in the state: OverflowError at ")
    assert report.commands.problems[0].startswith("bug in the reading of commands: RecursionError at ")


def test_answer_for_an_unasked_dataset_is_ignored():
    class Talkative(MemoryCatalogue):
        def read(self, dids):
            survey = super().read(dids)
            assert isinstance(survey, Survey)
            return replace(survey, readings={**survey.readings, L3: Unseen("nobody asked")})

    world = World(settings_with(pins={L1}), catalogues=[Talkative("c", (replica(L1, CAM),))])
    report = world.run()
    assert report.evaluation.snapshot.sites[CAM].facts.keys() == {L1}
    assert to_unix(report.started_at) == to_unix(NOON)


def test_ctrl_c_in_the_main_thread_is_no_bug_of_a_part():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BugReporter().attempt("the pacing", interrupted)

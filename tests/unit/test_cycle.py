"""The order of a cycle, and that nothing that fails takes anything else with it."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from adapters.memory import MemoryCatalogue, MemoryPublisher, MemoryQueues
from hydrator.ads import Budget
from hydrator.audit import By, Claim, Verdict
from hydrator.breaker import Limits
from hydrator.cycle import Cycle, Outlet, Report, Rules, apply, read_all, summary, think
from hydrator.demand import DemandMemory, Remembered
from hydrator.errors import StateError
from hydrator.misses import Miss
from hydrator.model import (
    Did,
    Hold,
    Publish,
    PublishedAd,
    Queue,
    QueuedJobs,
    Refresh,
    Rest,
    Unseen,
    Withdraw,
    unix,
)
from hydrator.plan import Policy
from hydrator.store import State, Store
from hydrator.telemetry import Metrics, cycle_line
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, OSO, RAL, ad, demand, holding, replica

POLICY = Policy(refresh_after=5 * MINUTE, expires=True)
LOWER = Did("lofar:l1")


class Clock:
    """A clock that a test turns."""

    def __init__(self, now=NOON):
        self.now = now

    def __call__(self):
        return self.now

    def turn(self, by: timedelta) -> None:
        self.now += by


class World:
    """A cycle over parts in memory, each of which a test may break."""

    def __init__(self, *replicas, rules=Rules(pins=frozenset({L1, L2})), sites=(CAM, RAL), **more):  # noqa: B008
        self.clock = Clock()
        self.catalogue = MemoryCatalogue("rucio", replicas, sites, clock=self.clock)
        self.other = MemoryCatalogue("dmapi", (), (), clock=self.clock)
        self.collector = MemoryPublisher("collector", clock=self.clock)
        self.file = MemoryPublisher("file", clock=self.clock)
        self.queues = MemoryQueues()
        self.cycle = self.restarted(rules=rules, **more)

    def restarted(self, *, rules=Rules(), state=None, **more) -> Cycle:  # noqa: B008
        """A new daemon with this state (None: it was lost) in the same world."""
        parts = {
            "catalogues": [self.catalogue, self.other],
            "queues": self.queues,
            "outlets": [Outlet(self.collector, POLICY), Outlet(self.file, POLICY)],
            "store": None,
            **more,
        }
        return Cycle(rules=rules, clock=self.clock, state=state or State(), **parts)

    def run(self, after: timedelta = timedelta()) -> Report:
        self.clock.turn(after)
        return self.cycle.run()


def states(publisher: MemoryPublisher, site=CAM) -> str:
    return dict(publisher.ads[site].lines)["DatasetStates"]


def ages(publisher: MemoryPublisher, site=CAM) -> str:
    return dict(publisher.ads[site].lines)["DatasetAsOf"]


def actions(report: Report, publisher="collector") -> list[type]:
    return [type(action) for o in report.outcomes if o.publisher == publisher for action in o.plan]


def test_what_is_wanted_is_read_and_published_everywhere():
    world = World(replica(L1, CAM), replica(L3, CAM))
    report = world.run()
    assert report.whole
    assert states(world.collector) == f"['{L1}'=\"AVAILABLE\"]"
    assert world.collector.ads == world.file.ads
    assert set(world.file.ads) == {CAM, RAL}


def test_a_second_cycle_rests_and_later_ones_refresh_without_a_new_generation():
    world = World(replica(L1, CAM))
    world.run()
    first = world.collector.ads[CAM]
    assert actions(world.run(MINUTE)) == [Rest, Rest]
    assert actions(world.run(5 * MINUTE)) == [Refresh, Refresh]
    again = world.collector.ads[CAM]
    assert (again.content, again.generation) == (first.content, first.generation)
    assert again.as_of == NOON + 6 * MINUTE


def test_a_dataset_that_leaves_is_taken_out_with_a_new_generation():
    world = World(replica(L1, CAM))
    world.run()
    world.catalogue.replicas = ()
    world.run(MINUTE)
    assert states(world.collector) == "[]"
    assert world.collector.ads[CAM].generation == unix(NOON + MINUTE)


def test_a_catalogue_that_fails_leaves_every_ad_standing_with_its_age():
    world = World(replica(L1, CAM))
    world.run()
    before = dict(world.collector.ads)
    world.catalogue.broken = world.other.broken = True
    report = world.run(10 * MINUTE)
    assert actions(report) == [Hold, Hold]
    assert world.collector.ads == before
    assert world.collector.published()[CAM].heard == NOON + 10 * MINUTE
    assert not report.whole
    assert "broken" in report.surveyed["rucio"]


def test_one_catalogue_that_fails_leaves_the_facts_of_the_other():
    world = World(replica(L1, CAM))
    world.other.replicas = (replica(L2, CAM),)
    world.run()
    world.catalogue.broken = True
    report = world.run(MINUTE)
    assert states(world.collector) == f"['{L1}'=\"AVAILABLE\";'{L2}'=\"AVAILABLE\"]"
    assert ages(world.collector) == f"['{L1}'={unix(NOON)}]"
    assert report.surveyed == {"rucio": report.surveyed["rucio"], "dmapi": None}


def test_one_dataset_that_cannot_be_asked_never_ages_its_site():
    world = World(replica(L1, CAM), replica(L2, CAM))
    world.run()
    world.catalogue.unseen = world.other.unseen = {L1: "timeout"}
    world.run(10 * MINUTE)
    assert ages(world.collector) == f"['{L1}'={unix(NOON)}]"
    assert world.collector.ads[CAM].as_of == NOON + 10 * MINUTE


def test_a_site_that_cannot_be_looked_at_keeps_its_ad_with_its_age_and_the_others_go_on():
    world = World(replica(L1, CAM), replica(L1, RAL))
    world.run()
    before = world.collector.ads[CAM]
    world.catalogue.blind = world.other.blind = frozenset({CAM})
    world.catalogue.replicas = ()
    assert actions(world.run(10 * MINUTE)) == [Hold, Publish]
    assert world.collector.ads[CAM] == before
    assert states(world.collector, RAL) == "[]"
    world.run(6 * HOUR)
    assert states(world.collector) == f"['{L1}'=\"UNKNOWN\"]"


def test_after_the_bound_what_cannot_be_asked_reads_unknown():
    world = World(replica(L1, CAM))
    world.run()
    world.catalogue.broken = world.other.broken = True
    world.run(6 * HOUR)
    assert "AVAILABLE" in states(world.collector)
    world.run(MINUTE)
    assert states(world.collector) == f"['{L1}'=\"UNKNOWN\"]"
    assert world.collector.ads[CAM].as_of == NOON


def test_a_poll_that_takes_long_has_the_age_of_its_beginning():
    world = World(replica(L1, CAM), replica(L2, CAM))
    ticking = Clock()

    def tick():
        ticking.turn(MINUTE)
        return ticking.now

    world.catalogue = MemoryCatalogue("rucio", world.catalogue.replicas, clock=tick)
    cycle = world.restarted(rules=Rules(pins=frozenset({L1, L2})))
    cycle.run()
    assert world.collector.ads[CAM].as_of == NOON
    assert ages(world.collector) == "[]"


def test_one_publisher_that_fails_leaves_the_others():
    world = World(replica(L1, CAM))
    world.collector.broken = True
    report = world.run()
    assert set(world.file.ads) == {CAM, RAL}
    assert [outcome.error is None for outcome in report.outcomes] == [False, True]
    world.collector.broken = False
    assert world.run(MINUTE).whole
    assert set(world.collector.ads) == {CAM, RAL}


class Deaf(MemoryPublisher):
    """Takes every ad without complaint and keeps none, as a collector that denies us does."""

    def publish(self, ads):
        pass

    def withdraw(self, sites):
        pass


class Refusing(MemoryPublisher):
    """Shows what it has and takes nothing."""

    def publish(self, ads):
        self.broken = True
        super().publish(ads)


def test_what_is_not_read_back_is_not_published():
    world = World(replica(L1, CAM))
    cycle = world.restarted(outlets=[Outlet(Deaf("deaf", clock=world.clock), POLICY)])
    (outcome,) = cycle.run().outcomes
    assert (outcome.unconfirmed, outcome.published, outcome.error) == ((CAM, RAL), {}, None)


def test_another_generation_or_age_read_back_is_not_ours():
    class Stubborn(Deaf):
        shown = PublishedAd(CAM, 1, NOON, NOON)

        def published(self):
            return {CAM: self.shown}

    there = Stubborn()
    assert apply((Publish(ad(generation=1), "new"),), there).unconfirmed == ()
    assert apply((Publish(ad(generation=2), "new"),), there).unconfirmed == (CAM,)
    assert apply((Refresh(ad(generation=1, at=NOON + MINUTE)),), there).unconfirmed == (CAM,)
    assert apply((Withdraw(CAM, "retired"),), there).unconfirmed == (CAM,)


def test_a_part_of_a_second_is_not_missed_in_what_is_read_back():
    precise = ad(L1, at=NOON + timedelta(microseconds=5))
    assert apply((Publish(precise, "new"),), MemoryPublisher()).unconfirmed == ()


def test_a_publisher_that_refuses_is_reported_and_is_no_bug():
    refusing = Refusing("collector")
    outcome = apply((Publish(ad(L1), "new"),), refusing)
    assert outcome.error
    assert outcome.published == {}


def test_a_plan_that_sends_nothing_only_looks():
    there = MemoryPublisher(clock=lambda: NOON)
    there.publish([ad(L1)])
    outcome = apply((Rest(CAM), Hold(RAL, "nothing is known")), there)
    assert (set(outcome.published), outcome.unconfirmed) == ({CAM}, ())


def test_planning_sends_nothing_and_saves_nothing(tmp_path):
    world = World()
    with Store.open_to_write(tmp_path) as store:
        cycle = world.restarted(store=store)
        report = cycle.plan()
        assert actions(report) == [Publish, Publish]
        assert world.collector.ads == {}
        assert store.load() == State()
        assert store.report("cycle") == {}


def test_planning_leaves_what_the_cycle_remembers_as_it_is():
    world = World(replica(L1, CAM), rules=Rules(patterns=("*",)))
    world.cycle.plan()
    assert world.cycle.state == State()


def test_what_is_planned_is_what_is_then_done():
    world = World(replica(L1, CAM))
    for _ in range(2):
        planned, done = world.cycle.plan(), world.run()
        assert [o.plan for o in planned.outcomes] == [o.plan for o in done.outcomes]


class Watching(MemoryPublisher):
    """Notes what was on disk when an ad was sent."""

    def __init__(self, store, clock):
        super().__init__("watching", clock=clock)
        self.store, self.on_disk = store, []

    def publish(self, ads):
        self.on_disk.append(self.store.load())
        super().publish(ads)


def test_the_state_is_on_disk_before_anything_is_sent(tmp_path):
    world = World(replica(L1, CAM))
    with Store.open_to_write(tmp_path) as store:
        watching = Watching(store, world.clock)
        cycle = world.restarted(
            store=store, outlets=[Outlet(watching, POLICY)], rules=Rules(pins=frozenset({L1}))
        )
        cycle.run()
        (then,) = watching.on_disk
        assert then.ads == watching.ads
        assert then == cycle.state
        assert store.readback() == {"watching": dict(watching.published())}
        assert store.report("cycle")["whole"] is True


class Full:
    """A store on a full disk."""

    def save(self, state):
        raise StateError("the state cannot be read or written: disk is full")


def test_a_state_that_cannot_be_saved_stops_no_publishing_and_is_told():
    world = World(replica(L1, CAM))
    report = world.restarted(store=Full()).run()
    assert set(world.collector.ads) == {CAM, RAL}
    assert (report.whole, report.unsaved) == (
        False,
        "the state cannot be read or written: disk is full",
    )


@pytest.mark.parametrize("ahead_at", ["collector", "file"])
def test_a_daemon_that_lost_its_state_goes_on_from_the_highest_generation_that_is_shown(ahead_at):
    world = World(replica(L1, CAM))
    world.run()
    ahead = unix(NOON) + 9999
    (world.collector if ahead_at == "collector" else world.file).publish([ad(L1, generation=ahead)])
    cycle = world.restarted(rules=Rules(pins=frozenset({L1})))
    cycle.ask_demand()
    report = cycle.run()
    assert world.collector.ads[CAM].generation == world.file.ads[CAM].generation == ahead + 1
    assert report.whole


def test_a_publisher_that_cannot_be_asked_leaves_what_it_showed_last_on_disk(tmp_path):
    world = World(replica(L1, CAM))
    with Store.open_to_write(tmp_path) as store:
        cycle = world.restarted(store=store, rules=Rules(pins=frozenset({L1})))
        cycle.run()
        world.collector.broken = True
        cycle.run()
        assert set(store.readback()["collector"]) == {CAM, RAL}
        assert "broken" in store.report("cycle")["publishers"]["collector"]["error"]


def test_a_restart_with_its_state_changes_nothing():
    world = World(replica(L1, CAM))
    world.run()
    cycle = world.restarted(rules=Rules(pins=frozenset({L1, L2})), state=world.cycle.state)
    assert actions(cycle.run()) == [Rest, Rest]


def test_a_restart_while_the_catalogue_is_away_empties_no_ad():
    world = World(replica(L1, CAM))
    world.run()
    world.catalogue.broken = world.other.broken = True
    world.clock.turn(10 * MINUTE)
    world.restarted(rules=Rules(pins=frozenset({L1, L2})), state=world.cycle.state).run()
    assert "AVAILABLE" in states(world.collector)


def test_a_restart_without_state_while_the_catalogue_is_away_holds_what_is_published():
    world = World(replica(L1, CAM))
    world.run()
    world.catalogue.broken = world.other.broken = True
    report = world.restarted(rules=Rules(pins=frozenset({L1}))).run()
    assert actions(report) == [Hold, Hold]
    assert "AVAILABLE" in states(world.collector)


@pytest.mark.parametrize(
    "rules", [Rules(retired=frozenset({RAL})), Rules(include_sites=("C*", "OSO"))], ids=["named", "excluded"]
)
def test_a_retired_site_is_withdrawn_and_not_published_again(rules):
    world = World(replica(L1, RAL))
    world.run()
    cycle = world.restarted(rules=replace(rules, pins=frozenset({L1})), state=world.cycle.state)
    assert Withdraw(RAL, "retired in the configuration") in cycle.run().outcomes[0].plan
    assert set(world.collector.ads) == set(world.file.ads) == {CAM}
    assert RAL not in cycle.state.ads
    assert actions(cycle.run()) == [Rest]


def test_a_site_that_the_catalogue_no_longer_names_keeps_its_ad():
    world = World(replica(L1, OSO))
    world.run()
    world.catalogue.replicas = ()
    report = world.run(10 * MINUTE)
    assert Hold in actions(report)
    there = world.collector.published()[OSO]
    assert (there.as_of, there.heard) == (NOON, NOON + 10 * MINUTE)
    assert "AVAILABLE" in states(world.collector, OSO)


def test_letter_case_clashes_are_reported_and_in_no_ad():
    world = World(replica(L1, CAM), replica(LOWER, RAL), rules=Rules(pins=frozenset({L1})))
    report = world.run()
    assert states(world.collector) == states(world.collector, RAL) == "[]"
    assert summary(report)["clashes"] == [[L1, LOWER]]


# ---- demand


def queue(*dids, jobs=1, at=NOON) -> Queue:
    return Queue(at, (QueuedJobs(tuple(dids), jobs),))


def test_asking_tells_what_was_not_wanted_before():
    world = World()
    world.queues.queues = {"ap1": queue(L1, L3)}
    assert world.cycle.ask_demand() == {L3}
    assert world.cycle.ask_demand() == frozenset()
    assert world.cycle.demand.dids == {L1, L2, L3}


def test_a_collector_that_is_down_takes_no_demand_away_however_long():
    world = World(rules=Rules())
    world.queues.queues = {"ap1": queue(L1)}
    world.cycle.ask_demand()
    world.queues.broken = True
    world.clock.turn(100 * HOUR)
    world.cycle.ask_demand()
    assert world.cycle.demand.dids == {L1}
    assert "broken" in world.cycle.demand_error
    assert isinstance(world.cycle.schedds["ap1"], Unseen)


def test_a_collector_that_is_back_is_no_error_any_more():
    world = World()
    world.queues.broken = True
    world.cycle.ask_demand()
    world.queues.broken = False
    world.cycle.ask_demand()
    assert world.cycle.demand_error is None


def test_without_schedds_only_pins_and_patterns_are_wanted():
    world = World(rules=Rules())
    cycle = world.restarted(queues=None, rules=Rules(pins=frozenset({L1})))
    assert cycle.ask_demand() == frozenset()
    assert cycle.demand.dids == {L1}


def test_demand_survives_a_restart():
    world = World(rules=Rules())
    world.queues.queues = {"ap1": queue(L1)}
    world.cycle.ask_demand()
    assert world.restarted(state=world.cycle.state).demand.dids == {L1}


def test_patterns_want_what_they_match_and_a_catalogue_that_cannot_say_keeps_what_it_found():
    world = World(replica(L1), replica("ska:9"), rules=Rules(patterns=("lofar:*",)))
    assert world.run().demand.dids == {L1}
    world.catalogue.broken = True
    assert world.run(MINUTE).demand.dids == {L1}
    world.catalogue.broken = False
    world.catalogue.replicas = ()
    world.run(MINUTE)  # what is found no longer is asked about once more, to see that it is gone
    assert states(world.collector) == "[]"
    assert world.run(MINUTE).demand.dids == frozenset()


def test_what_a_pattern_finds_no_longer_and_nobody_could_ask_about_stays_wanted_until_it_is_seen():
    world = World(replica(L1), rules=Rules(patterns=("lofar:*",)))
    world.run()
    world.catalogue.replicas, world.catalogue.unseen = (), {L1: "timeout"}
    for _ in range(3):
        assert world.run(MINUTE).demand.dids == {L1}
        assert "AVAILABLE" in states(world.collector)
    world.catalogue.unseen = {}
    world.run(MINUTE)
    assert states(world.collector) == "[]"


def test_a_pattern_that_was_made_narrower_loses_what_it_found_though_it_is_still_there():
    world = World(replica(L1), replica(L2), rules=Rules(patterns=("lofar:*",)))
    world.run()
    world.cycle = world.restarted(rules=Rules(patterns=(L1,)), state=world.cycle.state)
    world.run(MINUTE)
    world.run(MINUTE)
    assert states(world.collector) == f"['{L1}'=\"AVAILABLE\"]"


def test_without_patterns_no_catalogue_is_searched():
    world = World(replica(L1))
    world.catalogue.find = pytest.fail
    world.run()
    assert world.cycle.state.found == {}


def test_a_catalogue_never_found_anything_when_it_could_never_say():
    world = World(rules=Rules(patterns=("*",)))
    world.catalogue.broken = True
    world.run()
    assert world.cycle.state.found == {"rucio": frozenset(), "dmapi": frozenset()}


def test_every_catalogue_answers_for_itself():
    fine, broken = MemoryCatalogue("a", [replica(L1)], clock=lambda: NOON), MemoryCatalogue("b", broken=True)
    answers = read_all([fine, broken], {L1})
    assert answers["a"].readings[L1].replicas == (replica(L1),)
    assert isinstance(answers["b"], Unseen)
    assert read_all([], {L1}) == {}


def test_a_bug_in_a_catalogue_is_its_failure_alone_and_loud():
    class Buggy(MemoryCatalogue):
        def read(self, dids):
            raise ZeroDivisionError("of something secret")

    with capture_logs() as logged:
        answers = read_all([Buggy("buggy"), MemoryCatalogue("a", [replica(L1)])], {L1})
    assert answers["a"].readings[L1].replicas == (replica(L1),)
    assert re.fullmatch(
        r"bug in catalogue buggy: ZeroDivisionError at unit/test_cycle.py:\d+; the log has .*",
        answers["buggy"].reason,
    )
    assert [line["event"] for line in logged] == ["catalogue buggy failed: this is a bug, please report it"]
    assert isinstance(logged[0]["exc_info"], ZeroDivisionError)


# ---- a lost state


def lost(world, *, rules=None, **more) -> World:
    """The same world with a daemon that lost its state; the next schedd of its pool is silent."""
    rules = rules or Rules(pins=frozenset({L2}))
    world.cycle = world.restarted(rules=rules, **more)
    return world


@pytest.fixture
def wanted_by_two():
    """A world in which two schedds want a dataset each, both published, before its state is lost."""
    world = World(replica(L1, CAM), replica(L2, CAM), rules=Rules())
    world.queues.queues = {"ap1": queue(L1), "ap2": queue(L2)}
    world.cycle.ask_demand()
    world.run()
    assert L1 in states(world.collector)
    world.queues.queues = {"ap1": Unseen("no answer"), "ap2": queue(L2, at=NOON + MINUTE)}
    return lost(world)


def test_a_lost_state_and_a_silent_schedd_leave_the_published_ads_as_they_are(wanted_by_two):
    world = wanted_by_two
    before = dict(world.collector.ads)
    world.cycle.ask_demand()
    report = world.run(MINUTE)
    assert actions(report) == [Hold, Hold]
    assert world.collector.ads == world.file.ads == before
    why = "the demand of schedd ap1 is not known yet; what is published stays as it is"
    assert report.held == {CAM: why, RAL: why}
    assert summary(report)["held"] == report.held
    assert cycle_line(report, 1)["withheld"] == report.held
    assert "held" not in cycle_line(report, 1)
    assert {action.why for action in report.outcomes[0].plan} == {why}
    assert report.thought.state.ads == {}


def test_what_was_withheld_is_published_once_the_schedd_answers(wanted_by_two):
    world = wanted_by_two
    world.cycle.ask_demand()
    world.run(MINUTE)
    world.queues.queues = {"ap1": queue(L1), "ap2": queue(L2)}
    world.cycle.ask_demand()
    report = world.run(MINUTE)
    assert report.held == {}
    assert states(world.collector) == f"['{L1}'=\"AVAILABLE\";'{L2}'=\"AVAILABLE\"]"
    world.queues.queues = {"ap1": Unseen("no answer"), "ap2": queue(L2)}
    world.cycle.ask_demand()
    assert world.run(MINUTE).held == {}  # it answered once: its demand is kept


@pytest.mark.parametrize("leaves", [False, True])
def test_a_schedd_that_stays_silent_withholds_for_ten_minutes_and_one_that_left_for_none(
    wanted_by_two, leaves
):
    world = wanted_by_two
    world.cycle.ask_demand()
    world.run(MINUTE)
    if leaves:
        world.queues.queues = {"ap2": queue(L2)}
        world.cycle.ask_demand()
        world.run(MINUTE)
    else:
        world.run(9 * MINUTE)
        assert L1 in states(world.collector)
        world.run(MINUTE)
    assert states(world.collector) == f"['{L2}'=\"AVAILABLE\"]"


def test_a_lost_state_and_a_collector_that_names_no_schedds_leave_the_published_ads_as_they_are(
    wanted_by_two,
):
    world = wanted_by_two
    world.queues.broken = True
    world.cycle.ask_demand()
    world.run(MINUTE)
    assert L1 in states(world.collector)
    world.queues.broken = False
    world.queues.queues = {"ap1": queue(L1), "ap2": queue(L2)}
    world.cycle.ask_demand()
    world.run(MINUTE)
    assert L1 in states(world.collector)
    assert world.cycle.state.ads.keys() == {CAM, RAL}


def test_before_the_schedds_were_asked_a_lost_state_leaves_the_published_ads_as_they_are(wanted_by_two):
    assert wanted_by_two.run(MINUTE).held[CAM].startswith("the demand of all schedds is not known yet")
    assert L1 in states(wanted_by_two.collector)


def test_lost_state_withholds_ads_while_a_listed_schedd_is_silent_and_then_unlisted(wanted_by_two):
    world = wanted_by_two
    world.cycle.ask_demand()
    world.run(MINUTE)
    world.queues.broken = True
    world.cycle.ask_demand()
    held = world.run(MINUTE).held
    assert set(held) == {CAM, RAL}
    assert held[CAM].startswith("the demand of schedd ap1 is not known yet")
    assert L1 in states(world.collector)


def test_a_site_that_no_publisher_shows_is_published_whoever_is_silent(wanted_by_two):
    world = wanted_by_two
    for publisher in (world.collector, world.file):
        publisher.withdraw({RAL})
    world.cycle.ask_demand()
    assert actions(world.run(MINUTE)) == [Hold, Publish]


def test_a_state_that_is_there_withholds_nothing_when_a_schedd_is_silent(wanted_by_two):
    world = wanted_by_two
    world.queues.queues = {"ap2": queue(L2)}
    world.cycle.ask_demand()
    world.run()
    world.queues.queues = {"new": Unseen("no answer"), "ap2": queue(L2)}
    world.cycle.ask_demand()
    world.catalogue.replicas = ()
    assert world.run(MINUTE).held == {}
    assert states(world.collector) == "[]"


@pytest.mark.parametrize("how", ["broken", "unseen"])
def test_a_lost_state_and_a_catalogue_that_has_not_said_all_leave_the_published_ads_as_they_are(how):
    world = World(replica(L1, CAM))
    world.other.replicas = (replica(L2, CAM),)
    world.run()
    lost(world, rules=Rules(pins=frozenset({L1, L2})))
    if how == "broken":
        world.other.broken = True
    else:
        world.other.unseen = {L2: "timeout"}
    world.cycle.ask_demand()
    assert world.run(MINUTE).held[CAM].startswith("catalogue dmapi has not answered for everything yet")
    assert L2 in states(world.collector)
    world.other.broken, world.other.unseen = False, {}
    assert world.run(MINUTE).held == {}
    assert L2 in states(world.collector)


def test_what_is_retired_is_withdrawn_though_the_state_is_lost(wanted_by_two):
    world = lost(wanted_by_two, rules=Rules(pins=frozenset({L2}), retired=frozenset({RAL})))
    world.cycle.ask_demand()
    world.run(MINUTE)
    assert set(world.collector.ads) == {CAM}


# ---- the pure part


def test_thinking_twice_of_the_same_says_the_same():
    answers = {"rucio": holding(replica(L1))}
    once = think(State(), answers, demand(L1), published={}, rules=Rules(), now=NOON)
    assert once == think(State(), answers, demand(L1), published={}, rules=Rules(), now=NOON)
    again = think(once.state, answers, demand(L1), published={}, rules=Rules(), now=NOON)
    assert (again.ads, again.state) == (once.ads, once.state)


def test_thinking_keeps_what_it_does_not_decide():
    state = State(demand=DemandMemory((Remembered("ap", (L1,), 1, NOON),)), found={"rucio": frozenset({L2})})
    after = think(state, {}, demand(L1), published={}, rules=Rules(), now=NOON).state
    assert (after.demand, after.found) == (state.demand, state.found)


def test_a_catalogue_taken_out_of_the_configuration_is_forgotten():
    both = {"a": holding(replica(L1, CAM)), "b": holding(replica(L2, CAM))}
    state = think(State(), both, demand(L1, L2), published={}, rules=Rules(), now=NOON).state
    after = think(state, {"a": both["a"]}, demand(L1, L2), published={}, rules=Rules(), now=NOON)
    assert set(after.state.memories) == {"a"}
    assert set(after.snapshot.sites[CAM].facts) == {L1}


def test_the_summary_of_a_cycle_names_what_an_operator_must_know():
    world = World(replica(L1, CAM))
    world.queues.queues = {"ap1": Queue(NOON, (QueuedJobs(("no scope",), 1), QueuedJobs((L1,), 3)))}
    world.cycle.ask_demand()
    world.other.broken = True
    told = summary(world.run())
    assert told["at"] == unix(NOON)
    assert told["whole"] is False
    assert told["catalogues"]["rucio"] is None
    assert "broken" in told["catalogues"]["dmapi"]
    assert told["publishers"]["file"] == {"error": None, "not_read_back": [], "ads": 2}
    assert list(told["refused"]) == ["no scope"]
    assert set(told["unseen"]) == {L1, L2}


def test_what_is_held_is_in_the_summary_the_log_and_the_metrics():
    many = [replica(f"lofar:M{n}", CAM) for n in range(6)]
    world = World(*many, rules=Rules(pins=frozenset(one.did for one in many)))
    world.run()
    world.catalogue.replicas = ()
    report = world.run(MINUTE)
    why = "6 of 6 datasets would leave at once; 0 of 20 further polls confirm it"
    assert report.whole
    assert summary(report)["held"] == cycle_line(report, 1)["held"] == {CAM: why}
    registry = CollectorRegistry()
    metrics = Metrics(registry, "1")
    metrics.record(report, 1)
    assert registry.get_sample_value("hydrator_held_sites", {"cause": "site"}) == 1
    assert registry.get_sample_value("hydrator_held_datasets", {"site": CAM}) == 6
    world.catalogue.replicas = tuple(many)
    metrics.record(world.run(MINUTE), 1)
    assert registry.get_sample_value("hydrator_held_sites", {"cause": "site"}) == 0
    assert registry.get_sample_value("hydrator_held_datasets", {"site": CAM}) is None


class Unplaced(MemoryCatalogue):
    """One that knows storage elements without a site."""

    unmapped = frozenset({"SOMEWHERE-DISK", "SOMEWHERE-TAPE"})

    def read(self, dids):
        return replace(super().read(dids), unmapped=self.unmapped)


def test_storage_elements_without_a_site_are_counted_by_catalogue_also_while_it_fails():
    world = World(replica(L1, CAM))
    unplaced = Unplaced("unplaced", clock=world.clock)
    world.cycle = world.restarted(catalogues=[world.catalogue, unplaced])
    registry = CollectorRegistry()
    metrics = Metrics(registry, "1")

    def counted(catalogue: str) -> float | None:
        name = "hydrator_unmapped_storage_elements"
        return registry.get_sample_value(name, {"catalogue": catalogue})

    metrics.record(world.run(), 1)
    assert (counted("unplaced"), counted("rucio")) == (2, 0)
    unplaced.broken = True
    metrics.record(world.run(MINUTE), 1)
    assert counted("unplaced") == 2
    unplaced.broken, unplaced.unmapped = False, frozenset()
    metrics.record(world.run(MINUTE), 1)
    assert counted("unplaced") == 0


def test_what_jobs_missed_before_the_first_cycle_is_counted_at_their_sites_after_it():
    world = World(replica(L1, CAM), rules=Rules(pins=frozenset({L1})))
    registry = CollectorRegistry()
    metrics = Metrics(registry, "1")

    def counted(site: str) -> float | None:
        return registry.get_sample_value("hydrator_missed_datasets_total", {"site": site})

    metrics.missed([Miss(CAM, L1, NOON), Miss("a job's invention", L1, NOON)])
    assert counted(CAM) is counted("unknown") is None
    metrics.record(world.run(), 1)
    metrics.missed([Miss(CAM, L1, NOON)])
    assert (counted(CAM), counted("unknown")) == (2, 1)


def test_an_emptied_catalogue_is_held_too_when_patterns_say_what_is_wanted():
    many = [replica(f"lofar:M{n}", CAM) for n in range(6)]
    world = World(*many, rules=Rules(patterns=("*",)))
    world.run()
    before = world.collector.ads[CAM]
    world.catalogue.replicas = ()
    for _ in range(3):
        world.run(MINUTE)
        assert world.collector.ads[CAM] == before
    for _ in range(20):
        world.run(MINUTE)
    assert states(world.collector) == "[]"
    assert world.run(MINUTE).demand.dids == frozenset()


def test_the_summary_names_who_was_left_out_and_where():
    world = World(replica(L1, CAM), replica(L2, CAM))
    cycle = world.restarted(rules=Rules(pins=frozenset({L1}), budget=Budget(line_bytes=45)))
    world.queues.queues = {"ap1": queue(L2, jobs=4)}
    cycle.ask_demand()
    assert summary(cycle.run())["left_out"] == {CAM: [{"datasets": 1, "first": L2, "jobs": 4}]}


def test_a_site_that_nobody_names_any_more_reads_unknown_after_the_bound():
    world = World(replica(L1, CAM), replica(L2, RAL))
    world.run()
    world.catalogue.replicas, world.catalogue.sites = (replica(L2, RAL),), frozenset({RAL})
    held = world.run(after=HOUR).thought.ads[CAM]
    assert dict(held.content)["AvailableDatasets"] == f'{{"{L1}"}}'
    assert held.as_of == NOON
    late = world.run(after=6 * HOUR).thought.ads[CAM]
    assert dict(late.content)["DatasetStates"] == f"['{L1}'=\"UNKNOWN\"]"
    assert late.as_of == NOON


def test_a_site_of_a_catalogue_taken_out_lists_nothing_after_the_bound():
    world = World(replica(L1, CAM))
    state = world.run().thought.state
    rules = Rules(pins=frozenset({L1}))
    answers = {"dmapi": holding(replica(L2, RAL), at=NOON + 7 * HOUR, sites=(RAL,), asked=[L1])}
    for hours, listed in ((5, f'{{"{L1}"}}'), (7, "{}")):
        thought = think(state, answers, demand(L1), published={}, rules=rules, now=NOON + hours * HOUR)
        assert dict(thought.ads[CAM].content)["AvailableDatasets"] == listed
        assert thought.ads[CAM].as_of == NOON


def test_what_of_such_a_site_was_older_than_the_rest_reads_unknown_by_itself():
    """The age of a site says nothing of a dataset that could not be asked about long before."""
    world = World(replica(L1, CAM), replica(L2, CAM))
    world.run()
    world.catalogue.unseen = {L1: "timeout"}
    state = world.run(after=5 * HOUR).thought.state
    answers = {"dmapi": holding(replica(L3, RAL), at=NOON + 7 * HOUR, sites=(RAL,), asked=[L1, L2])}
    rules = Rules(pins=frozenset({L1, L2}))
    for hours, read in ((6, "AVAILABLE"), (7, "UNKNOWN")):
        thought = think(state, answers, demand(L1, L2), published={}, rules=rules, now=NOON + hours * HOUR)
        lines = dict(thought.ads[CAM].content)
        assert lines["DatasetStates"] == f"['{L1}'=\"{read}\";'{L2}'=\"AVAILABLE\"]"
        assert lines["DatasetAsOf"] == f"['{L1}'={unix(NOON)}]"
        assert (thought.ads[CAM].generation > state.ads[CAM].generation) == (read == "UNKNOWN")


# ---- the audit


def refuted(did=L1, site=CAM, at=NOON):
    return Verdict(Claim("rucio", did, site), By.FILES, at, true=False)


def test_what_the_audit_refuted_is_taken_out_at_the_next_cycle_and_costs_trust_when_it_is_repeated():
    found = [[], [refuted(at=NOON + MINUTE)], [], []]
    world = World(replica(L1, CAM), replica(L2, CAM), verdicts=lambda: found.pop(0))
    assert world.run().thought.lies == ()
    world.clock.turn(MINUTE)
    report = world.run(timedelta(seconds=10))
    assert states(world.collector) == f"['{L2}'=\"AVAILABLE\"]"
    assert dict(world.collector.ads[CAM].content)["DataLocalityTrust"] == "0.980"
    assert [lie.claim.did for lie in report.thought.lies] == [L1]
    generation = world.collector.ads[CAM].generation
    assert world.run(MINUTE).thought.lies == ()
    assert world.collector.ads[CAM].generation == generation
    world.catalogue.replicas = (replica(L2, CAM),)
    world.run(MINUTE)
    world.catalogue.replicas = (replica(L1, CAM), replica(L2, CAM))
    found.append([])
    world.run(MINUTE)
    assert states(world.collector) == f"['{L1}'=\"AVAILABLE\";'{L2}'=\"AVAILABLE\"]"


def test_what_is_held_stays_though_the_same_catalogue_says_again_that_it_is_gone_until_the_storage_does():
    """An emptied list answers the expensive question just as it answers the cheap one."""
    many = [Did(f"lofar:M{n}") for n in range(6)]
    by_probe = Verdict(Claim("rucio", many[1], CAM), By.PROBE, NOON + 2 * MINUTE, true=False)
    found = [[], [refuted(many[0], at=NOON + MINUTE)], [by_probe]]
    world = World(
        *(replica(did, CAM) for did in many),
        rules=Rules(pins=frozenset(many)),
        verdicts=lambda: found.pop(0),
    )
    world.run()
    world.catalogue.replicas = ()
    assert world.run(after=MINUTE).thought.snapshot.sites[CAM].facts.keys() == set(many)
    left = world.run(after=MINUTE).thought.snapshot.sites[CAM].facts.keys()
    assert left == set(many) - {many[1]}


def test_a_catalogue_that_answers_the_audit_alone_lets_go_a_few_until_a_poll_is_answered_again():
    many = [Did(f"lofar:M{n}") for n in range(20)]
    world = World(
        *(replica(did, CAM) for did in many),
        rules=Rules(pins=frozenset(many), limits=Limits(least=5)),
        verdicts=lambda: found.pop(0) if found else [],
    )
    found = [[]] + [[refuted(did, at=NOON + n * MINUTE)] for n, did in enumerate(many, 1)]
    world.run()
    world.catalogue.broken = True
    for n in range(1, 21):
        left = world.run(after=MINUTE).thought.snapshot.sites[CAM].facts.keys()
        assert left == set(many[min(n, 4) :])
    world.catalogue.broken = False
    assert world.run(after=MINUTE).thought.snapshot.sites[CAM].facts.keys() == set()  # it lies, and was read


def test_without_a_breaker_the_audit_alone_takes_out_whatever_it_refutes():
    many = [Did(f"lofar:M{n}") for n in range(6)]
    found = [[], [refuted(did, at=NOON + MINUTE) for did in many]]
    rules = Rules(pins=frozenset(many), limits=Limits(polls=0))
    world = World(*(replica(did, CAM) for did in many), rules=rules, verdicts=lambda: found.pop(0))
    world.run()
    world.catalogue.broken = True
    assert world.run(after=2 * MINUTE).thought.snapshot.sites[CAM].facts.keys() == set()


def test_a_restart_keeps_what_the_audit_found(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        world = World(replica(L1, CAM), store=store, verdicts=lambda: [refuted(at=NOON - MINUTE)])
        before = world.run().thought.state.audit
        state = store.load()
    assert before.trust == {CAM: 0.98}
    assert state.audit == before
    world.restarted(rules=Rules(pins=frozenset({L1})), state=state).run()
    assert states(world.collector) == "[]"


def test_a_site_nobody_asks_about_any_more_keeps_its_trust():
    world = World(replica(L1, CAM), verdicts=lambda: [refuted(at=NOON - MINUTE)])
    state = world.run().thought.state
    late = NOON + 7 * HOUR
    thought = think(state, {}, demand(L1), published={}, rules=Rules(), now=late)
    assert dict(thought.ads[CAM].content)["DataLocalityTrust"] == "0.980"


def test_the_metrics_tell_how_long_each_catalogue_was_asked_and_how_large_each_ad_is():
    world = World(replica(L1, CAM))
    read = world.catalogue.read

    class Slow:
        name = "rucio"

        def read(self, dids):
            world.clock.turn(timedelta(seconds=7))
            return read(dids)

    world.cycle = world.restarted(rules=Rules(pins=frozenset({L1})), catalogues=[Slow()])
    report = world.run()
    registry = CollectorRegistry()
    Metrics(registry, "1").record(report, 1)
    assert registry.get_sample_value("hydrator_catalogue_read_seconds_sum", {"catalogue": "rucio"}) == 7
    content = report.thought.ads[CAM].content
    size = registry.get_sample_value("hydrator_site_ad_bytes", {"site": CAM})
    assert size == sum(len(f"{name} = {value}\n") for name, value in content)

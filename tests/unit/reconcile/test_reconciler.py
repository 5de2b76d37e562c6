"""The order of a cycle, and that nothing that fails takes anything else with it."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hydrator.config import Settings
from hydrator.daemon.logs import cycle_log_fields
from hydrator.daemon.metrics import Metrics
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.errors import CatalogueError, CatalogueUnreachable, ClockStepped, StateError
from hydrator.domain.model import (
    Action,
    ActionKind,
    Did,
    PublishedAd,
    QueuedJobs,
    ScheddDemand,
    Site,
    Unseen,
    to_unix,
)
from hydrator.domain.ports import Resources, SlotGroup
from hydrator.domain.sites import SiteMapping
from hydrator.reconcile.evaluate import evaluate
from hydrator.reconcile.intake import IntakeCatalogue
from hydrator.reconcile.publish import PublishTarget, apply_plan
from hydrator.reconcile.reconciler import Reconciler, read_all
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.snapshot.removal_guard import HeldLoss, HoldCause
from hydrator.reconcile.state import ReconcileState
from hydrator.reconcile.view import LeftOutView
from hydrator.state.store import Store
from tests.factories import (
    CAM,
    HOUR,
    L1,
    L2,
    L3,
    MINUTE,
    NOON,
    RAL,
    ad,
    demand,
    holding,
    replica,
    settings_with,
    view_of,
    want,
)
from tests.memory import MemoryCatalogue, MemoryPool, MemoryPublisher, TurnedClock
from tests.unit.reconcile.cycles import REFRESH_AFTER, build_cycle

LOWER = Did("lofar:l1")


class World:
    """A cycle over parts in memory, each of which a test may break."""

    def __init__(self, *replicas, rules=settings_with(pins={L1, L2}), sites=(CAM, RAL), **more):  # noqa: B008
        self.clock = TurnedClock()
        self.catalogue = MemoryCatalogue("rucio", replicas, sites, clock=self.clock)
        self.other = MemoryCatalogue("dmapi", (), (), clock=self.clock)
        self.collector = MemoryPublisher("collector", clock=self.clock)
        self.file = MemoryPublisher("file", clock=self.clock)
        self.queues = MemoryPool({"ap1": ScheddDemand(NOON, ())})
        self.cycle = self.restarted(rules=rules, **more)

    def restarted(self, *, rules=Settings(), state=None, **more) -> Reconciler:  # noqa: B008
        """A new daemon with this state (None: it was lost) in the same world."""
        parts = {"catalogues": [self.catalogue, self.other], "queues": self.queues, **more}
        state = state or ReconcileState()
        return build_cycle([self.collector, self.file], self.clock, settings=rules, state=state, **parts)

    def run(self, after: timedelta = timedelta()) -> CycleReport:
        self.clock.now += after
        return self.cycle.run()

    def ask_and_run(self, after: timedelta = MINUTE) -> CycleReport:
        self.cycle.refresh_demand()
        return self.run(after)


def states(publisher: MemoryPublisher, site=CAM) -> str:
    return dict(publisher.ads[site].attributes)["DatasetStates"]


def ages(publisher: MemoryPublisher, site=CAM) -> str:
    return dict(publisher.ads[site].attributes)["DatasetAsOf"]


def actions(report: CycleReport, publisher="collector") -> list[str]:
    return [action.kind for o in report.results if o.publisher == publisher for action in o.plan]


def test_demanded_dataset_is_read_and_published_everywhere():
    world = World(replica(L1, CAM), replica(L3, CAM))
    report = world.run()
    assert report.is_complete
    assert states(world.collector) == f"['{L1}'=\"AVAILABLE\"]"
    assert world.collector.ads == world.file.ads
    assert set(world.file.ads) == {CAM, RAL}


def test_a_second_cycle_rests_and_later_ones_refresh_without_a_new_generation():
    world = World(replica(L1, CAM))
    world.run()
    first = world.collector.ads[CAM]
    assert actions(world.run(MINUTE)) == ["noop", "noop"]
    assert actions(world.run(5 * MINUTE)) == ["refresh", "refresh"]
    again = world.collector.ads[CAM]
    assert (again.content, again.generation) == (first.content, first.generation)
    assert again.as_of == NOON + 6 * MINUTE


def test_cycle_in_which_the_clock_was_set_sends_and_keeps_nothing():
    """Set back by a day, the answer of this moment looks a day old, and would be UNKNOWN in all ads."""
    world = World(replica(L1, CAM))
    world.run()
    before, state = dict(world.collector.ads), world.cycle.state

    class SettingBack(MemoryCatalogue):
        def read(self, dids):
            world.clock.now -= 24 * HOUR
            return super().read(dids)

    world.catalogue = SettingBack("rucio", world.catalogue.replicas, clock=world.clock)
    world.cycle = world.restarted(rules=settings_with(pins={L1}), state=state)
    with pytest.raises(ClockStepped):
        world.cycle.run(is_clock_stepping=lambda: world.clock.now < NOON)
    assert world.collector.ads == before
    assert world.cycle.state == state


def test_a_poll_that_takes_long_has_the_age_of_its_beginning():
    world = World(replica(L1, CAM), replica(L2, CAM))
    ticking = TurnedClock()

    def tick():
        ticking.now += MINUTE
        return ticking.now

    world.catalogue = MemoryCatalogue("rucio", world.catalogue.replicas, clock=tick)
    cycle = world.restarted(rules=settings_with(pins={L1, L2}))
    cycle.run()
    assert world.collector.ads[CAM].as_of == NOON
    assert ages(world.collector) == "[]"


class Deaf(MemoryPublisher):
    """Takes every ad without complaint and keeps none, as a collector that denies us does."""

    def publish(self, ads):
        pass

    def withdraw(self, sites):
        pass


def test_ad_that_is_not_read_back_is_not_published():
    world = World(replica(L1, CAM))
    cycle = world.restarted(targets=[PublishTarget(Deaf("deaf", clock=world.clock), REFRESH_AFTER)])
    (outcome,) = cycle.run().results
    assert (outcome.unconfirmed_sites, outcome.published, outcome.error) == ((CAM, RAL), {}, None)


class Stubborn(Deaf):
    """Shows the same ad for ever."""

    def published(self):
        return {CAM: PublishedAd(CAM, 1, NOON, NOON)}


@pytest.mark.parametrize(
    ("kind", "sent", "is_ours"),
    [
        (ActionKind.PUBLISH, ad(generation=1), True),
        (ActionKind.PUBLISH, ad(generation=1, at=NOON + timedelta(microseconds=5)), True),
        (ActionKind.PUBLISH, ad(generation=2), False),
        (ActionKind.REFRESH, ad(generation=1, at=NOON + MINUTE), False),
        (ActionKind.WITHDRAW, None, False),
    ],
)
def test_another_generation_or_age_read_back_is_not_ours(kind, sent, is_ours):
    outcome = apply_plan((Action(kind, CAM, "why", sent),), Stubborn())
    assert outcome.unconfirmed_sites == (() if is_ours else (CAM,))


def test_a_plan_that_sends_nothing_only_looks():
    there = MemoryPublisher(clock=lambda: NOON)
    there.publish([ad(L1)])
    outcome = apply_plan(
        (Action(ActionKind.NOOP, CAM), Action(ActionKind.KEEP, RAL, "nothing is known")), there
    )
    assert (set(outcome.published), outcome.unconfirmed_sites) == ({CAM}, ())


def test_planning_sends_nothing_saves_nothing_and_leaves_the_state_unchanged(tmp_path):
    world = World(replica(L1, CAM))
    with Store.open_to_write(tmp_path) as store:
        cycle = world.restarted(store=store, rules=settings_with(patterns=("*",)))
        assert actions(cycle.plan()) == ["publish", "publish"]
        assert cycle.state == ReconcileState()
        assert world.collector.ads == {}
        assert store.load() == ReconcileState()
        assert store.load_report("cycle", dict) is None


def test_run_does_exactly_the_planned_actions():
    world = World(replica(L1, CAM))
    for _ in range(2):
        planned, done = world.cycle.plan(), world.run()
        assert [o.plan for o in planned.results] == [o.plan for o in done.results]


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
            store=store,
            targets=[PublishTarget(watching, REFRESH_AFTER)],
            rules=settings_with(pins={L1}),
        )
        cycle.run()
        (then,) = watching.on_disk
        assert then.ads == watching.ads
        assert then == cycle.state
        assert store.load_report("cycle", dict)["complete"] is True


class Full:
    """A store on a full disk."""

    def save(self, state, changes):
        raise StateError("the state cannot be read or written: disk is full")

    def save_reports(self, reports):
        raise StateError("the reports cannot be written either")


def test_failed_save_stops_no_publishing_and_is_reported():
    world = World(replica(L1, CAM))
    report = world.restarted(store=Full()).run()
    assert set(world.collector.ads) == {CAM, RAL}
    assert (report.is_complete, report.save_error) == (
        False,
        "the state cannot be read or written: disk is full",
    )


def test_what_an_unreachable_publisher_showed_last_outlives_the_daemon():
    world = World(replica(L1, CAM))
    world.run()
    shown = [site.read_back for site in world.cycle.view.sites]
    world.collector.is_broken = True
    cycle = world.restarted(
        rules=settings_with(pins={L1, L2}), state=world.cycle.state, view=world.cycle.view
    )
    cycle.run()
    assert "broken" in cycle.view.publishers[0].error
    assert [site.read_back for site in cycle.view.sites] == shown


def test_letter_case_clashes_are_reported_and_in_no_ad():
    world = World(replica(L1, CAM), replica(LOWER, RAL), rules=settings_with(pins={L1}))
    report = world.run()
    assert states(world.collector) == states(world.collector, RAL) == "[]"
    assert view_of(report).demand.clashes == ((L1, LOWER),)


# ---- demand


def queue(*dids, jobs=1, at=NOON) -> ScheddDemand:
    return ScheddDemand(at, (QueuedJobs(tuple(dids), jobs),))


def test_refresh_demand_returns_the_newly_demanded_datasets():
    world = World()
    world.queues.queues = {"ap1": queue(L1, L3)}
    assert world.cycle.refresh_demand() == {L3}
    assert world.cycle.refresh_demand() == frozenset()
    assert world.cycle.demand.dids == {L1, L2, L3}


def test_a_collector_that_is_down_takes_no_demand_away_however_long_and_is_no_error_once_it_is_back():
    world = World(rules=Settings())
    world.queues.queues = {"ap1": queue(L1)}
    world.cycle.refresh_demand()
    world.queues.is_broken = True
    world.clock.now += 100 * HOUR
    world.cycle.refresh_demand()
    assert world.cycle.demand.dids == {L1}
    assert "broken" in world.cycle.schedds.error
    assert isinstance(world.cycle.schedds.answers["ap1"], Unseen)
    world.queues.is_broken = False
    world.cycle.refresh_demand()
    assert world.cycle.schedds.error is None


def test_demand_without_schedds_has_only_pins_and_patterns():
    world = World(rules=Settings())
    cycle = world.restarted(queues=None, rules=settings_with(pins={L1}))
    assert cycle.refresh_demand() == frozenset()
    assert cycle.demand.dids == {L1}


def test_pattern_matches_are_demanded_and_kept_while_the_search_fails():
    world = World(replica(L1), replica("ska:9"), rules=settings_with(patterns=("lofar:*",)))
    assert world.run().demand.dids == {L1}
    world.catalogue.is_broken = True
    assert world.run(MINUTE).demand.dids == {L1}
    world.catalogue.is_broken = False
    world.catalogue.replicas = ()
    world.run(MINUTE)  # what is found no longer is asked about once more, to see that it is gone
    assert states(world.collector) == "[]"
    assert world.run(MINUTE).demand.dids == frozenset()


def test_search_that_fails_is_told_as_an_error_of_its_catalogue():
    class Unsearchable(MemoryCatalogue):
        reason = "too many datasets match"

        def find(self, patterns):
            raise CatalogueError(self.name, self.reason) if self.reason else ZeroDivisionError

    catalogue = Unsearchable("rucio", (replica(L1),), (RAL,), clock=lambda: NOON)
    world = World()
    cycle = world.restarted(rules=settings_with(pins={L1}, patterns=("*",)), catalogues=[catalogue])
    told = "the search for [demand] patterns: too many datasets match"
    assert cycle.run().catalogue_errors == {"rucio": told}
    assert cycle.view.catalogues[0].error == told
    assert cycle.run(cycle.poll(is_due=False)).catalogue_errors == {"rucio": told}
    assert "AVAILABLE" in states(world.collector)
    catalogue.reason = ""
    assert "ZeroDivisionError" in cycle.run().catalogue_errors["rucio"]


def test_catalogues_are_asked_about_new_datasets_in_their_configured_order():
    """Else a seed of the simulation is another story in each process: the order of a set is not fixed."""
    names = [f"catalogue{number}" for number in range(12)]
    catalogues = [MemoryCatalogue(name, (), (CAM,), clock=lambda: NOON) for name in names]
    cycle = World().restarted(rules=settings_with(pins={L1}), catalogues=catalogues)
    assert list(cycle.poll(is_due=False).results) == names


def test_former_pattern_match_stays_demanded_until_it_is_read():
    world = World(replica(L1), rules=settings_with(patterns=("lofar:*",)))
    world.run()
    world.catalogue.replicas, world.catalogue.unseen_reasons = (), {L1: "timeout"}
    for _ in range(3):
        assert world.run(MINUTE).demand.dids == {L1}
        assert "AVAILABLE" in states(world.collector)
    world.catalogue.unseen_reasons = {}
    world.run(MINUTE)
    assert states(world.collector) == "[]"


def test_dataset_that_a_pattern_names_in_place_of_a_pin_stays_until_the_search_answers():
    world = World(replica(L1), rules=settings_with(pins={L1}))
    world.run()
    world.catalogue.is_broken = True
    world.cycle = world.restarted(rules=settings_with(patterns=("lofar:*",)), state=world.cycle.state)
    world.run(MINUTE)
    assert states(world.collector) == f"['{L1}'=\"AVAILABLE\"]"


def test_narrower_pattern_drops_its_former_matches():
    world = World(replica(L1), replica(L2), rules=settings_with(patterns=("lofar:*",)))
    world.run()
    world.cycle = world.restarted(rules=settings_with(patterns=(L1,)), state=world.cycle.state)
    world.run(MINUTE)
    world.run(MINUTE)
    assert states(world.collector) == f"['{L1}'=\"AVAILABLE\"]"


def test_catalogues_are_not_searched_without_patterns():
    world = World(replica(L1))
    world.catalogue.find = pytest.fail
    world.run()
    assert world.cycle.state.pattern_matches == {}


def test_a_catalogue_never_found_anything_when_it_could_never_say():
    world = World(rules=settings_with(patterns=("*",)))
    world.catalogue.is_broken = True
    world.run()
    assert world.cycle.state.pattern_matches == {"dmapi": frozenset()}


def test_matches_of_an_earlier_configuration_are_not_wanted_any_more():
    world = World(replica(L1, CAM), replica(L2, CAM), rules=settings_with(patterns=("*",)))
    world.run()
    world.catalogue.is_broken = True
    world.cycle = world.restarted(rules=settings_with(patterns=("*L2",)), state=world.cycle.state)
    world.run(MINUTE)
    assert world.cycle.demand.dids == {L2}


def test_a_bug_in_a_catalogue_is_its_failure_alone_and_loud():
    class Buggy(MemoryCatalogue):
        def read(self, dids):
            raise ZeroDivisionError("of something secret")

    with capture_logs() as logged:
        answers = read_all([Buggy("buggy"), MemoryCatalogue("a", [replica(L1)])], {L1})
    assert answers["a"].readings[L1].replicas == (replica(L1),)
    assert re.fullmatch(
        r"bug in catalogue buggy: ZeroDivisionError at reconcile/test_reconciler.py:\d+; the log has .*",
        answers["buggy"].reason,
    )
    assert [line["event"] for line in logged] == ["catalogue buggy failed: this is a bug, please report it"]
    assert isinstance(logged[0]["exc_info"], ZeroDivisionError)


# ---- a lost state


def lost(world, *, rules=None, **more) -> World:
    """The same world with a daemon that lost its state; the next schedd of its pool is silent."""
    rules = rules or settings_with(pins={L2})
    world.cycle = world.restarted(rules=rules, **more)
    return world


@pytest.fixture
def wanted_by_two():
    """A world in which two schedds want a dataset each, both published, before its state is lost."""
    world = World(replica(L1, CAM), replica(L2, CAM), rules=Settings())
    world.queues.queues = {"ap1": queue(L1), "ap2": queue(L2)}
    world.ask_and_run(timedelta())
    assert L1 in states(world.collector)
    world.queues.queues = {"ap1": Unseen("no answer"), "ap2": queue(L2, at=NOON + MINUTE)}
    return lost(world)


def test_a_lost_state_and_a_silent_schedd_leave_the_published_ads_as_they_are(wanted_by_two):
    world = wanted_by_two
    before = dict(world.collector.ads)
    report = world.ask_and_run()
    assert actions(report) == ["keep", "keep"]
    assert world.collector.ads == world.file.ads == before
    why = "the demand of schedd ap1 is not known yet; until then the published ad is unchanged"
    assert report.held_reasons == {CAM: why, RAL: why}
    assert {site.site: site.held for site in view_of(report).sites} == report.held_reasons
    assert cycle_log_fields(view_of(report), 1)["withheld"] == report.held_reasons
    assert "held" not in cycle_log_fields(view_of(report), 1)
    assert {action.reason for action in report.results[0].plan} == {why}
    assert report.evaluation.state.ads == {}


def test_a_saved_state_that_cannot_be_read_withdraws_nothing(tmp_path):
    world = World(replica(L1, CAM))
    world.run()
    with Store.open_to_write(tmp_path) as store:
        store.save(world.cycle.state)
        with store._db:
            store._db.execute("update record set body = '[broken'")
    before = dict(world.collector.ads)
    with Store.open_to_write(tmp_path) as store:
        lost(world, state=store.load(), store=store, rules=settings_with(pins={L1}))
        assert "state.sqlite.damaged-1" in store.damage_report
        world.catalogue.is_broken = True
        assert actions(world.run(MINUTE)) == ["keep", "keep"]
        assert world.collector.ads == before


def test_withheld_ad_is_published_once_the_schedd_answers(wanted_by_two):
    world = wanted_by_two
    world.ask_and_run()
    world.queues.queues = {"ap1": queue(L1), "ap2": queue(L2)}
    report = world.ask_and_run()
    assert report.held_reasons == {}
    assert states(world.collector) == f"['{L1}'=\"AVAILABLE\";'{L2}'=\"AVAILABLE\"]"
    world.queues.queues = {"ap1": Unseen("no answer"), "ap2": queue(L2)}
    assert world.ask_and_run().held_reasons == {}  # it answered once: its demand is kept


def test_silent_schedd_withholds_ads_for_ten_minutes(wanted_by_two):
    world = wanted_by_two
    world.ask_and_run()
    world.run(9 * MINUTE)
    assert L1 in states(world.collector)
    world.run(MINUTE)
    assert states(world.collector) == f"['{L2}'=\"AVAILABLE\"]"


def test_lost_state_leaves_published_ads_unchanged_until_all_schedds_answer(wanted_by_two):
    """They were not asked, are not listed yet, one is silent, is forgotten, or they cannot be listed."""
    world = wanted_by_two
    silent = world.queues.queues

    def check(report: CycleReport, unknown: str) -> None:
        assert report.held_reasons[CAM].startswith(f"the demand of {unknown} is not known yet")
        assert L1 in states(world.collector)

    check(world.run(MINUTE), "all schedds")
    for listed, unknown in (({}, "all schedds"), (silent, "schedd ap1"), ({"ap2": queue(L2)}, "schedd ap1")):
        world.queues.queues = listed
        check(world.ask_and_run(), unknown)
    world.cycle = world.restarted(rules=settings_with(pins={L2}), state=world.cycle.state)
    world.queues.is_broken = True
    check(world.ask_and_run(), "all schedds")


def test_lost_state_withholds_ads_that_no_publisher_can_read_back_now(wanted_by_two):
    world = wanted_by_two
    world.collector.is_broken = world.file.is_broken = True
    assert world.ask_and_run().held_reasons.keys() == {CAM, RAL}
    world.collector.is_broken = world.file.is_broken = False
    world.run(MINUTE)
    assert L1 in states(world.collector)


def test_lost_state_withholds_an_ad_of_which_only_slots_tell(wanted_by_two):
    """Neither a publisher nor a catalogue names the site; its slots alone would make an empty ad."""
    world = wanted_by_two
    world.queues.slots = (SlotGroup(CAM, Resources(8), Resources(1)),)
    world.catalogue.is_broken = world.other.is_broken = True
    world.collector.is_broken = world.file.is_broken = True
    assert world.ask_and_run().held_reasons.keys() == {CAM}
    world.collector.is_broken = world.file.is_broken = False
    world.run(MINUTE)
    assert L1 in states(world.collector)


def test_a_site_that_no_publisher_shows_is_published_whoever_is_silent(wanted_by_two):
    world = wanted_by_two
    for publisher in (world.collector, world.file):
        publisher.withdraw({RAL})
    assert actions(world.ask_and_run()) == ["keep", "publish"]


def test_lost_state_withholds_ads_that_only_a_publisher_has_that_cannot_be_read_now(wanted_by_two):
    world = wanted_by_two
    world.collector.ads.clear()
    world.file.is_broken = True
    assert world.ask_and_run().held_reasons[CAM].startswith("the demand of schedd ap1 is not known yet")
    assert world.collector.ads == {}


def test_lost_state_withholds_the_ad_of_a_site_that_its_catalogue_stopped_to_list(wanted_by_two):
    """The facts that stay would make an ad, and the publisher that has one cannot be read."""
    world = wanted_by_two
    world.ask_and_run()
    world.catalogue.replicas, world.catalogue.sites = (), frozenset({RAL})
    world.ask_and_run()
    world.collector.ads.clear()
    world.file.is_broken = True
    assert CAM in world.ask_and_run().held_reasons
    assert world.collector.ads == {}


def test_a_state_that_is_there_withholds_nothing_when_a_schedd_is_silent(wanted_by_two):
    world = wanted_by_two
    world.queues.queues = {"ap2": queue(L2)}
    world.ask_and_run(timedelta())
    world.queues.queues = {"new": Unseen("no answer"), "ap2": queue(L2)}
    world.cycle.refresh_demand()
    world.catalogue.replicas = ()
    assert world.run(MINUTE).held_reasons == {}
    assert states(world.collector) == "[]"


@pytest.mark.parametrize("how", ["broken", "unseen", "blind"])
def test_lost_state_and_incomplete_catalogue_leave_published_ads_unchanged(how):
    world = World(replica(L1, CAM))
    world.other.replicas = (replica(L2, CAM),)
    world.run()
    lost(world, rules=settings_with(pins={L1, L2}))
    if how == "broken":
        world.other.is_broken = True
    elif how == "blind":
        world.other.unreachable_sites = frozenset({CAM})
    else:
        world.other.unseen_reasons = {L2: "timeout"}
    world.cycle.refresh_demand()
    why = "catalogue dmapi has not answered for all datasets yet"
    assert world.run(MINUTE).held_reasons[CAM].startswith(why)
    assert L2 in states(world.collector)
    world.other.is_broken = how != "blind"  # half an answer, then none
    assert world.run(MINUTE).held_reasons[CAM].startswith(why)
    assert L2 in states(world.collector)
    world.other.is_broken, world.other.unseen_reasons = False, {}
    world.other.unreachable_sites = frozenset()
    assert world.run(MINUTE).held_reasons == {}
    assert L2 in states(world.collector)


class Unsearchable(MemoryCatalogue):
    """Answers about each dataset, but not about patterns."""

    def find(self, patterns):
        raise CatalogueUnreachable(self.name, "the search broke")


def test_lost_state_and_a_failed_search_leave_published_ads_unchanged():
    world = World(replica(L1, CAM), rules=settings_with(patterns=("*",)))
    world.run()
    searchable, world.catalogue = world.catalogue, Unsearchable("rucio", world.catalogue.replicas, (CAM, RAL))
    lost(world, rules=settings_with(patterns=("*",)))
    world.cycle.refresh_demand()
    why = "catalogue rucio has not been searched for the patterns yet"
    assert world.run(MINUTE).held_reasons[CAM].startswith(why)
    assert L1 in states(world.collector)
    lost(world, rules=settings_with(patterns=("*",)), catalogues=[searchable])
    assert world.ask_and_run().held_reasons == {}
    assert L1 in states(world.collector)


def test_an_answer_under_other_site_names_does_not_replace_an_ad_after_a_lost_state(tmp_path):
    """The state was lost while CAM had an alias, which has gone again; dmapi has not answered since."""
    world = World(replica(L1, CAM))
    world.other.replicas = (replica(L2, CAM),)
    world.run()
    renamed = SiteMapping(aliases={CAM: Site("ELSEWHERE")})
    catalogues = [IntakeCatalogue(one, renamed) for one in (world.catalogue, world.other)]
    lost(world, rules=settings_with(pins={L1, L2}), catalogues=catalogues)
    world.ask_and_run()
    with Store.open_to_write(tmp_path) as store:
        store.save(world.cycle.state)
    with Store.open_to_write(tmp_path) as store:
        lost(world, rules=settings_with(pins={L1, L2}), state=store.load())
    world.other.is_broken = True
    why = "catalogue dmapi has not answered for all datasets yet"
    assert world.ask_and_run().held_reasons[CAM].startswith(why)
    assert L2 in states(world.collector)
    world.other.is_broken = False
    assert CAM not in world.ask_and_run().held_reasons
    assert L2 in states(world.collector)


def test_an_ad_that_is_newer_than_the_state_is_not_replaced_until_schedds_answer():
    """The disk was full when the demand for L2 came, so a restart knows nothing of it."""
    world = World(replica(L1, CAM), replica(L2, CAM), rules=Settings())
    world.queues.queues = {"ap1": queue(L1)}
    world.ask_and_run(timedelta())
    saved = world.cycle.state
    world.queues.queues = {"ap1": queue(L1, L2)}
    world.ask_and_run()
    lost(world, rules=Settings(), state=saved)
    world.queues.queues = {"ap1": Unseen("no answer")}
    assert world.ask_and_run().held_reasons.keys() == {CAM, RAL}
    assert L2 in states(world.collector)
    world.queues.queues = {"ap1": queue(L1, L2, at=NOON + MINUTE)}
    assert world.ask_and_run().held_reasons == {}
    assert L2 in states(world.collector)


def test_a_search_for_other_patterns_does_not_replace_an_ad_after_a_lost_state():
    world = World(replica(L1, CAM), replica(L2, CAM), rules=settings_with(patterns=("*L1",)))
    world.run()
    world.other.is_broken = True  # so the ads are withheld
    lost(world, rules=settings_with(patterns=("*L2",)))
    assert CAM in world.ask_and_run().held_reasons
    world.other.is_broken = False
    world.catalogue = Unsearchable("rucio", world.catalogue.replicas, (CAM, RAL))
    lost(world, rules=settings_with(patterns=("*L1",)), state=world.cycle.state)
    why = "catalogue rucio has not been searched for the patterns yet"
    assert world.ask_and_run().held_reasons[CAM].startswith(why)
    assert L1 in states(world.collector)


def test_names_under_another_default_scope_do_not_replace_an_ad_after_a_lost_state():
    rules = {scope: Settings(daemon={"default_scope": scope}) for scope in ("lofar", "test")}
    world = World(replica(L1, CAM), rules=rules["lofar"])
    world.queues.queues = {"ap1": queue(L1.removeprefix("lofar:"))}
    world.ask_and_run()
    world.other.is_broken = True  # so the ads are withheld
    lost(world, rules=rules["test"]).ask_and_run()
    world.other.is_broken = False
    lost(world, rules=rules["lofar"], state=world.cycle.state)
    world.queues.queues = {"ap1": Unseen("no answer")}
    why = "the demand of schedd ap1 is not known yet"
    assert world.ask_and_run().held_reasons[CAM].startswith(why)
    assert L1 in states(world.collector)


def test_an_answer_without_the_site_does_not_replace_its_ad_in_later_cycles():
    """The next cycle is for a new dataset, and the catalogue that cannot look at the site is still busy."""
    world = World(replica(L1, CAM))
    world.other.replicas = (replica(L2, CAM),)
    world.run()
    world.other.unreachable_sites = frozenset({CAM})
    lost(world, rules=settings_with(pins={L1, L2}))
    world.ask_and_run()
    report = world.cycle.run(world.cycle.poll(is_due=False))
    assert report.held_reasons[CAM].startswith("catalogue dmapi has not answered for all datasets yet")
    assert L2 in states(world.collector)


def test_a_loss_that_polls_confirm_while_ads_are_withheld_delays_no_ad_longer():
    many = [replica(f"lofar:M{n}", CAM) for n in range(6)]
    rules = settings_with(pins=(one.did for one in many), confirm_polls=2)
    world = World(*many, rules=rules)
    world.run()
    world.queues.queues = {"ap1": Unseen("no answer")}
    lost(world, rules=rules).ask_and_run()
    world.catalogue.replicas = ()
    world.ask_and_run()
    world.queues.queues = {"ap1": queue()}
    assert "would leave the ad at once" in world.ask_and_run().held_reasons[CAM]
    assert world.collector.ads[CAM].as_of > NOON  # published, with the facts that are held
    assert world.ask_and_run().held_reasons == {}
    assert states(world.collector) == "[]"


def hold_at_clock_step(world, *, pins=frozenset({L1})) -> None:
    """Start a daemon again whose clock was set back while it held the loss of L1."""
    state = ReconcileState(
        held_losses={CAM: HeldLoss(world.clock(), world.clock(), {L1: 0}, 1, HoldCause.CLOCK)}
    )
    lost(world, rules=settings_with(pins=pins), state=state)


def test_a_loss_held_when_the_clock_was_set_back_withholds_the_ad_for_ten_minutes_over_restarts():
    world = World(replica(L1, CAM))
    world.run()
    world.catalogue.replicas = ()
    hold_at_clock_step(world)
    why = "a loss was held when the clock was set back; the published ad is unchanged"
    assert world.ask_and_run().held_reasons == {CAM: why}
    lost(world, rules=settings_with(pins={L1}), state=world.cycle.state)
    assert world.ask_and_run(8 * MINUTE).held_reasons == {CAM: why}
    assert L1 in states(world.collector)
    assert world.ask_and_run().held_reasons == {}
    assert states(world.collector) == "[]"


def test_a_loss_held_when_the_clock_was_set_back_is_over_if_nobody_demands_it_any_more():
    world = World(replica(L1, CAM), replica(L2, CAM))
    world.run()
    world.catalogue.replicas = (replica(L2, CAM),)
    hold_at_clock_step(world, pins={L2})
    world.queues.queues = {"ap1": Unseen("no answer")}  # it may demand L1
    assert CAM in world.ask_and_run().held_reasons
    world.queues.queues = {"ap1": queue(L1)}
    assert CAM in world.ask_and_run().held_reasons
    hold_at_clock_step(world, pins={L2})
    world.queues.queues = {"ap1": queue(L2)}
    assert world.ask_and_run().held_reasons == {}
    assert states(world.collector) == f"['{L2}'=\"AVAILABLE\"]"


def test_retired_site_is_withdrawn_even_without_state(wanted_by_two):
    world = lost(wanted_by_two, rules=settings_with(pins={L2}, retired=frozenset({RAL})))
    world.ask_and_run()
    assert set(world.collector.ads) == {CAM}


# ---- the pure part


def test_a_catalogue_taken_out_of_the_configuration_is_forgotten():
    both = {"a": holding(replica(L1, CAM)), "b": holding(replica(L2, CAM))}
    state = evaluate(
        ReconcileState(), both, demand(L1, L2), published_generations={}, settings=Settings(), now=NOON
    ).state
    after = evaluate(
        state, {"a": both["a"]}, demand(L1, L2), published_generations={}, settings=Settings(), now=NOON
    )
    assert set(after.state.memories) == {"a"}
    assert set(after.snapshot.sites[CAM].facts) == {L1}


def test_summary_of_a_cycle_names_all_that_an_operator_needs():
    world = World(replica(L1, CAM))
    world.queues.queues = {"ap1": ScheddDemand(NOON, (QueuedJobs(("no scope",), 1), QueuedJobs((L1,), 3)))}
    world.cycle.refresh_demand()
    world.other.is_broken = True
    view = view_of(world.run())
    assert (view.at, view.complete) == (to_unix(NOON), False)
    errors = {one.name: one.error for one in view.catalogues}
    assert (errors["rucio"], "broken" in errors["dmapi"]) == (None, True)
    (file,) = [one for one in view.publishers if one.name == "file"]
    assert (file.error, file.not_read_back, file.ads) == (None, (), 2)
    assert list(view.demand.refused) == ["no scope"]
    assert set(view.demand.unseen) == {L1, L2}


def test_texts_of_one_user_do_not_fill_the_log_line_of_a_cycle():
    world = World(replica(L1, CAM))
    named = [QueuedJobs((f"{n} no scope",), 1) for n in range(9_000)]
    keyed = [QueuedJobs((L1,), 1, f"forged {n}") for n in range(9_000)]
    world.queues.queues = {"ap1": ScheddDemand(NOON, (*named, *keyed))}
    world.cycle.refresh_demand()
    fields = cycle_log_fields(view_of(world.run()), 1)
    for name in ("refused_demand", "wrong_keys"):
        assert len(fields[name]) == 21
        assert fields[name]["more"] == 8_980


def test_held_loss_is_in_summary_log_and_metrics():
    many = [replica(f"lofar:M{n}", CAM) for n in range(6)]
    world = World(*many, rules=settings_with(pins=(one.did for one in many)))
    world.run()
    world.catalogue.replicas = ()
    report = world.run(MINUTE)
    why = "6 of 6 datasets would leave the ad at once; 0 of 20 further polls confirm the loss"
    assert report.is_complete
    held = {site.site: site.held for site in view_of(report).sites if site.loss}
    assert held == cycle_log_fields(view_of(report), 1)["held"] == {CAM: why}
    registry = CollectorRegistry()
    metrics = Metrics(registry, "1")
    metrics.record_cycle(view_of(report), 1)
    assert registry.get_sample_value("hydrator_held_sites", {"cause": "site"}) == 1
    world.catalogue.replicas = tuple(many)
    metrics.record_cycle(view_of(world.run(MINUTE)), 1)
    assert registry.get_sample_value("hydrator_held_sites", {"cause": "site"}) == 0


class Unplaced(MemoryCatalogue):
    """One that knows storage elements without a site."""

    unmapped = frozenset({"SOMEWHERE-DISK", "SOMEWHERE-TAPE"})

    def read(self, dids):
        return replace(super().read(dids), unmapped_storages=self.unmapped)


def test_storage_elements_without_a_site_are_counted_by_catalogue_also_while_it_fails():
    world = World(replica(L1, CAM))
    unplaced = Unplaced("unplaced", clock=world.clock)
    world.cycle = world.restarted(catalogues=[world.catalogue, unplaced])
    registry = CollectorRegistry()
    metrics = Metrics(registry, "1")

    def counted(catalogue: str) -> float | None:
        name = "hydrator_unmapped_storage_elements"
        return registry.get_sample_value(name, {"catalogue": catalogue})

    metrics.record_cycle(view_of(world.run()), 1)
    assert (counted("unplaced"), counted("rucio")) == (2, 0)
    unplaced.is_broken = True
    metrics.record_cycle(view_of(world.run(MINUTE)), 1)
    assert counted("unplaced") == 2
    unplaced.is_broken, unplaced.unmapped = False, frozenset()
    metrics.record_cycle(view_of(world.run(MINUTE)), 1)
    assert counted("unplaced") == 0


def test_emptied_catalogue_is_held_too_with_patterns_only():
    many = [replica(f"lofar:M{n}", CAM) for n in range(6)]
    world = World(*many, rules=settings_with(patterns=("*",)))
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


def test_summary_names_the_omitted_jobs_by_site():
    report = World(replica(L1, CAM), replica(L2, CAM)).run()
    drafts = {CAM: replace(report.evaluation.drafts[CAM], omitted_entries=(want(L2, jobs=4),))}
    view = view_of(replace(report, evaluation=replace(report.evaluation, drafts=drafts)))
    left_out = {row.site: row.left_out for row in view.sites if row.left_out}
    assert left_out == {CAM: LeftOutView(1, 4, L2)}


def test_a_site_of_a_catalogue_taken_out_lists_nothing_after_the_bound():
    world = World(replica(L1, CAM))
    state = world.run().evaluation.state
    rules = settings_with(pins={L1})
    answers = {"dmapi": holding(replica(L2, RAL), at=NOON + 7 * HOUR, sites=(RAL,), asked=[L1])}
    for hours, listed in ((5, f'{{"{L1}"}}'), (7, "{}")):
        thought = evaluate(
            state, answers, demand(L1), published_generations={}, settings=rules, now=NOON + hours * HOUR
        )
        assert dict(thought.ads[CAM].content)["AvailableDatasets"] == listed
        assert thought.ads[CAM].as_of == NOON


def test_a_site_that_nothing_lists_any_more_shows_only_what_is_still_demanded():
    state = World(replica(L1, CAM), replica(L2, CAM)).run().evaluation.state
    thought = evaluate(state, {}, demand(L2), published_generations={}, settings=Settings(), now=NOON)
    content = dict(thought.ads[CAM].content)
    assert content["AvailableDatasets"] == f'{{"{L2}"}}'
    assert content["DataLocalitySets"] == f"['{set_key([L2])}'=1.0]"


def test_metrics_have_poll_seconds_by_catalogue_and_bytes_by_ad():
    world = World(replica(L1, CAM))
    read = world.catalogue.read

    class Slow:
        name = "rucio"

        def read(self, dids):
            world.clock.now += timedelta(seconds=7)
            return read(dids)

    world.cycle = world.restarted(rules=settings_with(pins={L1}), catalogues=[Slow()])
    report = world.run()
    registry = CollectorRegistry()
    Metrics(registry, "1").record_cycle(view_of(report), 1)
    assert registry.get_sample_value("hydrator_catalogue_read_seconds_sum", {"catalogue": "rucio"}) == 7
    content = report.evaluation.ads[CAM].content
    size = registry.get_sample_value("hydrator_site_ad_bytes", {"site": CAM})
    assert size == sum(len(f"{name} = {value}\n") for name, value in content)

"""What was decided, kept and bounded; and back to it, with the ages it had."""

from dataclasses import replace

import pytest

from adapters.memory import MemoryCatalogue, MemoryPublisher
from hydrator.diagnostics.outcomes import AdHistory
from hydrator.domain.model import ReplicaState, SiteAd, to_unix
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.history import DatasetChange, HistoryEntry
from hydrator.reconcile.publish.overrides import Approve
from hydrator.reconcile.publish.plan import Policy
from hydrator.reconcile.publish.targets import PublishTarget
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.snapshot.breaker import BreakerLimits
from hydrator.reconcile.state import ReconcileState
from hydrator.state.command_files import CommandQueue
from hydrator.state.history.generations import MAX_AGE, MAX_GENERATIONS_PER_SITE, RECENT_GENERATIONS
from hydrator.state.store import Store
from tests.factories import BOUND, CAM, HOUR, L1, L2, L3, MINUTE, NOON, OSO, RAL, ad, published, replica

POLICY = Policy(refresh_after=MINUTE, has_expiring_ads=True)


class World:
    """A cycle over a real store and real orders, whose catalogue and clock a test turns."""

    def __init__(self, folder, *replicas, **rules):
        self.now = NOON
        self.catalogue = MemoryCatalogue("rucio", replicas, (CAM, RAL), clock=lambda: self.now)
        self.publisher = MemoryPublisher("file", clock=lambda: self.now)
        self.store = Store.open_to_write(folder)
        self.orders = CommandQueue(folder)
        self.orders.prepare()
        self.rules = ReconcilePolicy(pins=frozenset({L1, L2}), **rules)
        self.cycle = self.started()

    def started(self) -> Reconciler:
        return Reconciler(
            catalogues=[self.catalogue],
            queues=None,
            targets=[PublishTarget(self.publisher, POLICY)],
            policy=self.rules,
            clock=lambda: self.now,
            state=self.store.load(),
            store=self.store,
            commands=self.orders,
        )

    def run(self, *replicas, after=MINUTE):
        self.now += after
        self.catalogue.replicas = replicas
        return self.cycle.run()

    def ad(self) -> SiteAd:
        return self.publisher.ads[CAM]

    def changes(self) -> list[tuple]:
        return [(c.did, c.state_before, c.state_after, c.reason) for c in self.entries()[-1].changes]

    def entries(self) -> list[HistoryEntry]:
        return [one for one in self.store.load_history() if one.ad.site == CAM]


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path, replica(L1))
    made.run(replica(L1), after=0 * MINUTE)
    yield made
    made.store.close()


def test_history_has_every_generation_with_changes_and_reasons(world):
    assert world.changes() == [(L1, None, "AVAILABLE", "its catalogue says so")]
    world.run(replica(L1, state=ReplicaState.PARTIAL), replica(L2))
    assert world.changes() == [
        (L1, "AVAILABLE", "PARTIAL", "its catalogue says so"),
        (L2, None, "AVAILABLE", "its catalogue says so"),
    ]
    world.run(replica(L2))
    assert world.changes() == [(L1, "PARTIAL", None, "its catalogue says that it is gone")]
    assert [one.text for one in world.entries()] == ["1 came", "1 came, 1 changed", "1 left"]
    assert [one.ad.generation for one in world.entries()] == [to_unix(NOON) + 60 * n for n in range(3)]
    assert world.entries()[-1].ad == world.ad()


def test_cycle_without_changes_adds_no_history_entry_and_updates_the_last_age(world):
    for _ in range(3):
        world.run(replica(L1))
    assert len(world.entries()) == 1
    world.run(replica(L2))
    assert [one.ad.as_of for one in world.entries()] == [NOON + 3 * MINUTE, NOON + 4 * MINUTE]


def test_history_says_why_a_dataset_left(world, tmp_path):
    world.rules = replace(world.rules, pins=frozenset({L2}))
    world.cycle = world.started()
    world.run(replica(L1))
    assert world.changes() == [(L1, "AVAILABLE", None, "no longer wanted")]
    world.rules = replace(world.rules, pins=frozenset({L1, L2}))
    world.cycle = world.started()
    world.run(replica(L1))
    world.run(replica(L1), replica("lofar:l1", RAL))
    assert world.changes() == [(L1, "AVAILABLE", None, "only letter case tells it from another")]


def test_history_names_unknown_and_released_datasets_as_such(world):
    world.rules = replace(world.rules, breaker_limits=BreakerLimits(confirming_polls=1, min_datasets=1))
    world.cycle = world.started()
    world.run()
    world.run()
    assert world.changes() == [(L1, "AVAILABLE", None, "1 further poll said that it is gone")]
    world.run(replica(L1))
    world.catalogue.is_broken = True
    world.run(after=BOUND + MINUTE)
    assert world.changes() == [
        (L1, "AVAILABLE", "UNKNOWN", "nobody could be asked about it for longer than the age bound")
    ]


def test_history_notes_when_a_publisher_first_shows_a_generation(world):
    world.publisher.is_broken = True
    world.run(replica(L2))
    assert [dict(one.published_at) for one in world.entries()] == [{"file": NOON}, {}]
    world.publisher.is_broken = False
    world.run(replica(L2))
    world.run(replica(L2))
    assert world.entries()[-1].published_at == {"file": NOON + 2 * MINUTE}


def test_the_history_stays_bounded_in_number_and_in_time(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        for n in range(MAX_GENERATIONS_PER_SITE + 5):
            store.add_history([HistoryEntry(NOON, ad(L1, generation=n + 1), ())], {}, NOON)
        store.add_history([HistoryEntry(NOON, ad(L1, site=RAL), ())], {}, NOON)
        kept = [one.ad.generation for one in store.load_history() if one.ad.site == CAM]
        assert kept == list(range(6, MAX_GENERATIONS_PER_SITE + 6))
        assert len(store.load_history()) == MAX_GENERATIONS_PER_SITE + 1
        later = NOON + MAX_AGE + MINUTE
        store.add_history([HistoryEntry(later, ad(L1, generation=999), ())], {}, later)
        assert [one.ad.generation for one in store.load_history()] == [999]


def test_history_says_where_it_begins_after_entries_were_deleted(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        for n in range(MAX_GENERATIONS_PER_SITE):
            store.add_history([HistoryEntry(NOON + n * MINUTE, ad(L1, generation=n + 1), ())], {}, NOON)
        store.add_history([HistoryEntry(NOON, ad(L1, site=RAL), ())], {}, NOON)
        assert store.history_begins.load() == {}, "nothing is lost yet"
        late = NOON + HOUR * 5
        store.add_history([HistoryEntry(late, ad(L1, generation=998), ())], {}, late)
        assert store.history_begins.load() == {CAM: NOON + MINUTE}


def test_changes_without_an_available_dataset_do_not_displace_the_start_of_a_day(tmp_path):
    """A day of 2 arrivals and of 600 changes: the history still has both arrivals, and the last changes."""
    with Store.open_to_write(tmp_path) as store:
        previous, expected, lists = {}, {}, ([L1], [L1, L2], [L1, L2, L3])
        for n in range(600):
            at, dids = NOON + n * MINUTE, lists[n // 200]
            one = replace(ad(*dids, generation=n + 1), as_of=at)
            store.add_history([HistoryEntry(at, one, ())], previous, at)
            previous, expected[at] = {CAM: one}, frozenset(dids)
        entries = store.load_history()
        assert len(entries) == MAX_GENERATIONS_PER_SITE
        assert [one.ad.generation for one in entries][-RECENT_GENERATIONS:] == list(range(551, 601))
        assert store.history_begins.load() == {}, "nothing that a report reads is lost"
        history = AdHistory(entries)
        assert {at: history.available_datasets(CAM, at) for at in expected} == expected


def test_ad_that_has_not_changed_for_longer_than_the_history_is_kept(tmp_path):
    """Else a site whose data never changes would have no ad, and the results of its jobs would be unknown."""
    with Store.open_to_write(tmp_path) as store:
        for site, generation, at in ((CAM, 1, NOON), (CAM, 2, NOON + HOUR), (OSO, 1, NOON + HOUR)):
            store.add_history([HistoryEntry(at, ad(L1, site=site, generation=generation), ())], {}, at)
        store.save(ReconcileState(ads={CAM: ad(L1, generation=2)}))
        later = NOON + 2 * MAX_AGE
        store.add_history([HistoryEntry(later, ad(L1, site=RAL), ())], {}, later)
        kept = {(one.ad.site, one.ad.generation) for one in store.load_history()}
        assert {(site, generation) for site, generation in kept if site != RAL} == {(CAM, 2)}
        assert store.history_begins.load() == {CAM: NOON + HOUR}


def test_an_entry_comes_back_as_it_was_and_a_spoilt_one_hides_no_other(tmp_path):
    whole = HistoryEntry(NOON, ad(L1, L2, generation=5), (DatasetChange(L1, None, "AVAILABLE", "ü"),))
    with Store.open_to_write(tmp_path) as store:
        store.add_history([whole, replace(whole, ad=ad(L1, generation=6))], {}, NOON)
        store.mark_published("collector", published(whole.ad), NOON + MINUTE)
        with store._db:
            store._db.execute("update history set body = 'spoilt' where generation = 6")
        assert store.load_history() == [replace(whole, published_at={"collector": NOON + MINUTE})]


def test_history_forgets_a_dataset_that_is_not_published_any_more(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        gone = HistoryEntry(NOON, ad(L2, generation=2), (DatasetChange(L3, "AVAILABLE", None, "gone"),))
        store.add_history(
            [HistoryEntry(NOON, ad(L1), ()), gone, HistoryEntry(NOON, ad(L3, generation=3), ())], {}, NOON
        )
        store.forget_history((L3,))
        assert [one.ad.generation for one in store.load_history()] == [1]


def test_a_retired_site_is_withdrawn(world):
    world.rules = replace(world.rules, retired=frozenset({CAM}))
    world.cycle = world.started()
    world.run(replica(L1))
    assert CAM not in world.publisher.ads


def test_an_order_is_followed_once_and_planning_follows_none(world):
    world.orders.submit(Approve(CAM, frozenset({L1})))
    world.cycle.plan()
    assert len(world.orders.read_pending().commands) == 1
    world.run(replica(L1))
    assert world.orders.read_pending().commands == ()

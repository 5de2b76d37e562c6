"""What was decided, kept and bounded."""

import pytest

from hydrator.domain.model import DatasetState, Did, to_unix
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.state import (
    MAX_CHANGES_PER_SITE,
    Approve,
    DatasetChange,
    HistoryEntry,
    ReconcileState,
)
from hydrator.state.command_files import CommandQueue
from hydrator.state.store import MAX_AGE, Store
from tests.factories import BOUND, CAM, L1, L2, MINUTE, NOON, OSO, RAL, replica, settings_with
from tests.memory import MemoryCatalogue, MemoryPublisher
from tests.unit.reconcile.cycles import build_cycle


class World:
    """A cycle over a real store and real orders, whose catalogue and clock a test turns."""

    def __init__(self, folder, *replicas, **rules):
        self.now = NOON
        self.entries: list[HistoryEntry] = []
        self.catalogue = MemoryCatalogue("rucio", replicas, (CAM, RAL), clock=lambda: self.now)
        self.publisher = MemoryPublisher("file", clock=lambda: self.now)
        self.store = Store.open_to_write(folder)
        self.orders = CommandQueue(folder)
        self.orders.prepare()
        self.rules = {"pins": {L1, L2}} | rules
        self.cycle = self.started()

    def started(self) -> Reconciler:
        return build_cycle(
            [self.publisher],
            lambda: self.now,
            MINUTE,
            catalogues=[self.catalogue],
            settings=settings_with(**self.rules),
            state=self.store.load(),
            store=self.store,
            commands=self.orders,
        )

    def restart(self, **changed_rules):
        self.rules |= changed_rules
        self.cycle = self.started()

    def run(self, *replicas, after=MINUTE):
        self.now += after
        self.catalogue.replicas = replicas
        report = self.cycle.run()
        self.entries += [one for one in report.history_entries if one.site == CAM]
        return report

    def changes(self) -> list[tuple]:
        """Return the stored changes of the last cycle that changed the ad, by dataset."""
        rows = self.store.load_changes(CAM)
        last = [change for change in rows if change.at == rows[0].at]
        return sorted((c.did, c.before, c.after, c.why) for c in last)


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path, replica(L1))
    made.run(replica(L1), after=0 * MINUTE)
    yield made
    made.store.close()


def test_history_has_every_generation_with_changes_and_reasons(world):
    assert world.changes() == [(L1, None, "AVAILABLE", "its catalogue says so")]
    world.run(replica(L1, state=DatasetState.PARTIAL), replica(L2))
    assert world.changes() == [
        (L1, "AVAILABLE", "PARTIAL", "its catalogue says so"),
        (L2, None, "AVAILABLE", "its catalogue says so"),
    ]
    world.run(replica(L2))
    assert world.changes() == [(L1, "PARTIAL", None, "its catalogue says that it is gone")]
    assert [one.text for one in world.entries] == ["1 came", "1 came, 1 changed", "1 left"]
    assert [one.decided_at for one in world.entries] == [NOON + n * MINUTE for n in range(3)]


def test_cycle_without_changes_adds_no_history_entry(world):
    for _ in range(3):
        world.run(replica(L1))
    assert len(world.entries) == 1


def test_history_says_why_a_dataset_left(world, tmp_path):
    world.restart(pins={L2})
    world.run(replica(L1))
    assert world.changes() == [(L1, "AVAILABLE", None, "no longer demanded")]
    world.restart(pins=frozenset({L1, L2}))
    world.run(replica(L1))
    world.run(replica(L1), replica("lofar:l1", RAL))
    assert world.changes() == [(L1, "AVAILABLE", None, "only letter case tells it from another")]


def test_history_names_unknown_and_released_datasets_as_such(world):
    many = [Did(f"lofar:L{n}") for n in range(1, 7)]
    world.restart(pins=many, confirm_polls=1)
    world.run(*map(replica, many))
    world.run()
    world.run()
    reason = "1 further poll said that it is gone"
    assert world.changes() == [(did, "AVAILABLE", None, reason) for did in many]
    world.run(replica(L1))
    world.catalogue.is_broken = True
    world.run(after=BOUND + MINUTE)
    assert world.changes() == [
        (L1, "AVAILABLE", "UNKNOWN", "no catalogue has answered about it for longer than the age bound")
    ]


def stored(store, *changes, at=NOON, site=CAM):
    store.save(ReconcileState(), [HistoryEntry(at, site, changes)])


def change(n: int, at=NOON) -> DatasetChange:
    return DatasetChange(to_unix(at), Did(f"lofar:L{n:03}"), None, "AVAILABLE", f"reason {n}")


def test_the_last_200_changes_of_a_site_are_kept_newest_first(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        for n in range(MAX_CHANGES_PER_SITE + 5):
            stored(store, change(n, NOON + n * MINUTE), at=NOON + n * MINUTE)
        stored(store, change(0), site=RAL)
        kept = store.load_changes(CAM)
        last = range(MAX_CHANGES_PER_SITE + 4, 4, -1)
        assert kept == tuple(change(n, NOON + n * MINUTE) for n in last)
        assert store.load_changes(RAL) == (change(0),)
        assert store.load_changes(OSO) == ()


def test_a_cycle_that_changes_very_many_datasets_lists_some_and_counts_the_others(world):
    many = [Did(f"lofar:L{n:03}") for n in range(MAX_CHANGES_PER_SITE + 7)]
    world.restart(pins=[L1, *many])
    world.run(*map(replica, [L1, *many]))
    entry = world.entries[-1]
    assert entry.changes == tuple(
        DatasetChange(to_unix(world.now), did, None, "AVAILABLE", "its catalogue says so")
        for did in many[:MAX_CHANGES_PER_SITE]
    )
    assert entry.text == f"{MAX_CHANGES_PER_SITE} came, 7 more"


def test_one_change_of_very_many_datasets_is_bounded_too(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        stored(store, *map(change, range(3 * MAX_CHANGES_PER_SITE)))
        assert len(store.load_changes(CAM)) == MAX_CHANGES_PER_SITE


def test_changes_are_forgotten_after_a_month(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        stored(store, change(1))
        stored(store, change(2), site=RAL, at=NOON + MAX_AGE + MINUTE)
        assert store.load_changes(CAM) == ()


def test_history_forgets_a_dataset_that_is_not_published_any_more(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        stored(store, change(1), change(2))
        store.forget_history((change(2).did,))
        assert store.load_changes(CAM) == (change(1),)


def test_an_order_is_followed_once_and_planning_follows_none(world):
    world.orders.submit(Approve(CAM, frozenset({L1})))
    world.cycle.plan()
    assert len(world.orders.read_pending().commands) == 1
    world.run(replica(L1))
    assert world.orders.read_pending().commands == ()

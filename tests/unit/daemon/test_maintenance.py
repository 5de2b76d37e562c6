"""Maintenance: a count survives a collector that is down, and checks of credentials are shared."""

from types import SimpleNamespace

from hydrator.daemon.background import MaintenanceTasks
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.domain.errors import StateError
from hydrator.domain.model import Unseen
from hydrator.domain.ports import MAX_LOAD_AGE, SlotAdVersion
from hydrator.state.store import Store
from tests.factories import CAM, HOUR, NOON
from tests.memory import MemoryPool
from tests.unit.daemon.contexts import context_with
from tests.unit.diagnostics.overview.test_locality_history import BATCH


def test_slots_keep_their_count_while_the_collector_is_down():
    counted = []
    now = [NOON]
    report = SimpleNamespace(evaluation=SimpleNamespace(ads={}))
    tasks = MaintenanceTasks(context_with(report=report, clock=lambda: now[0]))
    pool = MemoryPool(slot_ads=(SlotAdVersion(CAM, None),), clock=lambda: now[0])
    tasks._metrics = SimpleNamespace(set_slot_coverage=counted.append)
    tasks._count_slots(pool)
    assert counted == [], "before the first snapshot"
    pool.read_snapshot()
    tasks._count_slots(pool)
    now[0] += MAX_LOAD_AGE + HOUR
    tasks._count_slots(pool)
    assert len(counted) == 1, "the last snapshot is old: the collector does not list the schedds"
    pool.slots, pool.slot_ads = Unseen("the collector is down"), ()
    pool.read_snapshot()
    tasks._count_slots(pool)
    assert [kinds["unknown"]["none"] for kinds in counted] == [1]


def test_check_of_credentials_shares_them_with_the_health_and_saves_them_once():
    class Saved(list[object]):
        is_full = True

        def save_reports(self, reports):
            if self.is_full:
                raise StateError("the disk is full")
            self.extend(reports.values())

    context = context_with(store=(saved := Saved()))
    ending = Credential("IDTOKEN of pool.a", "idtokens", NOON)
    tasks = MaintenanceTasks(context)
    tasks._check_credentials(lambda: [ending])
    assert (context.credentials, saved) == ((ending,), [])
    saved.is_full = False
    for _ in range(2):
        tasks._check_credentials(lambda: [ending])
    assert saved == [[ending]]


def test_each_batch_of_ended_jobs_is_saved_and_shared(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        context = context_with(store=store, clock=lambda: NOON)
        tasks, counts = MaintenanceTasks(context), []
        for batch in (None, BATCH, BATCH):
            tasks._save_locality(batch)
            counts.append(context.locality.days[-1].job_count)
    assert counts == [0, 3, 6]


def test_state_that_cannot_be_written_keeps_the_last_overview():
    class Full:
        def load_report(self, key, kind):
            return None

        def save_reports(self, reports):
            raise StateError("the disk is full")

    context = context_with(store=Full())
    before = context.locality
    MaintenanceTasks(context)._save_locality(BATCH)
    assert context.locality is before

"""Maintenance: a count survives a collector that is down, and checks of credentials are shared."""

from types import SimpleNamespace

from hydrator.daemon.background.maintenance import MaintenanceTasks
from hydrator.diagnostics.credential_expiry import Credential, Renewer
from hydrator.domain.errors import PoolError, StateError
from hydrator.state.store import Store
from tests.factories import NOON
from tests.unit.daemon.contexts import context_with
from tests.unit.diagnostics.overview.test_locality_history import BATCH


class DownSlots:
    """Slots of a collector that is down."""

    def read_ad_versions(self):
        raise PoolError("collector", "no connection")

    def close(self) -> None:
        """Close nothing."""


def test_collector_that_is_down_does_not_end_the_count():
    report = SimpleNamespace(evaluation=SimpleNamespace(ads={}))
    MaintenanceTasks(context_with(report=report))._count_slots(DownSlots())


def test_check_of_credentials_shares_them_with_the_health():
    context = context_with()
    ending = Credential("IDTOKEN of pool.a", "idtokens", Renewer.OPERATOR, NOON)
    MaintenanceTasks(context)._check_credentials(lambda: [ending])
    assert context.credentials == (ending,)


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
        def add(self, hour):
            raise StateError("the disk is full")

    context = context_with(store=SimpleNamespace(locality_hours=Full()))
    before = context.locality
    MaintenanceTasks(context)._save_locality(BATCH)
    assert context.locality is before

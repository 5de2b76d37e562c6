"""Maintenance: each count of slots is also a sample of the slots and cores by site, for the report."""

from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from hydrator.daemon.background import CycleOutput, EstimateErrorKeeper, LocalityKeeper, MaintenanceTasks
from hydrator.daemon.metrics import Metrics
from hydrator.daemon.runtime import DaemonContext
from hydrator.diagnostics.credential_expiry import Credential, Renewer
from hydrator.domain.errors import PoolError, StateError
from hydrator.domain.model import Site
from hydrator.domain.pool_ports import SlotAdVersion
from hydrator.reconcile.publish.fence import Fence
from hydrator.state.store import Store
from tests.factories import NOON

SLOTS = [SlotAdVersion("RAL", 1, 8), SlotAdVersion("RAL", None, 8), SlotAdVersion("CAM", 1, 4)]


class Slots:
    """Slots that are listed, or a collector that is down."""

    def __init__(self, is_down: bool = False) -> None:
        self.is_down = is_down

    def read_ad_versions(self):
        if self.is_down:
            raise PoolError("collector", "no connection")
        return SLOTS

    def close(self) -> None:
        """Close nothing."""


def tasks(save, share_credentials=pytest.fail) -> MaintenanceTasks:
    report = SimpleNamespace(evaluation=SimpleNamespace(ads={}))
    output = CycleOutput(report, {}, None)  # type: ignore[arg-type]
    locality = LocalityKeeper(None, None, pytest.fail)  # type: ignore[arg-type]
    errors = EstimateErrorKeeper(None)  # type: ignore[arg-type]
    metrics = Metrics(CollectorRegistry(), "1")
    return MaintenanceTasks(metrics, pytest.fail, lambda: output, save, locality, errors, share_credentials)


def test_count_of_slots_is_saved_by_site(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        tasks(store.slot_totals.add)._count_slots(Fence(), Slots())
        got = [(one.site, one.slot_count, one.core_count) for one in store.slot_totals.load(NOON)]
    assert got == [(Site("CAM"), 1, 4), (Site("RAL"), 2, 16)]


def test_collector_that_is_down_gives_no_sample():
    samples = []
    tasks(lambda totals, now: samples.append(totals))._count_slots(Fence(), Slots(is_down=True))
    assert samples == []


def test_state_that_cannot_be_written_does_not_end_the_count():
    def fail(totals, now):
        raise StateError("the disk is full")

    tasks(fail)._count_slots(Fence(), Slots())


def test_check_of_credentials_shares_them_with_the_health():
    context = DaemonContext(None, None)  # type: ignore[arg-type]
    ending = Credential("IDTOKEN of pool.a", "idtokens", Renewer.OPERATOR, NOON)
    tasks(pytest.fail, context.share_credentials)._check_credentials(Fence(), lambda: [ending])
    assert context.credentials == (ending,)

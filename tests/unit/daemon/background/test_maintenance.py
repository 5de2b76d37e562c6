"""Maintenance: a count survives a collector that is down, and checks of credentials are shared."""

from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from hydrator.daemon.background import CycleOutput, LocalityKeeper, MaintenanceTasks
from hydrator.daemon.metrics import Metrics
from hydrator.daemon.runtime import DaemonContext
from hydrator.diagnostics.credential_expiry import Credential, Renewer
from hydrator.domain.errors import PoolError
from tests.factories import NOON


class DownSlots:
    """Slots of a collector that is down."""

    def read_ad_versions(self):
        raise PoolError("collector", "no connection")

    def close(self) -> None:
        """Close nothing."""


def tasks(share_credentials=pytest.fail) -> MaintenanceTasks:
    report = SimpleNamespace(evaluation=SimpleNamespace(ads={}))
    output = CycleOutput(report, {})  # type: ignore[arg-type]
    locality = LocalityKeeper(None, pytest.fail)  # type: ignore[arg-type]
    metrics = Metrics(CollectorRegistry(), "1")
    return MaintenanceTasks(metrics, pytest.fail, lambda: output, locality, share_credentials)


def test_collector_that_is_down_does_not_end_the_count():
    tasks()._count_slots(DownSlots())


def test_check_of_credentials_shares_them_with_the_health():
    context = DaemonContext(None, None)  # type: ignore[arg-type]
    ending = Credential("IDTOKEN of pool.a", "idtokens", Renewer.OPERATOR, NOON)
    tasks(context.share_credentials)._check_credentials(lambda: [ending])
    assert context.credentials == (ending,)

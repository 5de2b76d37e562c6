"""The counts that the pages show: a cycle makes them once, and no reader waits for them."""

from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry

from adapters.memory import MemoryCatalogue
from hydrator.daemon.cycles.recorder import CycleRecorder
from hydrator.daemon.http_frontend import HttpFrontend
from hydrator.daemon.runtime import DaemonContext
from hydrator.diagnostics.overview.placement import Placement
from hydrator.domain.model import Replica, ReplicaState
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.state import ReconcileState
from hydrator.server.pages.overview import render_overview
from tests.factories import CAM, L1, NOON


class Cycles:
    """Cycles of one catalogue, recorded as the daemon does it."""

    def __init__(self, *, has_http: bool) -> None:
        http = SimpleNamespace(enabled=has_http)
        settings = SimpleNamespace(
            publish=SimpleNamespace(http=http), daemon=SimpleNamespace(max_age=timedelta(hours=6))
        )
        self.context = DaemonContext(settings, ReconcileState())
        guard = SimpleNamespace(run_isolated=lambda _part, task: task())
        self._recorder = CycleRecorder(self.context, Mock(), guard, Mock(), Mock(), lambda: None)
        self._reconciler = Reconciler(
            catalogues=[
                MemoryCatalogue("it", (Replica(L1, CAM, ReplicaState.COMPLETE),), (CAM,), clock=lambda: NOON)
            ],
            queues=None,
            targets=(),
            policy=ReconcilePolicy(pins=frozenset({L1})),
            clock=lambda: NOON,
            state=ReconcileState(),
            store=None,
        )
        self.frontend = HttpFrontend(self.context, CollectorRegistry(), lambda: None, lambda: None)

    def run(self) -> None:
        self._recorder.record(self._reconciler, {}, self._reconciler.run(), 0.1, NOON)


def test_a_page_after_a_cycle_counts_nothing_itself(monkeypatch):
    cycles = Cycles(has_http=True)
    for _ in range(2):
        cycles.run()
        state = cycles.frontend.build_state()
        assert state.placement.snapshot is state.snapshot
        with monkeypatch.context() as patch:
            patch.setattr(Placement, "of", lambda _: pytest.fail("a reader waits for the counts"))
            assert L1 in render_overview(state)


def test_counts_of_another_snapshot_are_not_shown():
    cycles = Cycles(has_http=True)
    cycles.run()
    cycles.context.report = None  # as after a reload
    assert cycles.frontend.build_state().placement is None


def test_a_daemon_without_pages_counts_nothing():
    cycles = Cycles(has_http=False)
    cycles.run()
    assert cycles.context.placement is None

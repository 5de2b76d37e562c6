"""The reconciler of a test: cycles over parts in memory."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from hydrator.domain.ports import Publisher
from hydrator.reconcile.publish import Policy, PublishTarget
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.state import ReconcileState
from tests.factories import MINUTE

POLICY = Policy(refresh_after=5 * MINUTE, has_expiring_ads=True)


def build_cycle(
    publishers: Iterable[Publisher], clock: Callable[[], datetime], publishing: Policy = POLICY, **parts: Any
) -> Reconciler:
    """Return a daemon that publishes to *publishers*; without other parts it has no state and no queues."""
    targets = [PublishTarget(each, publishing) for each in publishers]
    usual = {"targets": targets, "queues": None, "store": None, "state": ReconcileState()}
    return Reconciler(clock=clock, **{**usual, **parts})

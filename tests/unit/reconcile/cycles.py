"""The reconciler of a test: cycles over parts in memory."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from hydrator.domain.ports import Publisher
from hydrator.reconcile.publish import PublishTarget
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.state import ReconcileState
from tests.factories import MINUTE

REFRESH_AFTER = 5 * MINUTE


def build_cycle(
    publishers: Iterable[Publisher],
    clock: Callable[[], datetime],
    refresh_after: timedelta | None = REFRESH_AFTER,
    **parts: Any,
) -> Reconciler:
    """Return a daemon that publishes to *publishers*; without other parts it has no state and no queues."""
    targets = [PublishTarget(each, refresh_after) for each in publishers]
    usual = {"targets": targets, "queues": None, "store": None, "state": ReconcileState()}
    return Reconciler(clock=clock, **{**usual, **parts})

"""What the daemon's parts share, for tests of one part."""

from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from hydrator.config import Settings
from hydrator.daemon.metrics import Metrics
from hydrator.daemon.runtime import DaemonContext, Runtime, Turns
from hydrator.domain.bugs import BugReporter
from hydrator.reconcile.state import ReconcileState


def context_with(*, settings=None, state=None, store=None, bugs=pytest.fail, registry=None, **more):
    """A context whose *bugs* get the name of each part with a bug: by default none may have one."""
    metrics = Metrics(registry or CollectorRegistry(), "1")
    return DaemonContext(
        settings or Settings(), state or ReconcileState(), store, metrics, BugReporter(bugs), **more
    )


def runtime_with(scheduler, *, turns=None, **parts) -> Runtime:
    """A runtime that has just these *parts*."""
    made = SimpleNamespace(**parts)
    return Runtime(made, None, turns or Turns(), scheduler)

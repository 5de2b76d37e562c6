"""Runtime builder: build all parts of the daemon from one configuration."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.config import Settings
from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import StateError
from hydrator.reconcile.estimates.estimate import Estimation
from hydrator.reconcile.estimates.report import load_estimation
from hydrator.reconcile.reconciler import CycleTimeouts, Reconciler
from hydrator.state.command_files import CommandQueue
from hydrator.state.store import Store
from hydrator.wiring import (
    Parts,
    assemble,
    system_clock,
)

from .background import DaemonScheduler
from .cycles import EarlyCycles
from .runtime import DaemonContext, Runtime, close_parts
from .turns import Turns

_CYCLE_TIMEOUTS = CycleTimeouts(
    poll=timedelta(seconds=3), read_back=timedelta(seconds=10), publish=timedelta(seconds=30)
)
"""The longest times that a cycle waits. A catalogue's answer after this time triggers another cycle."""


@dataclass(eq=False)
class RuntimeBuilder:
    """A builder of runtimes; all its runtimes use the same state.

    Attributes:
        context: the values that the daemon's parts share.
        store: the state on disk.
        bugs: counts and logs unexpected exceptions of parts.
        early_cycles: accepts requests for cycles with late answers.
        get_url: returns the address of the daemon's HTTP server.
    """

    context: DaemonContext
    store: Store
    bugs: BugReporter
    early_cycles: EarlyCycles
    get_url: Callable[[], str | None]

    def build(self, settings: Settings, executor_names: Sequence[str]) -> Runtime:
        """Build all parts that *settings* need, without starting them.

        Raises:
            ConfigError: a part cannot be built.
            StateError: the folder for the operator's commands cannot be created.
        """
        parts = assemble(
            settings,
            system_clock,
            get_url=self.get_url if settings.publish.http.enabled else None,
        )
        try:
            reconciler = self._build_reconciler(settings, parts)
        except BaseException:
            close_parts(parts)
            raise
        scheduler = _build_scheduler(executor_names)
        return Runtime(settings, parts, reconciler, Turns(), scheduler)

    def _build_reconciler(self, settings: Settings, parts: Parts) -> Reconciler:
        commands = CommandQueue(settings.daemon.state_dir)
        commands.prepare()
        return parts.build_reconciler(
            self.context.state,
            self.store,
            system_clock,
            commands,
            timeouts=_CYCLE_TIMEOUTS,
            bugs=self.bugs,
            on_late_answer=self.early_cycles.request_answer_cycle,
            last_estimation=self._last_estimation(),
        )

    def _last_estimation(self) -> Estimation | None:
        """Return the estimation of the last cycle; after a restart, what the state has of it."""
        if self.context.report:
            return self.context.report.estimation
        with contextlib.suppress(StateError):
            return load_estimation(self.store.load_report)
        return None


def _build_scheduler(executor_names: Sequence[str]) -> BackgroundScheduler:
    return DaemonScheduler(
        # each kind of work has its own thread: cycles do not wait, for example for a slow schedd
        executors={name: ThreadPoolExecutor(1) for name in ("default", *executor_names)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone="UTC",
    )

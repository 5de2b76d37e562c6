"""Lifecycle: start the parts of a runtime with the last state, and stop them."""

import contextlib
from dataclasses import dataclass

import structlog

from hydrator.config import Settings
from hydrator.domain.errors import StateError
from hydrator.reconcile.ads.drafts import names_any
from hydrator.state.store import Store
from hydrator.wiring import Parts, system_clock

from .background import MaintenanceTasks, MissTasks, NetworkTasks, PoolEdits, StagingTasks
from .cycles import CycleRunner
from .process.watchdog import Watchdog
from .runtime import DaemonContext, Runtime
from .runtime_builder import RuntimeBuilder

_log = structlog.get_logger("hydrator")


@dataclass(frozen=True, slots=True)
class BackgroundWorkers:
    """The background work beside the cycles; reloads do not replace it."""

    miss_tasks: MissTasks
    maintenance_tasks: MaintenanceTasks
    pool_edits: PoolEdits
    network_tasks: NetworkTasks
    staging_tasks: StagingTasks

    @property
    def executor_names(self) -> list[str]:
        """Return the names of the executors that the scheduler needs."""
        workers = (
            self.miss_tasks,
            self.maintenance_tasks,
            self.pool_edits,
            self.network_tasks,
            self.staging_tasks,
        )
        return [name for worker in workers for name in worker.EXECUTOR_NAMES]

    def schedule(self, runtime: Runtime) -> None:
        """Schedule all work of *runtime*."""
        settings, parts, scheduler, turns = runtime.settings, runtime.parts, runtime.scheduler, runtime.turns
        self.miss_tasks.schedule(scheduler, turns, parts.pool.misses, parts.recounts)
        self.maintenance_tasks.schedule(scheduler, turns, settings, parts, runtime.reconciler)
        self.pool_edits.schedule(scheduler, turns, settings, parts.policy, parts.pool.merger)
        self.network_tasks.schedule(scheduler, turns, parts.network, settings.daemon.history_seconds)
        self.staging_tasks.schedule(scheduler, turns, settings.daemon.step_seconds, parts)


@dataclass(eq=False)
class RuntimeLifecycle:
    """The start of a runtime, which continues from the state on disk.

    Attributes:
        context: the values that the daemon's parts share.
        store: the state on disk.
        builder: builds runtimes.
        cycles: runs the cycles of a runtime.
        workers: the background work of a runtime.
        watchdog: gets the time limit from the settings of a runtime.
    """

    context: DaemonContext
    store: Store
    builder: RuntimeBuilder
    cycles: CycleRunner
    workers: BackgroundWorkers
    watchdog: Watchdog

    def build(self, settings: Settings) -> Runtime:
        """Build the runtime for *settings*; see :meth:`RuntimeBuilder.build`."""
        return self.builder.build(settings, ["demand", *self.workers.executor_names])

    def forget_history(self, never: tuple[str, ...]) -> None:
        """Remove names that match *never* from the history."""
        with contextlib.suppress(StateError):  # the next save of the state reports the error
            self.store.forget_history(never)

    def restore_served_ads(self, parts: Parts) -> None:
        """Give a new HTTP server the ads that were published last."""
        if parts.served_ads and not parts.served_ads.ads():
            policy = parts.policy
            ads = [
                ad
                for ad in self.context.state.ads.values()
                if not policy.is_retired(ad.site) and not names_any(ad, policy.never)
            ]
            parts.served_ads.put(ads, system_clock())

    def activate(self, runtime: Runtime) -> None:
        """Start the parts of *runtime* with the state on disk."""
        runtime.reconciler.state = runtime.reconciler.saved_state = self.context.state
        self.restore_served_ads(runtime.parts)
        self.watchdog.restart(runtime.settings.daemon.hang_seconds)
        self.cycles.early_cycles.activate(runtime)
        self.cycles.schedule(runtime)
        self.workers.schedule(runtime)
        runtime.scheduler.start()

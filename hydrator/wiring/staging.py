"""Staging: build the stagers, the query of needs and the controller."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from adapters.condor.pool_load import ScheddNeeds
from hydrator.config import Settings
from hydrator.domain.bugs import BugReporter
from hydrator.domain.model import Site
from hydrator.domain.network import RateLookup
from hydrator.domain.ports import Clock, DataNeeds
from hydrator.domain.staging_ports import Stager
from hydrator.staging.controller import StagingController
from hydrator.staging.executor import AuditLog, LedgerStore, StagingExecutor
from hydrator.staging.policy import StagingMode, StagingPolicy
from hydrator.state.staging import StagingFiles

from .catalogues import build_stagers
from .condor import Closable, build_site_rounds
from .policies import staging_policy


@dataclass(frozen=True)
class StagingParts:
    """The parts of staging; without a stager, the mode is off and no catalogue is called."""

    stagers: Mapping[str, Stager]
    needs: DataNeeds | None
    policy: StagingPolicy
    files: StagingFiles

    @property
    def closables(self) -> Iterator[Closable]:
        """Yield the parts to close."""
        yield from self.stagers.values()
        if self.needs:
            yield self.needs

    @property
    def asking_catalogues(self) -> frozenset[str]:
        """Return the catalogues at which the mode is ask."""
        asking = (name for name in self.stagers if self.policy.mode_of_catalogue(name) is StagingMode.ASK)
        return frozenset(asking)

    @property
    def stop_reason(self) -> str | None:
        """Return why the operator stopped staging; None if it is not stopped, or if its mode is off."""
        return self.files.stop_reason if self.stagers else None

    def build_controller(
        self,
        store: LedgerStore,
        clock: Clock,
        guard: Callable[[], str | None],
        *,
        audit: AuditLog,
        rates: Callable[[], RateLookup | None],
        is_retired: Callable[[Site], bool],
        bugs: BugReporter,
    ) -> StagingController | None:
        """Build the controller; None if the mode is off. *guard* returns why no call may begin now.

        Raises:
            StateError: the folder for the operator's commands cannot be created.
        """
        if not self.stagers or self.needs is None:
            return None
        self.files.prepare()

        def guard_call() -> str | None:
            return self.files.stop_reason or guard()

        stagers, policy = self.stagers, self.policy
        executor = StagingExecutor(stagers, store, policy, clock, guard_call, audit, bugs)
        return StagingController(
            stagers, self.needs, executor, store.load, self.files, policy, clock,
            is_retired=is_retired, rates=rates, bugs=bugs,
        )  # fmt: skip


def build_staging_parts(settings: Settings, clock: Clock) -> StagingParts:
    """Build the parts of staging; with the mode off, none that calls a catalogue or a schedd.

    Raises:
        ConfigError: a stager cannot be built.
    """
    policy, files = staging_policy(settings), StagingFiles(settings.daemon.state_dir)
    is_off = settings.staging.mode == "off"
    stagers = {} if is_off else build_stagers(settings, clock)
    needs = build_site_rounds(ScheddNeeds, settings, clock) if stagers else None
    return StagingParts(stagers, needs, policy, files)

"""Staging: build the stagers, the query of needs and the controller."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from adapters.condor.pool_load import CondorPool, ScheddNeeds
from hydrator.config import Settings
from hydrator.config.catalogues import RucioSource
from hydrator.config.staging import StagingSettings
from hydrator.domain.bugs import BugReporter
from hydrator.domain.network import RateLookup
from hydrator.domain.ports import Clock, DataNeeds
from hydrator.domain.staging_ports import Stager
from hydrator.staging.controller import AuditLog, StagingController
from hydrator.staging.table import Table
from hydrator.state.staging import StagingFiles

from .catalogues import build_stagers
from .condor import Closable, build_condor_client


@dataclass(frozen=True)
class StagingParts:
    """The parts of staging; without a stager, the mode is off and no catalogue is called.

    ``all_settings`` are those of the daemon, of which staging needs more than its own section.
    """

    stagers: Mapping[str, Stager]
    needs: DataNeeds | None
    all_settings: Settings
    files: StagingFiles

    @property
    def settings(self) -> StagingSettings:
        return self.all_settings.staging

    @property
    def closables(self) -> Iterator[Closable]:
        """Yield the parts to close."""
        yield from self.stagers.values()
        if self.needs:
            yield self.needs

    @property
    def asking_catalogues(self) -> frozenset[str]:
        """Return the catalogues at which the mode is request."""
        return frozenset(name for name in self.stagers if self.settings.mode_at(name) == "request")

    @property
    def stop_reason(self) -> str | None:
        """Return why the operator stopped staging; None if it is not stopped, or if its mode is off."""
        return self.files.stop_reason if self.stagers else None

    def build_controller(
        self,
        load: Callable[[], Table],
        save: Callable[[Table], None],
        clock: Clock,
        guard: Callable[[], str | None],
        *,
        audit: AuditLog,
        rates: Callable[[], RateLookup | None],
        bugs: BugReporter,
    ) -> StagingController | None:
        """Build the controller; None if the mode is off. *guard* returns why no call may begin now.

        Raises:
            StateError: the folder for the operator's commands cannot be created.
        """
        if not self.stagers or self.needs is None:
            return None
        self.files.prepare()
        daemon = self.all_settings.daemon
        rucio = [one for one in self.all_settings.catalogue if isinstance(one, RucioSource)]
        return StagingController(
            self.stagers,
            self.needs,
            load,
            save,
            self.files,
            self.settings,
            clock,
            guard=lambda: self.files.stop_reason or guard(),
            audit=audit,
            default_scope=daemon.default_scope,
            never=self.all_settings.publish.never,
            fact_age=max(3 * timedelta(seconds=daemon.poll_seconds), timedelta(minutes=2)),
            needed={one.name: timedelta(hours=one.expiry_margin_hours) for one in rucio},
            is_retired=self.all_settings.sites.is_retired,
            rates=rates,
            bugs=bugs,
        )


def build_staging_parts(settings: Settings, clock: Clock, pool: CondorPool | None) -> StagingParts:
    """Build the parts of staging, for the jobs in *pool*; with the mode off, none that calls a catalogue.

    Raises:
        ConfigError: a stager cannot be built.
    """
    is_off = settings.staging.mode == "off"
    stagers = {} if is_off else build_stagers(settings)
    needs = None
    if stagers and pool:
        needs = ScheddNeeds(
            pool, build_condor_client(settings.htcondor), clock, settings.sites.slot_attributes
        )
    return StagingParts(stagers, needs, settings, StagingFiles(settings.daemon.state_dir))

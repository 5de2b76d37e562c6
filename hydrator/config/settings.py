"""Settings: all sections of the configuration in one object."""

from datetime import timedelta
from functools import cached_property

from pydantic import Field

from hydrator.config.daemon import RemovalGuardSettings
from hydrator.domain.model import Did, parse_did

from .catalogues import EXPIRY_MARGIN_HOURS, SiteCapabilitiesSettings, Source
from .daemon import (
    DaemonSettings,
    HTCondorSettings,
    LogSettings,
    SitesSettings,
)
from .fields import Section
from .jobs import DemandSettings, JobsSettings, StorageArea, SubmitSettings
from .network import NetworkSettings
from .publishers import PublishSettings
from .staging import StagingSettings


class Settings(Section):
    """All sections of the configuration."""

    # model_construct: a constant needs no check, and building the checks of each section slows every command
    daemon: DaemonSettings = DaemonSettings.model_construct()
    htcondor: HTCondorSettings = HTCondorSettings.model_construct()
    catalogue: list[Source] = Field(default_factory=list)
    site_capabilities: SiteCapabilitiesSettings = SiteCapabilitiesSettings.model_construct()
    demand: DemandSettings = DemandSettings.model_construct()
    jobs: JobsSettings = JobsSettings.model_construct()
    submit: SubmitSettings = SubmitSettings.model_construct()
    storage: list[StorageArea] = Field(default_factory=list)
    sites: SitesSettings = SitesSettings.model_construct()
    network: NetworkSettings = NetworkSettings.model_construct()
    staging: StagingSettings = StagingSettings.model_construct()
    publish: PublishSettings = PublishSettings.model_construct()
    removal_guard: RemovalGuardSettings = RemovalGuardSettings.model_construct()
    log: LogSettings = LogSettings.model_construct()

    @cached_property
    def pinned_dids(self) -> frozenset[Did]:
        """Return the datasets of [demand] pins, with the default scope where a pin has none."""
        return frozenset(parse_did(pin, self.daemon.default_scope) for pin in self.demand.pins)

    def expiry_margin(self, catalogue: str) -> timedelta:
        """Return for how long jobs need their data of *catalogue* after their start."""
        own = (one for one in self.catalogue if one.name == catalogue)
        return timedelta(hours=getattr(next(own, None), "expiry_margin_hours", EXPIRY_MARGIN_HOURS))

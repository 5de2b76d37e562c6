"""The sections of the configuration about the daemon itself, its pool, its sites, and what it reports."""

from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from hydrator.config.fields import AttributeName, Seconds, Section, SiteName
from hydrator.domain.model import Site
from hydrator.domain.sites import SiteMapping

MAX_AGE_MARGIN: Final = timedelta(minutes=15)
"""Jobs stop trusting a fact this much earlier than the daemon, before the daemon publishes UNKNOWN."""


class DaemonSettings(Section):
    """State, intervals and defaults of the daemon."""

    state_dir: Path = Field(
        Path("/var/lib/classad-hydrator"),
        description="folder with the state that the daemon needs after a restart; each daemon needs its"
        " own folder",
    )
    poll_seconds: Seconds = Field(30, description="interval between polls of the catalogues")
    default_scope: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9._/@=+~-]+$",
        description="the scope of a dataset that a job names without a scope",
    )
    max_age_hours: float = Field(
        6, gt=0.25, le=168, description="a fact that is older than this counts as UNKNOWN"
    )

    @property
    def max_age(self) -> timedelta:
        return timedelta(hours=self.max_age_hours)

    @property
    def job_max_age(self) -> timedelta:
        """Return the age up to which jobs trust a fact."""
        return self.max_age - MAX_AGE_MARGIN

    @property
    def step_seconds(self) -> float:
        """Return the interval of slot merges, staging steps and counts of slots: a minute at most."""
        return min(60, 2 * self.poll_seconds)

    @property
    def history_seconds(self) -> float:
        """Return the interval of queries of histories and of measured rates: five minutes at most."""
        return min(300, 10 * self.poll_seconds)

    @property
    def hang_seconds(self) -> float:
        """Return the seconds without progress after which systemd or Kubernetes may restart the daemon.

        A slow catalogue does not matter: the schedule never waits for a catalogue.
        """
        return self.poll_seconds + min(600, 20 * self.poll_seconds)


class HTCondorSettings(Section):
    """Address of the pool and credentials for it."""

    collector: str | None = Field(
        None,
        description="host or host:port of the collector; default: COLLECTOR_HOST of HTCondor's configuration",
    )
    config_file: Path | None = Field(
        None, description="the HTCondor configuration file (CONDOR_CONFIG) that the daemon uses"
    )
    token_directory: Path | None = Field(
        None, description="folder that contains only the daemon's IDTOKEN (one for each pool)"
    )


class SitesSettings(Section):
    """Sites to publish, their names in catalogues, and sites whose jobs read the storage of another site."""

    retired: list[SiteName] = Field(default_factory=list, description="sites whose ads the daemon withdraws")
    slot_attributes: list[AttributeName] = Field(
        default=[
            "GLIDEIN_ResourceName",
            "GLIDEIN_CMSSite",
            "GLIDEIN_Site",
            "GLIDEIN_SiteResource",
            "SiteLocation",
        ],
        description="slot attributes with the name of the site; the daemon and the hook use the first of"
        " these that the slot has",
    )
    aliases: dict[str, SiteName] = Field(
        default_factory=dict, description="a site's name in catalogues = the site's name in slots"
    )
    reads: dict[SiteName, list[SiteName]] = Field(
        default_factory=dict,
        description='[sites.reads] with CAM = ["RAL"]: jobs at CAM read the storage of RAL like their own',
    )

    def is_retired(self, site: Site) -> bool:
        """Return True if the operator retired *site*."""
        return site in self.retired

    @property
    def mapping(self) -> SiteMapping:
        """Return the mapping of sites from aliases and reads."""
        return SiteMapping(
            {Site(name): Site(site) for name, site in self.aliases.items()},
            {Site(site): frozenset(map(Site, others)) for site, others in self.reads.items()},
        )


class RemovalGuardSettings(Section):
    """Limits for sudden losses of datasets: after a larger loss, ads still list the missing datasets."""

    site_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="share (0 to 1) of the datasets of one site; if a larger share vanishes at once, the"
        " daemon holds the loss",
    )
    confirm_polls: int = Field(
        20,
        ge=0,
        le=100_000,
        description="number of further polls that must confirm a held loss before the daemon publishes"
        " it; 0: the daemon holds no loss",
    )


class LogSettings(Section):
    """The log; on a terminal a line is text, otherwise JSON."""

    level: Literal["debug", "info", "warning", "error"] = "info"

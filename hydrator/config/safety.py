"""The sections [breaker] and [audit]: limits for sudden losses of datasets, and verification of facts."""

from pydantic import Field

from .fields import Section


class BreakerSettings(Section):
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


class ProbeSettings(Section):
    """A command that checks if the storage has a dataset. Exit 0: present, 1: missing, other: unknown."""

    command: list[str] = Field(
        min_length=1,
        description="the command and its arguments, run without a shell; the daemon replaces {did},"
        " {site} and {path} by their values",
    )
    sites: list[str] = Field(
        default=["*"], description="patterns (* and ?) of the sites whose storage the command can check"
    )
    catalogues: list[str] = Field(
        default=["*"], description="patterns (* and ?) of the catalogues whose facts the command checks"
    )
    timeout_seconds: float = Field(30, gt=0, le=600)


class AuditSettings(Section):
    """Verification of facts by expensive queries, one at a time: docs/explanation/trust.md."""

    enabled: bool = True
    calls_per_second: float = Field(
        1, gt=0, le=100, description="number of datasets that the audit verifies file by file in one second"
    )
    window_hours: float = Field(
        24,
        ge=1,
        le=720,
        description="the daemon computes the trust in a site from audit results that are newer than this",
    )
    warn_below: float = Field(
        1,
        ge=0,
        le=1,
        description="`hydrator check` warns if the trust in a site's facts is below this (0 to 1)",
    )
    misses_seconds: float = Field(
        60,
        ge=0,
        le=86_400,
        description="interval between queries of the schedds for jobs that did not find a dataset at"
        " their site; 0: never",
    )
    probes_per_minute: float = Field(6, gt=0, le=600, description="maximum rate of storage probes")
    probe: list[ProbeSettings] = Field(
        default_factory=list,
        description="storage probes; for each dataset the daemon runs the first probe whose sites and"
        " catalogues match",
    )

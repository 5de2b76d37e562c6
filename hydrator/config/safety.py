"""[breaker] and [audit]: limits for sudden losses, and verification of facts."""

from pydantic import Field

from .fields import Section


class BreakerSettings(Section):
    """Limits beyond which the daemon holds a loss of datasets."""

    site_share: float = Field(
        0.5, ge=0, le=1, description="share (0 to 1) of the datasets of a site: a larger loss at once is held"
    )
    all_share: float = Field(
        0.3,
        ge=0,
        le=1,
        description="share (0 to 1) of the datasets of all sites: a larger loss at once is held",
    )
    min_datasets: int = Field(
        5, ge=1, le=1_000_000, description="a smaller loss is not held, unless no dataset is left at any site"
    )
    confirm_polls: int = Field(
        20,
        ge=0,
        le=100_000,
        description="number of further polls with the same result that end a hold; 0: nothing is held",
    )


class ProbeSettings(Section):
    """A command that checks whether a dataset is in the storage: exit 0 yes, 1 no, else unknown."""

    command: list[str] = Field(
        min_length=1, description="words, run without a shell; {did}, {site} and {path} are filled in"
    )
    sites: list[str] = Field(default=["*"], description="the sites whose storage it can check, with * and ?")
    catalogues: list[str] = Field(default=["*"], description="the catalogues it checks, with * and ?")
    timeout_seconds: float = Field(30, gt=0, le=600)


class AuditSettings(Section):
    """Verification of facts by expensive queries, one at a time: docs/explanation/trust.md."""

    enabled: bool = True
    calls_per_second: float = Field(
        1, gt=0, le=100, description="rate of datasets that are verified file by file"
    )
    window_hours: float = Field(24, ge=1, le=720, description="older findings do not count: trust recovers")
    warn_below: float = Field(1, ge=0, le=1, description="hydrator check warns of a site with less trust")
    misses_seconds: float = Field(
        60,
        ge=0,
        le=86_400,
        description="interval between queries of the schedds for misses of jobs; 0: never",
    )
    probes_per_minute: float = Field(6, gt=0, le=600, description="maximum rate of probes of the storage")
    probe: list[ProbeSettings] = Field(default_factory=list, description="the first one that matches runs")

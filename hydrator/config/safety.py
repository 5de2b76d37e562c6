"""[breaker] and [audit]: limits for sudden losses, and verification of facts."""

from typing import Annotated

from pydantic import Field

from .fields import Section


class BreakerSettings(Section):
    """Limits beyond which the daemon holds a loss of datasets."""

    site_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="share (0 to 1) of the datasets of a site: a larger loss at once is held"
    )
    all_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.3, description="share (0 to 1) of the datasets of all sites: a larger loss at once is held"
    )
    min_datasets: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        5, description="a smaller loss is not held, unless no dataset is left at any site"
    )
    confirm_polls: Annotated[int, Field(ge=0, le=100_000)] = Field(
        20, description="number of further polls with the same result that end a hold; 0: nothing is held"
    )


class ProbeSettings(Section):
    """A command that checks whether a dataset is in the storage: exit 0 yes, 1 no, else unknown."""

    command: Annotated[list[str], Field(min_length=1)] = Field(
        description="words, run without a shell; {did}, {site} and {path} are filled in"
    )
    sites: list[str] = Field(default=["*"], description="the sites whose storage it can check, with * and ?")
    catalogues: list[str] = Field(default=["*"], description="the catalogues it checks, with * and ?")
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 30


class AuditSettings(Section):
    """Verification of facts by expensive queries, one at a time: docs/explanation/trust.md."""

    enabled: bool = True
    calls_per_second: Annotated[float, Field(gt=0, le=100)] = Field(
        1, description="rate of datasets that are verified file by file"
    )
    window_hours: Annotated[float, Field(ge=1, le=720)] = Field(
        24, description="older findings do not count: trust recovers"
    )
    warn_below: Annotated[float, Field(ge=0, le=1)] = Field(
        1, description="hydrator check warns of a site with less trust"
    )
    misses_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        60, description="interval between queries of the schedds for misses of jobs; 0: never"
    )
    probes_per_minute: Annotated[float, Field(gt=0, le=600)] = Field(
        6, description="maximum rate of probes of the storage"
    )
    probe: list[ProbeSettings] = Field(default_factory=list, description="the first one that matches runs")

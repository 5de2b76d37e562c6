"""What is believed, and when somebody is asked again: [breaker], [audit]."""

from typing import Annotated

from pydantic import Field

from .fields import Section


class BreakerSettings(Section):
    """When a change is held because too much would vanish at once."""

    site_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="of what a site lists: more than this at once is held"
    )
    all_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.3, description="of what all sites together list: more than this at once is held"
    )
    min_datasets: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        5, description="a loss of fewer passes, unless nothing is left anywhere"
    )
    confirm_polls: Annotated[int, Field(ge=0, le=100_000)] = Field(
        20, description="how many further polls must say the same to end a hold; 0: nothing is held"
    )


class ProbeSettings(Section):
    """A command that looks whether a dataset is in the storage: exit 0 it is, 1 it is not, else unknown."""

    command: Annotated[list[str], Field(min_length=1)] = Field(
        description="words, run without a shell; {did}, {site} and {path} are filled in"
    )
    sites: list[str] = Field(default=["*"], description="the sites it can look at, with * and ?")
    catalogues: list[str] = Field(default=["*"], description="the catalogues it checks, with * and ?")
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 30


class AuditSettings(Section):
    """How facts are checked by expensive questions, one at a time: docs/trust.md."""

    enabled: bool = True
    calls_per_second: Annotated[float, Field(gt=0, le=100)] = Field(
        1, description="how many datasets are verified file by file"
    )
    window_hours: Annotated[float, Field(ge=1, le=720)] = Field(
        24, description="what was found longer ago counts no more: trust heals"
    )
    warn_below: Annotated[float, Field(ge=0, le=1)] = Field(
        1, description="hydrator check warns of a site that is trusted less"
    )
    misses_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        60, description="how often schedds are asked what jobs did not find; 0: never"
    )
    probes_per_minute: Annotated[float, Field(gt=0, le=600)] = Field(
        6, description="how often a probe looks at the storage"
    )
    probe: list[ProbeSettings] = Field(default_factory=list, description="the first that fits looks")

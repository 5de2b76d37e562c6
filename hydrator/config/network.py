"""The section [network] of the configuration: rates between sites."""

from collections import Counter
from typing import Annotated, Self

from pydantic import Field, model_validator

from hydrator.domain.model import Site

from .fields import HostName, Section, SiteName

Gbits = Annotated[float, Field(gt=0, le=100_000)]


class LinkSettings(Section):
    """The link from one site to another, or to all others."""

    source: SiteName
    destination: SiteName | None = Field(
        None, description="site that reads; default: all sites without a link of their own, together"
    )
    gbit_per_second: Gbits

    @model_validator(mode="after")
    def _check_sites(self) -> Self:
        if self.source == self.destination:
            raise ValueError(f"source and destination are both {self.source}: a link connects two sites")
        return self


class NetworkSettings(Section):
    """Rates between sites, for the pacing of reads: docs/operators/placement.md."""

    default_gbit_per_second: Gbits = Field(1, description="rate of a link without any other figure, in Gb/s")
    excluded_sources: list[SiteName] = Field(
        default_factory=list, description="sites from which no job reads, such as one with a slow tape system"
    )
    hosts: dict[HostName, SiteName] = Field(
        default_factory=dict,
        description="the host of a URL or schedd, or *.example.org for all hosts below = its site, for"
        " the transfer records",
    )
    links: list[LinkSettings] = Field(
        default_factory=list,
        description="what jobs at the site destination can together read from the site source, in Gb/s",
    )

    @property
    def sites(self) -> frozenset[Site]:
        """Return the sites with a rate: such a site may have no ad, because no job wants its data now."""
        ends = (site for link in self.links for site in (link.source, link.destination) if site)
        return frozenset(map(Site, ends))

    @model_validator(mode="after")
    def _check_links(self) -> Self:
        counts = Counter((link.source, link.destination) for link in self.links)
        for (source, destination), count in counts.items():
            if count > 1:
                ends = f"{source} to {destination or 'all sites'}"
                raise ValueError(f"the link from {ends} is there {count} times; keep one")
        return self

"""The section [staging] of the configuration: requests for data, and their limits."""

from typing import Annotated, Final, Literal

from pydantic import Field

from .fields import Name, Section, SiteName

Mode = Literal["off", "propose", "request"]
MODES: Final = ("off", "propose", "request")
"""The modes, lowest first: of several modes that apply, the lowest decides."""
Terabytes = Annotated[float, Field(ge=0, le=1_000_000)]


def to_bytes(terabytes: Terabytes) -> int:
    """Return *terabytes* in bytes."""
    return round(terabytes * 10**12)


class StagingCatalogueSettings(Section):
    """Requests at one catalogue: [staging.catalogues.NAME], with the name of the catalogue."""

    activity: str = Field(
        "Staging",
        min_length=1,
        max_length=50,
        description="activity of the rules; Rucio refuses a name that it does not know",
    )
    command: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list,
        description="words of a command that makes the requests in place of the catalogue; no shell runs",
    )


class StagingSiteSettings(Section):
    """Requests to one site: [staging.sites.NAME], with the name of the site."""

    mode: Mode = Field("request", description="the mode for this site; of all modes the lowest decides")
    storage: str = Field(
        "",
        max_length=255,
        description="the storage that the data goes to, such as an RSE; needed if the site has several",
    )
    space_tb: Terabytes = Field(
        0,
        description="space for all requests to this site, in 10^12 bytes; used only if the catalogue does not"
        " report the free space (0: then nothing is requested)",
    )


class StagingLimits(Section):
    """Limits of the requests, in 10^12 bytes (TB); the catalogue's own limits come on top."""

    request_tb: Terabytes = Field(5, description="size of the datasets that are requested together")
    site_tb: Terabytes = Field(20, description="on its way to one site")
    total_tb: Terabytes = Field(
        50, description="of all requests and pins that the catalogue lists, complete or not"
    )
    hour_requests: int = Field(10, ge=0, le=100_000, description="requests in 60 minutes")
    floor_tb: Terabytes = Field(3, description="free space that a request leaves at its site at least")
    approval_tb: Terabytes = Field(2, description="a larger request waits for `hydrator staging approve`")


class StagingSettings(Section):
    """Pins and requests of data that queued jobs need: docs/operators/staging.md."""

    mode: Mode = Field(
        "off",
        description='"propose" shows what would be requested; "request" requests it; the catalogues and sites'
        " below must be listed, too",
    )
    name: Name = Field(
        "pool",
        description="name of the pool in the comments of all requests; the same for all daemons of a pool,"
        " another one for each pool",
    )
    wait_minutes: float = Field(
        10,
        ge=0,
        le=10_080,
        description="a job must have been idle for this long before its data is requested",
    )
    max_lifetime_days: float = Field(15, gt=0, le=365, description="longest lifetime of a request")
    catalogues: dict[Name, StagingCatalogueSettings] = Field(
        default_factory=dict,
        description="[staging.catalogues.rucio]: requests may be made at the catalogue with this name",
    )
    sites: dict[SiteName, StagingSiteSettings] = Field(
        default_factory=dict, description="[staging.sites.CAM]: data may be requested for this site"
    )
    limits: StagingLimits = StagingLimits.model_construct()

    def mode_at(self, catalogue: str, site: str | None = None) -> Mode:
        """Return the mode for requests at *catalogue* to *site*; without a site the highest of any site."""
        if catalogue not in self.catalogues:
            return "off"
        sites = self.sites.values() if site is None else [one for one in [self.sites.get(site)] if one]
        highest: Mode = max((one.mode for one in sites), key=MODES.index, default="off")
        return min(self.mode, highest, key=MODES.index)

    @property
    def highest_mode(self) -> Mode:
        """Return the highest mode at any catalogue and site."""
        return max((self.mode_at(name) for name in self.catalogues), key=MODES.index, default="off")

    def allowed_sites(self, catalogue: str) -> frozenset[str]:
        """Return the sites to which requests at *catalogue* may go, or would go in the mode propose."""
        return frozenset(site for site in self.sites if self.mode_at(catalogue, site) != "off")

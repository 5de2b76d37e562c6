"""Policy of staging: the operator's modes, limits and times, as frozen values. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum

from hydrator.domain.model import Site

TERABYTE = 10**12
TAG_START = "hydrator"


class StagingMode(IntEnum):
    """The modes of staging; of several modes that apply, the lowest decides."""

    OFF = 0  # the catalogue is never called
    PROPOSE = 1  # the plan shows what would be asked; the catalogue is only read
    ASK = 2


@dataclass(frozen=True, slots=True)
class StagingLimits:
    """Limits in bytes and numbers.

    Requests that are *in flight* were asked for and are not complete. *Held* bytes are those of all our
    requests that have not ended, complete or not. The pins have limits of their own.

    Args:
        request_bytes: of the datasets that are asked for together.
        user_bytes: in flight, asked for because of jobs of one user.
        site_bytes: in flight to one site.
        source_bytes: in flight from the tape of one site.
        total_bytes: held at all sites.
        hour_requests: asked for in the last 60 minutes.
        pin_bytes: of all pins.
        floor_bytes: the free space that must be left at a site.
        approval_bytes: a request above this size waits for a person.
    """

    request_bytes: int = 5 * TERABYTE
    user_bytes: int = 10 * TERABYTE
    site_bytes: int = 20 * TERABYTE
    source_bytes: int = 20 * TERABYTE
    total_bytes: int = 50 * TERABYTE
    hour_requests: int = 10
    pin_bytes: int = 50 * TERABYTE
    floor_bytes: int = 3 * TERABYTE
    approval_bytes: int = 2 * TERABYTE


@dataclass(frozen=True, slots=True)
class StagingTimes:
    """The times of staging.

    Args:
        wait: a job must have been idle for this long before its data is requested.
        tape_window: the tape of one site is asked once in this time, for all jobs that wait then.
        min_lifetime, max_lifetime: of a stage request; in between three times the expected transfer decides.
        pin_lifetime: of a pin; a pin is set only if the last rule ends within half of it.
        keep: a complete dataset stays requested this long after its last job.
        gone: a request is cancelled only after its demand was seen to be gone for this long.
        grace: an unanswered call may still take effect for this long.
        stuck: a request that is stuck for this long is reported.
        retry: pause after a failure; it doubles with each further failure of the same dataset and site.
        breaker: pause of a site with ``breaker_failures`` failures in this time, or with 3 failures that are
            more than ``breaker_share`` of all requests to it in this time.
        references: the demand of a schedd that does not answer counts for this long.
        overtaken: a request that waits for a limit is overtaken by smaller ones for this long only.
        fact_age: the age of facts that still count as read in this cycle.
    """

    wait: timedelta = timedelta(minutes=10)
    tape_window: timedelta = timedelta(minutes=15)
    min_lifetime: timedelta = timedelta(days=3)
    max_lifetime: timedelta = timedelta(days=15)
    pin_lifetime: timedelta = timedelta(days=2)
    keep: timedelta = timedelta(days=4)
    gone: timedelta = timedelta(hours=1)
    grace: timedelta = timedelta(minutes=10)
    stuck: timedelta = timedelta(hours=24)
    retry: timedelta = timedelta(hours=1)
    breaker: timedelta = timedelta(hours=1)
    references: timedelta = timedelta(hours=24)
    overtaken: timedelta = timedelta(hours=1)
    fact_age: timedelta = timedelta(minutes=5)
    max_attempts: int = 3
    breaker_failures: int = 5
    breaker_share: float = 0.2


@dataclass(frozen=True, slots=True)
class StagingPolicy:
    """The operator's settings of staging.

    ``pool`` is the name of the pool in the tags of requests; all daemons of a pool share it. A catalogue or
    site without a mode is off. ``storages`` has, by site, the storage element that requests write to, if the
    operator named one. No data is pinned at ``unpinned_sites``. The overview leaves out datasets that match
    one of the patterns ``never``.
    """

    pool: str = "pool"
    mode: StagingMode = StagingMode.OFF
    catalogues: frozenset[str] = frozenset()
    site_modes: Mapping[Site, StagingMode] = field(default_factory=dict)
    storages: Mapping[Site, str] = field(default_factory=dict)
    unpinned_sites: frozenset[Site] = frozenset()
    default_scope: str | None = None
    never: tuple[str, ...] = ()
    limits: StagingLimits = field(default_factory=StagingLimits)
    times: StagingTimes = field(default_factory=StagingTimes)

    @property
    def prefix(self) -> str:
        """Return the start of the tags of all requests for this pool."""
        return f"{TAG_START}:{self.pool}:"

    def mode_of(self, catalogue: str, site: Site) -> StagingMode:
        """Return the mode for requests at *catalogue* to *site*."""
        if catalogue not in self.catalogues:
            return StagingMode.OFF
        return min(self.mode, self.site_modes.get(site, StagingMode.OFF))

    def mode_of_catalogue(self, catalogue: str) -> StagingMode:
        """Return the highest mode at *catalogue* of any site."""
        if catalogue not in self.catalogues:
            return StagingMode.OFF
        return min(self.mode, max(self.site_modes.values(), default=StagingMode.OFF))

    def allowed_sites(self, catalogue: str) -> frozenset[Site]:
        """Return the sites to which requests at *catalogue* may go, or would go in the mode propose."""
        return frozenset(site for site in self.site_modes if self.mode_of(catalogue, site) > StagingMode.OFF)

"""A small pool for estimates: sites with data, slots, idle and running jobs, and rates between the sites."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hydrator.domain.ads.dataset_sets import SetKey, set_key
from hydrator.domain.ads.estimates import Estimates, Rate, SetEstimate
from hydrator.domain.model import (
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Fact,
    Origin,
    Provenance,
    Site,
    SiteFacts,
    Snapshot,
    to_unix,
)
from hydrator.domain.ports import IdleJobs, PoolLoad, RunningJobs, ScheddLoad, SiteSlots
from hydrator.reconcile.estimates.estimate import EstimatePolicy, Estimation, estimate
from tests.factories import NOON

UK, DE, PL = Site("UK"), Site("DE"), Site("PL")
GB = 10**9
FAST = 100_000_000.0
"""100 MB/s: 1 GB takes 10 s."""


@dataclass
class Rates:
    """Rates by source and destination; the rate of any other pair is *default*, None if it is unknown."""

    default: float | None = FAST
    pairs: Mapping[tuple[Site, Site], float | None] = field(default_factory=dict)

    def rate(self, source: Site, destination: Site) -> Rate | None:
        speed = self.pairs.get((source, destination), self.default)
        return None if speed is None else Rate(speed, "test")


@dataclass(frozen=True)
class World:
    """A pool at one moment. ``data`` has the datasets on disk by site; ``facts`` has further facts."""

    data: Mapping[Site, Iterable[str]]
    slots: tuple[SiteSlots, ...] = ()
    idle: tuple[IdleJobs, ...] = ()
    running: tuple[RunningJobs, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    sets: tuple[tuple[str, ...], ...] = (("t:a",),)
    facts: Mapping[Site, Mapping[str, Fact]] = field(default_factory=dict)
    collisions: tuple[tuple[Did, ...], ...] = ()

    def snapshot(self) -> Snapshot:
        sites = {}
        for site in {*self.data, *self.facts}:
            facts = {Did(did): Fact(DatasetState.AVAILABLE, NOON) for did in self.data.get(site, ())}
            facts |= {Did(did): fact for did, fact in self.facts.get(site, {}).items()}
            sites[site] = SiteFacts(NOON, facts)
        sizes = {Did(did): size for did, size in self.sizes.items()}
        return Snapshot(sites, case_collisions=self.collisions, bytes_total=sizes)

    def demand(self) -> Demand:
        return Demand(
            tuple(DemandEntry(tuple(map(Did, dids)), 1, Origin.JOB, NOON, key(*dids)) for dids in self.sets)
        )

    def load(self, at: datetime = NOON) -> PoolLoad:
        return PoolLoad(at, {"ap1": ScheddLoad(self.idle, self.running)}, self.slots)

    def estimate(
        self,
        rates: Rates | None = Rates(),  # noqa: B008 - never changed
        previous: Estimation | None = None,
        at: datetime = NOON,
        **policy,
    ) -> Estimation:
        return estimate(
            self.snapshot(), self.demand(), self.load(at), rates, previous, at, EstimatePolicy(**policy)
        )

    def with_(self, **changes) -> "World":
        return replace(self, **changes)


def key(*dids: str) -> SetKey:
    return set_key(dids)


def idle(jobs: int, *dids: str, seconds: int | None = 100, cpus: float = 1.0) -> IdleJobs:
    return IdleJobs(jobs, key(*dids), "ann", cpus, seconds)


def running(site: Site, *dids: str, ages: Iterable[int], seconds: int | None = 100) -> RunningJobs:
    starts = tuple(sorted(to_unix(NOON) - age for age in ages))
    return RunningJobs(starts, site, key(*dids) if dids else None, "ann", 1.0, seconds)


def staging(minutes: float, fraction: float | None = None) -> Fact:
    ready_at = NOON + timedelta(minutes=minutes)
    return Fact(DatasetState.STAGING, NOON, fraction, Provenance(ready_at=ready_at))


def made(estimation: Estimation) -> Estimates:
    assert estimation.estimates is not None, estimation.none_reason
    return estimation.estimates


def at(estimation: Estimation, site: Site, *dids: str) -> SetEstimate:
    """Return the estimate of a set (default: ``t:a``) at *site*."""
    return made(estimation).sites[site].by_key[key(*(dids or ("t:a",)))]


def numbers(estimation: Estimation, site: Site, *dids: str) -> tuple[int | None, int]:
    one = at(estimation, site, *dids)
    return one.read_seconds, one.queue_seconds

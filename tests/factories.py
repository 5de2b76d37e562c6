"""Values for tests, with defaults that say nothing, so that a test says only what it is about."""

from datetime import UTC, datetime, timedelta

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import (
    Demand,
    DemandEntry,
    Did,
    Origin,
    PublishedAd,
    Replica,
    ReplicaState,
    Seen,
    Site,
    SiteAd,
    Survey,
    Unseen,
    parse_did,
)
from hydrator.reconcile.ads.site_ads import Budget, draft_site_ads
from hydrator.reconcile.snapshot.memory import CatalogueMemory
from hydrator.reconcile.snapshot.merge import apply_survey, build_snapshot

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
BOUND = 6 * HOUR

CAM, RAL, OSO = Site("CAM"), Site("RAL"), Site("OSO")
L1, L2, L3 = (Did(f"lofar:L{n}") for n in (1, 2, 3))


def want(*dids: str, jobs: int = 1, origin: Origin = Origin.JOB, at: datetime = NOON) -> DemandEntry:
    names = tuple(sorted(parse_did(did) for did in dids))
    return DemandEntry(names, jobs, origin, at, set_key(names))


def demand(*wants: DemandEntry | str) -> Demand:
    return Demand(tuple(w if isinstance(w, DemandEntry) else want(w) for w in wants))


def replica(
    did: str = L1, site: str = CAM, state: ReplicaState = ReplicaState.COMPLETE, fraction: float | None = None
) -> Replica:
    return Replica(Did(did), Site(site), state, fraction)


def seen(*replicas: Replica, at: datetime = NOON, **more) -> Seen:
    return Seen(at, tuple(replicas), **more)


def survey(
    *readings: tuple[str, Seen | Unseen], at: datetime = NOON, sites=(CAM, RAL), catalogue="rucio"
) -> Survey:
    return Survey(catalogue, at, frozenset(sites), {Did(did): reading for did, reading in readings})


def holding(*replicas: Replica, at: datetime = NOON, sites=(CAM, RAL), asked=()) -> Survey:
    """The survey of a catalogue that holds just *replicas* and was asked about them and *asked*."""
    dids = {r.did for r in replicas} | {Did(did) for did in asked}
    readings = [(did, seen(*(r for r in replicas if r.did == did), at=at)) for did in sorted(dids)]
    return survey(*readings, at=at, sites=sites)


def memory(answer: Survey, now: datetime = NOON) -> CatalogueMemory:
    return apply_survey(CatalogueMemory(), answer, set(answer.readings), now=now)


NONSENSE = (
    *("undefined", "error", "3", "-1.5", '"text"', "true", "{}", '{"ska:d0"}', "[]", "[x = 1]", "time()"),
    "MY.Requirements",
)
"""What a slot may have under our names: from a sister project, a broken hook or a joker."""


def facts(*replicas: Replica, at: datetime = NOON, now: datetime = NOON, sites=(CAM, RAL), asked=()):
    """The snapshot that follows from one catalogue holding just *replicas*."""
    answer = holding(*replicas, at=at, sites=sites, asked=asked)
    return build_snapshot({"rucio": memory(answer, now)}, set(answer.readings), now=now, max_age=BOUND)


def ad(*available: str, site: Site = CAM, at: datetime = NOON, generation: int = 1) -> SiteAd:
    """An ad that says these datasets are available at *site*."""
    view = facts(*(replica(did, site) for did in available), at=at, now=max(at, NOON), sites=(site,))
    draft = draft_site_ads(view, demand(*available), budget=Budget())[site]
    return SiteAd(site, at, generation, draft.content)


def published(*ads: SiteAd, heard: datetime = NOON) -> dict[Site, PublishedAd]:
    return {a.site: PublishedAd(a.site, a.generation, a.as_of, heard, a.open_until) for a in ads}

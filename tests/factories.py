"""Values for tests, with defaults that say nothing, so that a test says only what it is about."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hydrator.config import Settings
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import Openings, PacedCycle
from hydrator.domain.model import (
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Origin,
    PublishedAd,
    Replica,
    Seen,
    Site,
    SiteAd,
    Snapshot,
    Survey,
    Unseen,
    parse_did,
)
from hydrator.domain.ports import PoolLoad
from hydrator.reconcile.evaluate import Evaluation
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.site_ads import Budget, Draft, draft_site_ads
from hydrator.reconcile.snapshot.merge import CatalogueMemory, DatasetRecord, apply_survey, build_snapshot
from hydrator.reconcile.snapshot.removal_guard import HeldLoss
from hydrator.reconcile.state import ReconcileState
from hydrator.reconcile.view import CatalogueView, CycleView, PublisherView, build_view
from hydrator.server.view import ServerState


def jwt(claims: object) -> str:
    """Return a token with *claims*, and with a signature that is not valid."""
    text = claims if isinstance(claims, str) else json.dumps(claims)
    body = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return f"eyJhbGciOiJIUzI1NiJ9.{body}.c2lnbmF0dXJl"


BEST_FIRST = (
    DatasetState.AVAILABLE,
    DatasetState.STAGING,
    DatasetState.PARTIAL,
    DatasetState.NEARLINE,
    DatasetState.STUCK,
    DatasetState.UNAVAILABLE,
)
"""The states that a replica can have."""


def settings_with(
    pins=(), patterns=(), retired=(), never=(), scope=None, poll_seconds=30, **removal_guard: float
) -> Settings:
    """The settings of a daemon that a test is about."""
    return Settings(
        daemon={"default_scope": scope, "poll_seconds": poll_seconds},
        demand={"pins": sorted(pins), "patterns": patterns},
        sites={"retired": sorted(retired)},
        publish={"never": never},
        removal_guard=removal_guard,
    )


NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
BOUND = 6 * HOUR

CAM, RAL, OSO = Site("CAM"), Site("RAL"), Site("OSO")
L1, L2, L3 = (Did(f"lofar:L{n}") for n in (1, 2, 3))


def want(*dids: str, jobs: int = 1, origin: Origin = Origin.JOB) -> DemandEntry:
    names = tuple(sorted(parse_did(did) for did in dids))
    return DemandEntry(names, jobs, origin, NOON, set_key(names))


def demand(*wants: DemandEntry | str) -> Demand:
    return Demand(tuple(w if isinstance(w, DemandEntry) else want(w) for w in wants))


def replica(
    did: str = L1,
    site: str = CAM,
    state: DatasetState = DatasetState.AVAILABLE,
    fraction: float | None = None,
) -> Replica:
    return Replica(Did(did), Site(site), state, fraction)


def seen(*replicas: Replica, at: datetime = NOON, **more) -> Seen:
    return Seen(at, tuple(replicas), **more)


def survey(*readings: tuple[str, Seen | Unseen], at: datetime = NOON, sites=(CAM, RAL)) -> Survey:
    return Survey("rucio", at, frozenset(sites), {Did(did): reading for did, reading in readings})


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
    return with_times(
        build_snapshot({"rucio": memory(answer, now)}, set(answer.readings), now=now, max_age=BOUND)
    )


def with_times(snapshot: Snapshot) -> Snapshot:
    """The *snapshot* with the time of each fact, as a reader sees it."""
    sites = {
        site: replace(known, facts={did: known.find(did) for did in known.facts})
        for site, known in snapshot.sites.items()
    }
    return replace(snapshot, sites=sites)


def ad(*available: str, site: Site = CAM, at: datetime = NOON, generation: int = 1) -> SiteAd:
    """An ad that says these datasets are available at *site*."""
    view = facts(*(replica(did, site) for did in available), at=at, now=max(at, NOON), sites=(site,))
    draft = draft_site_ads(view, demand(*available), budget=Budget())[site]
    return SiteAd(site, at, generation, draft.content)


def report_of(
    snapshot: Snapshot,
    wants: Demand,
    *,
    at: datetime = NOON,
    ads: Mapping[Site, SiteAd] | None = None,
    drafts: Mapping[Site, Draft] | None = None,
    withheld: Mapping[Site, str] | None = None,
    held_reasons: Mapping[Site, str] | None = None,
    paced: PacedCycle | None = None,
    **state,
) -> CycleReport:
    """The report of a cycle that came to these conclusions; *state* has fields of the state."""
    after = ReconcileState(**state)
    reasons = {site: loss.text(20) for site, loss in after.held_losses.items()}
    reasons |= {**(withheld or {}), **(held_reasons or {})}
    evaluation = Evaluation(
        after, snapshot, drafts or {}, ads or {}, withheld_reasons=withheld or {}, paced=paced or PacedCycle()
    )
    errors = {name: one.failure for name, one in after.memories.items()}
    return CycleReport(at, wants, evaluation, (), errors, held_reasons=reasons)


def server_state(
    ads: Mapping[Site, SiteAd] | None = None,
    snapshot: Snapshot | None = None,
    demand: Demand | None = None,
    not_ready_reason: str | None = None,
    now: datetime = NOON,
    *,
    held_losses: Mapping[Site, HeldLoss] | None = None,
    held_reasons: Mapping[Site, str] | None = None,
    withheld_reasons: Mapping[Site, str] | None = None,
    omitted_dids: Mapping[Site, Iterable[str]] | None = None,
    openings: Openings | None = None,
    no_openings_reason: str | None = None,
    load: PoolLoad | None = None,
    catalogues: Sequence[CatalogueView] = (),
    publishers: Sequence[PublisherView] = (),
    **more,
) -> ServerState:
    """The state of a server after a cycle with these conclusions; without a *snapshot*, before the first."""
    changing = {"ads": ads or {}, "not_ready_reason": not_ready_reason, **more}
    if snapshot is None:
        return ServerState(now=now, **changing)
    wants = demand or Demand()
    answer = DatasetRecord(NOON, {})
    asked = CatalogueMemory(NOON, records=dict.fromkeys(wants.dids - snapshot.unread_dids, answer))
    drafts = {site: Draft(site, now, (), (want(*dids),)) for site, dids in (omitted_dids or {}).items()}
    report = report_of(
        snapshot, wants, at=now, ads=ads, drafts=drafts, withheld=withheld_reasons, held_reasons=held_reasons,
        paced=PacedCycle(openings, no_openings_reason), held_losses=held_losses or {},
        memories={"rucio": asked},
    )  # fmt: skip
    report = replace(report, load=load)
    view = replace(view_of(report), catalogues=catalogues, publishers=publishers)
    return replace(ServerState.of_cycle(report, view), **changing)


def view_of(report: CycleReport) -> CycleView:
    """The document of the cycle of *report*."""
    return build_view(report, None, confirming_polls=20)


def published(*ads: SiteAd, heard: datetime = NOON) -> dict[Site, PublishedAd]:
    return {a.site: PublishedAd(a.site, a.generation, a.as_of, heard, a.open_until) for a in ads}

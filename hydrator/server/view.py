"""The state that the HTTP server shows: the view of the last cycle, and what has changed since the cycle."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final

from hydrator.config import StorageArea
from hydrator.diagnostics.check.findings import Finding
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.overview.locality_history import LocalityOverview
from hydrator.diagnostics.overview.saved import Reload, Status
from hydrator.diagnostics.problems import find_problems
from hydrator.diagnostics.why.nowhere import add_similar_names
from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.openings import Openings
from hydrator.domain.ads.set_answers import SetAnswer, read_set_answers
from hydrator.domain.model import DaemonKnowledge, Demand, DemandEntry, Did, Site, SiteAd, Snapshot, to_unix
from hydrator.domain.ports import PoolLoad
from hydrator.domain.text import matches_any
from hydrator.domain.units import Bytes, Count
from hydrator.reconcile.result import CycleReport, build_knowledge
from hydrator.reconcile.state import HistoryEntry
from hydrator.reconcile.view import (
    CycleView,
    DatasetView,
    PathView,
    SiteView,
    build_datasets,
)
from hydrator.staging.overview import StagingOverview, explain_for_job
from hydrator.submit.dataset_paths import unlisted_paths

MAX_SETS: Final = 1000
"""Largest number of sets in one answer, and of keys in one query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The state at one moment.

    Attributes:
        now: time of this state.
        cycle: the view of the last cycle; None before the first.
        knowledge: the facts of the last cycle; None before the first.
        demand: datasets that jobs name.
        load: the jobs in the queues; None if they are unknown.
        known_dids: the datasets that are demanded or have a fact.
        ads: ads for hooks.
        published_at: time of the last publication of each ad. An ad without a time
            counts as published *now*: hooks fetch the ad from the server, so the ad cannot expire.
        not_ready_reason: why a complete state does not exist yet; None once a complete state exists.
        hang_reason: why the server reports that the daemon hangs; None if the daemon's cycles go on.
        max_age: largest age at which a fact is valid.
        changes: the last changes of ads, oldest first.
        locality: where the data of ended jobs was, over time.
        staging: the last step of staging; None before it.
        reload: a refused reload; None if the daemon uses the configuration on disk.
        credentials: the tokens and certificates that the daemon presents.
        storage: where each site keeps its data.
        version: the version of the pages, which change with it.
    """

    now: datetime
    cycle: CycleView | None = None
    knowledge: DaemonKnowledge | None = None
    demand: Demand = field(default_factory=Demand)
    load: PoolLoad | None = None
    known_dids: frozenset[Did] = frozenset()
    ads: Mapping[Site, SiteAd] = field(default_factory=dict)
    published_at: Mapping[Site, datetime] = field(default_factory=dict)
    not_ready_reason: str | None = None
    hang_reason: str | None = None
    max_age: timedelta = timedelta(hours=6)
    changes: Sequence[HistoryEntry] = ()
    locality: LocalityOverview = field(default_factory=LocalityOverview)
    staging: StagingOverview | None = None
    reload: Reload | None = None
    credentials: Sequence[Credential] = ()
    storage: Sequence[StorageArea] = ()
    version: str | None = None

    @classmethod
    def of_cycle(cls, report: CycleReport, view: CycleView) -> "ServerState":
        """Build what all requests until the next cycle share.

        Each request adds the time, the ads and the other values that change between two cycles.
        """
        snapshot, demand = report.evaluation.snapshot, report.demand
        return cls(
            now=report.started_at,
            cycle=view,
            knowledge=build_knowledge(report),
            demand=demand,
            load=report.load,
            known_dids=demand.dids.union(snapshot.unseen_reasons, snapshot.present_dids),
        )

    @property
    def snapshot(self) -> Snapshot:
        """The facts by site; empty before the first cycle."""
        return self.knowledge.snapshot if self.knowledge else Snapshot({})

    @property
    def openings(self) -> Openings | None:
        """The sets whose jobs may read from elsewhere; None if reads are not paced."""
        return self.knowledge.openings if self.knowledge else None

    @property
    def problems(self) -> list[Finding]:
        """Everything that needs a person, the most urgent first."""
        hangs = f"the daemon hangs: {self.hang_reason}" if self.hang_reason else None
        staging = None if self.not_ready_reason else self.staging  # before the first cycle it only waits
        status = Status(self.cycle, staging, tuple(self.credentials), self.reload, hangs)
        return list(find_problems(status, self.now))


def view_sites(state: ServerState) -> list[SiteView]:
    """Return the entries of all known sites, each with what the served ad says now."""
    known = {site.site: site for site in state.cycle.sites} if state.cycle else {}
    return [
        _view_ad(known.get(site) or SiteView(site=site, read_back={}), state)
        for site in sorted(known.keys() | state.ads.keys())
    ]


def _view_ad(site: SiteView, state: ServerState) -> SiteView:
    ad = state.ads.get(site.site)
    if ad is None:
        return replace(site, generation=None)
    until = ad.open_until if ad.open_until and state.now < ad.open_until else None
    return replace(
        site,
        generation=ad.generation,
        as_of=to_unix(ad.as_of) if site.as_of is None else site.as_of,
        published_at=to_unix(state.published_at.get(ad.site, state.now)),
        backlog=site.backlog if until else None,
        open_until=to_unix(until) if until else None,
    )


def view_datasets(state: ServerState, knowledge: DaemonKnowledge, dids: Sequence[Did]) -> list[DatasetView]:
    """Return the entries of *dids*, with paths, and similar names for datasets that are at no site."""
    unseen = state.cycle.demand.unseen if state.cycle else {}
    rows = build_datasets(dids, add_similar_names(knowledge, dids), state.demand, unseen)
    public = [did for did in dids if not matches_any(did, state.demand.never)]
    paths = unlisted_paths(state.storage, public)
    return [
        replace(
            row,
            paths=tuple(
                PathView(site, path)
                for site, by_did in paths.items()
                if isinstance(path := by_did.get(row.did), str)
            ),
        )
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class SetView:
    """A set of datasets that queued jobs need together.

    Attributes:
        key: the DataLocalityKey of these jobs; null: it does not stand for this list alone.
        datasets: number of datasets.
        example: one of the datasets.
        jobs: number of the jobs.
        bytes: bytes of all datasets; null: a size is unknown.
        sites: the set at each site, as the site's ad gives it to the jobs.
        outlook: the prospect of its waiting `auto` jobs; null: there are none.
        staging: what was requested for it, or why not; null without the parameter `key`.
    """

    key: SetKey | None
    datasets: Count
    example: Did
    jobs: Count
    bytes: Bytes | None
    sites: Mapping[Site, SetAnswer]
    outlook: Mapping[str, Any] | None
    staging: Sequence[str] | None


def view_sets(state: ServerState, keys: Collection[str] = (), limit: int = MAX_SETS) -> list[SetView]:
    """Return the entries of the sets with *keys*; without *keys*, of the *limit* sets that most jobs need."""
    entries = [entry for entry in state.demand.entries if entry.job_count]
    if keys:
        entries = [entry for entry in entries if entry.key in keys]
    else:
        by_name = sorted(entries, key=attrgetter("dids"))
        entries = sorted(by_name, key=attrgetter("job_count"), reverse=True)[:limit]
    shown_keys = {entry.key for entry in entries if entry.key is not None}
    answers = {site: read_set_answers(ad, state.now, shown_keys) for site, ad in sorted(state.ads.items())}

    def view(entry: DemandEntry) -> SetView:
        outlook = state.openings.outlooks.get(entry.key) if state.openings and entry.key else None
        staging = explain_for_job(state.staging, entry.dids, state.now) if state.staging else ()
        return SetView(
            entry.key,
            len(entry.dids),
            entry.dids[0],
            entry.job_count,
            state.snapshot.sum_bytes(entry.dids),
            {site: answer for site, each in answers.items() if entry.key and (answer := each.get(entry.key))},
            outlook._asdict() if outlook else None,
            staging if keys else None,
        )

    return [view(entry) for entry in entries]

"""Values from which the HTTP server builds its answers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final

from hydrator.config import StorageArea
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.overview.health import HealthFacts, OverallHealth, assess_health
from hydrator.diagnostics.overview.locality_history import LocalityOverview
from hydrator.diagnostics.overview.parts import PartStatus
from hydrator.diagnostics.overview.placement import Placement
from hydrator.domain.ads.openings import Openings
from hydrator.domain.model import DaemonKnowledge, Demand, DemandEntry, Did, Site, SiteAd, Snapshot
from hydrator.domain.ports import PoolLoad
from hydrator.reconcile.ads.site_ads import dids_without_room
from hydrator.reconcile.history import HistoryEntry
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.snapshot.removal_guard import HeldLoss
from hydrator.staging.overview import StagingOverview


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state at one moment.

    Attributes:
        ads: ads for hooks.
        snapshot: facts by site; None before the first reading.
        demand: datasets that jobs name; None before the first query.
        placement: the counts of ``snapshot``; None to count them for each reader.
        not_ready_reason: why a complete state does not exist yet; None once a complete state exists.
        now: time of this state.
        published_at: time of the last publication of each ad. An ad without a time
            counts as published *now*: hooks fetch the ad from the server, so the ad cannot expire.
        held_reasons: by site, why the daemon does not change the site's ad. The removal
            guard holds the ads of the sites in ``held_losses``. The sites in ``withheld_reasons`` have
            no ad of this daemon yet.
        hang_reason: why the server reports that the daemon hangs; None if the daemon's cycles go on.
        max_age: largest age at which a fact is valid.
        changes: the last changes of ads, oldest first.
        omitted_dids: by site, the datasets for which the site's ad has no room.
        openings: the openings of the last cycle.
        no_openings_reason: why the daemon made no openings in the last cycle; None if it made some.
        locality: where the data of ended jobs was, over time.
        staging: the last step of staging; None before it.
        troubles: sentences on failures of the last cycle, such as a catalogue that does not answer.
        parts: the catalogues and publishers, each with its last error.
        reload_problems: why the daemon does not use the configuration on disk.
        load: the jobs in the queues; None if they are unknown.
        credentials: the tokens and certificates that the daemon presents.
        storage: where each site keeps its data.
    """

    ads: Mapping[Site, SiteAd]
    snapshot: Snapshot | None
    demand: Demand | None
    not_ready_reason: str | None
    now: datetime
    published_at: Mapping[Site, datetime] = field(default_factory=dict)
    held_reasons: Mapping[Site, str] = field(default_factory=dict)
    hang_reason: str | None = None
    held_losses: Mapping[Site, HeldLoss] = field(default_factory=dict)
    max_age: timedelta = timedelta(hours=6)
    changes: Sequence[HistoryEntry] = ()
    omitted_dids: Mapping[Site, AbstractSet[Did]] = field(default_factory=dict)
    troubles: Sequence[str] = ()
    withheld_reasons: Mapping[Site, str] = field(default_factory=dict)
    openings: Openings | None = None
    no_openings_reason: str | None = None
    staging: StagingOverview | None = None
    locality: LocalityOverview = field(default_factory=LocalityOverview)
    parts: Sequence[PartStatus] = ()
    placement: Placement | None = None
    reload_problems: Sequence[str] = ()
    load: PoolLoad | None = None
    credentials: Sequence[Credential] = ()
    storage: Sequence[StorageArea] = ()

    @classmethod
    def of_cycle(cls, report: CycleReport) -> "ServerState":
        """Build what all requests until the next cycle share: the results of one cycle, and their counts.

        Each request adds the time, the ads and the other values that change between two cycles.
        """
        evaluation, paced = report.evaluation, report.paced
        return cls(
            ads={},
            snapshot=evaluation.snapshot,
            demand=report.demand,
            not_ready_reason=None,
            now=report.started_at,
            held_reasons=report.held_reasons,
            held_losses=evaluation.state.held_losses,
            omitted_dids=dids_without_room(evaluation.drafts),
            troubles=report.failures,
            withheld_reasons=evaluation.withheld_reasons,
            openings=paced.openings,
            no_openings_reason=paced.none_reason,
            placement=Placement.of(evaluation.snapshot),
            load=paced.load,
        )

    @property
    def health(self) -> OverallHealth:
        """The overall health, with everything that needs a person."""
        return assess_health(
            HealthFacts(
                self.now,
                self.hang_reason,
                self.not_ready_reason,
                self.parts,
                self.troubles,
                self.held_reasons,
                self.held_losses,
                self.omitted_dids,
                self.reload_problems,
                self.staging,
                self.credentials,
            )
        )

    @property
    def knowledge(self) -> DaemonKnowledge | None:
        """The facts with which the daemon explains a job; None before the first reading."""
        if self.snapshot is None:
            return None
        demanded = self.demand.dids if self.demand else frozenset()
        return DaemonKnowledge(
            self.now,
            self.snapshot,
            demanded,
            dids_without_room=self.omitted_dids,
            held_reasons=self.held_reasons,
            openings=self.openings,
            no_openings_reason=self.no_openings_reason,
            withheld_keys=frozenset(self.demand.withheld_keys if self.demand else ()),
        )


MAX_SETS: Final = 1000
"""Largest number of sets in one answer, and of keys in one query."""


def select_sets(state: ServerState, keys: Collection[str] = (), limit: int = MAX_SETS) -> list[DemandEntry]:
    """Return the sets with *keys*; without *keys*, the *limit* sets that most jobs need."""
    entries = [entry for entry in (state.demand.entries if state.demand else ()) if entry.job_count]
    if keys:
        return [entry for entry in entries if entry.key in keys]
    by_name = sorted(entries, key=attrgetter("dids"))
    return sorted(by_name, key=attrgetter("job_count"), reverse=True)[:limit]


def total_bytes(dids: Iterable[Did], snapshot: Snapshot | None) -> int | None:
    """Return the bytes of all *dids*; None if one size is unknown."""
    sizes = [snapshot.bytes_total.get(did) if snapshot else None for did in dids]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None

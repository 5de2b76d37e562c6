"""Values from which the HTTP server builds its answers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from hydrator.diagnostics.locality_history import LocalityOverview
from hydrator.domain.ads.estimates import Estimates, SetEstimator
from hydrator.domain.model import DaemonKnowledge, Demand, DemandEntry, Did, Site, SiteAd, Snapshot
from hydrator.reconcile.history import HistoryEntry
from hydrator.reconcile.snapshot.breaker import HeldLoss
from hydrator.staging.overview import StagingOverview


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state at one moment.

    Attributes:
        ads: ads for hooks.
        snapshot: facts by site; None before the first reading.
        demand: datasets that jobs name; None before the first query.
        not_ready_reason: why a complete state does not exist yet; None once a complete state exists.
        now: time of this state.
        published_at: time of the last publication of each ad. An ad without a time
            counts as published *now*: hooks fetch the ad from the server, so the ad cannot expire.
        held_reasons: by site, why the daemon does not change the site's ad. The shrink
            breaker holds the ads of the sites in ``held_losses``. The sites in ``withheld_reasons`` have
            no ad of this daemon yet. An operator rolled back all other sites of ``held_reasons``.
        hang_reason: why the server reports that the daemon hangs; None if the daemon's cycles go on.
        max_age: largest age at which a fact is valid.
        changes: the last changes of ads, oldest first.
        omitted_dids: by site, the datasets for which the site's ad has no room.
        estimates: the estimates of the last cycle.
        no_estimates_reason: why the daemon made no estimates in the last cycle; None if it made some.
        set_estimator: estimates sets that no job has named; None if the last cycle made no estimates.
        experiment: a sentence about the running block of a switchback experiment; None without one.
        locality: where the data of ended jobs was, over time.
        staging: the last step of staging; None before it.
        troubles: sentences on failures of the last cycle, such as a catalogue that does not answer.
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
    estimates: Estimates | None = None
    no_estimates_reason: str | None = None
    experiment: str | None = None
    staging: StagingOverview | None = None
    locality: LocalityOverview = field(default_factory=LocalityOverview)
    set_estimator: SetEstimator | None = None

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
            estimates=self.estimates,
            no_estimates_reason=self.no_estimates_reason,
        )


MAX_SETS: Final = 1000
"""Largest number of sets in one answer, and of keys in one query."""


def select_sets(state: ServerState, keys: Collection[str] = (), limit: int = MAX_SETS) -> list[DemandEntry]:
    """Return the sets with *keys*; without *keys*, the *limit* sets that most jobs need."""
    entries = [entry for entry in (state.demand.entries if state.demand else ()) if entry.job_count]
    if keys:
        return [entry for entry in entries if entry.key in keys]
    return sorted(entries, key=lambda entry: (-entry.job_count, entry.dids))[:limit]


def total_bytes(dids: Iterable[Did], snapshot: Snapshot | None) -> int | None:
    """Return the bytes of all *dids*; None if one size is unknown."""
    sizes = [snapshot.bytes_total.get(did) if snapshot else None for did in dids]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None

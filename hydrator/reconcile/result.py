"""Result of one cycle: a report of all steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hydrator.domain.model import (
    DaemonKnowledge,
    DatasetState,
    Demand,
    Did,
    Plan,
    PublishedAd,
    Site,
    SiteAd,
    to_unix,
)
from hydrator.domain.ports import PoolLoad
from hydrator.domain.text import matches_any
from hydrator.reconcile.evaluate import Evaluation
from hydrator.reconcile.site_ads import changed_states, dids_without_room
from hydrator.reconcile.state import (
    MAX_CHANGES_PER_SITE,
    Approve,
    DatasetChange,
    HistoryEntry,
    PendingCommands,
    ReconcileState,
)


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The plan of one publisher and its result.

    ``unconfirmed_sites`` are the sites whose ads the daemon sent but could not read back.
    """

    publisher: str
    plan: Plan = ()
    published: Mapping[Site, PublishedAd] = field(default_factory=dict)
    unconfirmed_sites: tuple[Site, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CycleReport:
    """The results of the cycle that began at ``started_at``: answers, evaluation, ads sent and read back.

    ``held_reasons`` has, by site, the reason why the daemon does not publish a change of the ad yet.
    ``poll_durations`` has the catalogues that answered or failed in this cycle.
    ``pending_since`` has the catalogues whose poll is still running. For these catalogues,
    ``catalogue_errors`` has the error of the last answer, or says that the answer is overdue. It also has the
    failure of the last search for the patterns.
    ``history_entries`` are the ads that got a new generation.
    ``rejected`` has, by publisher, the ads that the daemon read back and rejected, each with the reason.
    ``rivals`` has, by publisher, the evidence that another daemon writes to the publisher.
    ``load`` has the jobs and slots behind the openings.
    """

    started_at: datetime
    demand: Demand
    evaluation: Evaluation
    results: tuple[PublishResult, ...]
    catalogue_errors: Mapping[str, str | None]
    save_error: str | None = None
    commands: PendingCommands[Approve] = field(default_factory=PendingCommands)
    held_reasons: Mapping[Site, str] = field(default_factory=dict)
    poll_durations: Mapping[str, timedelta] = field(default_factory=dict)
    history_entries: tuple[HistoryEntry, ...] = ()
    rejected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pending_since: Mapping[str, datetime] = field(default_factory=dict)
    rivals: Mapping[str, str] = field(default_factory=dict)
    load: PoolLoad | None = None

    @property
    def failures(self) -> tuple[str, ...]:
        """Return one sentence for each part of the cycle that failed."""
        failed = [f"catalogue {name}: {why}" for name, why in self.catalogue_errors.items() if why]
        failed += [f"publisher {o.publisher}: {o.error}" for o in self.results if o.error]
        failed += [
            f"publisher {o.publisher}: ads sent but not read back: {', '.join(o.unconfirmed_sites)}"
            for o in self.results
            if o.unconfirmed_sites
        ]
        failed += [f"publisher {name}: {why}" for name, why in self.rivals.items()]
        return (*failed, *([self.save_error] if self.save_error else []))

    @property
    def is_complete(self) -> bool:
        """Return True if all catalogues answered, all ads were read back, and the state is on disk."""
        failed = [*self.catalogue_errors.values(), self.save_error]
        return not any(failed) and not any(o.error or o.unconfirmed_sites for o in self.results)


def history_entries(previous: ReconcileState, report: CycleReport) -> list[HistoryEntry]:
    """Build a history entry for every ad that got a new generation in this cycle."""
    entries = []
    for site, ad in sorted(report.evaluation.ads.items()):
        old = previous.ads.get(site)
        if not old or old.generation != ad.generation:
            entries.append(_build_entry(old, ad, report))
    return entries


def _build_entry(old: SiteAd | None, ad: SiteAd, report: CycleReport) -> HistoryEntry:
    """Build the entry of *ad* with its changes since the *old* one, which may have a private name."""
    at, (before, after) = to_unix(report.started_at), changed_states(old, ad)
    dids = sorted(did for did in before.keys() | after.keys() if not matches_any(did, report.demand.never))
    changes = [
        DatasetChange(
            at, did, before.get(did), after.get(did), _explain_change(did, ad.site, after.get(did), report)
        )
        for did in dids[:MAX_CHANGES_PER_SITE]
    ]
    return HistoryEntry(report.started_at, ad.site, tuple(changes), len(dids) - len(changes))


def _explain_change(did: Did, site: Site, state: str | None, report: CycleReport) -> str:
    """Return the reason why *did* is in this *state* in the ad of *site* now, or has left the ad."""
    snapshot, released = report.evaluation.snapshot, report.evaluation.released.get(site, {})
    if state == DatasetState.UNKNOWN:
        return "no catalogue has answered about it for longer than the age bound"
    if state:
        return "its catalogue says so"
    if did in released:
        return released[did]
    if did not in report.demand.dids:
        return "no longer demanded"
    if any(did in clash for clash in snapshot.case_collisions):
        return "only letter case tells it from another"
    if site in snapshot.sites and did in snapshot.sites[site].facts:
        return "no room in the ad"
    return "its catalogue says that it is gone"


def build_knowledge(report: CycleReport) -> DaemonKnowledge:
    """Return the facts of the cycle of *report*, with which the daemon explains datasets and jobs."""
    evaluation, demand = report.evaluation, report.demand
    return DaemonKnowledge(
        report.started_at,
        evaluation.snapshot,
        demand.dids,
        dids_without_room=dids_without_room(evaluation.drafts),
        held_reasons=report.held_reasons,
        openings=evaluation.paced.openings,
        no_openings_reason=evaluation.paced.none_reason,
        lists_of_wrong_keys=demand.lists_of_wrong_keys,
    )

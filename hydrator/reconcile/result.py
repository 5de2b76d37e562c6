"""Result of one cycle: a report of all steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hydrator.domain.model import DaemonKnowledge, Demand, Plan, PublishedAd, Site
from hydrator.reconcile.ads.site_ads import dids_without_room
from hydrator.reconcile.evaluate import Evaluation
from hydrator.reconcile.history import ChangeContext, HistoryEntry, build_entry
from hydrator.reconcile.openings import PacedCycle
from hydrator.reconcile.state import Approve, PendingCommands, ReconcileState


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
    ``paced`` has the openings, or the reason why there are none.
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
    paced: PacedCycle = field(default_factory=PacedCycle)

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
    evaluation = report.evaluation
    colliding_dids = frozenset(did for clash in evaluation.snapshot.case_collisions for did in clash)
    entries = []
    for site, ad in sorted(evaluation.ads.items()):
        old = previous.ads.get(site)
        if old and old.generation == ad.generation:
            continue
        facts = evaluation.snapshot.sites.get(site)
        context = ChangeContext(
            demanded_dids=report.demand.dids,
            colliding_dids=colliding_dids,
            facts=facts.facts if facts else {},
            released=evaluation.released.get(site, {}),
            never=report.demand.never,
        )
        entries.append(build_entry(old, ad, context, now=report.started_at))
    return entries


def build_knowledge(report: CycleReport) -> DaemonKnowledge:
    """Return the facts of the cycle of *report*, with which the daemon explains datasets and jobs."""
    evaluation, demand = report.evaluation, report.demand
    return DaemonKnowledge(
        report.started_at,
        evaluation.snapshot,
        demand.dids,
        dids_without_room=dids_without_room(evaluation.drafts),
        held_reasons=report.held_reasons,
        openings=report.paced.openings,
        no_openings_reason=report.paced.none_reason,
        withheld_keys=demand.withheld_keys,
    )

"""Result of one cycle: reports, and their summary."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hydrator.domain.model import Demand, Plan, PublishedAd, Site, to_unix
from hydrator.reconcile.evaluate import Evaluation
from hydrator.reconcile.history import ChangeContext, HistoryEntry, build_entry
from hydrator.reconcile.overrides import PendingCommands
from hydrator.reconcile.state import ReconcileState


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The plan of one publisher and its result; ``unconfirmed_sites`` were sent but not read back."""

    publisher: str
    plan: Plan = ()
    published: Mapping[Site, PublishedAd] = field(default_factory=dict)
    unconfirmed_sites: tuple[Site, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CycleReport:
    """The results of one cycle: answers, evaluation, ads sent and ads read back; it began at ``started_at``.

    ``held_reasons`` has by site the change that is held back, with the numbers.
    ``poll_durations`` is the duration of the poll of each catalogue that answered or failed in this cycle.
    ``pending_since`` are the catalogues whose poll is still running; of those, ``catalogue_errors`` has the
    error of the last answer, or that this one is overdue. ``history_entries`` are the new decisions.
    ``rejected`` has by publisher the ads that it showed and that were not adopted, each with the reason;
    ``implausible_generations`` by site the generations that every hook refuses; ``rivals`` by publisher why
    another daemon seems to write there.
    """

    started_at: datetime
    demand: Demand
    evaluation: Evaluation
    results: tuple[PublishResult, ...]
    catalogue_errors: Mapping[str, str | None]
    save_error: str | None = None
    commands: PendingCommands = field(default_factory=PendingCommands)
    held_reasons: Mapping[Site, str] = field(default_factory=dict)
    poll_durations: Mapping[str, timedelta] = field(default_factory=dict)
    history_entries: tuple[HistoryEntry, ...] = ()
    rejected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    implausible_generations: Mapping[Site, int] = field(default_factory=dict)
    pending_since: Mapping[str, datetime] = field(default_factory=dict)
    rivals: Mapping[str, str] = field(default_factory=dict)

    @property
    def failures(self) -> tuple[str, ...]:
        """Return one sentence for each part of the cycle that failed."""
        failed = [f"catalogue {name}: {why}" for name, why in self.catalogue_errors.items() if why]
        failed += [f"publisher {o.publisher}: {o.error}" for o in self.results if o.error]
        failed += [
            f"publisher {o.publisher}: sent but not read back: {', '.join(o.unconfirmed_sites)}"
            for o in self.results
            if o.unconfirmed_sites
        ]
        failed += [f"publisher {name}: {why}" for name, why in self.rivals.items()]
        return (*failed, *([self.save_error] if self.save_error else []))

    @property
    def is_complete(self) -> bool:
        """Return True if all catalogues answered, all publishers show their ads, and the state is on disk."""
        failed = [*self.catalogue_errors.values(), self.save_error]
        return not any(failed) and not any(o.error or o.unconfirmed_sites for o in self.results)


def history_entries(previous: ReconcileState, report: CycleReport) -> list[HistoryEntry]:
    """Build an entry for every ad that got a new generation in this cycle."""
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
            rollback=_rollback_change(site, previous, evaluation.state),
        )
        entries.append(build_entry(old, ad, context, now=report.started_at))
    return entries


def _rollback_change(site: Site, previous: ReconcileState, current: ReconcileState) -> str | None:
    if rollback := current.rollbacks.get(site):
        return f"rolled back to generation {rollback.ad.generation}"
    return "the rollback ended" if site in previous.rollbacks else None


def summary(report: CycleReport) -> dict[str, Any]:
    """Return the cycle in JSON values, for ``hydrator status``."""
    return {
        "at": to_unix(report.started_at),
        "complete": report.is_complete,
        "catalogues": dict(report.catalogue_errors),
        "publishers": {
            o.publisher: {
                "error": o.error,
                "not_read_back": list(o.unconfirmed_sites),
                "ads": len(o.published),
            }
            for o in report.results
        },
        "left_out": {
            site: [
                {"datasets": len(w.dids), "first": w.dids[0], "jobs": w.job_count}
                for w in draft.omitted_entries
            ]
            for site, draft in report.evaluation.drafts.items()
            if draft.omitted_entries
        },
        "clashes": [list(clash) for clash in report.evaluation.snapshot.case_collisions],
        "misspelt": {did: list(held) for did, held in report.evaluation.snapshot.misspelt_dids.items()},
        "unseen": dict(report.evaluation.snapshot.unseen_reasons),
        "refused": dict(report.demand.rejected_texts),
        "held": report.held_reasons,
        "rejected": {name: dict(ads) for name, ads in report.rejected.items()},
        "implausible_generations": dict(report.implausible_generations),
        "rivals": dict(report.rivals),
    }

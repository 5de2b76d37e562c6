"""Rows of the commands' ``--json`` output and tables."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from hydrator.diagnostics.check.findings import Finding
from hydrator.diagnostics.check.last_cycle import hung_after_seconds, silence_reason
from hydrator.diagnostics.credential_expiry import Credential, credential_rows, parse_credential_rows
from hydrator.diagnostics.trust import trust_row
from hydrator.domain.model import (
    Action,
    DatasetState,
    Demand,
    Did,
    Hold,
    Publish,
    PublishedAd,
    Site,
    SiteAd,
    Snapshot,
    Withdraw,
    to_unix,
)
from hydrator.reconcile.ads.site_ads import implausible_generations
from hydrator.reconcile.audit.ledger import Audit, apply_corrections
from hydrator.reconcile.demand import build_demand
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.history import HistoryEntry
from hydrator.reconcile.overrides import Rollback
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.snapshot.breaker import HeldLoss, HoldCause
from hydrator.reconcile.snapshot.update import CatalogueMemory, build_snapshot
from hydrator.state.store import Store


@dataclass(frozen=True, slots=True)
class StateView:
    """The daemon's state at the time *now*: the same values that the daemon uses."""

    now: datetime
    default_scope: str | None
    memories: Mapping[str, CatalogueMemory]
    demand: Demand
    snapshot: Snapshot
    ads: Mapping[Site, SiteAd]
    readback: Mapping[str, Mapping[Site, PublishedAd]]
    last_cycle: Mapping[str, Any]
    held_losses: Mapping[Site, HeldLoss]
    rollbacks: Mapping[Site, Rollback]
    policy: ReconcilePolicy
    audit: Audit = field(default_factory=Audit)
    credentials: Sequence[Credential] = ()
    failed_reload: Mapping[str, Any] = field(default_factory=dict)
    privacy_problem: str | None = None
    daemon_problem: str | None = None
    """Reason why the daemon counts as stopped or hung."""

    @property
    def change_texts_by_site(self) -> dict[Site, str]:
        """Return by site the change that the daemon holds back, in words."""
        held = {
            site: one.text(self.policy.breaker_limits.confirming_polls)
            for site, one in self.held_losses.items()
        }
        return held | {site: one.text for site, one in self.rollbacks.items()}

    @classmethod
    def from_store(
        cls,
        store: Store,
        policy: ReconcilePolicy,
        *,
        now: datetime,
        owner: str | None = None,
        poll_seconds: float = 60,
    ) -> Self:
        """Read the state; *owner* is the process that holds its lock, None if no daemon runs."""
        state = store.load()
        matches = frozenset(did for dids in state.pattern_matches.values() for did in dids)
        demand = build_demand(state.demand, pins=policy.pins, matches=matches, now=now)
        snapshot = build_snapshot(
            apply_corrections(state.memories, state.audit), demand.dids, now=now, max_age=policy.max_age
        )
        cycle = store.load_report("cycle")
        return cls(
            now,
            policy.default_scope,
            state.memories,
            demand,
            snapshot,
            state.ads,
            store.load_readback(),
            cycle,
            state.held_losses,
            state.rollbacks,
            policy,
            state.audit,
            parse_credential_rows(store.load_report("credentials").get("rows", [])),
            store.load_report("reload"),
            store.load_report("private").get("trouble"),
            silence_reason(cycle.get("at"), owner, now, hung_after_seconds(poll_seconds)),
        )


def action_row(publisher: str, action: Action) -> dict[str, Any]:
    """Return one action of a plan."""
    why = action.reason if isinstance(action, Publish | Hold | Withdraw) else ""
    ad = getattr(action, "ad", None)
    return {
        "publisher": publisher,
        "site": action.site,
        "action": type(action).__name__.lower(),
        "why": why,
        "generation": ad.generation if ad else None,
        "as_of": to_unix(ad.as_of) if ad else None,
    }


def plan_rows(report: CycleReport) -> list[dict[str, Any]]:
    """Return the actions of each publisher, then the held changes, which have no publisher."""
    rows = [action_row(outcome.publisher, action) for outcome in report.results for action in outcome.plan]
    for site, why in report.held_reasons.items():
        ad = report.evaluation.ads.get(site)
        rows.append(
            {
                "publisher": None,
                "site": site,
                "action": "held",
                "why": why,
                "generation": ad.generation if ad else None,
                "as_of": to_unix(ad.as_of) if ad else None,
            }
        )
    return rows


def breaker_rows(losses: Mapping[Site, HeldLoss], needed_polls: int) -> list[dict[str, Any]]:
    """Return the held losses by site."""
    return [
        {
            "site": site,
            "since": to_unix(one.started_at),
            "cause": one.cause.value,
            "datasets": len(one.missing_polls),
            "listed_count": one.listed_count,
            "polls": one.confirmations,
            "polls_needed": None if one.cause is HoldCause.UNNAMED else needed_polls,
            "why": one.text(needed_polls),
        }
        for site, one in sorted(losses.items())
    ]


def breaker_lines(losses: Mapping[Site, HeldLoss], needed_polls: int) -> list[str]:
    """Return one sentence a site, with the command that ends the hold."""
    return [
        f"held at {row['site']}: {row['why']} (hydrator approve {shlex.quote(row['site'])} releases them)"
        for row in breaker_rows(losses, needed_polls)
    ]


def status_rows(view: StateView) -> dict[str, Any]:
    report = view.last_cycle
    return {
        "last_cycle": report.get("at"),
        "complete": report.get("complete", report.get("whole")),
        "catalogues": [
            {
                "catalogue": name,
                "read": to_unix(memory.answered_at) if memory.answered_at else None,
                "sites": sorted(memory.sites),
                "datasets": len(memory.records),
                "failure": memory.failure,
                "unmapped": sorted(memory.unmapped_storages),
            }
            for name, memory in sorted(view.memories.items())
        ],
        "demand": {
            "datasets": len(view.demand.dids),
            "jobs": sum(want.job_count for want in view.demand.entries),
            "refused": dict(view.demand.rejected_texts),
            "unseen": dict(view.snapshot.unseen_reasons),
            "clashes": [list(clash) for clash in view.snapshot.case_collisions],
            "misspelt": {did: list(held) for did, held in view.snapshot.misspelt_dids.items()},
            "absent_datasets": _find_absent_datasets(view),
            "left_out": report.get("left_out", {}),
        },
        "held": breaker_rows(view.held_losses, view.policy.breaker_limits.confirming_polls),
        "rolled_back": [
            {
                "site": site,
                "since": to_unix(one.started_at),
                "generation": one.ad.generation,
                "as_of": to_unix(one.ad.as_of),
            }
            for site, one in sorted(view.rollbacks.items())
        ],
        "publishers": [
            {"publisher": name, "ads": len(view.readback.get(name, {})), **outcome}
            for name, outcome in sorted(report.get("publishers", {}).items())
        ],
        "rejected": report.get("rejected", {}),
        "rivals": report.get("rivals", {}),
        "implausible_generations": dict(implausible_generations(view.ads, view.now)),
        "trust": {site: trust_row(view.audit, site) for site in sorted(view.ads)},
        "credentials": credential_rows(view.credentials),
        "reload": dict(view.failed_reload) or None,
        "privacy_problem": view.privacy_problem,
        "daemon_problem": view.daemon_problem,
    }


def _find_absent_datasets(view: StateView) -> list[Did]:
    """Return the wanted datasets that no site has, with an answer of every catalogue."""
    present = _find_present_datasets(view)
    colliding = {did for clash in view.snapshot.case_collisions for did in clash}
    absent = view.demand.dids - present - colliding - view.snapshot.misspelt_dids.keys()
    return sorted(did for did in absent if _unknown_reason(did, view) is None)


def site_rows(view: StateView) -> list[dict[str, Any]]:
    rows = []
    for site in sorted(view.ads.keys() | view.snapshot.sites.keys()):
        ad, facts = view.ads.get(site), view.snapshot.sites.get(site)
        states = [fact.state for fact in facts.facts.values()] if facts else []
        rows.append(
            {
                "site": site,
                "as_of": to_unix(ad.as_of) if ad else None,
                "generation": ad.generation if ad else None,
                "truncated": ("DataLocalityTruncated", "true") in ad.content if ad else None,
                "held": len(view.held_losses[site].missing_polls) if site in view.held_losses else 0,
                "states": {state.value: states.count(state) for state in DatasetState if state in states},
                **trust_row(view.audit, site),
                "read_back": {
                    publisher: {"generation": ads[site].generation, "as_of": to_unix(ads[site].as_of)}
                    for publisher, ads in sorted(view.readback.items())
                    if site in ads
                },
            }
        )
    return rows


def dataset_rows(view: StateView, dids: Sequence[Did] | None) -> list[dict[str, Any]]:
    jobs: dict[Did, int] = {}
    for want in view.demand.entries:
        for did in want.dids:
            jobs[did] = jobs.get(did, 0) + want.job_count
    clashing = {did for clash in view.snapshot.case_collisions for did in clash}
    return [
        {
            "did": did,
            "jobs": jobs.get(did, 0),
            "wanted": did in jobs,
            "bytes": view.snapshot.bytes_total.get(did),
            "unseen": _unknown_reason(did, view) if did in jobs else view.snapshot.unseen_reasons.get(did),
            "clash": did in clashing,
            "misspelt": list(view.snapshot.misspelt_dids.get(did, ())),
            "sites": {
                site: {
                    "state": fact.state.value,
                    "fraction": fact.fraction,
                    "as_of": to_unix(fact.as_of),
                }
                for site, facts in view.snapshot.sites.items()
                if (fact := facts.facts.get(did))
            },
        }
        for did in (dids if dids is not None else sorted(jobs))
    ]


def _unknown_reason(did: Did, view: StateView) -> str | None:
    """Return why the places of *did* are unknown; None if every catalogue answered about it."""
    if why := view.snapshot.unseen_reasons.get(did):
        return why
    pending = [name for name, memory in sorted(view.memories.items()) if did not in memory.records]
    if pending:
        return f"catalogue {pending[0]} has not answered about it yet"
    return None if view.memories else "no catalogue was polled yet"


def _find_present_datasets(view: StateView) -> frozenset[Did]:
    """Return the datasets with a fact at any site."""
    return frozenset(did for facts in view.snapshot.sites.values() for did in facts.facts)


def history_rows(entries: Iterable[HistoryEntry]) -> list[dict[str, Any]]:
    """Return the history, newest first."""
    return [
        {
            "at": to_unix(one.decided_at),
            "site": one.ad.site,
            "generation": one.ad.generation,
            "as_of": to_unix(one.ad.as_of),
            "published": {name: to_unix(when) for name, when in sorted(one.published_at.items())},
            "changes": [
                {
                    "did": change.did,
                    "before": change.state_before,
                    "after": change.state_after,
                    "why": change.reason,
                }
                for change in one.changes
            ],
        }
        for one in reversed(list(entries))
    ]


def finding_rows(findings: Sequence[Finding]) -> list[dict[str, str]]:
    return [
        {"level": f.level.value, "subject": f.subject, "message": f.message, "todo": f.todo} for f in findings
    ]

"""Rows of the commands' ``--json`` output and tables."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self, cast

from hydrator.cli.output.json_models.cycle import ActionJson
from hydrator.cli.output.json_models.facts import (
    DatasetChangeJson,
    DatasetJson,
    ReadBackJson,
    SiteJson,
)
from hydrator.cli.output.json_models.status import (
    CatalogueStatusJson,
    CredentialJson,
    DemandStatusJson,
    HeldLossJson,
    OpeningsStatusJson,
    PublisherStatusJson,
    ReloadFailureJson,
    StatusJson,
)
from hydrator.diagnostics.check.last_cycle import hung_after_seconds, silence_reason
from hydrator.diagnostics.credential_expiry import Credential, credential_rows, parse_credential_rows
from hydrator.domain.ads.openings import SavedOpenings, parse_row
from hydrator.domain.model import DatasetState, Demand, Did, PublishedAd, Site, SiteAd, Snapshot, to_unix
from hydrator.reconcile.demand import build_demand
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.history import DatasetChange
from hydrator.reconcile.openings import REPORT_NAME
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.snapshot.memory import CatalogueMemory
from hydrator.reconcile.snapshot.merge import build_snapshot
from hydrator.reconcile.snapshot.removal_guard import HeldLoss, HoldCause
from hydrator.staging.overview import REPORT_NAME as STAGING_REPORT
from hydrator.staging.overview import StagingOverview, overview_from_row
from hydrator.state.store import Store


@dataclass(frozen=True, slots=True)
class StateView:
    """The state that the daemon saved, evaluated at the time *now* with the daemon's settings."""

    now: datetime
    default_scope: str | None
    memories: Mapping[str, CatalogueMemory]
    demand: Demand
    snapshot: Snapshot
    ads: Mapping[Site, SiteAd]
    readback: Mapping[str, Mapping[Site, PublishedAd]]
    last_cycle: Mapping[str, Any]
    held_losses: Mapping[Site, HeldLoss]
    policy: ReconcilePolicy
    credentials: Sequence[Credential] = ()
    failed_reload: Mapping[str, Any] = field(default_factory=dict)
    openings: SavedOpenings | None = None
    """The openings of the last cycle; None if the daemon saved none."""
    daemon_problem: str | None = None
    """Reason why the daemon counts as stopped or hung."""
    staging: StagingOverview | None = None

    @property
    def change_texts_by_site(self) -> dict[Site, str]:
        """Return a text for each site where the daemon holds back a change."""
        return {
            site: one.text(self.policy.guard_limits.confirming_polls)
            for site, one in self.held_losses.items()
        }

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
        """Read the state in *store*; *owner* is the process that locks the state, None if no daemon runs."""
        state = store.load()
        matches = frozenset(did for dids in state.pattern_matches.values() for did in dids)
        demand = build_demand(state.demand, pins=policy.pins, matches=matches, now=now, never=policy.never)
        snapshot = build_snapshot(
            state.memories,
            demand.dids,
            now=now,
            max_age=policy.max_age,
            never=policy.never,
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
            policy,
            parse_credential_rows(store.load_report("credentials").get("rows", [])),
            store.load_report("reload"),
            parse_row(store.load_report(REPORT_NAME)),
            silence_reason(cycle.get("at"), owner, now, hung_after_seconds(poll_seconds)),
            overview_from_row(store.load_report(STAGING_REPORT)),
        )


def plan_rows(report: CycleReport) -> list[ActionJson]:
    """Return the actions of each publisher, then the held changes, which have no publisher."""
    rows = [
        _action_row(
            outcome.publisher,
            action.site,
            type(action).__name__.lower(),
            getattr(action, "reason", ""),
            getattr(action, "ad", None),
        )
        for outcome in report.results
        for action in outcome.plan
    ]
    return rows + [
        _action_row(None, site, "held", reason, report.evaluation.ads.get(site))
        for site, reason in report.held_reasons.items()
    ]


def _action_row(
    publisher: str | None,
    site: Site,
    action: Any,  # noqa: ANN401 - ActionJson lists the names
    reason: str,
    ad: SiteAd | None,
) -> ActionJson:
    return {
        "publisher": publisher,
        "site": site,
        "action": action,
        "why": reason,
        "generation": ad.generation if ad else None,
        "as_of": to_unix(ad.as_of) if ad else None,
    }


def _version_row(ad: PublishedAd) -> ReadBackJson:
    return {"generation": ad.generation, "as_of": to_unix(ad.as_of)}


def _held_rows(view: StateView) -> list[HeldLossJson]:
    needed_polls = view.policy.guard_limits.confirming_polls
    return [
        {
            "site": site,
            "since": to_unix(loss.started_at),
            "cause": loss.cause.value,
            "datasets": len(loss.missing_polls),
            "listed_count": loss.listed_count,
            "polls": loss.confirmations,
            "polls_needed": None if loss.cause is HoldCause.UNNAMED else needed_polls,
            "why": loss.text(needed_polls),
        }
        for site, loss in sorted(view.held_losses.items())
    ]


def status_rows(view: StateView) -> StatusJson:
    report = view.last_cycle
    return {
        "last_cycle": report.get("at"),
        "complete": report.get("complete", report.get("whole")),
        "catalogues": _catalogue_rows(view),
        "demand": _demand_row(view),
        "held": _held_rows(view),
        "publishers": _publisher_rows(view),
        "openings": _openings_row(view),
        "staging": _shown_staging(view.staging),
        "rejected": report.get("rejected", {}),
        "rivals": report.get("rivals", {}),
        "credentials": cast("list[CredentialJson]", credential_rows(view.credentials)),
        "reload": cast("ReloadFailureJson | None", dict(view.failed_reload) or None),
        "daemon_problem": view.daemon_problem,
    }


def _shown_staging(overview: StagingOverview | None) -> StagingOverview | None:
    """Return the state of staging; None if it is off and no request is open."""
    if overview is None or (overview.mode == "off" and not overview.requests):
        return None
    return overview


def _catalogue_rows(view: StateView) -> list[CatalogueStatusJson]:
    return [
        {
            "catalogue": name,
            "read": to_unix(memory.answered_at) if memory.answered_at else None,
            "sites": sorted(memory.sites),
            "datasets": len(memory.records),
            "failure": memory.failure,
            "unmapped": sorted(memory.unmapped_storages),
        }
        for name, memory in sorted(view.memories.items())
    ]


def _demand_row(view: StateView) -> DemandStatusJson:
    return {
        "datasets": len(view.demand.dids - view.demand.kept_dids),
        "jobs": sum(want.job_count for want in view.demand.entries),
        "kept_datasets": len(view.demand.kept_dids),
        "kept_until": max(_find_kept_until(view).values(), default=None),
        "refused": dict(view.demand.rejected_texts),
        "unseen": dict(view.snapshot.unseen_reasons),
        "clashes": [list(clash) for clash in view.snapshot.case_collisions],
        "misspelt": {
            did: list(spellings)
            for did, spellings in view.snapshot.misspelt_dids.items()
            if did not in view.demand.kept_dids
        },
        "absent_datasets": _find_absent_datasets(view),
        "left_out": view.last_cycle.get("left_out", {}),
        "withheld_keys": view.last_cycle.get("withheld_keys", {}),
    }


def _openings_row(view: StateView) -> OpeningsStatusJson:
    saved = view.openings
    made = saved.openings if saved else None
    is_valid = made is not None and to_unix(view.now) < made.open_until
    names = {name for named in made.openings.values() for name in named} if made and is_valid else set()
    reason = None if is_valid else (saved.none_reason if saved else None) or "the last openings are too old"
    return {
        "at": saved.at if saved else None,
        "open_until": int(made.open_until) if made else None,
        "sets": len(names),
        "backlog": sum(made.backlog.values()) if made and is_valid else 0,
        "none": reason if saved else "the daemon has saved no openings yet",
    }


def _publisher_rows(view: StateView) -> list[PublisherStatusJson]:
    rows: list[Any] = [  # ``outcome`` has the other keys of PublisherStatusJson
        {"publisher": name, "ads": len(view.readback.get(name, {})), **outcome}
        for name, outcome in sorted(view.last_cycle.get("publishers", {}).items())
    ]
    return rows


def _find_kept_until(view: StateView) -> dict[Did, int]:
    """Return, for the datasets that no job names any more, the end of their demand, Unix s."""
    ends: dict[Did, int] = {}
    for want in view.demand.entries:
        end = to_unix(want.last_demanded_at + view.policy.keep_demand)
        for did in view.demand.kept_dids.intersection(want.dids):
            ends[did] = max(end, ends.get(did, 0))
    return ends


def _find_absent_datasets(view: StateView) -> list[str]:
    """Return the wanted datasets that no site has, although every catalogue answered about them."""
    explained_dids = (
        find_present_datasets(view) | _colliding_datasets(view) | view.snapshot.misspelt_dids.keys()
    )
    absent = view.demand.dids - view.demand.kept_dids - explained_dids
    return sorted(did for did in absent if _unknown_reason(did, view) is None)


def _colliding_datasets(view: StateView) -> frozenset[Did]:
    return frozenset(did for clash in view.snapshot.case_collisions for did in clash)


def site_rows(view: StateView) -> list[SiteJson]:
    return [_site_row(view, site) for site in sorted(view.ads.keys() | view.snapshot.sites.keys())]


def _site_row(view: StateView, site: Site) -> SiteJson:
    ad, facts = view.ads.get(site), view.snapshot.sites.get(site)
    states = [fact.state for fact in facts.facts.values()] if facts else []
    return {
        "site": site,
        "as_of": to_unix(ad.as_of) if ad else None,
        "generation": ad.generation if ad else None,
        "truncated": ("DataLocalityTruncated", "true") in ad.content if ad else None,
        "held": len(view.held_losses[site].missing_polls) if site in view.held_losses else 0,
        "states": {state.value: states.count(state) for state in DatasetState if state in states},
        "read_back": {
            publisher: _version_row(ads[site])
            for publisher, ads in sorted(view.readback.items())
            if site in ads
        },
        "changes": None,
    }


def dataset_rows(view: StateView, dids: Sequence[Did] | None) -> list[DatasetJson]:
    jobs = Counter[Did]()
    for want in view.demand.entries:
        jobs.update(dict.fromkeys(want.dids, want.job_count))
    colliding, kept_until = _colliding_datasets(view), _find_kept_until(view)
    return [
        _dataset_row(view, did, jobs, colliding, kept_until.get(did))
        for did in (sorted(jobs) if dids is None else dids)
    ]


def _dataset_row(
    view: StateView, did: Did, jobs: Counter[Did], colliding: frozenset[Did], kept_until: int | None
) -> DatasetJson:
    return {
        "did": did,
        "jobs": jobs[did],
        "wanted": did in jobs,
        "kept_until": kept_until,
        "bytes": view.snapshot.bytes_total.get(did),
        "unseen": _unknown_reason(did, view) if did in jobs else view.snapshot.unseen_reasons.get(did),
        "clash": did in colliding,
        "misspelt": list(view.snapshot.misspelt_dids.get(did, ())),
        "sites": {
            site: {"state": fact.state.value, "fraction": fact.fraction, "as_of": to_unix(fact.as_of)}
            for site, facts in view.snapshot.sites.items()
            if (fact := facts.facts.get(did))
        },
    }


def _unknown_reason(did: Did, view: StateView) -> str | None:
    """Return why the sites of *did* are unknown; None if every catalogue answered about *did*."""
    if why := view.snapshot.unseen_reasons.get(did):
        return why
    pending = [name for name, memory in sorted(view.memories.items()) if did not in memory.records]
    if pending:
        return f"catalogue {pending[0]} has not answered about this dataset yet"
    return None if view.memories else "no catalogue was polled yet"


def find_present_datasets(view: StateView) -> frozenset[Did]:
    """Return the datasets for which the snapshot has a fact at one site or more."""
    return frozenset(did for facts in view.snapshot.sites.values() for did in facts.facts)


def site_change_rows(changes: Iterable[tuple[datetime, DatasetChange]]) -> list[DatasetChangeJson]:
    return [
        {
            "at": to_unix(decided_at),
            "did": change.did,
            "before": change.state_before,
            "after": change.state_after,
            "why": change.reason,
        }
        for decided_at, change in changes
    ]

"""Saved state of the daemon, as the commands read it: its status, and the facts about datasets."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from pydantic import TypeAdapter

from hydrator.config import Settings
from hydrator.diagnostics.check.last_cycle import hung_after_seconds, silence_reason
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.domain.ads.openings import parse_row
from hydrator.domain.model import DaemonKnowledge, Demand, Did
from hydrator.domain.units import UnixTime
from hydrator.reconcile.ads.site_ads import BUDGET, dids_without_room, draft_site_ads
from hydrator.reconcile.demand import build_demand
from hydrator.reconcile.openings import REPORT_NAME as OPENINGS_REPORT
from hydrator.reconcile.snapshot.memory import CatalogueMemory
from hydrator.reconcile.snapshot.merge import build_snapshot
from hydrator.reconcile.view import REPORT_NAME, CycleView, find_unseen, parse_view
from hydrator.staging.overview import REPORT_NAME as STAGING_REPORT
from hydrator.staging.overview import StagingOverview, overview_from_row
from hydrator.state.store import Store

CREDENTIALS_REPORT = "credentials"
RELOAD_REPORT = "reload"

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class ReloadFailure:
    """A reload of the configuration that failed.

    Attributes:
        at: time of the reload.
        problems: problems of the configuration file.
    """

    at: UnixTime
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The daemon's state.

    Attributes:
        cycle: the last cycle; null before the first.
        staging: pins and requests of data; null: staging is off.
        credentials: credentials that expire.
        reload: refused reload: the daemon uses the configuration before it; null: the last file is in use.
        daemon_problem: reason why the daemon counts as stopped or hung; null: it runs.
    """

    cycle: CycleView | None
    staging: StagingOverview | None
    credentials: tuple[Credential, ...]
    reload: ReloadFailure | None
    daemon_problem: str | None


def load_view(store: Store) -> CycleView | None:
    """Load the document of the last cycle; None if there is none.

    Raises:
        StateError: the state cannot be read.
    """
    return parse_view(store.load_report(REPORT_NAME))


def load_status(store: Store, now: datetime, owner: str | None, poll_seconds: float) -> Status:
    """Load the status; *owner* is the process that locks the state, None if no daemon runs.

    Raises:
        StateError: the state cannot be read.
    """
    cycle = load_view(store)
    staging = overview_from_row(store.load_report(STAGING_REPORT))
    is_staging_off = staging is not None and staging.mode == "off" and not staging.requests
    credentials, reload = store.load_report(CREDENTIALS_REPORT), store.load_report(RELOAD_REPORT)
    return Status(
        cycle,
        None if is_staging_off else staging,
        _decode(tuple[Credential, ...], credentials.get("rows", []), ()),
        _decode(ReloadFailure | None, reload or None, None),
        silence_reason(cycle.at if cycle else None, owner, now, hung_after_seconds(poll_seconds)),
    )


def _decode(kind: Any, row: object, default: _Value) -> _Value:  # noqa: ANN401 - a type
    """Return *row* as a value of *kind*; *default* if it cannot be decoded: the daemon saves it again."""
    try:
        value: _Value = TypeAdapter(kind).validate_python(row)
    except ValueError:
        return default
    return value


@dataclass(frozen=True, slots=True)
class SavedFacts:
    """The facts about datasets in the state, evaluated now.

    ``unseen`` has the datasets that some catalogue gave no answer about, with the reason.
    """

    knowledge: DaemonKnowledge
    demand: Demand
    memories: Mapping[str, CatalogueMemory]
    unseen: Mapping[Did, str]


def load_facts(store: Store, settings: Settings, now: datetime) -> SavedFacts:
    """Load the facts, with the ages that they have *now*.

    Raises:
        StateError: the state cannot be read.
    """
    state = store.load()
    matches = frozenset(did for dids in state.pattern_matches.values() for did in dids)
    never = settings.publish.never
    demand = build_demand(state.demand, pins=settings.pinned_dids, matches=matches, now=now, never=never)
    snapshot = build_snapshot(
        state.memories, demand.dids, now=now, max_age=settings.daemon.max_age, never=never
    )
    saved = parse_row(store.load_report(OPENINGS_REPORT))
    polls = settings.removal_guard.confirm_polls
    knowledge = DaemonKnowledge(
        now,
        snapshot,
        demand.dids,
        dids_without_room=dids_without_room(draft_site_ads(snapshot, demand, budget=BUDGET)),
        held_reasons={site: loss.text(polls) for site, loss in state.held_losses.items()},
        openings=saved.openings if saved else None,
        no_openings_reason=saved.none_reason if saved else None,
        withheld_keys=frozenset(demand.withheld_keys),
    )
    present = frozenset[Did]().union(*(site.facts.keys() for site in snapshot.sites.values()))
    unseen = find_unseen(demand, snapshot, state.memories, present)
    return SavedFacts(knowledge, demand, state.memories, unseen)

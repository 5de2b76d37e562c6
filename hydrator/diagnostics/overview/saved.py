"""Saved status of the daemon, as the commands read it."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.problems import hung_after_seconds, silence_reason
from hydrator.domain.model import to_unix
from hydrator.domain.units import UnixTime
from hydrator.reconcile.view import CYCLE_REPORT, CycleView
from hydrator.state.store import STAGING_REPORT, Store

if TYPE_CHECKING:  # few installations stage data
    from hydrator.staging.overview import StagingOverview
else:
    StagingOverview = Any

CREDENTIALS_REPORT = "credentials"
RELOAD_REPORT = "reload"
_RELOAD_SECONDS = 60
"""A reload that was accepted has ended by then: the old process has ended, and the new one has the lock."""


@dataclass(frozen=True, slots=True)
class Reload:
    """A reload of the configuration.

    Attributes:
        at: time of the reload.
        problems: problems of the configuration file, which refuse it; none: the daemon executes itself again.
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
    staging: "StagingOverview | None"
    credentials: tuple[Credential, ...]
    reload: Reload | None
    daemon_problem: str | None


def load_view(store: Store) -> CycleView | None:
    """Load the document of the last cycle; None if there is none.

    Raises:
        StateError: the state cannot be read.
    """
    return store.load_report(CYCLE_REPORT, CycleView)


def load_status(store: Store, now: datetime, owner: str | None, poll_seconds: float) -> Status:
    """Load the status; *owner* is the process that locks the state, None if no daemon runs.

    Raises:
        StateError: the state cannot be read.
    """
    cycle, reload = load_view(store), store.load_report(RELOAD_REPORT, Reload)
    if reload and not reload.problems:
        owner = owner or ("reloads" if abs(to_unix(now) - reload.at) <= _RELOAD_SECONDS else None)
        reload = None
    return Status(
        cycle,
        load_staging(store),
        store.load_report(CREDENTIALS_REPORT, tuple[Credential, ...]) or (),
        reload,
        silence_reason(cycle.at if cycle else None, owner, now, hung_after_seconds(poll_seconds)),
    )


def load_staging(store: Store) -> "StagingOverview | None":
    """Load the overview of staging; None if staging is off and no request is left.

    Most installations stage nothing, and the import is slow.

    Raises:
        StateError: the state cannot be read.
    """
    row = store.load_report(STAGING_REPORT, dict)
    if not row or (row.get("mode") == "off" and not row.get("requests")):
        return None
    from hydrator.staging.overview import StagingOverview

    return store.load_report(STAGING_REPORT, StagingOverview)

"""Runtime: the parts built from one configuration, and the values that the daemon's parts share."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.config import Settings
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.overview.locality_history import LocalityOverview
from hydrator.diagnostics.overview.parts import PartStatus
from hydrator.reconcile.history import HistoryEntry
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.state import ReconcileState
from hydrator.server.view import ServerState
from hydrator.staging.overview import StagingOverview
from hydrator.wiring import Parts

from .turns import Turns

_log = structlog.get_logger("hydrator")


@dataclass
class Runtime:
    """The parts built from the configuration, and the turns of their work."""

    settings: Settings
    parts: Parts
    reconciler: Reconciler
    turns: Turns
    scheduler: BackgroundScheduler


@dataclass
class DaemonContext:
    """Values that the daemon's parts share.

    Any thread may read a value: the daemon replaces a value by a new value, but never changes its content.

    A new runtime continues from ``state``. ``report`` is the report of the last cycle, ``cycle_state`` is
    what the HTTP server shows of it (None without this server), and
    ``recent_changes`` are the newest entries of the history. ``locality`` is the
    overview of ended jobs, and ``staging`` that of the last step of staging. ``part_statuses`` are the
    catalogues and publishers of the last cycle; ``reload_problems`` say why the last reload failed.
    ``credentials`` are those that the daemon presents.
    """

    settings: Settings
    state: ReconcileState
    runtime: Runtime | None = None
    report: CycleReport | None = None
    cycle_state: ServerState | None = None
    recent_changes: tuple[HistoryEntry, ...] = ()
    locality: LocalityOverview = field(default_factory=LocalityOverview)
    staging: StagingOverview | None = None
    part_statuses: tuple[PartStatus, ...] = ()
    reload_problems: tuple[str, ...] = ()
    credentials: tuple[Credential, ...] = ()

    def share_locality(self, overview: LocalityOverview) -> None:
        """Replace the overview of ended jobs."""
        self.locality = overview

    def share_staging(self, overview: StagingOverview) -> None:
        """Replace the overview of staging."""
        self.staging = overview

    def share_credentials(self, credentials: Sequence[Credential]) -> None:
        """Replace the credentials in use."""
        self.credentials = tuple(credentials)

    @property
    def parts(self) -> Parts | None:
        return self.runtime.parts if self.runtime else None


def close_parts(parts: Parts) -> None:
    """Close *parts*; log an exception instead of raising it."""
    try:
        parts.close()
    except Exception as error:  # noqa: BLE001 - a cycle may still use these replaced parts
        _log.debug("parts did not close", why=f"{type(error).__name__}: {error}")

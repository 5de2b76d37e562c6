"""Runtime: the parts built from the configuration, their start, and the values that they share."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.config import Settings
from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.overview.locality_history import LocalityOverview
from hydrator.diagnostics.overview.saved import Reload
from hydrator.domain.bugs import BugReporter
from hydrator.domain.ports import Clock
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.state import HistoryEntry, ReconcileState
from hydrator.reconcile.threads import THREADS, Threads
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from hydrator.staging.overview import StagingOverview
from hydrator.state.store import Store
from hydrator.wiring import system_clock
from hydrator.wiring.assembly import Parts, assemble
from hydrator.wiring.http import build_http_server


class Turns:
    """The turns that run now; thread-safe. After :meth:`drain` no further turn begins."""

    def __init__(self, condition: threading.Condition | None = None) -> None:
        self._condition = condition or threading.Condition()
        self.is_ending = False
        """No further turn begins: the daemon ends."""
        self._running: set[str] = set()

    @contextmanager
    def turn(self, name: str) -> Iterator[bool]:
        """Run the ``with`` block as a turn of the kind *name*, after a running turn of this kind has ended.

        Yields:
            False if the daemon ends: then the block must do nothing.
        """
        with self._condition:
            self._condition.wait_for(lambda: self.is_ending or name not in self._running)
            if may_run := not self.is_ending:
                self._running.add(name)
        try:
            yield may_run
        finally:
            if may_run:
                with self._condition:
                    self._running.discard(name)
                    self._condition.notify_all()

    def drain(self, seconds: float, name: str | None = None) -> bool:
        """Let no further turn begin, and wait at most *seconds* until running turns end.

        With a *name*, wait only for the turn of this kind.

        Returns:
            True if none of these turns is still running.
        """
        with self._condition:
            self.is_ending = True
            self._condition.notify_all()
            return self._condition.wait_for(
                lambda: name not in self._running if name else not self._running, seconds
            )


_log = structlog.get_logger("hydrator")


class DaemonScheduler(BackgroundScheduler):  # type: ignore[misc]
    """A scheduler that may be shut down while one of its scheduled calls is due.

    apscheduler 3.11 removes a scheduled call (a *job* in apscheduler) after the last run of the call. If the
    scheduler was shut down meanwhile, the call is missing, and the scheduler's thread ends with a traceback.
    """

    def remove_job(self, job_id: str, jobstore: str | None = None) -> None:
        """Remove a scheduled call if the call still exists."""
        with contextlib.suppress(JobLookupError):
            super().remove_job(job_id, jobstore)


def build_scheduler() -> BackgroundScheduler:
    """Build a scheduler with a thread for cycles, and one for queries of schedds, which may be slow."""
    return DaemonScheduler(
        executors={name: ThreadPoolExecutor(1) for name in ("default", "demand")},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone="UTC",
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine on which the daemon runs: time, threads, and parts that reach other machines.

    The simulation replaces all of it, to run the daemon in virtual time over parts in memory.

    Attributes:
        clock: aware UTC time.
        monotonic: seconds that never go back.
        threads: run the work beside the scheduled calls.
        build_scheduler: returns a scheduler with the executors ``default`` and ``demand``.
        assemble: builds the parts; see :func:`hydrator.wiring.assembly.assemble`.
        build_http_server: builds the server; see :func:`hydrator.wiring.http.build_http_server`.
    """

    clock: Clock = system_clock
    monotonic: Callable[[], float] = time.monotonic
    threads: Threads = THREADS
    build_scheduler: Callable[[], BackgroundScheduler] = build_scheduler
    assemble: Callable[..., Parts] = assemble
    build_http_server: Callable[..., HttpServer] = build_http_server


MACHINE = Machine()
"""The machine on which this process runs."""


@dataclass
class Runtime:
    """The parts built from the configuration, and the turns of their work."""

    parts: Parts
    reconciler: Reconciler
    turns: Turns
    scheduler: BackgroundScheduler


@dataclass
class DaemonContext:
    """Values that the daemon's parts share: state, metrics, log of bugs, clock, and the newest values.

    Any thread may read a value: the daemon replaces a value by a new value, but never changes its content.

    ``report`` is the report of the last cycle, ``cycle_state`` is what the HTTP server shows of it (None
    without this server), and ``recent_changes`` are the newest entries of the history. ``locality`` is the
    overview of ended jobs, and ``staging`` that of the last step of staging. ``reload`` is the last reload,
    if it was refused. ``credentials`` are those that the daemon presents.
    """

    settings: Settings
    state: ReconcileState
    store: Store
    metrics: Metrics
    bugs: BugReporter
    clock: Clock = system_clock
    runtime: Runtime | None = None
    report: CycleReport | None = None
    cycle_state: ServerState | None = None
    recent_changes: tuple[HistoryEntry, ...] = ()
    locality: LocalityOverview = field(default_factory=LocalityOverview)
    staging: StagingOverview | None = None
    reload: Reload | None = None
    credentials: tuple[Credential, ...] = ()

    @property
    def parts(self) -> Parts | None:
        return self.runtime.parts if self.runtime else None


def close_parts(parts: Parts) -> None:
    """Close *parts*; log an exception instead of raising it."""
    try:
        parts.close()
    except Exception as error:  # noqa: BLE001 - a cycle may still use these replaced parts
        _log.debug("parts did not close", why=f"{type(error).__name__}: {error}")

"""Work beside the cycles. Each kind of work has its own thread, once at a time, so that cycles do not wait.

Maintenance checks credentials, and counts slots and ended jobs. Misses are the datasets that jobs did not
find: the catalogues count them again. The network's rates come from transfers. Pool edits merge site ads into
slots without a hook.
"""

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor

from hydrator.config.daemon import SitesSettings
from hydrator.daemon.runtime import DaemonContext, Runtime, Turns
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.outcomes import EndedJobBatch, parse_histories
from hydrator.diagnostics.overview.locality_history import build_overview, sum_batch
from hydrator.diagnostics.overview.saved import CREDENTIALS_REPORT
from hydrator.diagnostics.slot_coverage import count_coverage
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.errors import HydratorError, PoolError, StateError
from hydrator.domain.model import Did, Unseen
from hydrator.domain.network import TransferLog, TransferLogAnswer
from hydrator.domain.ports import MAX_LOAD_AGE, EndedJobsAnswer, MergeSlots, PoolReader
from hydrator.reconcile.misses import MISSES_ATTRIBUTE, Miss, parse_misses
from hydrator.reconcile.rates import RateTable, select_samples
from hydrator.state.reports import MAX_AGE, NETWORK_REPORT, NetworkRecord, SourceStatus, add_hour, load_hours
from hydrator.wiring.assembly import NetworkParts
from hydrator.wiring.secrets import read_credentials

_log = structlog.get_logger("hydrator")


class BackgroundWorker(ABC):
    """A worker beside the cycles; each kind of its work has a thread."""

    def __init__(self, context: DaemonContext) -> None:
        self._context = context
        self._metrics = context.metrics
        self._clock = context.clock
        self._problems = OngoingFailures()

    @abstractmethod
    def schedule(self, runtime: Runtime) -> None:
        """Schedule the work that the configuration needs."""

    def _run_turn(self, turns: Turns, name: str, work: Callable[..., None], *args: object) -> None:
        """Run *work* once under the name *name*, unless the daemon ends.

        Report an exception of *work* as a bug; the exception does not affect the next run.
        """
        with turns.turn(name) as may_run:
            try:
                if may_run:
                    work(*args)
            except BaseException as error:  # noqa: BLE001 - a plugin may even raise SystemExit
                self._context.bugs.report(f"the turn of {name}", error)

    def _schedule_every(
        self,
        runtime: Runtime,
        name: str,
        interval_seconds: float,
        work: Callable[..., None],
        *args: object,
        first_run_at: datetime | None = None,
    ) -> None:
        """Schedule the call ``work(*args)`` every *interval_seconds*, in a thread of its own."""
        runtime.scheduler.add_executor(ThreadPoolExecutor(1), name)
        when = {"next_run_time": first_run_at} if first_run_at else {}
        turn = (runtime.turns, name, work, *args)
        runtime.scheduler.add_job(
            self._run_turn, "interval", turn, seconds=interval_seconds, id=name, executor=name, **when
        )

    def _log_problems(
        self, problems: Mapping[str, str], kind: str, begun: str, ended: str, level: int = logging.WARNING
    ) -> None:
        """Log each of *problems* once when it begins, and once when it has ended; *kind* names its part."""
        new, gone = self._problems.replace(problems)
        for part in sorted(new):
            _log.log(level, begun, **{kind: part}, why=problems[part])
        for part in gone:
            _log.info(ended, **{kind: part})


_CREDENTIALS_SECONDS = 60
_FIRST_SLOT_COUNT = timedelta(seconds=10)
"""Time from the start to the first count of slots; a first cycle has usually ended by then."""


class MaintenanceTasks(BackgroundWorker):
    """Checks of credentials and counts of slots and ended jobs, in their own threads."""

    def __init__(self, context: DaemonContext) -> None:
        super().__init__(context)
        self._saved_credentials: list[Credential] | None = None

    def schedule(self, runtime: Runtime) -> None:
        """Schedule the check of credentials, and the counts of slots and ended jobs."""
        settings, parts = self._context.settings, runtime.parts
        now, daemon = self._clock(), settings.daemon
        soon = now + timedelta(seconds=min(daemon.poll_seconds, 5))
        check, read = self._check_credentials, lambda: read_credentials(settings, parts)
        self._schedule_every(runtime, "credentials", _CREDENTIALS_SECONDS, check, read, first_run_at=soon)
        if pool := parts.queues:
            interval = daemon.step_seconds
            first = now + min(_FIRST_SLOT_COUNT, timedelta(seconds=interval))
            self._schedule_every(runtime, "slots", interval, self._count_slots, pool, first_run_at=first)
        if history := parts.pool.history:
            self._save_locality()  # the page shows the days before the start, too
            interval, scope = daemon.history_seconds, daemon.default_scope
            count, read_jobs = self._count_ended_jobs, history.read_newly_ended_jobs
            self._schedule_every(runtime, "jobs", interval, count, read_jobs, scope)

    def _check_credentials(self, read: Callable[[], list[Credential]]) -> None:
        """Check when the daemon's credentials expire; warn once when a credential must be renewed."""
        credentials = read()
        self._context.credentials = tuple(credentials)
        if credentials != self._saved_credentials:
            with contextlib.suppress(StateError):  # the next check tries again
                self._context.store.save_reports({CREDENTIALS_REPORT: credentials})
                self._saved_credentials = credentials
        self._metrics.set_credentials(credentials)
        now = self._clock()
        due = {one.name: one for one in credentials if one.is_renewal_due(now)}
        new, _ = self._problems.replace(dict.fromkeys(due, ""))
        for name in sorted(new):
            why = due[name].expiry_text(now)
            _log.warning("credential must be renewed", name=name, why=why, todo=due[name].todo)

    def _count_slots(self, pool: PoolReader) -> None:
        """Count the slots with their site's attributes; keep the last count if the pool does not answer."""
        report, snapshot = self._context.report, pool.last
        is_old = snapshot and self._clock() - snapshot.as_of > MAX_LOAD_AGE
        if report and snapshot and not is_old and not isinstance(snapshot.slots, Unseen):
            self._metrics.set_slot_coverage(count_coverage(snapshot.slot_ads, report.evaluation.ads))

    def _count_ended_jobs(self, read_jobs: Callable[[], EndedJobsAnswer], default_scope: str | None) -> None:
        """Count the jobs that ended since the last query; repeat a failed query later."""
        try:
            batch = parse_histories(read_jobs(), default_scope, self._clock())
        except HydratorError as error:
            _log.debug("cannot count ended jobs", why=str(error))
            return
        unreachable = {one.schedd: one.failure for one in batch.schedds if one.failure}
        truncated = [one.schedd for one in batch.schedds if not (one.is_complete or one.failure)]
        if unreachable:
            _log.debug("cannot count ended jobs", unreachable_schedds=unreachable)
        if truncated:
            _log.warning("job history truncated: more jobs ended than one query returns", schedds=truncated)
        if batch.left_out:
            why = "their times are impossible, or no schedd wrote their start"
            _log.warning("ended jobs are not counted", jobs=batch.left_out, why=why)
        self._metrics.record_ended_jobs(batch)
        self._save_locality(batch)

    def _save_locality(self, batch: EndedJobBatch | None = None) -> None:
        """Save the sums of *batch*, and share their overview with the page.

        The cycle reports why the state cannot be written. Then the sums of *batch* are lost.
        """
        now, store, report = self._clock(), self._context.store, self._context.report
        snapshot = report.evaluation.snapshot if report else None
        try:
            if batch and (hour := sum_batch(batch, snapshot, now)):
                add_hour(store, hour)
            self._context.locality = build_overview(load_hours(store, now - MAX_AGE), now)
        except StateError as error:
            _log.debug("cannot save the locality of ended jobs", why=str(error))


_READ_SECONDS: Final = 60.0
"""Interval between two reads of the reports: a catalogue is polled about as often."""
_MAX_LOGGED_MISSES: Final = 50
"""Maximum number of missed datasets logged in one run: jobs may report any number of them."""
_MAX_KNOWN_MISSES: Final = 10_000


class MissTasks(BackgroundWorker):
    """The task that reads jobs' reports of missing datasets.

    A miss is not a verdict: the job's owner may write any report. So a miss is logged and counted, and each
    catalogue that counts files counts those of the dataset again in its next poll.
    """

    def __init__(self, context: DaemonContext) -> None:
        super().__init__(context)
        self._known_misses: dict[Miss, None] = {}

    def schedule(self, runtime: Runtime) -> None:
        """Schedule reading the reports, if the daemon queries schedds."""
        parts = runtime.parts
        if reports := parts.pool.misses:
            work = self._collect_misses
            self._schedule_every(runtime, "misses", _READ_SECONDS, work, reports.read_reports, parts.recounts)

    def _collect_misses(
        self,
        read_reports: Callable[[], Sequence[Sequence[str]]],
        recounts: Sequence[Callable[[frozenset[Did]], None]],
    ) -> None:
        """Read the reports, some of them twice; each of *recounts* gets the datasets that jobs missed.

        Before the first cycle the sites are not known: the reports wait.
        """
        if not (report := self._context.report):
            return
        jobs = read_reports()
        new = self._add_misses(miss for job in jobs for miss in parse_misses({MISSES_ATTRIBUTE: job}))
        for recount in recounts if new else ():
            recount(frozenset(miss.did for miss in new))
        self._log_misses(new)
        self._metrics.count_misses(new, report.evaluation.ads)

    def _add_misses(self, misses: Iterable[Miss]) -> Sequence[Miss]:
        """Remember *misses*; return those that were not known before."""
        reported = dict.fromkeys(misses)
        new = [miss for miss in reported if miss not in self._known_misses]
        others = [miss for miss in self._known_misses if miss not in reported]
        self._known_misses = dict.fromkeys([*others, *reported][-_MAX_KNOWN_MISSES:])  # the newest
        return new

    def _log_misses(self, new: Sequence[Miss]) -> None:
        for miss in new[:_MAX_LOGGED_MISSES]:
            _log.info(
                "a job missed a dataset", dataset=miss.did, site=miss.site, when=miss.missed_at.isoformat()
            )
        if len(new) > _MAX_LOGGED_MISSES:
            _log.info("jobs missed more datasets than are listed", more=len(new) - _MAX_LOGGED_MISSES)


_FIRST_READ = timedelta(seconds=15)
"""Time from the start to the first query; a first cycle has usually found the sites by then."""


class NetworkTasks(BackgroundWorker):
    """Queries of the sources of rates; a source that fails does not affect the other sources or a cycle."""

    def schedule(self, runtime: Runtime) -> None:
        """Schedule the queries of the sources."""
        interval = self._context.settings.daemon.history_seconds
        first = self._clock() + min(_FIRST_READ, timedelta(seconds=interval))
        work, network = self._update, runtime.parts.network
        self._schedule_every(runtime, "network", interval, work, network, first_run_at=first)

    def _update(self, network: NetworkParts) -> None:
        """Read all sources; save the samples, replace the table of rates, and report failures once."""
        sites = frozenset(self._context.state.ads) | network.settings.sites
        answers = [(log.origin, self._read_log(log)) for log in network.logs]
        new_samples = [sample for _, answer in answers for sample in answer.samples]
        now = self._clock()
        statuses = tuple(SourceStatus(origin, now, answer.failures) for origin, answer in answers)
        try:
            stored = self._context.store.load_report(NETWORK_REPORT, NetworkRecord) or NetworkRecord()
            samples = select_samples((*stored.samples, *new_samples), sites, now)
            self._context.store.save_reports({NETWORK_REPORT: NetworkRecord(samples, statuses)})
        except StateError as error:
            self._log_failures({"state": str(error)})
            return
        network.rates = RateTable(samples, now=now, network=network.settings)
        self._log_failures(
            {f"{each.name} {part}": why for each in statuses for part, why in each.failures.items()}
        )

    def _read_log(self, log: TransferLog) -> TransferLogAnswer:
        """Read *log*; a failure, or a bug, affects this source only."""
        part = f"the query of the {log.origin}"
        answer = self._context.bugs.attempt(part, log.read_samples, PoolError)
        return TransferLogAnswer(failures={"pool": answer.reason}) if isinstance(answer, Unseen) else answer

    def _log_failures(self, failures: Mapping[str, str]) -> None:
        begun, ended = "source of rates gives no answer", "source of rates answers again"
        self._log_problems(failures, "source", begun, ended, logging.INFO)


class PoolEdits(BackgroundWorker):
    """Edits of slot ads, according to the site ads of the last cycle."""

    def schedule(self, runtime: Runtime) -> None:
        """Schedule the slot merge if it is enabled."""
        if merger := runtime.parts.pool.merger:
            settings = self._context.settings
            interval = settings.daemon.step_seconds
            self._schedule_every(runtime, "merge", interval, self._merge, merger.run_once, settings.sites)

    def _merge(self, merge: MergeSlots, sites: SitesSettings) -> None:
        """Merge the site ads into slots without a hook; log a refusal when it begins, and when it ends."""
        ads = {site: ad for site, ad in self._context.state.ads.items() if not sites.is_retired(site)}
        results = merge(ads, sites.is_retired)
        errors = {collector: result.error for collector, result in results.items() if result.error}
        for collector in errors:
            self._metrics.instruments.count("merge_errors", collector)
        begun, ended = "collector refused the slot merge", "collector accepts the slot merge again"
        self._log_problems(errors, "collector", begun, ended, logging.ERROR)

"""``hydrator run``: the schedule, the signals, and one cycle at a time."""

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import CollectorRegistry

from hydrator import __version__
from hydrator.config import Settings, load
from hydrator.daemon.logs import configure_logs, cycle_log_fields, false_claim_log_fields, status_line
from hydrator.daemon.watchdog import Watchdog
from hydrator.diagnostics.credential_expiry import Credential, credential_rows
from hydrator.diagnostics.why.render import RenderedAnswer
from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import (
    ConfigError,
    HydratorError,
    SecretMissing,
    StateError,
    SupersededByReload,
)
from hydrator.domain.events import RejectReason
from hydrator.domain.model import Did, ScheddDemand, Unseen, to_unix
from hydrator.domain.ports import EventSource, ServerEndpoint
from hydrator.privacy.pseudonym_store import PseudonymStore
from hydrator.reconcile.ads.site_ads import dids_without_room
from hydrator.reconcile.history import HistoryEntry
from hydrator.reconcile.publish.fence import Fence
from hydrator.reconcile.reconciler import CycleTimeouts, Reconciler
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.snapshot.memory import CatalogueMemory
from hydrator.reconcile.state import ReconcileState
from hydrator.server.http_server import HttpServer
from hydrator.server.pages.overview import MAX_CHANGES
from hydrator.server.view import ServerState
from hydrator.state.clock_step import ClockStepDetector, clamp_to_now, shift_back
from hydrator.state.command_files import CommandQueue
from hydrator.state.pseudonymize import pseudonymize_state
from hydrator.state.store import Store
from hydrator.wiring import (
    Parts,
    assemble,
    build_event_sources,
    build_pseudonym_store,
    build_redactor,
    find_unreadable_secrets,
    job_name_lookup,
    system_clock,
)
from hydrator.wiring.http_server import build_http_server

from .background import AuditTasks, CycleOutput, DaemonScheduler, Heartbeat, MaintenanceTasks
from .event_listener import EventListener, EventMetrics
from .event_queue import PollThrottle
from .explain import explain_job
from .logs import OngoingFailures
from .malloc import limit_arenas, trim_heap
from .metrics import Metrics
from .service_manager import ServiceManager

_log = structlog.get_logger("hydrator")
_CYCLE_DRAIN_SECONDS = 15.0
"""Seconds that a cycle may still take when the daemon is told to stop."""
_CYCLE_TIMEOUTS = CycleTimeouts(
    poll=timedelta(seconds=3), read_back=timedelta(seconds=10), publish=timedelta(seconds=30)
)
"""How long a cycle waits: healthy catalogues answer within it, and what comes later wakes the next cycle."""
_BACKGROUND_DRAIN_SECONDS = 2.0
"""Seconds that a question beside the cycles may still take when we are told to stop."""
_RELOAD_DRAIN_SECONDS = 10.0
"""Seconds that a reload waits for what the old parts save or send, and for their connections to end."""
_SECRET_WAIT_SECONDS = 5.0
"""Seconds that a reload waits for secret files that somebody is renewing."""

_CLOCK_CHECK_SECONDS = 1.0
"""Seconds from one look at whether the wall clock was set to the next."""

ProcessSignal = Literal["stop", "reload"]
_ScheddAnswers = Mapping[str, ScheddDemand | Unseen] | str
"""What schedds want, or why they could not be named."""


def run(config: Path) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reads *config* again.

    Raises:
        ConfigError: *config*, or the address to listen on, cannot be used.
        SecretMissing: a file with a secret is missing or empty now.
        StateError: another daemon owns the state, or it cannot be written.
    """
    limit_arenas()
    settings = load(config)
    configure_logs(settings.log.level, settings.log.format, redact=build_redactor(settings))
    with Store.open_to_write(settings.daemon.state_dir) as store:
        daemon = Daemon(config, settings, store, ServiceManager(os.environ))
        if store.damage_report:
            _log.error("state lost", why=store.damage_report)
        signal.signal(signal.SIGTERM, lambda *_: daemon.post_signal("stop"))
        signal.signal(signal.SIGINT, lambda *_: daemon.post_signal("stop"))
        signal.signal(signal.SIGHUP, lambda *_: daemon.post_signal("reload"))
        try:
            daemon.serve()
        except ConfigError as error:
            missing = [str(file) for file in find_unreadable_secrets(settings)]
            if all(any(file in problem for file in missing) for problem in error.problems):
                raise SecretMissing(error.problems) from error
            raise


@dataclass
class Runtime:
    """All that works by one configuration, from its start until a reload or the end closes its fence."""

    settings: Settings
    parts: Parts
    reconciler: Reconciler
    fence: Fence
    scheduler: BackgroundScheduler
    event_listener: EventListener | None
    brokers: Sequence[EventSource]


class Daemon:
    """One daemon over one state: it owns the schedule, the HTTP server and the parts."""

    def __init__(
        self, config: Path, settings: Settings, store: Store, service_manager: ServiceManager
    ) -> None:
        self._config = config
        self._service_manager = service_manager
        self._watchdog = Watchdog(_hang_seconds(settings))
        self._is_hung = False
        self._settings = settings
        self._store = store
        self._state = self._load_state()
        self._clock_steps = ClockStepDetector(system_clock, time.monotonic)
        self._signals: queue.SimpleQueue[ProcessSignal] = queue.SimpleQueue()
        self._turn_count = 0
        self._registry = CollectorRegistry()
        self._metrics = Metrics(self._registry, __version__)
        self._bugs = BugReporter(self._metrics.count_bug)
        self._report: CycleReport | None = None
        self._recent_changes: tuple[HistoryEntry, ...] = ()
        self._demand_failures: dict[str, str] = {}
        self._ongoing_failures = OngoingFailures()
        self._stopping = threading.Event()
        self._event_metrics = EventMetrics(self._registry)
        self._wake_lock = threading.Lock()
        self._is_early_poll_scheduled = False
        self._is_answer_cycle_scheduled = False
        self._should_poll_again = False
        self._polled_at: datetime | None = None
        self._poll_throttle = PollThrottle(settings.events.spacing_seconds)
        self._heartbeat = Heartbeat(
            self._metrics, self._log_unexpected_error, self._watchdog.hang_reason, self._stopping
        )
        self._audit_tasks = AuditTasks(self._metrics, self._log_unexpected_error, self._stopping)
        self._maintenance_tasks = MaintenanceTasks(
            self._metrics, self._log_unexpected_error, self._registry, self._build_cycle_output
        )
        self._background_workers = (self._heartbeat, self._audit_tasks, self._maintenance_tasks)
        self._saved_credentials: list[Credential] | None = None
        self._saved_private_problem: str | None = "not told yet"
        self._runtime: Runtime | None = None
        self._server: HttpServer | None = None
        self._is_clock_step_logged = False

    def post_signal(self, request: ProcessSignal) -> None:
        """Ask for something; safe from a signal handler and from any thread."""
        self._signals.put(request)

    def serve(self) -> None:
        """Run until told to stop."""
        self._start()
        _log.info(
            "running",
            version=__version__,
            http=self._server_url(),
            state=str(self._settings.daemon.state_dir),
        )
        self._service_manager.notify_ready()
        while self._next_signal() == "reload":
            self._service_manager.notify_reloading()
            self._reload()
            self._service_manager.notify_ready()
        self._service_manager.notify_stopping()
        self._shut_down()

    def _load_state(self) -> ReconcileState:
        """The state on disk, dated by the clock of now."""
        state, ahead = clamp_to_now(self._store.load(), system_clock(), self._settings.daemon.max_age)
        if ahead:
            _log.warning(
                "state is dated in the future: the clock was set back", seconds=round(ahead.total_seconds())
            )
        return state

    def _next_signal(self) -> ProcessSignal:
        """What we are told next; until then the watchdog hears of us, unless the schedule hangs."""
        while True:
            self._notify_watchdog()
            until = time.monotonic() + self._service_manager.watchdog_interval_seconds
            while (left := until - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    return self._signals.get(timeout=min(left, _CLOCK_CHECK_SECONDS))
                self._handle_clock_step()

    def _handle_clock_step(self) -> None:
        """Begin again with new parts after the wall clock was set, since the old ones measure time by it.

        The schedule does, and so do the caches of catalogues, plugins included. Where the parts cannot be
        built the old ones poll on, and the next look tries again.
        """
        step = self._clock_steps.pending_step
        old = self._runtime
        if not step or old is None:
            return
        if not self._is_clock_step_logged:
            seconds = round(step.total_seconds(), 1)
            _log.warning("wall clock was set", seconds=seconds, todo="see that it is right; nothing else")
            for job in old.scheduler.get_jobs():
                job.modify(next_run_time=system_clock())
        self._is_clock_step_logged = True
        try:
            fresh = self._build_runtime(self._settings)
        except HydratorError as error:
            _log.debug("parts are kept after a clock step", why=str(error))
            return
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._log_unexpected_error("a clock step")
            self._clock_steps.acknowledge(step)
            self._is_clock_step_logged = False
            return
        self._clock_steps.acknowledge(step)
        self._is_clock_step_logged = False
        self._retire(old)
        if step < timedelta():
            self._date_back(-step, fresh.parts)
        self._activate(fresh)

    def _date_back(self, step: timedelta, parts: Parts) -> None:
        """After the clock was set back: nothing that was read before is younger than it was."""
        self._state = shift_back(self._state, step)
        self._report = None  # its times are in the future
        if parts.served_ads:
            shown = [ad for site, ad in self._state.ads.items() if site in parts.served_ads.ads()]
            parts.served_ads.put(shown, system_clock())

    def _notify_watchdog(self) -> None:
        """Tell the watchdog that we live, unless a cycle hangs; say so in the log, once."""
        stuck = self._watchdog.hang_reason()
        if stuck is None:
            self._service_manager.notify_alive()
        elif not self._is_hung:
            _log.error("hung", why=stuck)
            self._service_manager.set_status(f"hung: {stuck}")
        self._is_hung = stuck is not None

    @property
    def _parts(self) -> Parts | None:
        return self._runtime.parts if self._runtime else None

    @property
    def _event_listener(self) -> EventListener | None:
        return self._runtime.event_listener if self._runtime else None

    def build_server_state(self) -> ServerState:
        """What the HTTP server answers from, at this moment."""
        parts, report = self._parts, self._report
        board = parts.served_ads if parts else None
        ready = None if report or self._state.ads else "the first cycle has not ended yet"
        ready = self._standby_reason or ready
        return ServerState(
            ads=board.ads() if board and not self._standby_reason else {},
            snapshot=report.evaluation.snapshot if report else None,
            demand=report.demand if report else None,
            not_ready_reason=ready,
            now=system_clock(),
            published_at=board.publish_times() if board else {},
            held_reasons=report.held_reasons if report else {},
            hang_reason=self._watchdog.hang_reason(),
            held_losses=report.evaluation.state.held_losses if report else {},
            max_age=self._settings.daemon.max_age,
            changes=self._recent_changes,
            omitted_dids=dids_without_room(report.evaluation.drafts) if report else {},
            troubles=report.failures if report else (),
            withheld_reasons=report.evaluation.withheld_reasons if report else {},
        )

    @property
    def _standby_reason(self) -> str | None:
        """Why we publish nothing, where another daemon does."""
        return self._heartbeat.standby_reason

    def _build_cycle_output(self) -> CycleOutput:
        return CycleOutput(self._report, self._state.ads, self._standby_reason)

    def _server_url(self) -> str | None:
        return self._server.url if self._server else None

    def _server_endpoint(self) -> ServerEndpoint | None:
        return self._server.endpoint if self._server else None

    def _start(self) -> None:
        """Put the parts together; what was published last is served before anything is asked."""
        fresh = self._build_runtime(self._settings)
        self._continue_state(fresh.parts.pseudonym_store)
        if fresh.settings.publish.http.enabled:
            self._runtime = fresh  # what the server answers from
            self._restore_served_ads(fresh.parts)
            self._server = self._start_server(fresh.settings)
        self._report_reload(())
        self._activate(fresh)

    def _build_runtime(self, settings: Settings) -> Runtime:
        """Build all that *settings* call for; nothing of it works yet.

        Raises:
            ConfigError: something cannot be built.
            StateError: orders cannot be followed.
        """
        register = build_pseudonym_store(settings)
        parts = assemble(
            settings,
            system_clock,
            served_ads=self._parts.served_ads if self._parts else None,
            get_endpoint=self._server_endpoint if settings.publish.http.enabled else None,
            pseudonym_store=register,
        )
        try:
            hearing = self._build_event_listener(settings, register)
            orders = CommandQueue(settings.daemon.state_dir)
            orders.prepare()
            fence = Fence()
            cycle = parts.build_reconciler(
                self._state,
                self._store,
                system_clock,
                orders,
                fence,
                timeouts=_CYCLE_TIMEOUTS,
                bugs=self._bugs,
                on_late_answer=lambda: self._on_late_answer(fence),
            )
            sources = build_event_sources(settings, hearing) if hearing else ()
        except BaseException:
            self._close(parts)
            raise
        return Runtime(settings, parts, cycle, fence, self._build_scheduler(), hearing, sources)

    def _continue_state(self, pseudonym_store: PseudonymStore | None) -> None:
        """Take private names out of what is remembered, and see what was decided before."""
        with contextlib.suppress(StateError):  # told by who needs it more
            if pseudonym_store:
                self._state = pseudonymize_state(self._state, pseudonym_store.pseudonymizer)
                self._store.forget_history(pseudonym_store.pseudonymizer.privacy.has_private_did)
            self._recent_changes = tuple(self._store.load_history(MAX_CHANGES))

    def _restore_served_ads(self, parts: Parts) -> None:
        """Have a new server show what was published last."""
        if parts.served_ads and not parts.served_ads.ads():
            kept = [ad for ad in self._state.ads.values() if not parts.policy.is_retired(ad.site)]
            parts.served_ads.put(kept, system_clock())

    def _activate(self, runtime: Runtime) -> None:
        """Have the parts of *fresh* work, from the state that the last ones left."""
        runtime.reconciler.state = runtime.reconciler.saved_state = self._state
        self._restore_served_ads(runtime.parts)
        self._watchdog.restart(_hang_seconds(runtime.settings))
        self._poll_throttle = PollThrottle(runtime.settings.events.spacing_seconds)
        with self._wake_lock:
            self._settings, self._runtime = runtime.settings, runtime
            self._is_early_poll_scheduled = self._is_answer_cycle_scheduled = False
        self._schedule_work(runtime)
        for source in runtime.brokers:
            source.start()

    def _start_server(self, settings: Settings, predecessor: HttpServer | None = None) -> HttpServer:
        events = self._on_webhook_event if settings.events.webhook else None
        http, exchange, question = settings.publish.http, self._look_up_pseudonyms, self._explain_job
        server = build_http_server(
            http,
            self.build_server_state,
            self._registry,
            look_up_pseudonyms=exchange,
            explain_job=question,
            on_event=events,
        )
        server.start(predecessor=predecessor)
        return server

    def _build_event_listener(
        self, settings: Settings, pseudonym_store: PseudonymStore | None
    ) -> EventListener | None:
        """What hears events, where some are configured."""
        events = settings.events
        if not (events.webhook or events.stomp):
            return None
        return EventListener(
            self._event_metrics,
            self._schedule_early_poll,
            clock=system_clock,
            monotonic=time.monotonic,
            names_of=job_name_lookup(pseudonym_store.pseudonymizer if pseudonym_store else None),
            events_per_second=events.per_second,
            max_delay=timedelta(seconds=events.late_seconds),
            catalogue_patterns=events.catalogues,
        )

    def _on_webhook_event(self, body: bytes) -> RejectReason | None:
        """An event that came to our server, which asked for a token."""
        return self._event_listener.on_event("webhook", body) if self._event_listener else None

    def _look_up_pseudonyms(self, dids: Iterable[Did]) -> Mapping[Did, Did]:
        """What jobs call *dids*; see :class:`PseudonymStore`. Without private datasets all stay as they are."""
        register = self._parts.pseudonym_store if self._parts else None
        if register is None:
            return {did: did for did in dids}
        before = register.problem
        names = register.exchange(dids)
        if register.problem not in {None, before}:
            _log.error("private", why=register.problem)
        return names

    def _save_private_problem(self) -> None:
        """Keep for ``hydrator status`` and ``check`` why names of private datasets may be lost."""
        register = self._parts.pseudonym_store if self._parts else None
        trouble = register.problem if register else None
        if trouble != self._saved_private_problem:
            with contextlib.suppress(StateError):  # told with the state, which cannot be saved either
                self._store.save_report("private", {"trouble": trouble} if trouble else {})
                self._saved_private_problem = trouble

    def _explain_job(self, cluster: int, proc: int | None, schedd: str | None) -> list[RenderedAnswer]:
        """See :func:`hydrator.daemon.explain.explain_job`; called by threads of the HTTP server."""
        return explain_job(self._settings, self._report, cluster, proc, schedd)

    def _build_scheduler(self) -> BackgroundScheduler:
        names = (
            "default",
            "demand",
            *(name for each in self._background_workers for name in each.EXECUTOR_NAMES),
        )
        return DaemonScheduler(
            executors={name: ThreadPoolExecutor(1) for name in names},  # no cycle waits for the audit
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone="UTC",
        )

    def _schedule_work(self, runtime: Runtime) -> None:
        settings, scheduler, fence = runtime.settings, runtime.scheduler, runtime.fence
        now = system_clock()
        scheduler.add_job(
            self._run_poll,
            "interval",
            [runtime],
            seconds=settings.daemon.poll_seconds,
            id="poll",
            next_run_time=now,
        )
        every, asked = settings.demand.ask_seconds, [self._look_up_new_demand, runtime]
        scheduler.add_job(
            self._run_with_demand, "interval", asked, seconds=every, id="demand", executor="demand"
        )
        self._audit_tasks.schedule(
            scheduler, fence, settings.audit, runtime.parts.audit_runner, runtime.parts.misses
        )
        self._maintenance_tasks.schedule(scheduler, fence, settings, runtime.parts, runtime.reconciler)
        self._heartbeat.schedule(scheduler, fence, settings.standby, runtime.parts.peers)
        scheduler.start()

    def _run_turn(self, work: Callable[[Reconciler], object], runtime: Runtime) -> None:
        """Do *work* as a turn of *generation*, unless a reload has replaced that."""
        with contextlib.suppress(SupersededByReload), runtime.fence.turn("cycle"), self._number_turn():
            if self._clock_steps.pending_step and not self._is_clock_step_logged:
                return  # the main thread is about to begin again, by the clock of now
            work(runtime.reconciler)

    def _run_with_demand(
        self, work: Callable[[Reconciler, _ScheddAnswers], object], runtime: Runtime
    ) -> None:
        """Ask the schedds while cycles go on; then do *work* with what they said, as :meth:`_count_from_rows`."""
        with contextlib.suppress(SupersededByReload), runtime.fence.turn("demand"):
            answers = runtime.reconciler.query_schedds()
            self._run_turn(lambda cycle: work(cycle, answers), runtime)

    def _run_poll(self, runtime: Runtime) -> None:
        """Poll as :meth:`_count_from_rows`; before the first cycle, ask for demand."""
        if self._report is None:
            self._run_with_demand(self._try_apply_demand, runtime)
        self._run_turn(self._poll, runtime)

    def _on_late_answer(self, fence: Fence) -> None:
        """Have a cycle take the answer of a catalogue that the last one did not wait for; from any thread."""
        with self._wake_lock:
            generation = self._runtime
            if self._is_answer_cycle_scheduled or generation is None or self._stopping.is_set():
                return
            if generation.fence is not fence:  # it came to parts that were replaced
                return
            self._is_answer_cycle_scheduled = True
            turn = (self._run_answer_cycle, generation)
            generation.scheduler.add_job(self._run_turn, "date", turn, run_date=system_clock())

    def _run_answer_cycle(self, reconciler: Reconciler) -> None:
        """Run a cycle for what came; nobody is asked again but about what was not wanted then."""
        with reconciler.fence.step(), self._wake_lock:
            self._is_answer_cycle_scheduled = False
        again, self._should_poll_again = self._should_poll_again, False
        self._run_guarded("cycle", lambda: self._run_cycle(reconciler, due=again))

    def _schedule_early_poll(self) -> None:
        """Poll before it is time, once the last cycle is long enough ago; from any thread."""
        with self._wake_lock:
            generation = self._runtime
            if self._is_early_poll_scheduled or generation is None or self._stopping.is_set():
                return
            self._is_early_poll_scheduled = True
            due = system_clock() + timedelta(seconds=self._poll_throttle.delay_seconds(time.monotonic()))
            turn = (self._run_early_poll, generation)
            generation.scheduler.add_job(self._run_turn, "date", turn, run_date=due)

    def _run_early_poll(self, reconciler: Reconciler) -> None:
        """A poll that events brought forward, unless another poll has looked at everything since."""
        with reconciler.fence.step(), self._wake_lock:
            self._is_early_poll_scheduled = False
        if self._event_listener is None or not self._event_listener.is_poll_due or self._report is None:
            return
        if self._poll_throttle.is_throttled(time.monotonic()):  # an event came while a poll was under way
            self._schedule_early_poll()
            return
        self._event_metrics.early_polls.inc()
        self._run_guarded("cycle", lambda: self._run_cycle(reconciler))
        # who was being asked before the event came is asked again when that is over
        self._should_poll_again = any(
            since < self._report.started_at for since in self._report.pending_since.values()
        )

    @contextlib.contextmanager
    def _number_turn(self) -> Iterator[None]:
        """What is logged meanwhile has the number of this turn, from 1 on since the start."""
        self._turn_count += 1
        with structlog.contextvars.bound_contextvars(cycle=self._turn_count):
            yield

    def _look_up_new_demand(self, reconciler: Reconciler, answers: _ScheddAnswers) -> None:
        """Look up at once what nobody wanted before, since a job waits for it."""
        if self._try_apply_demand(reconciler, answers):
            self._run_guarded("cycle", lambda: self._run_cycle(reconciler, due=False))

    def _poll(self, reconciler: Reconciler) -> None:
        unknown = self._report is None and reconciler.demand_error
        if unknown and not reconciler.state.demand.entries and not reconciler.demand.entries:
            return  # nothing is known of what is wanted: publishing now would empty every ad
        self._run_guarded("cycle", lambda: self._run_cycle(reconciler))

    def _try_apply_demand(self, reconciler: Reconciler, answers: _ScheddAnswers) -> bool:
        return self._run_guarded("demand", lambda: self._apply_demand(reconciler, answers))

    def _apply_demand(self, reconciler: Reconciler, answers: _ScheddAnswers) -> bool:
        new = reconciler.apply_demand(answers)
        with reconciler.fence.step():
            self._state = reconciler.saved_state
            self._log_demand_failures(reconciler)
        if new:
            _log.info("demand", new=len(new), first=min(new))
        return bool(new)

    def _log_demand_failures(self, reconciler: Reconciler) -> None:
        """Log who could not be asked, once until that changes."""
        unasked = {
            schedd: a.reason for schedd, a in reconciler.schedd_answers.items() if isinstance(a, Unseen)
        }
        trouble = {"collector": reconciler.demand_error} if reconciler.demand_error else unasked
        if trouble == self._demand_failures:
            return
        self._demand_failures = trouble
        if trouble:
            _log.warning("demand kept", unasked=trouble)
        else:
            _log.info("demand", unasked="nobody any more")

    def _run_cycle(self, reconciler: Reconciler, *, due: bool = True) -> bool:
        before = reconciler.state.memories
        told = self._event_listener.begin_poll() if self._event_listener and due else None
        if told:
            _log.debug("a poll that events asked for", datasets=len(told.dids), why=told.gap_reason)
        begun = time.monotonic()
        reconciler.should_publish = self._standby_reason is None
        try:
            report = reconciler.run(is_due=due)
        finally:
            seconds = time.monotonic() - begun
            if due:
                self._poll_throttle.record_poll(time.monotonic(), seconds)
        if due or self._polled_at is None:
            self._polled_at = report.started_at
        with reconciler.fence.step():
            self._record_cycle(reconciler, before, report, seconds)
        trim_heap()
        return True

    def _record_cycle(
        self,
        reconciler: Reconciler,
        previous_memories: Mapping[str, CatalogueMemory],
        report: CycleReport,
        seconds: float,
    ) -> None:
        """Take over what a cycle came to, and tell of it."""
        self._state, self._report = reconciler.state, report
        self._recent_changes = (*self._recent_changes, *report.history_entries)[-MAX_CHANGES:]
        self._run_isolated("events", lambda: self._compare_events(report, previous_memories))
        self._run_isolated("metrics", lambda: self._metrics.record_cycle(report, seconds))
        if (found := self._maintenance_tasks.credentials) != self._saved_credentials:
            with contextlib.suppress(StateError):  # told with the state, which cannot be saved either
                self._store.save_report("credentials", {"rows": credential_rows(found)})
                self._saved_credentials = found
        self._save_private_problem()
        self._run_isolated("the audit", lambda: self._update_audit_input(reconciler.state))
        for lie in report.evaluation.repeated_claims:
            _log.warning("lie", **false_claim_log_fields(lie))
        if self._parts and self._parts.client:
            self._metrics.count_child_restarts(self._parts.child_restarts)
        line = cycle_log_fields(report, seconds)
        new, ended = self._ongoing_failures.update(line)
        quiet = _log.info if line["changed"] or ended else _log.debug
        (_log.warning if new else quiet)("cycle", **line, **({"ended": ended} if ended else {}))
        self._service_manager.set_status(self._standby_reason or status_line(line))

    def _compare_events(self, report: CycleReport, previous_memories: Mapping[str, CatalogueMemory]) -> None:
        """Compare what the cycle saw with what events told; poll soon if one came meanwhile."""
        if self._event_listener:
            after = report.evaluation.state.memories
            self._event_listener.end_poll(
                report.demand.dids, previous_memories, after, self._polled_at or report.started_at
            )
            if self._event_listener.is_poll_due:
                self._schedule_early_poll()

    def _update_audit_input(self, state: ReconcileState) -> None:
        """Show the audit what is held true now."""
        if self._parts and self._parts.audit_runner:
            named = {site for memory in state.memories.values() for site in memory.sites}
            retired = frozenset(site for site in named if self._parts.policy.is_retired(site))
            self._parts.audit_runner.update(state.memories, state.audit, retired)

    def _run_isolated(self, part: str, work: Callable[[], None]) -> None:
        """Do *work* for one part after a cycle; its bug is its failure alone."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - what else follows a cycle goes on
            self._bugs.report(part, error)
        else:
            self._bugs.mark_resolved(part)

    def _run_guarded(self, task: str, work: Callable[[], bool]) -> bool:
        """Do *work*; a failure ends it, is counted and logged, and never ends the daemon."""
        self._watchdog.record_step(f"a {task} began")
        try:
            return work()
        except SupersededByReload:
            _log.debug(f"{task} of replaced parts ended")
        except HydratorError as error:
            _log.error(f"{task} failed", why=str(error))
            self._metrics.count_failed_cycle()
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._log_unexpected_error(task)
        finally:
            self._watchdog.record_step(f"a {task} ended")
        return False

    def _log_unexpected_error(self, task: str) -> None:
        """Log and count the exception at hand, which nobody foresaw."""
        if error := sys.exception():
            self._bugs.report(task, error)
        self._metrics.count_failed_cycle()

    def _reload(self) -> None:
        """Read the configuration again; what cannot be used changes nothing.

        New parts are built, and a server that moves listens, before the old ones are closed.
        """
        try:
            settings = self._load_settings()
            self._await_secrets(settings)
            fresh = self._build_runtime(settings)
            try:
                server = self._server_for(settings)
            except BaseException:
                self._close(fresh.parts)
                raise
        except HydratorError as error:
            problems = error.problems if isinstance(error, ConfigError) else (str(error),)
        except Exception as error:  # noqa: BLE001 - a bug must not end the daemon
            self._log_unexpected_error("reload")
            problems = (f"a bug: {type(error).__name__}; the log has its traceback",)
        else:
            self._replace(fresh, server)
            return
        self._report_reload(problems)
        _log.error("reload refused, the old configuration stays", problems=problems)

    def _server_for(self, settings: Settings) -> HttpServer | None:
        """The HTTP server that *settings* call for: the one there is, or a new one, which answers already."""
        http, now = settings.publish.http, self._settings
        if not http.enabled:
            return None
        if self._server and (http, settings.events.webhook) == (now.publish.http, now.events.webhook):
            return self._server
        return self._start_server(settings, self._server)

    def _await_secrets(self, settings: Settings) -> None:
        """Give somebody who is renewing a secret the time to end.

        Raises:
            ConfigError: a secret is still missing or empty.
        """
        until, told = time.monotonic() + _SECRET_WAIT_SECONDS, False
        while problems := find_unreadable_secrets(settings):
            if time.monotonic() > until:
                raise ConfigError(list(problems.values()))
            if not told:
                _log.warning("reload waits", problems=list(problems.values()))
                told = True
            time.sleep(0.1)

    def _replace(self, runtime: Runtime, server: HttpServer | None) -> None:
        """Have *fresh* and *server* work instead of what did, from the state that this left."""
        if old := self._runtime:
            self._retire(old)
            if old.settings.private != runtime.settings.private:
                self._report = None  # it may name what is private from now on
        self._continue_state(runtime.parts.pseudonym_store)
        self._server, ended = server, self._server
        self._activate(runtime)
        if old and old.parts.pseudonym_store and runtime.parts.pseudonym_store:
            runtime.parts.pseudonym_store.learn_from(old.parts.pseudonym_store)
        if ended and ended is not server:
            ended.stop()
        settings = runtime.settings
        configure_logs(settings.log.level, settings.log.format, redact=build_redactor(settings))
        self._ongoing_failures = OngoingFailures()  # what lasts is told anew
        self._report_reload(())
        _log.info("reloaded", http=self._server_url())

    def _retire(self, runtime: Runtime) -> None:
        """End *old*, also under a cycle: what it saves or sends now ends, and nothing more of it begins."""
        runtime.scheduler.shutdown(wait=False)
        ended = runtime.fence.close(_RELOAD_DRAIN_SECONDS)
        self._state = runtime.reconciler.saved_state
        for broker in runtime.brokers:
            broker.stop()
        closing = threading.Thread(target=self._close, args=[runtime.parts], name="close", daemon=True)
        closing.start()
        closing.join(_RELOAD_DRAIN_SECONDS)
        if not ended or closing.is_alive():
            _log.warning(
                "parts of the old configuration hang", why="what they wait for did not end; nothing uses them"
            )

    def _close(self, parts: Parts) -> None:
        """Let go of what *parts* hold, whatever goes wrong."""
        try:
            parts.close()
        except Exception as error:  # noqa: BLE001 - they are replaced, and a cycle may be using them
            _log.debug("parts did not close", why=f"{type(error).__name__}: {error}")

    def _report_reload(self, problems: Sequence[str]) -> None:
        """Say in metrics and for ``hydrator status`` whether the configuration is the one on disk."""
        self._metrics.set_reload_result(is_successful=not problems)
        told = {"at": to_unix(system_clock()), "problems": list(problems)} if problems else {}
        with contextlib.suppress(StateError):  # told with the state, which cannot be saved either
            self._store.save_report("reload", told)

    def _load_settings(self) -> Settings:
        fresh = load(self._config)
        if fresh.daemon.state_dir != self._settings.daemon.state_dir:
            raise ConfigError(["daemon.state_dir: needs a restart to change"])
        return fresh

    def _shut_down(self) -> None:
        """Stop: the cycle under way may end, within bounds."""
        self._stopping.set()
        ended = True
        if now := self._runtime:
            now.scheduler.shutdown(wait=False)
            for broker in now.brokers:
                broker.stop()
            ended = now.fence.drain(_CYCLE_DRAIN_SECONDS, "cycle")
            if ended:
                self._close(now.parts)
        if self._server:
            self._server.stop()
        if now:
            ended = now.fence.drain(_BACKGROUND_DRAIN_SECONDS) and ended
        _log.info("stopped")
        if not ended:
            # a thread hangs in somebody's library; the state on disk is whole, so nothing is lost
            self._store.close()
            os._exit(0)


def _hang_seconds(settings: Settings) -> float:
    """Seconds between two steps of the schedule after which it hangs; it waits for no catalogue."""
    return settings.daemon.poll_seconds + settings.daemon.hang_seconds

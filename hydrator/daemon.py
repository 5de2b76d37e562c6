"""``hydrator run``: the schedule, the signals, and one cycle at a time."""

import contextlib
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import CollectorRegistry

from . import __version__
from .asking import Telling
from .audit import By
from .auditing import Asked, Auditing
from .config import HttpOutlet, Settings, load
from .counting import count
from .coverage import coverage
from .credentials import Credential, credential_rows
from .cycle import Cycle, Report, Rules
from .desiring import DesiredTelling, Desiring
from .errors import ConfigError, HydratorError, PoolError, StateError
from .events import Drop
from .explaining import explained
from .hearing import EventMetrics, Hearing
from .history import Entry
from .lasting import Lasting
from .listener import listener
from .memory import give_back, share_arenas
from .misses import MISSES_ATTRIBUTE, misses
from .model import Did, Unseen, unix
from .orders import Orders
from .page import MOST_CHANGES
from .ports import Door, EventSource, History, Merged, Merger, Misses, Peers, Slots
from .server import Server
from .snapshot import sizes_of
from .standing import Standing
from .store import Store
from .supervision import Progress, Supervisor
from .telemetry import Metrics, configure_logs, cycle_line, lie_line, status_line
from .veiled import veiled_state
from .view import View
from .wiring import Parts, assemble, brokers, called, credentials, redactor, register_of, system_clock

_log = structlog.get_logger("hydrator")
_PATIENCE = timedelta(seconds=15)
_CREDENTIALS_SECONDS = 60
_FIRST_LOOK = timedelta(seconds=10)
"""After the start, slots are looked at once a first cycle may have ended."""
_AUDIT_PATIENCE = 2.0
"""Seconds that a question of the audit may still take when we are told to stop."""

Event = Literal["stop", "reload"]


def run(config: Path) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reads *config* again.

    Raises:
        ConfigError: *config*, or the address to listen on, cannot be used.
        StateError: another daemon owns the state, or it cannot be written.
    """
    share_arenas()
    settings = load(config)
    configure_logs(settings.log.level, settings.log.format, redact=redactor(settings))
    with Store.open_to_write(settings.daemon.state_dir) as store:
        daemon = Daemon(config, settings, store, Supervisor(os.environ))
        if store.lost:
            _log.error("state lost", why=store.lost)
        signal.signal(signal.SIGTERM, lambda *_: daemon.tell("stop"))
        signal.signal(signal.SIGINT, lambda *_: daemon.tell("stop"))
        signal.signal(signal.SIGHUP, lambda *_: daemon.tell("reload"))
        daemon.serve()


class Daemon:
    """One daemon over one state: it owns the schedule, the HTTP server and the parts."""

    def __init__(self, config: Path, settings: Settings, store: Store, supervisor: Supervisor) -> None:
        self._config = config
        self._supervisor = supervisor
        self._progress = Progress(_allowance(settings))
        self._hung = False
        self._settings = settings
        self._store = store
        self._state = store.load()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._turns = 0
        self._registry = CollectorRegistry()
        self._metrics = Metrics(self._registry, __version__)
        self._report: Report | None = None
        self._changes: tuple[Entry, ...] = ()
        self._unasked: dict[str, str] = {}
        self._lasting = Lasting()
        self._unaudited: set[tuple[str, By]] = set()
        self._unmerged: set[str] = set()
        self._desired_telling = DesiredTelling(self._registry)
        self._ending = threading.Event()
        self._event_metrics = EventMetrics(self._registry)
        self._hearing: Hearing | None = None
        self._brokers: Sequence[EventSource] = ()
        self._waking = threading.Lock()
        self._woken = False
        self._rested = 0.0
        self._asking = {
            name: threading.Lock()
            for name in (
                "files",
                "probe",
                "misses",
                "jobs",
                "slots",
                "credentials",
                "merge",
                "standing",
                "desired",
            )
        }
        self._standing: Standing | None = None
        self._credentials: list[Credential] = []
        self._credentials_kept: list[Credential] | None = None
        self._ending_credentials: set[str] = set()
        self._parts: Parts | None = None
        self._server: Server | None = None
        self._scheduler: BackgroundScheduler | None = None
        self._cycle: Cycle | None = None

    def tell(self, event: Event) -> None:
        """Ask for something; safe from a signal handler and from any thread."""
        self._events.put(event)

    def serve(self) -> None:
        """Run until told to stop."""
        self._start()
        _log.info(
            "running", version=__version__, http=self._url(), state=str(self._settings.daemon.state_dir)
        )
        self._supervisor.ready()
        while self._next() == "reload":
            self._supervisor.reloading()
            self._reload()
            self._supervisor.ready()
        self._supervisor.stopping()
        self._end()

    def _next(self) -> Event:
        """What we are told next; until then the watchdog hears of us, unless the schedule hangs."""
        while True:
            self._look()
            try:
                return self._events.get(timeout=self._supervisor.patience)
            except queue.Empty:
                pass

    def _look(self) -> None:
        """Tell the watchdog that we live, unless a cycle hangs; say so in the log, once."""
        stuck = self._progress.stuck()
        if stuck is None:
            self._supervisor.alive()
        elif not self._hung:
            _log.error("hung", why=stuck)
            self._supervisor.status(f"hung: {stuck}")
        self._hung = stuck is not None

    def view(self) -> View:
        """What the HTTP server answers from, at this moment."""
        parts, report = self._parts, self._report
        board = parts.board if parts else None
        ready = None if report or self._state.ads else "the first cycle has not ended yet"
        ready = self._stands_by or ready
        return View(
            ads=board.ads() if board and not self._stands_by else {},
            snapshot=report.thought.snapshot if report else None,
            demand=report.demand if report else None,
            ready=ready,
            now=system_clock(),
            heard=board.heard() if board else {},
            held=report.held if report else {},
            stuck=self._progress.stuck(),
            waiting=report.thought.state.held if report else {},
            bound=self._settings.daemon.bound,
            changes=self._changes,
        )

    @property
    def _stands_by(self) -> str | None:
        """Why we publish nothing, where another daemon does."""
        return self._standing.why if self._standing else None

    def _url(self) -> str | None:
        return self._server.url if self._server else None

    def _door(self) -> Door | None:
        return self._server.door if self._server else None

    def _start(self) -> None:
        """Put the parts together; what was published last is served before anything is asked."""
        self._progress.restart(_allowance(self._settings))
        http = self._settings.publish.http
        board = self._parts.board if self._parts else None
        door = self._door if http.enabled else None
        register = register_of(self._settings)
        if register:
            self._state = veiled_state(self._state, register.veil)
            self._store.forget_history(register.veil.privacy.names_private)
        with contextlib.suppress(StateError):  # told by who needs it more
            self._changes = tuple(self._store.history(MOST_CHANGES))
        self._parts = assemble(self._settings, system_clock, board=board, door=door, register=register)
        if self._parts.board and board is None:
            kept = [ad for ad in self._state.ads.values() if not self._parts.rules.retires(ad.site)]
            self._parts.board.put(kept, system_clock())
        self._hearing = self._hearing_of(self._settings)
        sources = brokers(self._settings, self._hearing) if self._hearing else ()
        if http.enabled and self._server is None:
            self._server = self._listening(http)
        orders = Orders(self._settings.daemon.state_dir)
        orders.prepare()
        self._schedule(self._parts.cycle(self._state, self._store, system_clock, orders))
        self._brokers = sources
        for source in sources:
            source.start()

    def _listening(self, http: HttpOutlet) -> Server:
        events = self._posted if self._settings.events.webhook else None
        server = listener(
            http, self.view, self._registry, exchange=self._exchange, question=self._explain, events=events
        )
        server.start()
        return server

    def _hearing_of(self, settings: Settings) -> Hearing | None:
        """What hears events, where some are configured."""
        events = settings.events
        if not (events.webhook or events.stomp):
            return None
        register = self._parts.register if self._parts else None
        return Hearing(
            self._event_metrics,
            self._wake,
            clock=system_clock,
            seconds=time.monotonic,
            called=called(register.veil if register else None),
            per_second=events.per_second,
            late=timedelta(seconds=events.late_seconds),
            tells=events.catalogues,
        )

    def _posted(self, body: bytes) -> Drop | None:
        """An event that came to our server, which asked for a token."""
        return self._hearing.hear("webhook", body) if self._hearing else None

    def _exchange(self, dids: Iterable[Did]) -> Mapping[Did, Did]:
        """What jobs call *dids*; see :class:`Register`. Without private datasets all stay as they are."""
        register = self._parts.register if self._parts else None
        if register is None:
            return {did: did for did in dids}
        before = register.trouble
        names = register.exchange(dids)
        if register.trouble not in {None, before}:
            _log.error("private", why=register.trouble)
        return names

    def _explain(self, cluster: int, proc: int | None, schedd: str | None) -> list[Telling]:
        """See :func:`hydrator.explaining.explained`; called by threads of the HTTP server."""
        return explained(self._settings, self._report, cluster, proc, schedd)

    def _schedule(self, cycle: Cycle) -> None:
        names = ("default", *self._asking)
        scheduler = BackgroundScheduler(
            executors={name: ThreadPoolExecutor(1) for name in names},  # no cycle waits for the audit
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone="UTC",
        )
        daemon, demand = self._settings.daemon, self._settings.demand
        now = system_clock()
        scheduler.add_job(
            self._poll, "interval", [cycle], seconds=daemon.poll_seconds, id="poll", next_run_time=now
        )
        scheduler.add_job(self._ask, "interval", [cycle], seconds=demand.ask_seconds, id="demand")
        self._schedule_audit(scheduler)
        if self._parts and self._parts.history:
            every = self._settings.report.count_seconds
            job = (self._parts.history, cycle)
            scheduler.add_job(self._count_jobs, "interval", job, seconds=every, id="jobs", executor="jobs")
        scheduler.add_job(
            self._look_at_credentials,
            "interval",
            [self._parts],
            seconds=_CREDENTIALS_SECONDS,
            id="credentials",
            executor="credentials",
            next_run_time=now + timedelta(seconds=min(daemon.poll_seconds, 5)),
        )
        if self._parts and self._parts.merger:
            every = self._settings.publish.merge.interval_seconds
            given = (self._parts.merger, self._parts.rules)
            scheduler.add_job(self._merge, "interval", given, seconds=every, id="merge", executor="merge")
        if not (self._parts and self._parts.desiring):
            self._desired_telling.forget()
        else:
            every = self._settings.publish.desired_sites.interval_seconds
            told = (self._parts.desiring, self._parts.rules)
            scheduler.add_job(self._desire, "interval", told, seconds=every, id="desired", executor="desired")
        self._schedule_standing(scheduler)
        with self._waking:
            self._scheduler, self._cycle, self._woken = scheduler, cycle, False
        if self._parts and self._parts.slots:
            every = self._settings.report.slots_seconds
            look = (self._parts.slots,)
            scheduler.add_job(
                self._look_at_slots, "interval", look, seconds=every, id="slots", executor="slots",
                next_run_time=now + min(_FIRST_LOOK, timedelta(seconds=every)),
            )  # fmt: skip
        scheduler.start()

    def _wake(self) -> None:
        """Poll before it is time, once the last cycle is long enough ago; from any thread."""
        with self._waking:
            scheduler, cycle = self._scheduler, self._cycle
            if self._woken or scheduler is None or self._ending.is_set():
                return
            self._woken = True
            wait = max(0.0, self._rested - time.monotonic())
            due = system_clock() + timedelta(seconds=wait)
            scheduler.add_job(self._early, "date", [scheduler, cycle], run_date=due)

    def _early(self, scheduler: BackgroundScheduler, cycle: Cycle) -> None:
        """A poll that events brought forward, unless another poll has looked at everything since."""
        with self._turn, self._numbered():
            with self._waking:
                if self._scheduler is not scheduler:  # a reload started another, which polled at once
                    return
                self._woken = False
            if self._hearing is None or not self._hearing.waiting or self._report is None:
                return
            if self._rested > time.monotonic():  # an event came while a poll was under way
                self._wake()
                return
            self._event_metrics.early.inc()
            self._careful("cycle", lambda: self._cycled(cycle))

    def _schedule_standing(self, scheduler: BackgroundScheduler) -> None:
        """Three signs of life while one is waited for; in its own thread, since a cycle may take long."""
        settings, parts = self._settings.standby, self._parts
        if not (parts and parts.peers):
            self._standing = None
            self._metrics.leads(yes=True)
            return
        name, after = settings.name or socket.gethostname(), timedelta(seconds=settings.after_seconds)
        before = self._standing
        if before is None or (before.name, before.after) != (name, after):
            self._standing = before = Standing(name, after, time.monotonic, lambda: unix(system_clock()))
        self._metrics.leads(yes=before.leads)
        scheduler.add_job(
            self._beat,
            "interval",
            [before, parts.peers, scheduler],
            seconds=settings.after_seconds / 3,
            id="standing",
            executor="standing",
            next_run_time=system_clock(),
        )

    def _beat(self, standing: Standing, peers: Peers, scheduler: BackgroundScheduler) -> None:
        """Say that we live, unless we hang, and hear whether it is our turn to publish, or no longer."""
        if self._progress.stuck():
            return
        try:
            with self._asking["standing"]:
                changed = standing.hear(peers.beat(standing.name, standing.told))
        except PoolError as error:
            _log.debug("no sign of life", why=str(error))
            return
        if changed:
            self._metrics.leads(yes=standing.leads)
            _log.warning("publishes from now on" if standing.leads else "stands by", why=standing.why)
            if standing.leads and not self._ending.is_set():
                with contextlib.suppress(JobLookupError):
                    scheduler.modify_job("poll", next_run_time=system_clock())

    def _schedule_audit(self, scheduler: BackgroundScheduler) -> None:
        """One question to a catalogue at a time, and one look at the storage, each in its own thread."""
        parts, settings = self._parts, self._settings.audit
        if not parts or not parts.auditing:
            return
        audit = parts.auditing
        pace = max(
            1.0, settings.calls_per_second
        )  # so many calls a tick, and not more than one tick a second
        self._again(scheduler, "files", pace / settings.calls_per_second, audit.ask, round(pace))
        if audit.probes:
            self._again(scheduler, "probe", 60 / settings.probes_per_minute, audit.probe, 1)
        if parts.misses:
            every = settings.misses_seconds
            job = (audit, parts.misses)
            scheduler.add_job(self._hear, "interval", job, seconds=every, id="misses", executor="misses")

    def _again(
        self,
        scheduler: BackgroundScheduler,
        executor: str,
        seconds: float,
        question: Callable[[], Asked | None],
        times: int,
    ) -> None:
        """Ask *question* every so many *seconds*, or when it was answered, if that takes longer."""
        due = system_clock() + timedelta(seconds=seconds)

        def ask() -> None:
            nonlocal due
            with self._asking[executor]:
                self._audit(question, times)
            ours = self._scheduler is scheduler  # a reload starts another
            if ours and not self._ending.is_set():
                due = max(due + timedelta(seconds=seconds), system_clock())
                scheduler.add_job(ask, "date", run_date=due, executor=executor)

        scheduler.add_job(ask, "date", run_date=due, executor=executor)

    def _hear(self, audit: Auditing, reports: Misses) -> None:
        """Ask what jobs did not find; it is looked into soon. Who does not answer is asked again."""
        try:
            with self._asking["misses"]:
                answers = reports.reported()
        except PoolError as error:
            _log.debug("misses not heard", why=str(error))
            return
        jobs = [job for answer in answers.values() if not isinstance(answer, Unseen) for job in answer]
        new = audit.suspect(miss for job in jobs for miss in misses({MISSES_ATTRIBUTE: job}))
        for miss in new:
            _log.info("a job missed a dataset", dataset=miss.did, site=miss.site, when=miss.when.isoformat())
        self._metrics.missed(new)

    def _look_at_credentials(self, parts: Parts) -> None:
        """When does what we show to others end? Whoever must renew it is told once that it is time."""
        try:
            with self._asking["credentials"]:
                found = credentials(self._settings, parts)
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._bug("looking at credentials")
            return
        self._credentials = found
        self._metrics.credentials(found)
        now = system_clock()
        ending = {one.name for one in found if one.soon(now)}
        for one in found:
            if one.name in ending - self._ending_credentials:
                _log.warning("credential", name=one.name, why=one.told(now), todo=one.todo)
        self._ending_credentials = ending

    def _look_at_slots(self, slots: Slots) -> None:
        """Count which slots carry what we publish; what cannot be asked keeps what was counted last."""
        report = self._report
        if report is None:
            return
        try:
            with self._asking["slots"]:
                counted = coverage(slots.carried(), report.thought.ads)
        except PoolError as error:
            _log.debug("slots not counted", why=str(error))
            return
        self._metrics.covered(counted)

    def _count_jobs(self, history: History, cycle: Cycle) -> None:
        """Count what became of jobs since the last time; who does not answer is asked again."""
        try:
            with self._asking["jobs"], Store.open_to_read(self._settings.daemon.state_dir) as store:
                sizes = sizes_of(cycle.state.memories)
                counted = count(history, store.history, sizes, self._settings.daemon.default_scope)
        except HydratorError as error:
            _log.debug("ended jobs not counted", why=str(error))
            return
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._bug("counting ended jobs")
            return
        if counted.unasked:
            _log.debug("ended jobs not counted", unasked=counted.unasked)
        if counted.cut:
            _log.warning("ended jobs counted in part: more ended than one answer may have", at=counted.cut)
        self._metrics.ended(counted)

    def _merge(self, merger: Merger, rules: Rules) -> None:
        """Have slots without a hook say what their sites' ads say; a failure never ends the daemon."""
        if self._stands_by:
            return
        ads = {site: ad for site, ad in self._state.ads.items() if not rules.retires(site)}
        try:
            with self._asking["merge"]:
                done = merger.turn(ads, rules.retires)
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._bug("merge")
            return
        self._metrics.merged(done)
        for collector, merged in done.items():
            self._tell_unmerged(collector, merged)

    def _desire(self, desiring: Desiring, rules: Rules) -> None:
        """Keep DESIRED_Sites of queued jobs that ask for it; a failure never ends the daemon."""
        ads = {site: ad for site, ad in self._state.ads.items() if not rules.retires(site)}
        if self._stands_by or not (ads or self._report):  # of a lost state nothing follows
            return
        try:
            with self._asking["desired"]:
                done = desiring.turn(ads)
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._bug("keeping desired sites")
            return
        self._desired_telling.tell(done)

    def _tell_unmerged(self, collector: str, merged: Merged) -> None:
        """Log why slots stay without their attributes, once until some show them again."""
        if merged.error and collector not in self._unmerged:
            _log.error("slots not merged", collector=collector, why=merged.error)
            self._unmerged.add(collector)
        elif collector in self._unmerged and merged.confirmed and not merged.error:
            _log.info("slots are merged again", collector=collector)
            self._unmerged.discard(collector)

    def _audit(self, question: Callable[[], Asked | None], times: int) -> None:
        """Ask *question* so often; nothing that goes wrong in it is a verdict, or ends the daemon."""
        for _ in range(times):
            if self._ending.is_set():
                return
            try:
                asked = question()
            except Exception:  # noqa: BLE001 - a bug must not end the daemon
                self._bug("audit")
                return
            if asked is None:
                return
            self._metrics.audited(asked)
            if asked.missed:
                came = {"why": asked.error} if asked.error else {"true": asked.true, "false": asked.false}
                _log.info("looked at what a job missed", dataset=asked.missed, by=asked.by, **came)
            self._tell_unaudited(asked)

    def _tell_unaudited(self, asked: Asked) -> None:
        """Log that the audit gets no answers, once until it gets some."""
        key = (asked.catalogue, asked.by)
        if asked.error and key not in self._unaudited:
            _log.warning("audit gets no answer", catalogue=asked.catalogue, by=asked.by, why=asked.error)
            self._unaudited.add(key)
        elif not asked.error and key in self._unaudited:
            _log.info("audit gets answers again", catalogue=asked.catalogue, by=asked.by)
            self._unaudited.discard(key)

    @contextlib.contextmanager
    def _numbered(self) -> Iterator[None]:
        """What is logged meanwhile has the number of this turn, from 1 on since the start."""
        self._turns += 1
        with structlog.contextvars.bound_contextvars(cycle=self._turns):
            yield

    def _ask(self, cycle: Cycle) -> None:
        """Ask for demand; what nobody wanted before is looked up at once, since a job waits for it."""
        with self._turn, self._numbered():
            if self._careful("demand", lambda: self._asked(cycle)):
                self._careful("cycle", lambda: self._cycled(cycle))

    def _poll(self, cycle: Cycle) -> None:
        with self._turn, self._numbered():
            if self._report is None:
                self._careful("demand", lambda: self._asked(cycle))
                if cycle.demand_error and not cycle.state.demand.wants and not cycle.demand.wants:
                    return  # nothing is known of what is wanted: publishing now would empty every ad
            self._careful("cycle", lambda: self._cycled(cycle))

    def _asked(self, cycle: Cycle) -> bool:
        new = cycle.ask_demand()
        self._state = cycle.state
        self._tell_unasked(cycle)
        if new:
            _log.info("demand", new=len(new), first=min(new))
        return bool(new)

    def _tell_unasked(self, cycle: Cycle) -> None:
        """Log who could not be asked, once until that changes."""
        unasked = {schedd: a.reason for schedd, a in cycle.schedds.items() if isinstance(a, Unseen)}
        trouble = {"collector": cycle.demand_error} if cycle.demand_error else unasked
        if trouble == self._unasked:
            return
        self._unasked = trouble
        if trouble:
            _log.warning("demand kept", unasked=trouble)
        else:
            _log.info("demand", unasked="nobody any more")

    def _cycled(self, cycle: Cycle) -> bool:
        before = cycle.state.memories
        due = self._hearing.begin() if self._hearing else None
        if due:
            _log.debug("a poll that events asked for", datasets=len(due.dids), why=due.why)
        begun = time.monotonic()
        cycle.publishes = self._stands_by is None
        try:
            report = cycle.run()
        finally:
            seconds = time.monotonic() - begun
            # events never let us ask more than half of the time
            self._rested = time.monotonic() + max(seconds, self._settings.events.spacing_seconds)
        self._state, self._report = cycle.state, report
        self._changes = (*self._changes, *report.entries)[-MOST_CHANGES:]
        if self._hearing:
            self._hearing.polled(report.demand.dids, before, cycle.state.memories, report.at)
            if self._hearing.waiting:  # an event came meanwhile
                self._wake()
        self._metrics.record(report, seconds)
        if (found := self._credentials) != self._credentials_kept:
            with contextlib.suppress(StateError):  # told with the state, which cannot be saved either
                self._store.save_report("credentials", {"rows": credential_rows(found)})
                self._credentials_kept = found
        if self._parts and self._parts.auditing:
            named = {site for memory in cycle.state.memories.values() for site in memory.sites}
            retired = frozenset(site for site in named if self._parts.rules.retires(site))
            self._parts.auditing.look(cycle.state.memories, cycle.state.audit, retired)
        for lie in report.thought.lies:
            _log.warning("lie", **lie_line(lie))
        if self._parts and self._parts.client:
            self._metrics.child_restarts(self._parts.client.restarts)
        line = cycle_line(report, seconds)
        new, ended = self._lasting.heard(line)
        quiet = _log.info if line["changed"] or ended else _log.debug
        (_log.warning if new else quiet)("cycle", **line, **({"ended": ended} if ended else {}))
        self._supervisor.status(self._stands_by or status_line(line))
        give_back()
        return True

    def _careful(self, what: str, work: Callable[[], bool]) -> bool:
        """Do *work*; a failure ends it, is counted and logged, and never ends the daemon."""
        self._progress.step(f"a {what} began")
        try:
            return work()
        except HydratorError as error:
            _log.error(f"{what} failed", why=str(error))
            self._metrics.failed()
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._bug(what)
        finally:
            self._progress.step(f"a {what} ended")
        return False

    def _bug(self, what: str) -> None:
        """Log and count the exception at hand, which nobody foresaw."""
        _log.exception(f"{what} failed: this is a bug, please report it")
        self._metrics.failed()

    def _reload(self) -> None:
        try:
            fresh = self._fresh_settings()
        except ConfigError as error:
            _log.error("reload refused, the old configuration stays", problems=error.problems)
            return
        self._quiesce()
        old, self._settings = self._settings, fresh
        try:
            moved = (fresh.publish.http, fresh.events.webhook) != (old.publish.http, old.events.webhook)
            if self._server and moved:
                self._server.stop()
                self._server = None
            self._start()
        except ConfigError as error:
            _log.error("reload failed, back to the old configuration", problems=error.problems)
            self._settings = old
            self._start()
            return
        configure_logs(fresh.log.level, fresh.log.format, redact=redactor(fresh))
        self._lasting = Lasting()  # what lasts is told anew
        _log.info("reloaded", http=self._url())

    def _fresh_settings(self) -> Settings:
        fresh = load(self._config)
        if fresh.daemon.state_dir != self._settings.daemon.state_dir:
            raise ConfigError(["daemon.state_dir: needs a restart to change"])
        return fresh

    def _quiesce(self) -> bool:
        """Start no more cycles and wait for the one under way; False when it does not end."""
        for broker in self._brokers:
            broker.stop()
        self._brokers = ()
        if self._scheduler:
            self._scheduler.shutdown(wait=False)
        ended = self._turn.acquire(timeout=_PATIENCE.total_seconds())
        if ended:
            self._turn.release()
            if self._parts:
                self._parts.close()
        return ended

    def _end(self) -> None:
        self._ending.set()
        ended = self._quiesce()
        if self._server:
            self._server.stop()
        ended = all(asking.acquire(timeout=_AUDIT_PATIENCE) for asking in self._asking.values()) and ended
        _log.info("stopped")
        if not ended:
            # a thread hangs in somebody's library; the state on disk is whole, so nothing is lost
            self._store.close()
            os._exit(0)


def _allowance(settings: Settings) -> float:
    """Seconds between two steps of the schedule after which it hangs."""
    polls = [getattr(source, "deadline_seconds", 0.0) for source in settings.catalogue]
    return settings.daemon.poll_seconds + max(polls, default=0.0) + settings.daemon.hang_seconds

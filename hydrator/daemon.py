"""``hydrator run``: the schedule, the signals, and one cycle at a time."""

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import CollectorRegistry

from . import __version__
from .asking import Telling
from .beside import Beats, Chores, Now, Questions
from .config import HttpOutlet, Settings, load
from .credentials import Credential, credential_rows
from .cycle import Cycle, Report
from .errors import ConfigError, HydratorError, StateError
from .events import Drop, Pace
from .explaining import explained
from .hearing import EventMetrics, Hearing
from .history import Entry
from .lasting import Lasting
from .listener import listener
from .memory import give_back, share_arenas
from .model import Did, Unseen
from .orders import Orders
from .page import MOST_CHANGES
from .ports import Door, EventSource
from .server import Server
from .store import Store
from .supervision import Progress, Supervisor
from .telemetry import Metrics, configure_logs, cycle_line, lie_line, status_line
from .veiled import veiled_state
from .view import View
from .wiring import Parts, assemble, brokers, called, redactor, register_of, system_clock

_log = structlog.get_logger("hydrator")
_PATIENCE = timedelta(seconds=15)
_BESIDE_PATIENCE = 2.0
"""Seconds that a question beside the cycles may still take when we are told to stop."""

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
        self._ending = threading.Event()
        self._event_metrics = EventMetrics(self._registry)
        self._hearing: Hearing | None = None
        self._brokers: Sequence[EventSource] = ()
        self._waking = threading.Lock()
        self._woken = False
        self._pace = Pace(settings.events.spacing_seconds)
        self._beats = Beats(self._metrics, self._bug, self._progress.stuck, self._ending)
        self._questions = Questions(self._metrics, self._bug, self._ending)
        self._chores = Chores(self._metrics, self._bug, self._registry, self._now)
        self._beside = (self._beats, self._questions, self._chores)
        self._credentials_kept: list[Credential] | None = None
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
        return self._beats.stands_by

    def _now(self) -> Now:
        return Now(self._report, self._state.ads, self._stands_by)

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
        self._pace = Pace(self._settings.events.spacing_seconds)
        sources = brokers(self._settings, self._hearing) if self._hearing else ()
        if http.enabled and self._server is None:
            self._server = self._listening(http)
        orders = Orders(self._settings.daemon.state_dir)
        orders.prepare()
        self._schedule(self._parts, self._parts.cycle(self._state, self._store, system_clock, orders))
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

    def _schedule(self, parts: Parts, cycle: Cycle) -> None:
        names = ("default", *(name for each in self._beside for name in each.NAMES))
        scheduler = BackgroundScheduler(
            executors={name: ThreadPoolExecutor(1) for name in names},  # no cycle waits for the audit
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone="UTC",
        )
        settings = self._settings
        now = system_clock()
        scheduler.add_job(
            self._poll,
            "interval",
            [cycle],
            seconds=settings.daemon.poll_seconds,
            id="poll",
            next_run_time=now,
        )
        scheduler.add_job(self._ask, "interval", [cycle], seconds=settings.demand.ask_seconds, id="demand")
        self._questions.schedule(scheduler, settings.audit, parts.auditing, parts.misses)
        self._chores.schedule(scheduler, settings, parts, cycle)
        self._beats.schedule(scheduler, settings.standby, parts.peers)
        with self._waking:
            self._scheduler, self._cycle, self._woken = scheduler, cycle, False
        scheduler.start()

    def _wake(self) -> None:
        """Poll before it is time, once the last cycle is long enough ago; from any thread."""
        with self._waking:
            scheduler, cycle = self._scheduler, self._cycle
            if self._woken or scheduler is None or self._ending.is_set():
                return
            self._woken = True
            due = system_clock() + timedelta(seconds=self._pace.wait(time.monotonic()))
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
            if self._pace.rests(time.monotonic()):  # an event came while a poll was under way
                self._wake()
                return
            self._event_metrics.early.inc()
            self._careful("cycle", lambda: self._cycled(cycle))

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
            self._pace.polled(time.monotonic(), seconds)
        self._state, self._report = cycle.state, report
        self._changes = (*self._changes, *report.entries)[-MOST_CHANGES:]
        if self._hearing:
            self._hearing.polled(report.demand.dids, before, cycle.state.memories, report.at)
            if self._hearing.waiting:  # an event came meanwhile
                self._wake()
        self._metrics.record(report, seconds)
        if (found := self._chores.credentials) != self._credentials_kept:
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
        ended = all(each.ended(_BESIDE_PATIENCE) for each in self._beside) and ended
        _log.info("stopped")
        if not ended:
            # a thread hangs in somebody's library; the state on disk is whole, so nothing is lost
            self._store.close()
            os._exit(0)


def _allowance(settings: Settings) -> float:
    """Seconds between two steps of the schedule after which it hangs."""
    polls = [getattr(source, "deadline_seconds", 0.0) for source in settings.catalogue]
    return settings.daemon.poll_seconds + max(polls, default=0.0) + settings.daemon.hang_seconds

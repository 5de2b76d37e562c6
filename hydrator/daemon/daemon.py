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
from hydrator.diagnostics.credential_expiry import Credential, credential_rows
from hydrator.diagnostics.why.query import Telling
from hydrator.domain.bugs import Bugs
from hydrator.domain.errors import (
    ConfigError,
    Fenced,
    HydratorError,
    SecretMissing,
    StateError,
)
from hydrator.domain.model import Did, Queue, Unseen, unix
from hydrator.domain.ports import Door, EventSource
from hydrator.privacy.pseudonym_store import Register
from hydrator.privacy.wrappers import veiled_state
from hydrator.reconcile.ads.site_ads import no_room
from hydrator.reconcile.clock_step import StepWatch, moved_back, not_ahead
from hydrator.reconcile.history import Entry
from hydrator.reconcile.publish.fence import Fence
from hydrator.reconcile.reconciler import Cycle, Patience, Report
from hydrator.reconcile.snapshot.memory import Memory
from hydrator.server.http_server import Server
from hydrator.server.pages.overview import MOST_CHANGES
from hydrator.server.view import View
from hydrator.state.command_files import Orders
from hydrator.state.store import State, Store
from hydrator.wiring import (
    Parts,
    assemble,
    brokers,
    called,
    redactor,
    register_of,
    system_clock,
    unreadable_secrets,
)
from hydrator.wiring.http_server import listener

from .background import Beats, Chores, Now, Questions, Schedule
from .event_listener import EventMetrics, Hearing
from .event_queue import Drop, Pace
from .explain import explained
from .logs import Lasting
from .malloc import give_back, share_arenas
from .metrics import Metrics, configure_logs, cycle_line, lie_line, status_line
from .service_manager import Progress, Supervisor

_log = structlog.get_logger("hydrator")
_PATIENCE = 15.0
"""Seconds that a cycle may still take when the daemon is told to stop."""
_CYCLE_PATIENCE = Patience(
    polls=timedelta(seconds=3), shown=timedelta(seconds=10), sent=timedelta(seconds=30)
)
"""How long a cycle waits: healthy catalogues answer within it, and what comes later wakes the next cycle."""
_BESIDE_PATIENCE = 2.0
"""Seconds that a question beside the cycles may still take when we are told to stop."""
_STEP_PATIENCE = 10.0
"""Seconds that a reload waits for what the old parts save or send, and for their connections to end."""
_SECRET_PATIENCE = 5.0
"""Seconds that a reload waits for secret files that somebody is renewing."""

_CLOCK_SECONDS = 1.0
"""Seconds from one look at whether the wall clock was set to the next."""

Event = Literal["stop", "reload"]
_Asked = Mapping[str, Queue | Unseen] | str
"""What schedds want, or why they could not be named."""


def run(config: Path) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reads *config* again.

    Raises:
        ConfigError: *config*, or the address to listen on, cannot be used.
        SecretMissing: a file with a secret is missing or empty now.
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
        try:
            daemon.serve()
        except ConfigError as error:
            missing = [str(file) for file in unreadable_secrets(settings)]
            if all(any(file in problem for file in missing) for problem in error.problems):
                raise SecretMissing(error.problems) from error
            raise


@dataclass
class Generation:
    """All that works by one configuration, from its start until a reload or the end closes its fence."""

    settings: Settings
    parts: Parts
    cycle: Cycle
    fence: Fence
    scheduler: BackgroundScheduler
    hearing: Hearing | None
    brokers: Sequence[EventSource]


class Daemon:
    """One daemon over one state: it owns the schedule, the HTTP server and the parts."""

    def __init__(self, config: Path, settings: Settings, store: Store, supervisor: Supervisor) -> None:
        self._config = config
        self._supervisor = supervisor
        self._progress = Progress(_allowance(settings))
        self._hung = False
        self._settings = settings
        self._store = store
        self._state = self._loaded()
        self._clock_steps = StepWatch(system_clock, time.monotonic)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._turns = 0
        self._registry = CollectorRegistry()
        self._metrics = Metrics(self._registry, __version__)
        self._bugs = Bugs(self._metrics.bug)
        self._report: Report | None = None
        self._changes: tuple[Entry, ...] = ()
        self._unasked: dict[str, str] = {}
        self._lasting = Lasting()
        self._ending = threading.Event()
        self._event_metrics = EventMetrics(self._registry)
        self._waking = threading.Lock()
        self._woken = False
        self._answer_due = False
        self._again = False
        self._polled_at: datetime | None = None
        self._pace = Pace(settings.events.spacing_seconds)
        self._beats = Beats(self._metrics, self._bug, self._progress.stuck, self._ending)
        self._questions = Questions(self._metrics, self._bug, self._ending)
        self._chores = Chores(self._metrics, self._bug, self._registry, self._now)
        self._beside = (self._beats, self._questions, self._chores)
        self._credentials_kept: list[Credential] | None = None
        self._private_trouble: str | None = "not told yet"
        self._generation: Generation | None = None
        self._server: Server | None = None
        self._step_told = False

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

    def _loaded(self) -> State:
        """The state on disk, dated by the clock of now."""
        state, ahead = not_ahead(self._store.load(), system_clock(), self._settings.daemon.bound)
        if ahead:
            _log.warning(
                "state is dated in the future: the clock was set back", seconds=round(ahead.total_seconds())
            )
        return state

    def _next(self) -> Event:
        """What we are told next; until then the watchdog hears of us, unless the schedule hangs."""
        while True:
            self._look()
            until = time.monotonic() + self._supervisor.patience
            while (left := until - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    return self._events.get(timeout=min(left, _CLOCK_SECONDS))
                self._heed_clock()

    def _heed_clock(self) -> None:
        """Begin again with new parts after the wall clock was set, since the old ones measure time by it.

        The schedule does, and so do the caches of catalogues, plugins included. Where the parts cannot be
        built the old ones poll on, and the next look tries again.
        """
        step = self._clock_steps.stepped
        old = self._generation
        if not step or old is None:
            return
        if not self._step_told:
            seconds = round(step.total_seconds(), 1)
            _log.warning("wall clock was set", seconds=seconds, todo="see that it is right; nothing else")
            for job in old.scheduler.get_jobs():
                job.modify(next_run_time=system_clock())
        self._step_told = True
        try:
            fresh = self._made(self._settings)
        except HydratorError as error:
            _log.debug("parts are kept after a clock step", why=str(error))
            return
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self._bug("a clock step")
            self._clock_steps.taken(step)
            self._step_told = False
            return
        self._clock_steps.taken(step)
        self._step_told = False
        self._retire(old)
        if step < timedelta():
            self._date_back(-step, fresh.parts)
        self._begin(fresh)

    def _date_back(self, by: timedelta, parts: Parts) -> None:
        """After the clock was set back: nothing that was read before is younger than it was."""
        self._state = moved_back(self._state, by)
        self._report = None  # its times are in the future
        if parts.board:
            shown = [ad for site, ad in self._state.ads.items() if site in parts.board.ads()]
            parts.board.put(shown, system_clock())

    def _look(self) -> None:
        """Tell the watchdog that we live, unless a cycle hangs; say so in the log, once."""
        stuck = self._progress.stuck()
        if stuck is None:
            self._supervisor.alive()
        elif not self._hung:
            _log.error("hung", why=stuck)
            self._supervisor.status(f"hung: {stuck}")
        self._hung = stuck is not None

    @property
    def _parts(self) -> Parts | None:
        return self._generation.parts if self._generation else None

    @property
    def _hearing(self) -> Hearing | None:
        return self._generation.hearing if self._generation else None

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
            left_out=no_room(report.thought.drafts) if report else {},
            troubles=report.failures if report else (),
            withheld=report.thought.withheld if report else {},
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
        fresh = self._made(self._settings)
        self._continue_state(fresh.parts.register)
        if fresh.settings.publish.http.enabled:
            self._generation = fresh  # what the server answers from
            self._fill_board(fresh.parts)
            self._server = self._listening(fresh.settings)
        self._tell_reload(())
        self._begin(fresh)

    def _made(self, settings: Settings) -> Generation:
        """Build all that *settings* call for; nothing of it works yet.

        Raises:
            ConfigError: something cannot be built.
            StateError: orders cannot be followed.
        """
        register = register_of(settings)
        parts = assemble(
            settings,
            system_clock,
            board=self._parts.board if self._parts else None,
            door=self._door if settings.publish.http.enabled else None,
            register=register,
        )
        try:
            hearing = self._hearing_of(settings, register)
            orders = Orders(settings.daemon.state_dir)
            orders.prepare()
            fence = Fence()
            cycle = parts.cycle(
                self._state,
                self._store,
                system_clock,
                orders,
                fence,
                patience=_CYCLE_PATIENCE,
                bugs=self._bugs,
                answered=lambda: self._answered(fence),
            )
            sources = brokers(settings, hearing) if hearing else ()
        except BaseException:
            self._close(parts)
            raise
        return Generation(settings, parts, cycle, fence, self._scheduler(), hearing, sources)

    def _continue_state(self, register: Register | None) -> None:
        """Take private names out of what is remembered, and see what was decided before."""
        with contextlib.suppress(StateError):  # told by who needs it more
            if register:
                self._state = veiled_state(self._state, register.veil)
                self._store.forget_history(register.veil.privacy.names_private)
            self._changes = tuple(self._store.history(MOST_CHANGES))

    def _fill_board(self, parts: Parts) -> None:
        """Have a new server show what was published last."""
        if parts.board and not parts.board.ads():
            kept = [ad for ad in self._state.ads.values() if not parts.rules.retires(ad.site)]
            parts.board.put(kept, system_clock())

    def _begin(self, fresh: Generation) -> None:
        """Have the parts of *fresh* work, from the state that the last ones left."""
        fresh.cycle.state = fresh.cycle.settled = self._state
        self._fill_board(fresh.parts)
        self._progress.restart(_allowance(fresh.settings))
        self._pace = Pace(fresh.settings.events.spacing_seconds)
        with self._waking:
            self._settings, self._generation = fresh.settings, fresh
            self._woken = self._answer_due = False
        self._schedule(fresh)
        for source in fresh.brokers:
            source.start()

    def _listening(self, settings: Settings, replaces: Server | None = None) -> Server:
        events = self._posted if settings.events.webhook else None
        http, exchange, question = settings.publish.http, self._exchange, self._explain
        server = listener(
            http, self.view, self._registry, exchange=exchange, question=question, events=events
        )
        server.start(replaces=replaces)
        return server

    def _hearing_of(self, settings: Settings, register: Register | None) -> Hearing | None:
        """What hears events, where some are configured."""
        events = settings.events
        if not (events.webhook or events.stomp):
            return None
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

    def _keep_private_trouble(self) -> None:
        """Keep for ``hydrator status`` and ``check`` why names of private datasets may be lost."""
        register = self._parts.register if self._parts else None
        trouble = register.trouble if register else None
        if trouble != self._private_trouble:
            with contextlib.suppress(StateError):  # told with the state, which cannot be saved either
                self._store.save_report("private", {"trouble": trouble} if trouble else {})
                self._private_trouble = trouble

    def _explain(self, cluster: int, proc: int | None, schedd: str | None) -> list[Telling]:
        """See :func:`hydrator.daemon.explain.explained`; called by threads of the HTTP server."""
        return explained(self._settings, self._report, cluster, proc, schedd)

    def _scheduler(self) -> BackgroundScheduler:
        names = ("default", "demand", *(name for each in self._beside for name in each.NAMES))
        return Schedule(
            executors={name: ThreadPoolExecutor(1) for name in names},  # no cycle waits for the audit
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone="UTC",
        )

    def _schedule(self, fresh: Generation) -> None:
        settings, scheduler, fence = fresh.settings, fresh.scheduler, fresh.fence
        now = system_clock()
        scheduler.add_job(
            self._polled,
            "interval",
            [fresh],
            seconds=settings.daemon.poll_seconds,
            id="poll",
            next_run_time=now,
        )
        every, asked = settings.demand.ask_seconds, [self._ask, fresh]
        scheduler.add_job(self._demanded, "interval", asked, seconds=every, id="demand", executor="demand")
        self._questions.schedule(scheduler, fence, settings.audit, fresh.parts.auditing, fresh.parts.misses)
        self._chores.schedule(scheduler, fence, settings, fresh.parts, fresh.cycle)
        self._beats.schedule(scheduler, fence, settings.standby, fresh.parts.peers)
        scheduler.start()

    def _taken(self, work: Callable[[Cycle], object], generation: Generation) -> None:
        """Do *work* as a turn of *generation*, unless a reload has replaced that."""
        with contextlib.suppress(Fenced), generation.fence.turn("cycle"), self._numbered():
            if self._clock_steps.stepped and not self._step_told:
                return  # the main thread is about to begin again, by the clock of now
            work(generation.cycle)

    def _demanded(self, work: Callable[[Cycle, _Asked], object], generation: Generation) -> None:
        """Ask the schedds while cycles go on; then do *work* with what they said, as :meth:`_taken`."""
        with contextlib.suppress(Fenced), generation.fence.turn("demand"):
            answers = generation.cycle.ask_schedds()
            self._taken(lambda cycle: work(cycle, answers), generation)

    def _polled(self, generation: Generation) -> None:
        """Poll as :meth:`_taken`; before the first cycle, ask for demand."""
        if self._report is None:
            self._demanded(self._heeded, generation)
        self._taken(self._poll, generation)

    def _answered(self, fence: Fence) -> None:
        """Have a cycle take the answer of a catalogue that the last one did not wait for; from any thread."""
        with self._waking:
            generation = self._generation
            if self._answer_due or generation is None or self._ending.is_set():
                return
            if generation.fence is not fence:  # it came to parts that were replaced
                return
            self._answer_due = True
            turn = (self._take_answers, generation)
            generation.scheduler.add_job(self._taken, "date", turn, run_date=system_clock())

    def _take_answers(self, cycle: Cycle) -> None:
        """Run a cycle for what came; nobody is asked again but about what was not wanted then."""
        with cycle.fence.step(), self._waking:
            self._answer_due = False
        again, self._again = self._again, False
        self._careful("cycle", lambda: self._cycled(cycle, due=again))

    def _wake(self) -> None:
        """Poll before it is time, once the last cycle is long enough ago; from any thread."""
        with self._waking:
            generation = self._generation
            if self._woken or generation is None or self._ending.is_set():
                return
            self._woken = True
            due = system_clock() + timedelta(seconds=self._pace.wait(time.monotonic()))
            turn = (self._early, generation)
            generation.scheduler.add_job(self._taken, "date", turn, run_date=due)

    def _early(self, cycle: Cycle) -> None:
        """A poll that events brought forward, unless another poll has looked at everything since."""
        with cycle.fence.step(), self._waking:
            self._woken = False
        if self._hearing is None or not self._hearing.waiting or self._report is None:
            return
        if self._pace.rests(time.monotonic()):  # an event came while a poll was under way
            self._wake()
            return
        self._event_metrics.early.inc()
        self._careful("cycle", lambda: self._cycled(cycle))
        # who was being asked before the event came is asked again when that is over
        self._again = any(since < self._report.at for since in self._report.pending.values())

    @contextlib.contextmanager
    def _numbered(self) -> Iterator[None]:
        """What is logged meanwhile has the number of this turn, from 1 on since the start."""
        self._turns += 1
        with structlog.contextvars.bound_contextvars(cycle=self._turns):
            yield

    def _ask(self, cycle: Cycle, answers: _Asked) -> None:
        """Look up at once what nobody wanted before, since a job waits for it."""
        if self._heeded(cycle, answers):
            self._careful("cycle", lambda: self._cycled(cycle, due=False))

    def _poll(self, cycle: Cycle) -> None:
        unknown = self._report is None and cycle.demand_error
        if unknown and not cycle.state.demand.wants and not cycle.demand.wants:
            return  # nothing is known of what is wanted: publishing now would empty every ad
        self._careful("cycle", lambda: self._cycled(cycle))

    def _heeded(self, cycle: Cycle, answers: _Asked) -> bool:
        return self._careful("demand", lambda: self._take_demand(cycle, answers))

    def _take_demand(self, cycle: Cycle, answers: _Asked) -> bool:
        new = cycle.heed(answers)
        with cycle.fence.step():
            self._state = cycle.settled
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

    def _cycled(self, cycle: Cycle, *, due: bool = True) -> bool:
        before = cycle.state.memories
        told = self._hearing.begin() if self._hearing and due else None
        if told:
            _log.debug("a poll that events asked for", datasets=len(told.dids), why=told.why)
        begun = time.monotonic()
        cycle.publishes = self._stands_by is None
        try:
            report = cycle.run(due=due)
        finally:
            seconds = time.monotonic() - begun
            if due:
                self._pace.polled(time.monotonic(), seconds)
        if due or self._polled_at is None:
            self._polled_at = report.at
        with cycle.fence.step():
            self._cycle_ended(cycle, before, report, seconds)
        give_back()
        return True

    def _cycle_ended(
        self, cycle: Cycle, before: Mapping[str, Memory], report: Report, seconds: float
    ) -> None:
        """Take over what a cycle came to, and tell of it."""
        self._state, self._report = cycle.state, report
        self._changes = (*self._changes, *report.entries)[-MOST_CHANGES:]
        self._aside("events", lambda: self._compare_events(report, before))
        self._aside("metrics", lambda: self._metrics.record(report, seconds))
        if (found := self._chores.credentials) != self._credentials_kept:
            with contextlib.suppress(StateError):  # told with the state, which cannot be saved either
                self._store.save_report("credentials", {"rows": credential_rows(found)})
                self._credentials_kept = found
        self._keep_private_trouble()
        self._aside("the audit", lambda: self._show_audit(cycle.state))
        for lie in report.thought.lies:
            _log.warning("lie", **lie_line(lie))
        if self._parts and self._parts.client:
            self._metrics.child_restarts(self._parts.child_restarts)
        line = cycle_line(report, seconds)
        new, ended = self._lasting.heard(line)
        quiet = _log.info if line["changed"] or ended else _log.debug
        (_log.warning if new else quiet)("cycle", **line, **({"ended": ended} if ended else {}))
        self._supervisor.status(self._stands_by or status_line(line))

    def _compare_events(self, report: Report, before: Mapping[str, Memory]) -> None:
        """Compare what the cycle saw with what events told; poll soon if one came meanwhile."""
        if self._hearing:
            after = report.thought.state.memories
            self._hearing.polled(report.demand.dids, before, after, self._polled_at or report.at)
            if self._hearing.waiting:
                self._wake()

    def _show_audit(self, state: State) -> None:
        """Show the audit what is held true now."""
        if self._parts and self._parts.auditing:
            named = {site for memory in state.memories.values() for site in memory.sites}
            retired = frozenset(site for site in named if self._parts.rules.retires(site))
            self._parts.auditing.look(state.memories, state.audit, retired)

    def _aside(self, part: str, work: Callable[[], None]) -> None:
        """Do *work* for one part after a cycle; its bug is its failure alone."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - what else follows a cycle goes on
            self._bugs.caught(part, error)
        else:
            self._bugs.over(part)

    def _careful(self, what: str, work: Callable[[], bool]) -> bool:
        """Do *work*; a failure ends it, is counted and logged, and never ends the daemon."""
        self._progress.step(f"a {what} began")
        try:
            return work()
        except Fenced:
            _log.debug(f"{what} of replaced parts ended")
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
        if error := sys.exception():
            self._bugs.caught(what, error)
        self._metrics.failed()

    def _reload(self) -> None:
        """Read the configuration again; what cannot be used changes nothing.

        New parts are built, and a server that moves listens, before the old ones are closed.
        """
        try:
            settings = self._fresh_settings()
            self._await_secrets(settings)
            fresh = self._made(settings)
            try:
                server = self._server_for(settings)
            except BaseException:
                self._close(fresh.parts)
                raise
        except HydratorError as error:
            problems = error.problems if isinstance(error, ConfigError) else (str(error),)
        except Exception as error:  # noqa: BLE001 - a bug must not end the daemon
            self._bug("reload")
            problems = (f"a bug: {type(error).__name__}; the log has its traceback",)
        else:
            self._replace(fresh, server)
            return
        self._tell_reload(problems)
        _log.error("reload refused, the old configuration stays", problems=problems)

    def _server_for(self, settings: Settings) -> Server | None:
        """The HTTP server that *settings* call for: the one there is, or a new one, which answers already."""
        http, now = settings.publish.http, self._settings
        if not http.enabled:
            return None
        if self._server and (http, settings.events.webhook) == (now.publish.http, now.events.webhook):
            return self._server
        return self._listening(settings, self._server)

    def _await_secrets(self, settings: Settings) -> None:
        """Give somebody who is renewing a secret the time to end.

        Raises:
            ConfigError: a secret is still missing or empty.
        """
        until, told = time.monotonic() + _SECRET_PATIENCE, False
        while problems := unreadable_secrets(settings):
            if time.monotonic() > until:
                raise ConfigError(list(problems.values()))
            if not told:
                _log.warning("reload waits", problems=list(problems.values()))
                told = True
            time.sleep(0.1)

    def _replace(self, fresh: Generation, server: Server | None) -> None:
        """Have *fresh* and *server* work instead of what did, from the state that this left."""
        if old := self._generation:
            self._retire(old)
            if old.settings.private != fresh.settings.private:
                self._report = None  # it may name what is private from now on
        self._continue_state(fresh.parts.register)
        self._server, ended = server, self._server
        self._begin(fresh)
        if old and old.parts.register and fresh.parts.register:
            fresh.parts.register.learn_from(old.parts.register)
        if ended and ended is not server:
            ended.stop()
        settings = fresh.settings
        configure_logs(settings.log.level, settings.log.format, redact=redactor(settings))
        self._lasting = Lasting()  # what lasts is told anew
        self._tell_reload(())
        _log.info("reloaded", http=self._url())

    def _retire(self, old: Generation) -> None:
        """End *old*, also under a cycle: what it saves or sends now ends, and nothing more of it begins."""
        old.scheduler.shutdown(wait=False)
        ended = old.fence.close(_STEP_PATIENCE)
        self._state = old.cycle.settled
        for broker in old.brokers:
            broker.stop()
        closing = threading.Thread(target=self._close, args=[old.parts], name="close", daemon=True)
        closing.start()
        closing.join(_STEP_PATIENCE)
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

    def _tell_reload(self, problems: Sequence[str]) -> None:
        """Say in metrics and for ``hydrator status`` whether the configuration is the one on disk."""
        self._metrics.reloaded(yes=not problems)
        told = {"at": unix(system_clock()), "problems": list(problems)} if problems else {}
        with contextlib.suppress(StateError):  # told with the state, which cannot be saved either
            self._store.save_report("reload", told)

    def _fresh_settings(self) -> Settings:
        fresh = load(self._config)
        if fresh.daemon.state_dir != self._settings.daemon.state_dir:
            raise ConfigError(["daemon.state_dir: needs a restart to change"])
        return fresh

    def _end(self) -> None:
        """Stop: the cycle under way may end, within bounds."""
        self._ending.set()
        ended = True
        if now := self._generation:
            now.scheduler.shutdown(wait=False)
            for broker in now.brokers:
                broker.stop()
            ended = now.fence.drain(_PATIENCE, "cycle")
            if ended:
                self._close(now.parts)
        if self._server:
            self._server.stop()
        if now:
            ended = now.fence.drain(_BESIDE_PATIENCE) and ended
        _log.info("stopped")
        if not ended:
            # a thread hangs in somebody's library; the state on disk is whole, so nothing is lost
            self._store.close()
            os._exit(0)


def _allowance(settings: Settings) -> float:
    """Seconds between two steps of the schedule after which it hangs; it waits for no catalogue."""
    return settings.daemon.poll_seconds + settings.daemon.hang_seconds

"""The daemon, ``hydrator run``: start, signals and shutdown. The schedule of cycles is in ``cycles.py``.

A restart is cheap, so nothing is built again in place. After SIGHUP with a valid configuration the process
stops as after SIGTERM and executes itself again, with the same process id. After a step of the wall clock it
ends with status 1, and the service manager starts it again.
"""

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import structlog
from prometheus_client import CollectorRegistry

from hydrator import __version__
from hydrator.config import Settings, load
from hydrator.daemon.cycles import CycleRunner
from hydrator.daemon.process import ServiceManager, Watchdog, limit_arenas
from hydrator.daemon.runtime import MACHINE, DaemonContext, Machine, Runtime, Turns, close_parts
from hydrator.diagnostics.overview.saved import RELOAD_REPORT, Reload
from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import ConfigError, HydratorError, SecretMissing, StateError
from hydrator.domain.model import to_unix
from hydrator.reconcile.reconciler import CycleTimeouts, Reconciler
from hydrator.reconcile.site_ads import names_any
from hydrator.state.clock_step import ClockStepDetector, load_state
from hydrator.state.command_files import CommandQueue
from hydrator.state.store import Store
from hydrator.wiring.assembly import Parts
from hydrator.wiring.secrets import find_unreadable_secrets, register_secrets

from .background import BackgroundWorker, MaintenanceTasks, MissTasks, NetworkTasks, PoolEdits
from .http_frontend import HttpFrontend
from .logs import configure_logs
from .metrics import Metrics
from .staging import StagingTasks

_log = structlog.get_logger("hydrator")
_CYCLE_DRAIN_SECONDS = 15.0
"""Seconds that a cycle may still take when the daemon stops."""
_BACKGROUND_DRAIN_SECONDS = 2.0
"""Seconds that background work may still take when the daemon stops."""
_SECRET_WAIT_SECONDS = 5.0
"""Seconds that a reload waits for secret files that are being renewed."""
_CLOCK_CHECK_SECONDS = 1.0
"""Seconds between two checks for a step of the wall clock."""

End = Literal["stop", "reload", "clock step"]
"""The reason for which the daemon ends."""


def run(config: Path) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP checks *config* and executes the process again.

    Raises:
        ConfigError: *config*, or the address to listen on, cannot be used.
        SecretMissing: a file with a secret is missing or empty.
        StateError: another daemon uses the state directory, or the state cannot be written.
        SystemExit: the wall clock was set; the status is 1.
    """
    limit_arenas()
    settings = load(config)
    register_secrets(settings)
    configure_logs(settings.log.level)
    with Store.open_to_write(settings.daemon.state_dir) as store:
        daemon = Daemon(config, settings, store, ServiceManager(os.environ))
        if store.damage_report:
            _log.error("state lost", why=store.damage_report)
        signal.signal(signal.SIGTERM, lambda *_: daemon.post_signal("stop"))
        signal.signal(signal.SIGINT, lambda *_: daemon.post_signal("stop"))
        signal.signal(signal.SIGHUP, lambda *_: daemon.post_signal("reload"))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # blocked if a reload started the process
        try:
            end = daemon.serve()
        except ConfigError as error:
            missing = [str(file) for file in find_unreadable_secrets(settings)]
            if all(any(file in problem for file in missing) for problem in error.problems):
                raise SecretMissing(error.problems) from error
            raise
    _leave(end)


def _leave(end: End) -> None:
    """Execute the process again after a reload, or end it with status 1 after a clock step."""
    if end == "reload":
        # a further SIGHUP waits for the handler of the new process; its default action would end the process
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command line
    if end == "clock step":
        raise SystemExit(1)


_CYCLE_TIMEOUTS = CycleTimeouts(
    poll=timedelta(seconds=3), read_back=timedelta(seconds=10), publish=timedelta(seconds=30)
)
"""The longest times that a cycle waits. A catalogue's answer after this time triggers another cycle."""


class Daemon:
    """A daemon with one state directory."""

    def __init__(
        self,
        config: Path,
        settings: Settings,
        store: Store,
        service_manager: ServiceManager,
        machine: Machine = MACHINE,
    ) -> None:
        self._config = config
        self._store = store
        self._service_manager = service_manager
        self._machine = machine
        self._signals: queue.SimpleQueue[End] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._watchdog = Watchdog(settings.daemon.hang_seconds, machine.monotonic)
        self._is_hung = False
        self._clock_steps = ClockStepDetector(machine.clock, machine.monotonic)
        registry = CollectorRegistry()
        self._metrics = metrics = Metrics(registry, __version__)
        bugs = BugReporter(partial(metrics.instruments.count, "bugs"))
        state, lost = load_state(store, machine.clock())
        if lost:
            _log.error("state lost", why=lost)
        self._context = context = DaemonContext(settings, state, store, metrics, bugs, machine.clock)
        self._workers: tuple[BackgroundWorker, ...] = (
            MissTasks(context),
            MaintenanceTasks(context),
            PoolEdits(context),
            NetworkTasks(context),
            StagingTasks(context),
        )
        self._cycles = CycleRunner(
            context,
            self._watchdog,
            service_manager,
            stopping=self._stopping,
            is_clock_stepping=lambda: bool(self._clock_steps.step),
            machine=machine,
        )
        self._http = HttpFrontend(context, registry, self._watchdog.hang_reason, machine)

    def post_signal(self, request: End) -> None:
        """Ask the daemon to stop or reload; safe from a signal handler and from any thread."""
        self._signals.put(request)

    def serve(self) -> End:
        """Run until a signal or a clock step ends the daemon; return the reason."""
        self.start()
        state_dir = str(self._context.settings.daemon.state_dir)
        _log.info("running", version=__version__, http=self._http.get_url(), state=state_dir)
        self._service_manager.notify("READY=1")
        end = self._wait_for_end()
        if end != "reload":
            self._service_manager.notify("STOPPING=1")
        is_drained = self.stop()
        _log.info("reloading" if end == "reload" else "stopped")
        if not is_drained:
            # a thread hangs in a library; the state on disk is complete, so nothing is lost
            self._store.close()
            if end == "reload":
                _leave(end)
            os._exit(end == "clock step")
        return end

    def _wait_for_end(self) -> End:
        """Wait for the end of the daemon; a configuration that cannot be used is logged, not the end."""
        while (end := self._next_signal()) == "reload":
            self._service_manager.notify_reloading()
            problems = self._find_problems()
            self._report_reload(problems)
            if not problems:
                break
            _log.error("reload refused, the old configuration stays", problems=problems)
            self._service_manager.notify("READY=1")
        return end

    def start(self) -> None:
        """Build and start the parts; until the first cycle the HTTP server serves the ads of the last run.

        Raises:
            ConfigError: a part cannot be built, or the address to listen on cannot be used.
            StateError: the folder for the operator's commands cannot be created.
        """
        context = self._context
        runtime = context.runtime = self._build_runtime(context.settings)
        with contextlib.suppress(StateError):  # the next save of the state reports the error
            self._store.save_reports({RELOAD_REPORT: None})  # it has ended
            self._store.forget_history(context.settings.publish.never)
        if context.settings.publish.http.enabled:
            self._restore_served_ads(runtime.parts)
            self._http.start()
        self._watchdog.record_step("the start")
        self._cycles.schedule(runtime)
        for worker in self._workers:
            worker.schedule(runtime)
        runtime.scheduler.start()

    def _build_runtime(self, settings: Settings) -> Runtime:
        machine = self._machine
        parts = machine.assemble(
            settings, machine.clock, get_url=self._http.get_url if settings.publish.http.enabled else None
        )
        try:
            reconciler = self._build_reconciler(settings, parts)
        except BaseException:
            close_parts(parts)
            raise
        return Runtime(parts, reconciler, Turns(machine.threads.condition()), machine.build_scheduler())

    def _build_reconciler(self, settings: Settings, parts: Parts) -> Reconciler:
        commands = CommandQueue(settings.daemon.state_dir)
        commands.prepare()
        return parts.build_reconciler(
            self._context.state,
            self._store,
            self._machine.clock,
            commands,
            timeouts=_CYCLE_TIMEOUTS,
            bugs=self._context.bugs,
            on_late_answer=self._cycles.request_answer_cycle,
            threads=self._machine.threads,
        )

    def _restore_served_ads(self, parts: Parts) -> None:
        """Give the HTTP server the ads that were published last."""
        if parts.web_publisher:
            settings = self._context.settings
            ads = [
                ad
                for ad in self._context.state.ads.values()
                if not settings.sites.is_retired(ad.site) and not names_any(ad, settings.publish.never)
            ]
            parts.web_publisher.put(ads)

    def _next_signal(self) -> End:
        """Wait for the next signal, and meanwhile notify the watchdog and check the clock."""
        while True:
            self._notify_watchdog()
            until = time.monotonic() + self._service_manager.watchdog_interval_seconds
            while (left := until - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    return self._signals.get(timeout=min(left, _CLOCK_CHECK_SECONDS))
                if self.has_clock_step():
                    return "clock step"

    def has_clock_step(self) -> bool:
        """Return True, and log it, if the wall clock was set: then the daemon must end."""
        if not (step := self._clock_steps.step):
            return False
        seconds = round(step.total_seconds(), 1)
        _log.error("wall clock was set, the daemon ends", seconds=seconds, todo="check the clock")
        return True

    def _notify_watchdog(self) -> None:
        """Send the watchdog a keep-alive, unless the schedule hangs; log once that the schedule hangs."""
        reason = self._watchdog.hang_reason()
        if reason is None:
            self._service_manager.notify("WATCHDOG=1")
        elif not self._is_hung:
            _log.error("daemon hangs", why=reason)
            self._service_manager.set_status(f"daemon hangs: {reason}")
        self._is_hung = reason is not None

    def _find_problems(self) -> Sequence[str]:
        """Return the problems of the configuration on disk; build its parts, but start none of them."""
        try:
            settings = load(self._config)
            _await_secrets(settings)
            parts = self._machine.assemble(settings, self._machine.clock, get_url=self._http.get_url)
            try:
                self._http.check(settings)
            finally:
                close_parts(parts)
        except ConfigError as error:
            return error.problems
        except HydratorError as error:
            return (str(error),)
        except Exception as error:  # noqa: BLE001 - a bug must not end the daemon
            self._context.bugs.report("reload", error)
            return (f"the reload failed because of a bug: {type(error).__name__}; the log has the traceback",)
        return ()

    def _report_reload(self, problems: Sequence[str]) -> None:
        """Report to the metrics and ``hydrator status`` whether the daemon uses the configuration on disk."""
        reload = Reload(to_unix(self._machine.clock()), tuple(problems))
        self._metrics.instruments.set("config_last_reload_successful", not problems)
        self._context.reload = reload if problems else None
        with contextlib.suppress(StateError):  # the next save of the state reports the error
            self._store.save_reports({RELOAD_REPORT: reload})

    def stop(self) -> bool:
        """Stop the daemon; wait for the running cycle, but not longer than a time limit.

        Returns:
            False if work still runs: a thread hangs in a library.
        """
        self._stopping.set()
        runtime, is_drained = self._context.runtime, True
        if runtime:
            runtime.scheduler.shutdown(wait=False)
            is_drained = runtime.turns.drain(_CYCLE_DRAIN_SECONDS, "cycle")
            if is_drained:
                close_parts(runtime.parts)
        if self._http.server:
            self._http.server.stop()
        return is_drained and (runtime is None or runtime.turns.drain(_BACKGROUND_DRAIN_SECONDS))


def _await_secrets(settings: Settings) -> None:
    """Wait until a renewal has replaced all secret files.

    Raises:
        ConfigError: a secret file is still missing, empty or not readable.
    """
    until, is_logged = time.monotonic() + _SECRET_WAIT_SECONDS, False
    while problems := find_unreadable_secrets(settings):
        if time.monotonic() > until:
            raise ConfigError(list(problems.values()))
        if not is_logged:
            _log.warning("reload waits for secrets", problems=list(problems.values()))
            is_logged = True
        time.sleep(0.1)

"""``hydrator run``, ``once`` and ``plan``: run cycles, or show the actions of one cycle."""

import sys
from contextlib import closing, suppress

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption
from hydrator.cli.output.printing import print_problems, print_result
from hydrator.cli.output.progress import show_progress
from hydrator.config import Settings, load
from hydrator.daemon.daemon import run as run_daemon
from hydrator.daemon.logs import configure_logs
from hydrator.domain.errors import StateMissing
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.state import ReconcileState
from hydrator.state.clock_step import load_state
from hydrator.state.command_files import CommandQueue
from hydrator.state.database import owner_of
from hydrator.state.store import Store
from hydrator.wiring import system_clock
from hydrator.wiring.assembly import assemble


def run(config: ConfigOption = DEFAULT_CONFIG_PATH) -> None:
    """Run the daemon until SIGTERM; SIGHUP makes it read its configuration."""
    run_daemon(config)


def once(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Run one cycle: read catalogues, publish ads, read them back.

    Exits 1 if a part of the cycle failed, or if another daemon has just published there: the cycle replaces
    the ads of that daemon.
    """
    settings = load(config)
    with Store.open_to_write(settings.daemon.state_dir) as store:
        state, lost = load_state(store, system_clock())
        if settings.publish.never:
            store.forget_history(settings.publish.never)
        report, reconciler = _run_cycle(settings, state, store)
        print_problems(store.damage_report, lost and f"state lost: {lost}")
    _print_report(as_json, report, reconciler, reconciler.view)


def plan(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print the actions that `once` would take, and take none.

    The list has no publisher http: only the running daemon has an HTTP server. It also has no requests for
    data: `staging list` shows those that the daemon would make.
    """
    settings, state = load(config), ReconcileState()
    with suppress(StateMissing), Store.open_to_read(settings.daemon.state_dir) as store:
        state, _ = load_state(store, system_clock())
    report, reconciler = _run_cycle(settings, state, None)
    _print_report(as_json, report, reconciler, reconciler.view.plan)


def _run_cycle(
    settings: Settings, state: ReconcileState, store: Store | None
) -> tuple[CycleReport, Reconciler]:
    """Run one cycle from *state*, with its progress; without a *store*, only plan it."""
    configure_logs("error", sys.stderr)  # structlog alone prints values of variables, to standard output
    # the ads of a daemon that owns this state are no rival's
    is_only = store is not None or owner_of(settings.daemon.state_dir) is None
    task = f"asking schedds and catalogues{', then publishing' if store else ''}"
    with closing(assemble(settings, system_clock)) as parts:
        commands = CommandQueue(settings.daemon.state_dir)
        if store:
            commands.prepare()
        with show_progress(task):
            reconciler = parts.build_reconciler(state, store, system_clock, commands)
            reconciler.refresh_demand()
            run = reconciler.run if store else reconciler.plan
            return run(is_only=is_only), reconciler


def _print_report(as_json: bool, report: CycleReport, reconciler: Reconciler, shown: object) -> None:
    """Print the cycle, in JSON only *shown*; exit with status 1 if a part failed, or if it has a rival."""
    from hydrator.cli.output.tables import print_cycle  # the daemon itself prints no tables

    print_result(as_json, shown, lambda: print_cycle(reconciler.view))
    if not report.is_complete or report.rivals or reconciler.schedds.error:
        print_problems(reconciler.schedds.error, *report.failures)
        raise typer.Exit(1)

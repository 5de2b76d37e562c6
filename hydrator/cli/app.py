"""The commands; each imports what it needs, so that ``hydrator hook`` and ``--help`` stay quick."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hydrator import __version__
from hydrator.cli.commands.approve import approve
from hydrator.cli.commands.history import history, rollback
from hydrator.cli.commands.init import init
from hydrator.cli.commands.renumber import renumber
from hydrator.cli.commands.report import report
from hydrator.cli.commands.submit.rapthor import submit_rapthor
from hydrator.cli.commands.submit.toil import toil_shim
from hydrator.cli.commands.submit.wrap import filter_file, wrap
from hydrator.cli.commands.submit.wrapper import wrapper
from hydrator.cli.commands.token import token
from hydrator.cli.commands.top import top
from hydrator.cli.commands.why import why
from hydrator.cli.output.examples import epilog
from hydrator.cli.output.progress import show_progress
from hydrator.cli.output.stdio import make_plain, unwrap_stream
from hydrator.domain.errors import ConfigError, HydratorError, StateMissing
from hydrator.domain.links import docs_folder_note
from hydrator.domain.text import format_count

from .options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption

if TYPE_CHECKING:
    from hydrator.privacy.pseudonyms import Pseudonymizer

app = typer.Typer(
    name="hydrator",
    help="Tell an HTCondor pool where data is, so that late binding also binds to data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
submit = typer.Typer(help="What jobs and pools need to use the data's place.", no_args_is_help=True)
app.add_typer(submit, name="submit")
app.add_typer(token, name="token")


class PoolRole(StrEnum):
    """Whose configuration."""

    ALL = "all"
    SCHEDD = "schedd"
    STARTD = "startd"
    NEGOTIATOR = "negotiator"


def main() -> None:
    """Run one command: exit 0 done, 1 failed, 2 wrong usage or configuration; no traceback."""
    make_plain()
    try:
        app(prog_name="hydrator")
    except ConfigError as error:
        for problem in error.problems:
            print(f"hydrator: {problem}", file=sys.stderr)
        _print_problems(docs_folder_note(*error.problems))
        sys.exit(2)
    except HydratorError as error:
        _print_problems(f"{error}", docs_folder_note(f"{error}"))
        sys.exit(1)
    except PermissionError as error:
        print(
            f"hydrator: {error.filename}: {error.strerror}; run this as the daemon's user or as root",
            file=sys.stderr,
        )
        sys.exit(1)
    except BrokenPipeError:
        unwrap_stream(sys.stderr).close()
        sys.exit(1)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(__version__)
        raise typer.Exit


@app.callback()
def _handle_global_options(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", is_eager=True, callback=_print_version, help="Print the version."),
    ] = False,
) -> None:
    """Tell an HTCondor pool where data is, so that late binding also binds to data."""


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


@app.command()
def man() -> None:
    """Print the man page: hydrator man > /usr/local/share/man/man1/hydrator.1."""
    from hydrator.cli.output.manpage import build_manpage
    from hydrator.wiring import system_clock

    print(build_manpage(typer.main.get_command(app), __version__, f"{system_clock():%Y-%m-%d}"), end="")


@app.command()
def run(config: ConfigOption = DEFAULT_CONFIG_PATH) -> None:
    """Run the daemon: SIGTERM ends it, SIGHUP reads the configuration again."""
    from hydrator.daemon.daemon import run as run_daemon

    run_daemon(config)


@app.command()
def once(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Run a single cycle: read, publish, read back. Exits 1 when a part of it failed."""
    from hydrator.config import load
    from hydrator.privacy.wrappers import pseudonymize_state
    from hydrator.reconcile.clock_step import clamp_to_now
    from hydrator.reconcile.reconciler import summary
    from hydrator.state.command_files import CommandQueue
    from hydrator.state.store import Store
    from hydrator.wiring import assemble, build_pseudonym_store, system_clock

    from .output import tables as show

    settings = load(config)
    with Store.open_to_write(settings.daemon.state_dir) as store:
        register = build_pseudonym_store(settings)
        state, _ = clamp_to_now(store.load(), system_clock(), settings.daemon.max_age)
        state = pseudonymize_state(state, register.pseudonymizer) if register else state
        if register:
            store.forget_history(register.pseudonymizer.privacy.has_private_did)
        parts = assemble(settings, system_clock, pseudonym_store=register)
        try:
            orders = CommandQueue(settings.daemon.state_dir)
            orders.prepare()
            cycle = parts.build_reconciler(state, store, system_clock, orders)
            with show_progress("asking schedds and catalogues, then publishing"):
                cycle.refresh_demand()
                report = cycle.run()
        finally:
            parts.close()
        _print_problems(store.damage_report)
    _print_result(
        as_json, summary(report) | {"plan": show.plan_rows(report)}, lambda: show.print_cycle(report)
    )
    if not report.is_complete or cycle.demand_error:
        _print_problems(cycle.demand_error, *report.failures)
        raise typer.Exit(1)


@app.command()
def plan(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print what `once` would do, and do nothing: nothing is published, nothing is saved."""
    from hydrator.config import load
    from hydrator.privacy.wrappers import pseudonymize_state
    from hydrator.reconcile.clock_step import clamp_to_now
    from hydrator.state.command_files import CommandQueue
    from hydrator.state.store import ReconcileState, Store
    from hydrator.wiring import assemble, build_pseudonym_store, system_clock

    from .output import tables as show

    settings = load(config)
    state = ReconcileState()
    with suppress(StateMissing), Store.open_to_read(settings.daemon.state_dir) as store:
        state, _ = clamp_to_now(store.load(), system_clock(), settings.daemon.max_age)
    register = build_pseudonym_store(settings, is_owner=False)
    if register:
        state = pseudonymize_state(state, register.pseudonymizer)
    parts = assemble(settings, system_clock, pseudonym_store=register)
    try:
        cycle = parts.build_reconciler(state, None, system_clock, CommandQueue(settings.daemon.state_dir))
        with show_progress("asking schedds and catalogues"):
            cycle.refresh_demand()
            report = cycle.plan()
    finally:
        parts.close()
    _print_result(as_json, show.plan_rows(report), lambda: show.print_plan(report))
    if not report.is_complete or cycle.demand_error:
        _print_problems(cycle.demand_error, *report.failures)
        raise typer.Exit(1)


@app.command()
def status(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print what is known, published and read back, catalogue by catalogue and publisher by publisher."""
    from .output import tables as show

    known = _load_state_view(config)
    _print_result(as_json, show.status_rows(known), lambda: show.print_status(known))


@app.command()
def sites(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print every site: datasets by state, age, generation, and where its ad was read back."""
    from .output import tables as show

    known = _load_state_view(config)
    _print_result(as_json, show.site_rows(known), lambda: show.print_sites(known))


@app.command()
def datasets(
    dids: Annotated[
        list[str] | None, typer.Argument(help="Only these, as scope:name; default: all wanted.")
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Who said so, when, by which call, and what else it knows.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    as_json: JsonOption = False,
) -> None:
    """Print every wanted dataset: its state and age at each site, and how many jobs want it."""
    from hydrator.domain.model import parse_did
    from hydrator.domain.provenance import provenance_rows

    from .output import tables as show

    known = _load_state_view(config)
    veil = _load_pseudonymizer(config)
    asked = [parse_did(did, known.default_scope) for did in dids] if dids else None
    if asked and veil:
        asked = [veil.pseudonym(did) for did in asked]
    if why:
        told = provenance_rows(known.memories, asked or sorted(known.demand.dids), now=known.now)
        _print_result(as_json, told, lambda: show.print_provenance(told, known.now))
        return
    _print_result(as_json, show.dataset_rows(known, asked), lambda: show.print_datasets(known, asked))


@app.command()
def check(
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    dmapi: Annotated[
        str | None,
        typer.Option(
            "--dmapi",
            metavar="URL",
            help="Only this: does the DMAPI there offer what we rely on? Needs no -c.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find what is wrong with an installation, and say what to do. Exits 1 when something must be done."""
    from hydrator.config import load
    from hydrator.diagnostics.check.dmapi_api import dmapi_findings
    from hydrator.diagnostics.check.examine import Level, examine
    from hydrator.wiring import assemble, build_check_inputs, fetch_openapi, system_clock

    from .output import tables as show

    if dmapi is not None:
        with show_progress(f"asking {dmapi}"):
            findings = list(dmapi_findings(*fetch_openapi(dmapi, load(config) if config.exists() else None)))
    else:
        settings = load(config)
        parts = assemble(settings, system_clock)
        try:
            with show_progress("asking the pool and the catalogues"):
                findings = examine(build_check_inputs(settings, parts))
        finally:
            parts.close()
    _print_result(as_json, show.finding_rows(findings), lambda: show.print_findings(findings))
    if not as_json:
        _print_problems(docs_folder_note(*(finding.todo for finding in findings)))
    if any(finding.level is Level.FAIL for finding in findings):
        raise typer.Exit(1)


@app.command()
def release(
    constraint: Annotated[str, typer.Argument(help="Which jobs: a ClassAd expression.")] = "true",
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    schedd: Annotated[str | None, typer.Option(help="Only this schedd; default: all.")] = None,
    lists: Annotated[
        bool, typer.Option("--desired-sites", help="Only give back the DESIRED_Sites that jobs had.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Let queued jobs go anywhere: their locality requirement becomes true. Needs a queue super user."""
    from hydrator.config import load
    from hydrator.wiring import build_editing_client

    client = build_editing_client(load(config))
    try:
        schedds = [schedd] if schedd else [str(ad["Name"]) for ad in client.schedds()]
        released = {name: 0 if lists else client.release(name, constraint) for name in schedds}
        restored = {
            name: client.restore_desired_sites(name, constraint, should_opt_out=not lists) for name in schedds
        }
    finally:
        client.close()
    done, what = (restored, "given back their DESIRED_Sites") if lists else (released, "released")
    _print_result(
        as_json,
        done,
        lambda: print(
            "\n".join(f"{format_count(jobs, 'job')} {what} at {name}" for name, jobs in done.items())
        ),
    )


@app.command()
def hook() -> None:
    """Print the STARTD_CRON hook: one Python file for worker nodes; see docs/install-on-a-glidein.md."""
    source = Path(__file__).parents[1].joinpath("startd_cron.py")
    sys.stdout.write(source.read_text())


@submit.command("pool-config")
def pool_config(
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    role: Annotated[PoolRole, typer.Option(help="For which daemons.")] = PoolRole.ALL,
    observe: Annotated[bool, typer.Option("--observe", help="Only rank: change no Requirements.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Say how it is taken out, and what is still there.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="The daemon whose present values are shown.")] = None,
) -> None:
    """Print the pool's configuration: transform and refusals, START, the negotiator's term."""
    from hydrator.config import load
    from hydrator.submit.pool_config import negotiator_config, removal_texts, schedd_config, startd_config
    from hydrator.wiring import fetch_config_values, pool_policy

    settings = load(config)
    roles = (
        [part.value for part in PoolRole if part is not PoolRole.ALL]
        if role is PoolRole.ALL
        else [role.value]
    )
    present, unread = fetch_config_values(settings, roles, name)
    policy = pool_policy(settings)
    texts = {
        "schedd": lambda: schedd_config(policy, present["schedd"], observe=observe),
        "startd": lambda: startd_config(present["startd"], observe=observe),
        "negotiator": lambda: negotiator_config(present["negotiator"], observe=observe),
    }
    for part in roles:
        print(removal_texts(present)[part] if remove else texts[part]())
    _print_problems(*unread)
    if remove:
        _print_problems("jobs already queued keep their expressions: hydrator release lets them go anywhere")


app.command()(why)
app.command()(approve)
app.command()(history)
app.command()(rollback)
app.command()(renumber)
app.command()(top)
app.command()(init)
app.command()(report)
submit.command("rapthor")(submit_rapthor)
submit.command("wrap")(wrap)
submit.command("filter")(filter_file)
submit.command("wrapper")(wrapper)
submit.command("toil-shim")(toil_shim)


def _add_examples(commands: typer.Typer, prefix: str = "") -> None:
    """Let the help of every command end with its examples."""
    for command in commands.registered_commands:
        name = command.name or (command.callback.__name__ if command.callback else "")
        command.epilog = epilog(f"{prefix}{name}")
    for group in commands.registered_groups:
        if group.typer_instance:
            _add_examples(group.typer_instance, f"{prefix}{group.name} ")


_add_examples(app)


def _load_state_view(config: Path) -> Any:  # noqa: ANN401 - show.Known, imported late
    from hydrator.config import load
    from hydrator.state.store import Store, owner_of
    from hydrator.wiring import reconcile_policy, system_clock

    from .output import tables as show

    settings = load(config)
    veil = _load_pseudonymizer(config)
    with Store.open_to_read(settings.daemon.state_dir) as store:
        return show.StateView.from_store(
            store,
            reconcile_policy(settings, veil),
            now=system_clock(),
            owner=owner_of(settings.daemon.state_dir),
            poll_seconds=settings.daemon.poll_seconds,
        )


def _load_pseudonymizer(config: Path) -> "Pseudonymizer | None":
    """What private datasets are called, for who may read the key."""
    from hydrator.config import load
    from hydrator.wiring import build_pseudonym_store

    with suppress(ConfigError):
        register = build_pseudonym_store(load(config), is_owner=False)
        return register.pseudonymizer if register else None
    return None


def _print_result(as_json: bool, value: Mapping[str, Any] | Sequence[Any], table: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(value, indent=2))
    else:
        table()


def _print_problems(*problems: str | None) -> None:
    for reason in problems:
        if reason:
            print(f"hydrator: {reason}", file=sys.stderr)

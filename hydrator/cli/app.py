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
from hydrator.cli.commands.submit.rapthor import command as submit_rapthor
from hydrator.cli.commands.submit.toil import toil_shim
from hydrator.cli.commands.submit.wrap import filter_file, wrap
from hydrator.cli.commands.submit.wrapper import wrapper
from hydrator.cli.commands.token import token
from hydrator.cli.commands.top import top
from hydrator.cli.commands.why import why
from hydrator.cli.output.examples import epilog
from hydrator.cli.output.progress import working
from hydrator.cli.output.stdio import behind, make_plain
from hydrator.domain.errors import ConfigError, HydratorError, StateMissing
from hydrator.domain.links import whereabouts
from hydrator.domain.text import count

from .options import DEFAULT_CONFIG, Config, Json

if TYPE_CHECKING:
    from hydrator.privacy.pseudonyms import Veil

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


class Role(StrEnum):
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
        _complain(whereabouts(*error.problems))
        sys.exit(2)
    except HydratorError as error:
        _complain(f"{error}", whereabouts(f"{error}"))
        sys.exit(1)
    except PermissionError as error:
        print(
            f"hydrator: {error.filename}: {error.strerror}; run this as the daemon's user or as root",
            file=sys.stderr,
        )
        sys.exit(1)
    except BrokenPipeError:
        behind(sys.stderr).close()
        sys.exit(1)


def _version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", is_eager=True, callback=_version, help="Print the version.")
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
    from hydrator.cli.output.manpage import manual
    from hydrator.wiring import system_clock

    print(manual(typer.main.get_command(app), __version__, f"{system_clock():%Y-%m-%d}"), end="")


@app.command()
def run(config: Config = DEFAULT_CONFIG) -> None:
    """Run the daemon: SIGTERM ends it, SIGHUP reads the configuration again."""
    from hydrator.daemon.daemon import run as run_daemon

    run_daemon(config)


@app.command()
def once(config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Run a single cycle: read, publish, read back. Exits 1 when a part of it failed."""
    from hydrator.config import load
    from hydrator.privacy.wrappers import veiled_state
    from hydrator.reconcile.clock_step import not_ahead
    from hydrator.reconcile.reconciler import summary
    from hydrator.state.command_files import Orders
    from hydrator.state.store import Store
    from hydrator.wiring import assemble, register_of, system_clock

    from .output import tables as show

    settings = load(config)
    with Store.open_to_write(settings.daemon.state_dir) as store:
        register = register_of(settings)
        state, _ = not_ahead(store.load(), system_clock(), settings.daemon.bound)
        state = veiled_state(state, register.veil) if register else state
        if register:
            store.forget_history(register.veil.privacy.names_private)
        parts = assemble(settings, system_clock, register=register)
        try:
            orders = Orders(settings.daemon.state_dir)
            orders.prepare()
            cycle = parts.cycle(state, store, system_clock, orders)
            with working("asking schedds and catalogues, then publishing"):
                cycle.ask_demand()
                report = cycle.run()
        finally:
            parts.close()
        _complain(store.lost)
    _print(as_json, summary(report) | {"plan": show.plan_rows(report)}, lambda: show.cycle(report))
    if not report.whole or cycle.demand_error:
        _complain(cycle.demand_error, *report.failures)
        raise typer.Exit(1)


@app.command()
def plan(config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Print what `once` would do, and do nothing: nothing is published, nothing is saved."""
    from hydrator.config import load
    from hydrator.privacy.wrappers import veiled_state
    from hydrator.reconcile.clock_step import not_ahead
    from hydrator.state.command_files import Orders
    from hydrator.state.store import State, Store
    from hydrator.wiring import assemble, register_of, system_clock

    from .output import tables as show

    settings = load(config)
    state = State()
    with suppress(StateMissing), Store.open_to_read(settings.daemon.state_dir) as store:
        state, _ = not_ahead(store.load(), system_clock(), settings.daemon.bound)
    register = register_of(settings, owned=False)
    if register:
        state = veiled_state(state, register.veil)
    parts = assemble(settings, system_clock, register=register)
    try:
        cycle = parts.cycle(state, None, system_clock, Orders(settings.daemon.state_dir))
        with working("asking schedds and catalogues"):
            cycle.ask_demand()
            report = cycle.plan()
    finally:
        parts.close()
    _print(as_json, show.plan_rows(report), lambda: show.plan(report))
    if not report.whole or cycle.demand_error:
        _complain(cycle.demand_error, *report.failures)
        raise typer.Exit(1)


@app.command()
def status(config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Print what is known, published and read back, catalogue by catalogue and publisher by publisher."""
    from .output import tables as show

    known = _known(config)
    _print(as_json, show.status_rows(known), lambda: show.status(known))


@app.command()
def sites(config: Config = DEFAULT_CONFIG, as_json: Json = False) -> None:
    """Print every site: datasets by state, age, generation, and where its ad was read back."""
    from .output import tables as show

    known = _known(config)
    _print(as_json, show.site_rows(known), lambda: show.sites(known))


@app.command()
def datasets(
    dids: Annotated[
        list[str] | None, typer.Argument(help="Only these, as scope:name; default: all wanted.")
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Who said so, when, by which call, and what else it knows.")
    ] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: Json = False,
) -> None:
    """Print every wanted dataset: its state and age at each site, and how many jobs want it."""
    from hydrator.domain.model import parse_did
    from hydrator.domain.provenance import provenance

    from .output import tables as show

    known = _known(config)
    veil = _veil(config)
    asked = [parse_did(did, known.default_scope) for did in dids] if dids else None
    if asked and veil:
        asked = [veil.opaque(did) for did in asked]
    if why:
        told = provenance(known.memories, asked or sorted(known.demand.dids), now=known.now)
        _print(as_json, told, lambda: show.provenance(told, known.now))
        return
    _print(as_json, show.dataset_rows(known, asked), lambda: show.datasets(known, asked))


@app.command()
def check(
    config: Config = DEFAULT_CONFIG,
    dmapi: Annotated[
        str | None,
        typer.Option(
            "--dmapi",
            metavar="URL",
            help="Only this: does the DMAPI there offer what we rely on? Needs no -c.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find what is wrong with an installation, and say what to do. Exits 1 when something must be done."""
    from hydrator.config import load
    from hydrator.diagnostics.check.dmapi_api import dmapi_findings
    from hydrator.diagnostics.check.examine import Level, examine
    from hydrator.wiring import assemble, described, examined, system_clock
    from .output import tables as show

    if dmapi is not None:
        with working(f"asking {dmapi}"):
            findings = list(dmapi_findings(*described(dmapi, load(config) if config.exists() else None)))
    else:
        settings = load(config)
        parts = assemble(settings, system_clock)
        try:
            with working("asking the pool and the catalogues"):
                findings = examine(examined(settings, parts))
        finally:
            parts.close()
    _print(as_json, show.finding_rows(findings), lambda: show.findings(findings))
    if not as_json:
        _complain(whereabouts(*(finding.todo for finding in findings)))
    if any(finding.level is Level.FAIL for finding in findings):
        raise typer.Exit(1)


@app.command()
def release(
    constraint: Annotated[str, typer.Argument(help="Which jobs: a ClassAd expression.")] = "true",
    config: Config = DEFAULT_CONFIG,
    schedd: Annotated[str | None, typer.Option(help="Only this schedd; default: all.")] = None,
    lists: Annotated[
        bool, typer.Option("--desired-sites", help="Only give back the DESIRED_Sites that jobs had.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Let queued jobs go anywhere: their locality requirement becomes true. Needs a queue super user."""
    from hydrator.config import load
    from hydrator.wiring import editing_client

    client = editing_client(load(config))
    try:
        schedds = [schedd] if schedd else [str(ad["Name"]) for ad in client.schedds()]
        released = {name: 0 if lists else client.release(name, constraint) for name in schedds}
        restored = {name: client.restore_jobs(name, constraint, asking=not lists) for name in schedds}
    finally:
        client.close()
    done, what = (restored, "given back their DESIRED_Sites") if lists else (released, "released")
    _print(
        as_json,
        done,
        lambda: print("\n".join(f"{count(jobs, 'job')} {what} at {name}" for name, jobs in done.items())),
    )


@app.command()
def hook() -> None:
    """Print the STARTD_CRON hook: one Python file for worker nodes; see docs/install-on-a-glidein.md."""
    source = Path(__file__).parents[1].joinpath("startd_cron.py")
    sys.stdout.write(source.read_text())


@submit.command("pool-config")
def pool_config(
    config: Config = DEFAULT_CONFIG,
    role: Annotated[Role, typer.Option(help="For which daemons.")] = Role.ALL,
    observe: Annotated[bool, typer.Option("--observe", help="Only rank: change no Requirements.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Say how it is taken out, and what is still there.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="The daemon whose present values are shown.")] = None,
) -> None:
    """Print the pool's configuration: transform and refusals, START, the negotiator's term."""
    from hydrator.config import load
    from hydrator.submit.pool_config import negotiator_config, removal, schedd_config, startd_config
    from hydrator.wiring import pool_policy, present_values

    settings = load(config)
    roles = [part.value for part in Role if part is not Role.ALL] if role is Role.ALL else [role.value]
    present, unread = present_values(settings, roles, name)
    policy = pool_policy(settings)
    texts = {
        "schedd": lambda: schedd_config(policy, present["schedd"], observe=observe),
        "startd": lambda: startd_config(present["startd"], observe=observe),
        "negotiator": lambda: negotiator_config(present["negotiator"], observe=observe),
    }
    for part in roles:
        print(removal(present)[part] if remove else texts[part]())
    _complain(*unread)
    if remove:
        _complain("jobs already queued keep their expressions: hydrator release lets them go anywhere")


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


def _teach(commands: typer.Typer, before: str = "") -> None:
    """Let the help of every command end with its examples."""
    for command in commands.registered_commands:
        name = command.name or (command.callback.__name__ if command.callback else "")
        command.epilog = epilog(f"{before}{name}")
    for group in commands.registered_groups:
        if group.typer_instance:
            _teach(group.typer_instance, f"{before}{group.name} ")


_teach(app)


def _known(config: Path) -> Any:  # noqa: ANN401 - show.Known, imported late
    from hydrator.config import load
    from hydrator.state.store import Store, owner_of
    from hydrator.wiring import rules, system_clock

    from .output import tables as show

    settings = load(config)
    veil = _veil(config)
    with Store.open_to_read(settings.daemon.state_dir) as store:
        return show.Known.of(
            store,
            rules(settings, veil),
            now=system_clock(),
            owner=owner_of(settings.daemon.state_dir),
            poll_seconds=settings.daemon.poll_seconds,
        )


def _veil(config: Path) -> "Veil | None":
    """What private datasets are called, for who may read the key."""
    from hydrator.config import load
    from hydrator.wiring import register_of

    with suppress(ConfigError):
        register = register_of(load(config), owned=False)
        return register.veil if register else None
    return None


def _print(as_json: bool, value: Mapping[str, Any] | Sequence[Any], table: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(value, indent=2))
    else:
        table()


def _complain(*reasons: str | None) -> None:
    for reason in reasons:
        if reason:
            print(f"hydrator: {reason}", file=sys.stderr)


"""Registration of the commands.

A command imports its modules only when it runs, so ``hydrator hook`` and ``--help`` start fast.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

import hydrator
from hydrator.cli.commands.check import check
from hydrator.cli.commands.control.approve import approve
from hydrator.cli.commands.control.renumber import renumber
from hydrator.cli.commands.control.run_anywhere import run_anywhere
from hydrator.cli.commands.control.staging import staging
from hydrator.cli.commands.history import history, rollback
from hydrator.cli.commands.init import InitOptions, init
from hydrator.cli.commands.inspect import datasets, network, sites, status
from hydrator.cli.commands.outcomes.replay import ReplayOptions, replay
from hydrator.cli.commands.outcomes.report import report
from hydrator.cli.commands.run import once, plan, run
from hydrator.cli.commands.submit.pool_config import pool_config
from hydrator.cli.commands.submit.rapthor.command import submit_rapthor
from hydrator.cli.commands.submit.toil import toil_shim
from hydrator.cli.commands.submit.wrap import filter_file, wrap
from hydrator.cli.commands.submit.wrapper import wrapper
from hydrator.cli.commands.token import token
from hydrator.cli.commands.top.command import top
from hydrator.cli.commands.why import why
from hydrator.cli.options import command_of
from hydrator.cli.output.examples import epilog
from hydrator.cli.output.printing import print_problems
from hydrator.cli.output.stdio import make_plain, unwrap_stream
from hydrator.domain.errors import ConfigError, HydratorError
from hydrator.domain.text import docs_folder_note

app = typer.Typer(
    name="hydrator",
    help="Advertise to an HTCondor pool which data each site has, so that jobs match where their data is.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
submit = typer.Typer(help="Prepare jobs and pool configuration for data locality.", no_args_is_help=True)
app.add_typer(submit, name="submit")
app.add_typer(token, name="token")
app.add_typer(staging, name="staging")


def main() -> None:
    """Run one command and print its errors without a traceback.

    Exit status: 0 done, 1 failed, 2 wrong usage or configuration.
    """
    make_plain()
    try:
        app(prog_name="hydrator")
    except ConfigError as error:
        print_problems(*error.problems, docs_folder_note(*error.problems))
        sys.exit(2)
    except HydratorError as error:
        print_problems(f"{error}", docs_folder_note(f"{error}"))
        sys.exit(1)
    except PermissionError as error:
        print_problems(f"{error.filename}: {error.strerror}; run this as the daemon's user or as root")
        sys.exit(1)
    except BrokenPipeError:
        unwrap_stream(sys.stderr).close()
        sys.exit(1)


def _switch_colors_off(is_requested: bool) -> None:
    if is_requested:
        os.environ["NO_COLOR"] = "1"  # Rich and the daemon's log obey it, whoever set it


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(hydrator.__version__)
        raise typer.Exit


@app.callback()
def _handle_global_options(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", is_eager=True, callback=_print_version, help="Print the version."),
    ] = False,
    no_color: Annotated[
        bool,
        typer.Option(
            "--no-color",
            is_eager=True,
            callback=_switch_colors_off,
            help="Print without colours, as with the environment variable NO_COLOR.",
        ),
    ] = False,
) -> None:
    """Advertise to an HTCondor pool which data each site has, so that jobs match where their data is."""


def version() -> None:
    """Print the version."""
    print(hydrator.__version__)


def man() -> None:
    """Print the man page: hydrator man > /usr/local/share/man/man1/hydrator.1."""
    from hydrator.cli.output.manpage import build_manpage
    from hydrator.wiring import system_clock

    print(
        build_manpage(typer.main.get_command(app), hydrator.__version__, f"{system_clock():%Y-%m-%d}"), end=""
    )


def hook() -> None:
    """Print the STARTD_CRON hook, one Python file for worker nodes.

    docs/how-to/operate/install/install-on-a-glidein.md explains how to install the hook.
    """
    source = Path(__file__).parents[1].joinpath("startd_cron.py")
    sys.stdout.write(source.read_text())


_COMMANDS: Sequence[Callable[..., None]] = (
    *(version, man, run, once, plan, status, sites, datasets, network, check, run_anywhere, hook),
    *(why, approve, history, rollback, renumber, top, command_of(InitOptions, init), report),
    command_of(ReplayOptions, replay),
)
_SUBMIT_COMMANDS: Mapping[str, Callable[..., None]] = {
    "pool-config": pool_config,
    "rapthor": submit_rapthor,
    "wrap": wrap,
    "filter": filter_file,
    "wrapper": wrapper,
    "toil-shim": toil_shim,
}
for _command in _COMMANDS:
    app.command()(_command)
for _name, _command in _SUBMIT_COMMANDS.items():
    submit.command(_name)(_command)


def _add_examples(commands: typer.Typer, prefix: str = "") -> None:
    """Add examples to the help of every command."""
    for command in commands.registered_commands:
        name = command.name or (command.callback.__name__ if command.callback else "")
        command.epilog = epilog(f"{prefix}{name}")
    for group in commands.registered_groups:
        if group.typer_instance:
            _add_examples(group.typer_instance, f"{prefix}{group.name} ")


_add_examples(app)

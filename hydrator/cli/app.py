"""The commands by name. The module of a command is imported only when the command is needed."""

import sys
from typing import Annotated, ClassVar

import typer

from hydrator.cli import hook_text, version_text
from hydrator.cli.groups import LazyGroup
from hydrator.cli.output.printing import print_problems
from hydrator.cli.output.stdio import make_plain
from hydrator.domain.errors import BadDid, ConfigError, HydratorError, StateUnreadable
from hydrator.domain.redaction import escape_unprintable


class _Commands(LazyGroup):
    """The command line."""

    table: ClassVar = {
        "run": (".commands.run:run", "Run the daemon until SIGTERM; SIGHUP makes it read its configuration."),
        "once": (".commands.run:once", "Run one cycle: read catalogues, publish ads, read them back."),
        "plan": (".commands.run:plan", "Print the actions that `once` would take, and take none."),
        "status": (".commands.inspect:status", "Print the daemon's state, and what needs attention."),
        "sites": (".commands.inspect:sites", "Print every site, or one site with the changes of its ad."),
        "datasets": (".commands.inspect:datasets", "Print the state of every demanded dataset at each site."),
        "network": (".commands.inspect:network", "Print the rate between sites, and where it comes from."),
        "check": (".commands.check:check", "Examine an installation and give advice on each problem."),
        "pool-config": (".commands.pool_config:pool_config", "Print HTCondor configuration for a pool."),
        "run-anywhere": (".commands.control.run_anywhere:run_anywhere", "Let queued jobs run anywhere."),
        "hook": (".app:hook", "Print the STARTD_CRON hook, one Python file for worker nodes."),
        "why": (".commands.why:why", "Explain why a job is idle, or where a job with DIDs could run."),
        "approve": (".commands.control.approve:approve", "Approve the changes that the daemon holds back."),
        "init": (".commands.init:init_command", "Write a first configuration, with answers or by options."),
        "report": (".commands.report:report", "Report whether jobs started beside their data."),
        "submit": (".app:submit", "Prepare jobs for data locality."),
        "token": (".commands.token:token", "Create, list and revoke tokens of the HTTP API."),
        "staging": (".commands.control.staging:staging", "List, approve, cancel and stop requests of data."),
    }


class _SubmitCommands(LazyGroup):
    """``hydrator submit``."""

    prefix = "submit "
    table: ClassVar = {
        "rapthor": (".commands.submit.rapthor.command:command", "Turn a Rapthor parset into a job."),
        "wrap": (".commands.submit.wrap:wrap", "Run condor_submit with RequiredDatasets added."),
        "filter": (".commands.submit.wrap:filter_file", "Print a submit or DAG file with RequiredDatasets."),
        "wrapper": (".commands.submit.scripts:wrapper", "Print the job wrapper."),
        "toil-shim": (".commands.submit.scripts:toil_shim", "Print a toil-cwl-runner for Rapthor."),
    }


app = typer.Typer(
    name="hydrator",
    cls=_Commands,
    help="Advertise to an HTCondor pool which data each site has, so that jobs match where their data is.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
submit = typer.Typer(cls=_SubmitCommands, no_args_is_help=True, add_completion=False)


def main() -> None:
    """Run one command and print its errors without a traceback.

    Exit status: 0 done, 1 failed, 2 wrong usage, configuration or state.
    """
    make_plain()
    try:
        app(prog_name="hydrator")
    except HydratorError as error:
        from hydrator.domain.text import docs_folder_note

        for frames in getattr(error, "__notes__", ()):  # of a bug in a worker
            print(escape_unprintable(frames, "\n"), file=sys.stderr)
        problems = error.problems if isinstance(error, ConfigError) else [f"{error}"]
        print_problems(*problems, docs_folder_note(*problems))
        sys.exit(2 if isinstance(error, ConfigError | BadDid | StateUnreadable) else 1)
    except PermissionError as error:
        print_problems(f"{error.filename}: {error.strerror}; run this as the daemon's user or as root")
        sys.exit(1)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        sys.stdout.write(version_text())
        raise typer.Exit


@app.callback()
def _handle_global_options(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", is_eager=True, callback=_print_version, help="Print the version."),
    ] = False,
) -> None:
    """Advertise to an HTCondor pool which data each site has, so that jobs match where their data is."""


@submit.callback()
def _prepare_submission() -> None:
    """Prepare jobs for data locality."""


def hook() -> None:
    """Print the STARTD_CRON hook, one Python file for worker nodes.

    docs/operators/glideins.md explains how to install the hook.
    """
    sys.stdout.write(hook_text())

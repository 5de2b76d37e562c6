"""``hydrator replay``: try policies on the pool's own jobs, or on a workload file, in a model of the pool."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, command_of
from hydrator.cli.output.printing import print_result


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options of ``hydrator replay``."""

    policy: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "A policy to try, also several times: off, recorded, require, auto, prefer or wait;"
                " with a time, as wait:90m. Default: off, prefer, wait and auto."
            )
        ),
    ] = None
    since: Annotated[
        str,
        typer.Option(help="Replay jobs that ended since this time: 30d or 12h ago, or 2026-11-21T12:00:00Z."),
    ] = "30d"
    workload: Annotated[
        Path | None,
        typer.Option(help="Replay the jobs of this JSON file instead; needs no pool and no configuration."),
    ] = None
    uplink: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "The rate at which all readers together read from a site, as NAME=10Gb/s or NAME=1.2GB/s."
                " Default: the rates that `hydrator network` shows."
            )
        ),
    ] = None
    cycle: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds between two negotiation cycles.")
    ] = 60.0
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Runs of each policy, with other draws.")] = 5
    export_swf: Annotated[
        Path | None, typer.Option(help="Write the first run of the first policy in SWF to this file.")
    ] = None
    export_wfcommons: Annotated[
        Path | None, typer.Option(help="Write the same run in WfCommons' JSON format to this file.")
    ] = None
    config: Annotated[
        Path, typer.Option("--config", "-c", envvar="HYDRATOR_CONFIG", help="The daemon's configuration.")
    ] = DEFAULT_CONFIG_PATH
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")
    ] = False


def replay(options: ReplayOptions) -> None:
    """Try policies on the pool's past jobs in a model of the pool, and compare the results.

    Run the command on the daemon's host: the daemon's state has the datasets and slots of each site over
    time. With --workload, the command needs neither the pool nor a configuration.
    """
    from .policy_table import print_policy_table, replay_json
    from .policy_trial import try_policies

    table = try_policies(options)
    print_result(options.as_json, replay_json(table), lambda: print_policy_table(table))


replay_command = command_of(ReplayOptions, replay)

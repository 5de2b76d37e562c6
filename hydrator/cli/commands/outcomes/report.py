"""``hydrator report``: the share of jobs that found their data, and the waiting times of jobs."""

from typing import Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption
from hydrator.cli.output.printing import print_problems


def report(
    since: Annotated[
        str,
        typer.Option(
            help="Only jobs that ended since this time: 90m, 6h or 7d ago, or 2026-11-21T12:00:00Z."
        ),
    ] = "7d",
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    as_json: JsonOption = False,
) -> None:
    """Report whether jobs found their data at their site. Exits 1 if a schedd's history is incomplete.

    Run the command on the daemon's host: the daemon's state has the datasets of each site over time.
    """
    from .job_report import print_report

    problems = print_report(since, config, as_json=as_json)
    print_problems(*problems)
    if problems:
        raise typer.Exit(1)

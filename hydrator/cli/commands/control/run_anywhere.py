"""``hydrator run-anywhere``: free queued jobs from their locality requirement.

A number is a job, never a constraint: as a ClassAd expression, ``178`` is true for every job of all users.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, read_typed
from hydrator.cli.output.printing import print_problems
from hydrator.cli.output.progress import show_progress
from hydrator.domain.errors import ConfigError
from hydrator.domain.text import format_count


def run_anywhere(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Jobs, as 123 or 123.4; or one ClassAd expression that selects jobs.",
            metavar="JOB…|CONSTRAINT",
        ),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    schedd: Annotated[
        str | None, typer.Option(help="Only this schedd; default: all.", callback=read_typed)
    ] = None,
    all_jobs: Annotated[bool, typer.Option("--all", help="Every queued job, of all users.")] = False,
) -> None:
    """Let queued jobs run anywhere.

    The command sets their locality requirement to true; the schedd allows this only to a queue super user.
    Exits 1 if no queued job matches.
    """
    constraint = select_jobs(jobs or (), all_jobs=all_jobs)
    from hydrator.config import load
    from hydrator.wiring.condor import build_condor_client

    with closing(build_condor_client(load(config).htcondor)) as client:
        edit_jobs(client, schedd, constraint)


def select_jobs(texts: Sequence[str], *, all_jobs: bool) -> str | None:
    """Return the constraint of the jobs that a user named; None: every queued job.

    Raises:
        ConfigError: the words name no job, or jobs in two ways.
    """
    from hydrator.diagnostics.why.query import parse_job_number

    if all_jobs and texts:
        raise ConfigError(["--all is every queued job: give no job and no constraint beside it"])
    if all_jobs:
        return None
    if not texts:
        raise ConfigError(
            ["name the jobs: 123, 123.4, a constraint, or --all for every queued job of all users"]
        )
    numbers = [number for text in texts if (number := parse_job_number(text))]
    if len(numbers) == len(texts):
        return " || ".join(
            f"ClusterId == {cluster}" + ("" if proc is None else f" && ProcId == {proc}")
            for cluster, proc in numbers
        )
    if len(texts) > 1:
        raise ConfigError(["give jobs (123 or 123.4) only, or one constraint only, as one quoted argument"])
    return read_typed(texts[0])


def edit_jobs(
    client: Any,  # noqa: ANN401 - the pool's client, which only wiring imports
    schedd: str | None,
    constraint: str | None,
) -> None:
    """Edit the jobs that match *constraint* (None: every job), and print their number by schedd.

    Raises:
        ConfigError: the constraint asks nothing of a job, or it is not an expression.
        typer.Exit: no queued job matches the constraint.
    """
    freed_jobs: dict[str, int | None] = {}
    with show_progress("editing the queued jobs of the schedds", has_steps=True) as bar:
        schedds = [schedd] if schedd else [str(ad["Name"]) for ad in client.schedds()]
        bar.set_steps(len(schedds))
        for name in schedds:
            freed_jobs[name] = client.run_anywhere(name, constraint)
            bar.advance()
    for name, jobs in freed_jobs.items():
        print(f"{name}: {format_count(jobs or 0, 'job')} may run anywhere now")
    if constraint is not None and set(freed_jobs.values()) <= {None}:
        print_problems(f'no queued job matches {constraint}; a text needs quotes, as in Owner == "alice"')
        raise typer.Exit(1)

"""``hydrator release``: free queued jobs from their locality requirement."""

from contextlib import closing
from typing import Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption
from hydrator.cli.output.printing import print_result
from hydrator.domain.text import format_count


def release(
    constraint: Annotated[str, typer.Argument(help="A ClassAd expression that selects the jobs.")] = "true",
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    schedd: Annotated[str | None, typer.Option(help="Only this schedd; default: all.")] = None,
    lists: Annotated[
        bool,
        typer.Option(
            "--desired-sites",
            help="Only restore the DESIRED_Sites that each job had before the daemon changed this attribute.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Let queued jobs run anywhere: set their locality requirement to true.

    The schedd allows this only to a queue super user.
    """
    from hydrator.config import load
    from hydrator.wiring import build_editing_client

    with closing(build_editing_client(load(config))) as client:
        schedds = [schedd] if schedd else [str(ad["Name"]) for ad in client.schedds()]
        released_jobs = {name: 0 if lists else client.release(name, constraint) for name in schedds}
        restored_jobs = {
            name: client.restore_desired_sites(name, constraint, should_opt_out=not lists) for name in schedds
        }
    job_counts, action = (
        (restored_jobs, "with restored DESIRED_Sites") if lists else (released_jobs, "released")
    )
    print_result(
        as_json,
        job_counts,
        lambda: print(
            "\n".join(f"{format_count(jobs, 'job')} {action} at {name}" for name, jobs in job_counts.items())
        ),
    )

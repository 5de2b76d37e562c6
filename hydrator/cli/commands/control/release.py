"""``hydrator release``: free queued jobs from their locality requirement."""

from contextlib import closing
from typing import Annotated, Any

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption
from hydrator.cli.output.printing import print_result
from hydrator.cli.output.progress import show_progress
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

    client = build_editing_client(load(config))
    with closing(client):
        released_jobs, restored_jobs = _edit_jobs(client, schedd, constraint, lists=lists, as_json=as_json)
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


def _edit_jobs(
    client: Any,  # noqa: ANN401 - the pool's client, which only wiring imports
    schedd: str | None,
    constraint: str,
    *,
    lists: bool,
    as_json: bool,
) -> tuple[dict[str, int], dict[str, int]]:
    """Return, by schedd, the numbers of released jobs and of jobs with restored DESIRED_Sites."""
    released_jobs: dict[str, int] = {}
    restored_jobs: dict[str, int] = {}
    with show_progress("editing the queued jobs of the schedds", has_steps=True, as_json=as_json) as bar:
        schedds = [schedd] if schedd else [str(ad["Name"]) for ad in client.schedds()]
        bar.set_steps(2 * len(schedds))
        for name in schedds:
            released_jobs[name] = 0 if lists else client.release(name, constraint)
            bar.advance()
        for name in schedds:
            restored_jobs[name] = client.restore_desired_sites(name, constraint, should_opt_out=not lists)
            bar.advance()
    return released_jobs, restored_jobs

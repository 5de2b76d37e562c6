"""``hydrator pool-config``: print HTCondor configuration for a pool."""

from typing import Annotated, Literal

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption
from hydrator.config import load
from hydrator.submit.pool_config import negotiator_config, schedd_config, startd_config


def pool_config(
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    role: Annotated[
        Literal["all", "schedd", "startd", "negotiator"],
        typer.Option(help="The HTCondor daemons that read the printed configuration."),
    ] = "all",
    rank_only: Annotated[
        bool, typer.Option("--rank-only", help="Only rank slots by data; change no job's Requirements.")
    ] = False,
    job_rank: Annotated[
        bool,
        typer.Option(
            "--job-rank", help="Also add the rank to the jobs' Rank, for negotiators without our term."
        ),
    ] = False,
) -> None:
    """Print HTCondor configuration for a pool.

    The schedd gets a job transform and checks, the startd START, the negotiator NEGOTIATOR_PRE_JOB_RANK.
    """
    settings = load(config)
    texts = {
        "schedd": schedd_config(settings, rank_only=rank_only, job_rank=job_rank),
        "startd": startd_config(rank_only=rank_only),
        "negotiator": negotiator_config(rank_only=rank_only),
    }
    for part, text in texts.items():
        if role in (part, "all"):
            print(text)

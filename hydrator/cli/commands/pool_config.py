"""``hydrator pool-config``: print HTCondor configuration for a pool."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption
from hydrator.cli.output.printing import print_problems
from hydrator.cli.output.progress import show_progress

if TYPE_CHECKING:
    from hydrator.submit.pool_config import PoolPolicy


class PoolRole(StrEnum):
    """HTCondor daemons that read the printed configuration."""

    ALL = "all"
    SCHEDD = "schedd"
    STARTD = "startd"
    NEGOTIATOR = "negotiator"


def pool_config(
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    role: Annotated[
        PoolRole, typer.Option(help="The HTCondor daemons that read the printed configuration.")
    ] = PoolRole.ALL,
    rank_only: Annotated[
        bool, typer.Option("--rank-only", help="Only rank slots by data; change no job's Requirements.")
    ] = False,
    job_rank: Annotated[
        bool,
        typer.Option(
            "--job-rank", help="Also add the rank to the jobs' Rank, for negotiators without our term."
        ),
    ] = False,
    remove: Annotated[
        bool,
        typer.Option(
            "--remove", help="Print the steps to remove this configuration, and the parts that remain."
        ),
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the HTCondor daemon whose current configuration this command reads."),
    ] = None,
) -> None:
    """Print configuration for HTCondor: job transform and checks, START, and NEGOTIATOR_PRE_JOB_RANK."""
    from hydrator.config import load
    from hydrator.submit.pool_config import removal_texts
    from hydrator.wiring import fetch_config_values, pool_policy

    settings = load(config)
    roles = (
        [part.value for part in PoolRole if part is not PoolRole.ALL]
        if role is PoolRole.ALL
        else [role.value]
    )
    with show_progress("reading the pool's present configuration"):
        present, unread = fetch_config_values(settings, roles, name)
    if remove:
        texts = removal_texts(present)
    else:
        texts = _config_texts(pool_policy(settings), present, roles, rank_only=rank_only, job_rank=job_rank)
    for part in roles:
        print(texts[part])
    print_problems(*unread)
    if remove:
        print_problems("jobs already queued keep their expressions; hydrator run-anywhere --all frees them")


def _config_texts(
    policy: "PoolPolicy",
    present: Mapping[str, Mapping[str, str | None]],
    roles: Sequence[str],
    *,
    rank_only: bool,
    job_rank: bool,
) -> dict[str, str]:
    """Return the configuration for each of *roles*."""
    from hydrator.submit.pool_config import negotiator_config, schedd_config, startd_config

    texts = {
        "schedd": lambda: schedd_config(policy, present["schedd"], rank_only=rank_only, job_rank=job_rank),
        "startd": lambda: startd_config(present["startd"], rank_only=rank_only),
        "negotiator": lambda: negotiator_config(present["negotiator"], rank_only=rank_only, policy=policy),
    }
    return {part: texts[part]() for part in roles}

"""What talks to the pool; what may be slow, in a child process of its own."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from adapters.condor import CondorClient, CondorSettings
from adapters.condor.schedds import ScheddHistory, ScheddJobSites
from adapters.condor.slot_merge import SlotMerger
from hydrator.config import Settings
from hydrator.domain.errors import PoolError
from hydrator.domain.ports import Clock, JobHistory
from hydrator.reconcile.desired_sites.controller import DesiredSitesController
from hydrator.submit.pool_config import NEGOTIATOR_PARAMETERS, SCHEDD_PARAMETERS, STARTD_PARAMETERS

from .policies import max_age_of


def build_condor_client(
    settings: Settings, tokens: Path | None = None, collector: str | None = None
) -> CondorClient:
    """The supervised child that holds the HTCondor bindings; it starts at the first question.

    With *tokens* it has the credentials of that folder, and no others. With *collector* it talks to that
    collector alone, where several are configured.
    """
    pool = settings.htcondor
    only = {"SEC_TOKEN_SYSTEM_DIRECTORY": str(tokens)} if tokens else {}
    return CondorClient(
        CondorSettings(
            collector=collector or pool.collector,
            config_file=pool.config_file,
            token_directory=tokens or pool.token_directory,
            params=only,
            timeout=timedelta(seconds=pool.timeout_seconds),
        )
    )


def build_collector_clients(settings: Settings, client: CondorClient) -> Mapping[str, CondorClient]:
    """Build the clients that publish to collectors, by the name of the publisher.

    Of several collectors each has a child process of its own: one that hangs, or restarted empty, holds up
    no other. A single one is published to through *client*.
    """
    addresses = _collector_addresses(settings, client)
    if len(addresses) < 2:
        return {"collector": client}
    return {f"collector {one}": build_condor_client(settings, collector=one) for one in addresses}


def _collector_addresses(settings: Settings, client: CondorClient) -> list[str]:
    """Return the addresses of all collectors, ordered; HTCondor's configuration has them by default."""
    if settings.htcondor.collector:
        return sorted(set(re.split(r"[,\s]+", settings.htcondor.collector)) - {""})
    try:
        return sorted(set(client.collectors()))
    except PoolError:  # publishing reports the reason
        return []


def build_slot_merger(settings: Settings, clock: Clock) -> SlotMerger:
    """The merges, in a child process of their own: a collector that hangs holds up no cycle."""
    merge = settings.publish.merge
    return SlotMerger(
        build_condor_client(settings),
        settings.sites.slot_attributes,
        slots_per_second=merge.slots_per_second,
        interval=timedelta(seconds=merge.interval_seconds),
        clock=clock,
    )


def build_editing_client(settings: Settings) -> CondorClient:
    """A child process of its own for edits of queued jobs, as whoever may."""
    return build_condor_client(settings, settings.publish.desired_sites.token_directory)


def build_desired_sites_controller(
    settings: Settings, client: CondorClient, clock: Clock
) -> DesiredSitesController:
    """What keeps ``DESIRED_Sites`` of queued jobs, through *client*."""
    chosen = settings.publish.desired_sites
    return DesiredSitesController(
        ScheddJobSites(client),
        clock,
        max_age=max_age_of(settings),
        default_scope=settings.daemon.default_scope,
        edits_per_second=chosen.jobs_per_second,
        interval=timedelta(seconds=chosen.interval_seconds),
    )


def build_job_history(settings: Settings, clock: Clock) -> JobHistory:
    """What became of jobs, asked through a child process of its own."""
    return build_client_job_history(settings, build_condor_client(settings), clock)


def build_client_job_history(settings: Settings, client: CondorClient, clock: Clock) -> JobHistory:
    """What became of jobs, asked through *client*."""
    recorded = dict.fromkeys(("DataLocalitySite", *settings.sites.slot_attributes))
    return ScheddHistory(client, clock, tuple(recorded))


def fetch_config_values(
    settings: Settings, roles: Sequence[str], name: str | None
) -> tuple[dict[str, dict[str, str | None]], list[str]]:
    """What the pool's daemons are configured with now, by role, and why some could not be asked."""
    wanted = {"schedd": SCHEDD_PARAMETERS, "startd": STARTD_PARAMETERS, "negotiator": NEGOTIATOR_PARAMETERS}
    present: dict[str, dict[str, str | None]] = {role: {} for role in wanted}
    unread = []
    client = build_condor_client(settings)
    try:
        for role in roles:
            try:
                present[role] = client.config_of(role, wanted[role], name)  # type: ignore[arg-type]
            except PoolError as error:
                unread.append(
                    f"the present values of the {role} are not known, the text extends them: {error}"
                )
    finally:
        client.close()
    return present, unread

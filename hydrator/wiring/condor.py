"""What talks to the pool; what may be slow, in a child process of its own."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from adapters.condor import CondorClient, CondorSettings
from adapters.condor.desired_sites import ScheddJobSites
from adapters.condor.schedds import ScheddHistory
from adapters.condor.slot_merge import SlotMerger
from hydrator.config import Settings
from hydrator.domain.errors import PoolError
from hydrator.domain.ports import Clock, History
from hydrator.reconcile.desired_sites.controller import Desiring
from hydrator.submit.pool_config import NEGOTIATOR_PRESENT, SCHEDD_PRESENT, STARTD_PRESENT

from .policies import max_age_of


def condor_client(
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


def collector_clients(settings: Settings, client: CondorClient) -> Mapping[str, CondorClient]:
    """Build the clients that publish to collectors, by the name of the publisher.

    Of several collectors each has a child process of its own: one that hangs, or restarted empty, holds up
    no other. A single one is published to through *client*.
    """
    addresses = _collectors(settings, client)
    if len(addresses) < 2:
        return {"collector": client}
    return {f"collector {one}": condor_client(settings, collector=one) for one in addresses}


def _collectors(settings: Settings, client: CondorClient) -> list[str]:
    """Return the addresses of all collectors, ordered; HTCondor's configuration has them by default."""
    if settings.htcondor.collector:
        return sorted(set(re.split(r"[,\s]+", settings.htcondor.collector)) - {""})
    try:
        return sorted(set(client.collectors()))
    except PoolError:  # publishing reports the reason
        return []


def slot_merger(settings: Settings, clock: Clock) -> SlotMerger:
    """The merges, in a child process of their own: a collector that hangs holds up no cycle."""
    merge = settings.publish.merge
    return SlotMerger(
        condor_client(settings),
        settings.sites.slot_attributes,
        pace=merge.slots_per_second,
        interval=timedelta(seconds=merge.interval_seconds),
        clock=clock,
    )


def editing_client(settings: Settings) -> CondorClient:
    """A child process of its own for edits of queued jobs, as whoever may."""
    return condor_client(settings, settings.publish.desired_sites.token_directory)


def desiring_by(settings: Settings, client: CondorClient, clock: Clock) -> Desiring:
    """What keeps ``DESIRED_Sites`` of queued jobs, through *client*."""
    chosen = settings.publish.desired_sites
    return Desiring(
        ScheddJobSites(client),
        clock,
        max_age=max_age_of(settings),
        default_scope=settings.daemon.default_scope,
        pace=chosen.jobs_per_second,
        interval=timedelta(seconds=chosen.interval_seconds),
    )


def history_of(settings: Settings, clock: Clock) -> History:
    """What became of jobs, asked through a child process of its own."""
    return history_by(settings, condor_client(settings), clock)


def history_by(settings: Settings, client: CondorClient, clock: Clock) -> History:
    """What became of jobs, asked through *client*."""
    recorded = dict.fromkeys(("DataLocalitySite", *settings.sites.slot_attributes))
    return ScheddHistory(client, clock, tuple(recorded))


def present_values(
    settings: Settings, roles: Sequence[str], name: str | None
) -> tuple[dict[str, dict[str, str | None]], list[str]]:
    """What the pool's daemons are configured with now, by role, and why some could not be asked."""
    wanted = {"schedd": SCHEDD_PRESENT, "startd": STARTD_PRESENT, "negotiator": NEGOTIATOR_PRESENT}
    present: dict[str, dict[str, str | None]] = {role: {} for role in wanted}
    unread = []
    client = condor_client(settings)
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

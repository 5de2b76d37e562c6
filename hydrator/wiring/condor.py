"""HTCondor parts: build the clients of the pool, and the parts that use these clients.

Each kind of slow work has its own child process, so that it does not delay cycles.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar

from adapters.condor.bindings.client import CondorClient
from adapters.condor.bindings.process import CondorSettings
from adapters.condor.job_history import BufferedMisses, HistoryRounds, ReportBuffer, WrapperReports
from adapters.condor.pool_load import CondorPool, ScheddClusters, ScheddNeeds
from adapters.condor.slot_merge import SlotMerger
from hydrator.config import Settings
from hydrator.config.daemon import HTCondorSettings
from hydrator.domain.ads import contract
from hydrator.domain.errors import PoolError
from hydrator.domain.ports import Clock, StepReporter

_T = TypeVar("_T")


class Closable(Protocol):
    """A part that holds connections or child processes."""

    def close(self) -> None:
        """Close the connections, and stop the child processes."""


@dataclass(frozen=True)
class PoolParts:
    """The parts that talk to the pool; a part that the configuration does not need is None.

    Cycles use ``client``. ``publishing_clients`` has one client for each collector, by the publisher's name.
    If there is only one collector, its client is ``client``.
    """

    client: CondorClient | None
    publishing_clients: Mapping[str, CondorClient]
    schedds: CondorPool | None
    needs: ScheddNeeds | None
    misses: BufferedMisses | None
    reads: WrapperReports | None
    history: HistoryRounds | None
    merger: SlotMerger | None

    @property
    def collectors(self) -> dict[str, CondorClient]:
        """Return one client for each collector, by the publisher's name; empty for a single collector."""
        return {name: each for name, each in self.publishing_clients.items() if each is not self.client}

    @property
    def child_restarts(self) -> int:
        """Return the number of restarts of the child processes that cycles use."""
        return sum(each.restart_count for each in (self.client, *self.collectors.values()) if each)

    @property
    def closables(self) -> Iterator[Closable]:
        """Yield the parts to close: first the part that edits slots."""
        queries = (self.history, self.schedds, self.needs)
        parts = (self.merger, self.client, *self.collectors.values(), *queries)
        return (part for part in parts if part)


def build_pool_parts(settings: Settings, clock: Clock) -> PoolParts:
    """Build the parts that talk to the pool; each child process starts at its first query."""
    demand, publish, htcondor = settings.demand, settings.publish, settings.htcondor
    client = build_condor_client(htcondor) if _needs_pool(settings) else None
    misses, reads = (BufferedMisses(), WrapperReports()) if demand.ask_schedds else (None, None)
    buffers = [buffer for buffer in (misses, reads) if buffer]
    schedds = needs = None
    if demand.ask_schedds:
        schedds = _build_rounds(partial(CondorPool, buffers=buffers), settings, clock)
    if schedds and _needs_data(settings):
        site_attributes = settings.sites.slot_attributes
        needs = ScheddNeeds(schedds, build_condor_client(htcondor), clock, site_attributes)
    return PoolParts(
        client=client,
        publishing_clients=(
            build_collector_clients(htcondor, client) if client and publish.collector.enabled else {}
        ),
        schedds=schedds,
        needs=needs,
        misses=misses,
        reads=reads,
        history=build_job_history(settings, clock, buffers=buffers) if demand.ask_schedds else None,
        # its own child process, so that a slow collector does not delay cycles
        merger=SlotMerger(
            build_condor_client(htcondor),
            settings.sites.slot_attributes,
            interval=timedelta(seconds=settings.daemon.step_seconds),
        )
        if publish.slot_merge
        else None,
    )


def count_condor_clients(settings: Settings, collectors: int) -> int:
    """Return the number of child processes with HTCondor's bindings that the daemon uses all the time.

    They are one for the pool, three for questions about jobs (queues, transfers, and all others), one for the
    needs of staging, one for the merge, and *collectors*, if there are several collectors.
    """
    return (
        _needs_pool(settings)
        + 3 * settings.demand.ask_schedds
        + _needs_data(settings)
        + settings.publish.slot_merge
        + collectors
    )


def _needs_data(settings: Settings) -> bool:
    return settings.staging.mode != "off" and bool(settings.staging.catalogues)


def _needs_pool(settings: Settings) -> bool:
    publish = settings.publish
    return settings.demand.ask_schedds or publish.collector.enabled or publish.slot_merge


def build_cluster_queues(settings: Settings, clock: Clock) -> ScheddClusters:
    """Build the query of the jobs of one cluster, in child processes of its own."""
    return _build_rounds(ScheddClusters, settings, clock)


def _build_rounds(
    kind: Callable[[CondorClient, Clock, Sequence[str], Callable[[], CondorClient]], _T],
    settings: Settings,
    clock: Clock,
) -> _T:
    """Build a query of jobs and slots; it has its own clients, because an answer may take long."""
    make_client = partial(build_condor_client, settings.htcondor)
    return kind(make_client(), clock, settings.sites.slot_attributes, make_client)


def build_condor_client(htcondor: HTCondorSettings, collector: str | None = None) -> CondorClient:
    """Build a supervised child process with the HTCondor bindings; it starts at the first query.

    With *collector* the child connects only to this collector, not to the other configured collectors.
    """
    address = collector or htcondor.collector
    return CondorClient(CondorSettings(address, htcondor.config_file, htcondor.token_directory))


def build_collector_clients(htcondor: HTCondorSettings, client: CondorClient) -> Mapping[str, CondorClient]:
    """Build the clients that publish to collectors, by the name of the publisher.

    Each of several collectors has its own child process, so that a collector that hangs, or that restarted
    without ads, does not delay the others. A single collector uses *client*.
    """
    addresses = _collector_addresses(htcondor, client)
    if len(addresses) < 2:
        return {"collector": client}
    return {f"collector {each}": build_condor_client(htcondor, collector=each) for each in addresses}


def _collector_addresses(htcondor: HTCondorSettings, client: CondorClient) -> list[str]:
    """Return the addresses of all collectors in order; by default those in HTCondor's configuration."""
    if htcondor.collector:
        return sorted(set(re.split(r"[,\s]+", htcondor.collector)) - {""})
    try:
        return sorted(set(client.collectors()))
    except PoolError:  # publishing reports the reason
        return []


def build_job_history(
    settings: Settings,
    clock: Clock,
    reporter: StepReporter | None = None,
    buffers: Sequence[ReportBuffer] = (),
) -> HistoryRounds:
    """Build the query of ended jobs, in its own child process, because cycles do not wait for it.

    *reporter* gets each schedd as a step; *buffers* get the reports of newly ended jobs.
    """
    client = build_condor_client(settings.htcondor)
    site_attributes = dict.fromkeys((contract.SITE, *settings.sites.slot_attributes))
    return HistoryRounds(client, clock, tuple(site_attributes), reporter=reporter, buffers=buffers)

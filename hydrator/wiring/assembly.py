"""Assembly: build all parts of a configuration: publishers, staging, rates, and what other modules build."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from adapters.catalogue_client import WorkerCatalogue
from adapters.condor.bindings.client import CondorClient
from adapters.condor.collector import CollectorPublisher
from adapters.condor.job_history import TransferRecords
from adapters.files.ad_files import AdFilePublisher
from adapters.files.sites_file import SitesFilePublisher
from adapters.http.publisher import WebPublisher
from hydrator.config import RucioSource, Settings
from hydrator.config.network import NetworkSettings
from hydrator.diagnostics.overview.saved import load_view
from hydrator.domain.ads import contract
from hydrator.domain.ads.openings import OPENINGS_REPORT, PacedCycle
from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Did, Site
from hydrator.domain.network import TransferLog
from hydrator.domain.ports import Catalogue, Clock, PoolReader
from hydrator.reconcile.pacer import Pacer
from hydrator.reconcile.publish import PublishTarget
from hydrator.reconcile.rates import RateTable
from hydrator.reconcile.reconciler import CycleTimeouts, Reconciler
from hydrator.reconcile.state import ReconcileState
from hydrator.reconcile.threads import THREADS, Threads
from hydrator.staging.controller import StagingParts
from hydrator.state.command_files import CommandQueue, StagingFiles
from hydrator.state.reports import NETWORK_REPORT, NetworkRecord, load_queues
from hydrator.state.store import Store
from hydrator.wiring.catalogues import build_catalogues, build_stagers
from hydrator.wiring.condor import Closable, PoolParts, build_condor_client, build_pool_parts
from hydrator.wiring.secrets import register_secrets


@dataclass
class NetworkParts:
    """The sources of rates, and ``rates``, the present table.

    A background worker replaces the table, and each cycle reads it. A table never changes.
    """

    logs: Sequence[TransferLog]
    settings: NetworkSettings
    rates: RateTable

    def find_rate(self, source: Site, destination: Site) -> float:
        """Return the present bytes/s from *source* to *destination*."""
        return self.rates.bytes_per_second(source, destination)

    def load_rates(self, store: Store, now: datetime) -> None:
        """Fill the table from the state, so that the first cycle has the rates of the last run.

        Raises:
            StateError: the state cannot be read.
        """
        record = store.load_report(NETWORK_REPORT, NetworkRecord) or NetworkRecord()
        self.rates = RateTable(record.samples, now=now, network=self.settings)


def build_network_parts(settings: Settings, clock: Clock, reads: TransferLog | None) -> NetworkParts:
    """Build the sources of rates, with those that jobs reported in *reads*, if schedds are queried."""
    attributes = tuple(dict.fromkeys((contract.SITE, *settings.sites.slot_attributes)))
    logs: list[TransferLog] = []
    if reads:
        client, find_site = build_condor_client(settings.htcondor), site_of_host(settings.network.hosts)
        logs += [reads, TransferRecords(client, clock, attributes, find_site)]
    return NetworkParts(logs, settings.network, RateTable((), now=clock(), network=settings.network))


def site_of_host(hosts: Mapping[str, str]) -> Callable[[str], Site | None]:
    """Return a function that returns the site of a host; of several patterns the longest decides."""
    lower = {pattern.lower().rstrip("."): Site(site) for pattern, site in hosts.items()}

    def find_site(host: str) -> Site | None:
        name = host.lower().rstrip(".")
        if name in lower:
            return lower[name]
        parts = name.split(".")
        domains = (".".join(["*", *parts[number:]]) for number in range(1, len(parts)))
        return next((lower[domain] for domain in domains if domain in lower), None)

    return find_site


_AD_LIFETIME = timedelta(minutes=15)
"""A collector forgets the site ads this long after the daemon ended; the hooks keep theirs."""
_SITES_FILE_VALID = timedelta(hours=1)
"""Pilots start as if there were no file when it is older."""


def build_publish_targets(
    settings: Settings,
    clock: Clock,
    collectors: Mapping[str, CondorClient],
    web_publisher: WebPublisher | None,
) -> Sequence[PublishTarget]:
    """Build every target to which *settings* publish.

    *collectors* has one client for each collector, by the name of the publisher. *web_publisher* is that of
    the HTTP server, if there is one.
    """
    targets = []
    publish = settings.publish
    if publish.file.enabled:
        targets.append(PublishTarget(AdFilePublisher(publish.file.directory, clock)))
    if publish.sites_file:
        max_age = settings.daemon.job_max_age
        sites = SitesFilePublisher(
            publish.sites_file, valid_for=_SITES_FILE_VALID, max_age=max_age, clock=clock
        )
        targets.append(PublishTarget(sites, timedelta(minutes=5)))
    if web_publisher:
        targets.append(PublishTarget(web_publisher))
    for name, client in collectors.items():
        publisher = CollectorPublisher(client, name=name, lifetime=_AD_LIFETIME, clock=clock)
        targets.append(PublishTarget(publisher, _AD_LIFETIME / 3))
    return targets


def build_staging_parts(settings: Settings, pool: PoolParts) -> StagingParts:
    """Build the parts of staging, for the jobs in *pool*; with the mode off, none that calls a catalogue.

    Raises:
        ConfigError: a stager cannot be built.
    """
    stagers = build_stagers(settings) if pool.needs else {}
    read_needs = pool.needs.read_needs if pool.needs else None
    return StagingParts(settings, stagers, read_needs, StagingFiles(settings.daemon.state_dir))


@dataclass(frozen=True)
class Parts:
    """All parts that a configuration needs; a part that the configuration does not need is None.

    ``workers`` are the catalogues whose clients run in workers.
    ``closables`` are the parts to close, in order: first the parts that edit jobs and slots, then the clients
    of the pool.
    """

    settings: Settings
    catalogues: tuple[Catalogue, ...]
    publish_targets: Sequence[PublishTarget]
    queues: PoolReader | None
    pool: PoolParts
    web_publisher: WebPublisher | None
    network: NetworkParts
    staging: StagingParts
    workers: tuple[WorkerCatalogue, ...]
    closables: tuple[Closable, ...]

    @property
    def recounts(self) -> list[Callable[[frozenset[Did]], None]]:
        """Return what lets a catalogue count the files of some datasets again in its next poll.

        Only Rucio has one: the others read all in each poll.
        """
        rucio = {source.name for source in self.settings.catalogue if isinstance(source, RucioSource)}
        return [worker.recount for worker in self.workers if worker.name in rucio]

    def build_reconciler(
        self,
        state: ReconcileState,
        store: Store | None,
        clock: Clock,
        commands: CommandQueue | None = None,
        *,
        timeouts: CycleTimeouts | None = None,
        bugs: BugReporter | None = None,
        on_late_answer: Callable[[], None] = lambda: None,
        threads: Threads = THREADS,
    ) -> Reconciler:
        """Build the reconciler of these parts; see :class:`hydrator.reconcile.reconciler.Reconciler`."""
        if not self.catalogues:  # valid on a host that only submits jobs
            raise ConfigError(['catalogue: none configured; add [[catalogue]] with type = "file" or "rucio"'])
        if store:
            self.network.load_rates(store, clock())
        if store and self.queues:
            self.queues.restore(load_queues(store))
        return Reconciler(
            catalogues=self.catalogues,
            queues=self.queues,
            targets=self.publish_targets,
            settings=self.settings,
            clock=clock,
            state=state,
            store=store,
            view=load_view(store) if store else None,
            commands=commands,
            timeouts=timeouts or CycleTimeouts(),
            bugs=bugs,
            on_late_answer=on_late_answer,
            pacer=Pacer(
                self.settings,
                self.network.find_rate,
                bugs,
                store.load_report(OPENINGS_REPORT, PacedCycle) if store else None,
            ),
            threads=threads,
        )

    def close(self) -> None:
        """Close every part, even if closing another part failed."""
        with contextlib.ExitStack() as stack:
            for part in reversed(self.closables):
                stack.callback(part.close)


def assemble(
    settings: Settings,
    clock: Clock,
    *,
    get_url: Callable[[], str | None] | None = None,
) -> Parts:
    """Build all parts that *settings* need.

    Args:
        get_url: returns the address of the daemon's HTTP server; None for a process without a server.

    Raises:
        ConfigError: lists every problem of the files that the configuration names.
    """
    register_secrets(settings)
    http = settings.publish.http
    web_publisher = WebPublisher(get_url, clock) if get_url and http.enabled else None
    catalogues = build_catalogues(settings)
    pool = build_pool_parts(settings, clock)
    network = build_network_parts(settings, clock, pool.reads)
    targets = build_publish_targets(settings, clock, pool.publishing_clients, web_publisher)
    staging = build_staging_parts(settings, pool)
    return Parts(
        settings=settings,
        catalogues=catalogues,
        publish_targets=targets,
        queues=pool.schedds,
        pool=pool,
        web_publisher=web_publisher,
        network=network,
        staging=staging,
        workers=catalogues,
        closables=(
            *pool.closables,
            *network.logs,
            *staging.stagers.values(),
            *catalogues,
        ),
    )

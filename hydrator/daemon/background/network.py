"""Network tasks: read transfers between sites and links of catalogues, and give the cycles new rates."""

from collections.abc import Callable
from datetime import timedelta

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.daemon.metrics import Metrics
from hydrator.domain.ads.estimates import CatalogueLink, LinkCatalogue, TransferLog, TransferSample
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.errors import CatalogueError, PoolError, StateError
from hydrator.domain.model import Site
from hydrator.reconcile.estimates.rates import RateTable
from hydrator.reconcile.estimates.samples import select_samples
from hydrator.reconcile.publish.fence import Fence
from hydrator.state.network_rows import NetworkRecord, SourceStatus, load_network, save_network
from hydrator.state.store import Store
from hydrator.wiring import NetworkParts, system_clock

from .worker import BackgroundWorker

_log = structlog.get_logger("hydrator")
_FIRST_READ = timedelta(seconds=15)
"""Time from the start to the first query; a first cycle has usually found the sites by then."""
_MAX_LINK_AGE = timedelta(days=7)
"""Age after which the last answer of a catalogue about a link is dropped."""


class NetworkTasks(BackgroundWorker):
    """Queries of the sources of rates; a source that fails does not affect the other sources or a cycle.

    Args:
        store: keeps the samples and links.
        get_sites: returns the sites that have ads.
    """

    EXECUTOR_NAMES = ("network",)

    def __init__(
        self,
        metrics: Metrics,
        report_bug: Callable[[str], None],
        store: Store,
        get_sites: Callable[[], frozenset[Site]],
    ) -> None:
        super().__init__(metrics, report_bug)
        self._store = store
        self._get_sites = get_sites
        self._problems = OngoingFailures()

    def schedule(
        self, scheduler: BackgroundScheduler, fence: Fence, network: NetworkParts, interval_seconds: float
    ) -> None:
        """Schedule the queries of the sources of *network*."""
        first = system_clock() + min(_FIRST_READ, timedelta(seconds=interval_seconds))
        self._schedule_every(
            scheduler, fence, "network", interval_seconds, self._update, network, first_run_at=first
        )

    def _update(self, fence: Fence, network: NetworkParts) -> None:
        """Read all sources; save the samples, replace the table of rates, and report failures once."""
        sites = self._get_sites() | network.policy.sites
        statuses: list[SourceStatus] = []
        samples = [sample for log in network.logs for sample in self._read_log(log, statuses)]
        links: dict[tuple[Site, Site], CatalogueLink] = {}
        for catalogue in network.catalogues:
            links |= self._read_links(catalogue, sites, statuses)
        with fence.step():
            self._apply(network, sites, samples, links, tuple(statuses))

    def _read_log(self, log: TransferLog, statuses: list[SourceStatus]) -> list[TransferSample]:
        try:
            answer = log.read_samples()
        except PoolError as error:
            statuses.append(SourceStatus(log.origin, system_clock(), {"pool": error.reason}))
            return []
        except Exception as error:  # noqa: BLE001 - a bug affects this source only
            self._report_bug(f"the query of the {log.origin}")
            statuses.append(SourceStatus(log.origin, system_clock(), {"bug": type(error).__name__}))
            return []
        statuses.append(SourceStatus(log.origin, system_clock(), answer.failures))
        return list(answer.samples)

    def _read_links(
        self, catalogue: LinkCatalogue, sites: frozenset[Site], statuses: list[SourceStatus]
    ) -> dict[tuple[Site, Site], CatalogueLink]:
        links: dict[tuple[Site, Site], CatalogueLink] = {}
        try:
            links = dict(catalogue.read_links(sites))
            problem = catalogue.refusal
        except CatalogueError as error:
            problem = error.reason
        except Exception as error:  # noqa: BLE001 - a bug affects this source only
            self._report_bug(f"the query of links of {catalogue.name}")
            problem = type(error).__name__
        failures = {"requests": problem} if problem else {}
        statuses.append(SourceStatus(catalogue.name, system_clock(), failures))
        return links

    def _apply(
        self,
        network: NetworkParts,
        sites: frozenset[Site],
        new_samples: list[TransferSample],
        new_links: dict[tuple[Site, Site], CatalogueLink],
        statuses: tuple[SourceStatus, ...],
    ) -> None:
        now = system_clock()
        try:
            stored = load_network(self._store)
            samples = select_samples((*stored.samples, *new_samples), sites, now)
            links = {
                pair: link
                for pair, link in stored.links.items()
                if sites.issuperset(pair) and now - link.read_at <= _MAX_LINK_AGE
            } | new_links
            save_network(self._store, NetworkRecord(samples, links, statuses))
        except StateError as error:
            self._log_problems({"state": str(error)})
            return
        table = RateTable(samples, now=now, links=links, policy=network.policy)
        network.rates.replace(table)
        self._metrics.set_transfer_samples(samples)
        self._log_problems(
            {f"{each.name} {part}": why for each in statuses for part, why in each.failures.items()}
        )

    def _log_problems(self, problems: dict[str, str]) -> None:
        """Log each problem of a source once, and once that it has ended."""
        new, ended = self._problems.replace(problems)
        for source in sorted(new):
            _log.info("source of rates gives no answer", source=source, why=problems[source])
        for source in ended:
            _log.info("source of rates answers again", source=source)

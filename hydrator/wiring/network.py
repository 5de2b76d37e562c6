"""Network: build the sources of rates between sites, and the table of rates that the cycles use."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from adapters.condor.job_history import TransferRecords
from hydrator.config import Settings
from hydrator.config.network import NetworkSettings
from hydrator.domain.ads import contract
from hydrator.domain.model import Site
from hydrator.domain.network import TransferLog
from hydrator.domain.ports import Clock
from hydrator.reconcile.rates import RateTable
from hydrator.state.reports import NETWORK_REPORT, NetworkRecord
from hydrator.state.store import Store

from .condor import build_condor_client


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
    lower = {pattern.lower(): Site(site) for pattern, site in hosts.items()}

    def find_site(host: str) -> Site | None:
        name = host.lower().rstrip(".")
        if name in lower:
            return lower[name]
        parts = name.split(".")
        domains = (".".join(["*", *parts[number:]]) for number in range(1, len(parts)))
        return next((lower[domain] for domain in domains if domain in lower), None)

    return find_site

"""Network: build the sources of rates between sites, and the table of rates that the cycles use."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from adapters.condor.schedds import TransferRecords, WrapperReports
from hydrator.config import Settings
from hydrator.domain.ads import contract
from hydrator.domain.model import Site
from hydrator.domain.network import TransferLog
from hydrator.domain.ports import Clock
from hydrator.reconcile.rates import NetworkPolicy, RateSource, RateTable
from hydrator.state.network_rows import NetworkRecord, load_network
from hydrator.state.store import Store

from .condor import build_condor_client
from .policies import network_policy


@dataclass(frozen=True)
class NetworkParts:
    """The sources of rates, and ``rates``, the present table."""

    logs: Sequence[TransferLog]
    policy: NetworkPolicy
    rates: RateSource

    def load_rates(self, store: Store, now: datetime) -> None:
        """Fill the table from the state, so that the first cycle has the rates of the last run.

        Raises:
            StateError: the state cannot be read.
        """
        self.rates.replace(build_rate_table(load_network(store), self.policy, now))


def build_rate_table(record: NetworkRecord, policy: NetworkPolicy, now: datetime) -> RateTable:
    """Build the table of rates from the stored *record* and the operator's *policy*."""
    return RateTable(record.samples, now=now, policy=policy)


def build_network_parts(settings: Settings, clock: Clock) -> NetworkParts:
    """Build the sources of rates; the clients of the schedds start at the first query."""
    policy = network_policy(settings)
    attributes = tuple(dict.fromkeys((contract.SITE, *settings.sites.slot_attributes)))
    logs: list[TransferLog] = []
    if settings.demand.ask_schedds:
        client = build_condor_client(settings.htcondor)  # the logs are read one after the other
        find_site = site_of_host(settings.network.hosts)
        logs += [WrapperReports(client, clock), TransferRecords(client, clock, attributes, find_site)]
    return NetworkParts(logs, policy, RateSource(RateTable(now=clock(), policy=policy)))


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

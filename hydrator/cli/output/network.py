"""Output of ``hydrator network``: the rates between all sites, and where each figure comes from."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import permutations

from hydrator.cli.output.plain_table import print_lines, print_table
from hydrator.domain.model import Site
from hydrator.domain.network import Rate
from hydrator.domain.text import format_age, format_count
from hydrator.reconcile.rates import BYTES_PER_GBIT, RateTable
from hydrator.state.reports import SourceStatus


@dataclass(frozen=True, slots=True)
class Link:
    """The rate from one site to another.

    Attributes:
        source: site with the data.
        destination: site of the jobs.
        rate: rate for all readers together.
    """

    source: Site
    destination: Site
    rate: Rate


@dataclass(frozen=True, slots=True)
class Network:
    """Rates between sites.

    Attributes:
        links: every pair of sites, ordered by source.
        sources: sources of measured rates that the daemon has queried.
    """

    links: tuple[Link, ...]
    sources: tuple[SourceStatus, ...]


def build_network(table: RateTable, sites: Collection[Site], sources: Iterable[SourceStatus]) -> Network:
    """Return the rate of each pair of *sites*, and the state of the *sources* of rates."""
    pairs = permutations(sorted(sites), 2)
    links = (Link(*pair, rate) for pair in pairs if (rate := table.rate(*pair)))
    return Network(tuple(links), tuple(sources))


def print_network(network: Network, now: datetime) -> None:
    """Print one line for each pair of sites, then the sources that gave no answer."""
    if network.links:
        cells = [_link_cells(link, now) for link in network.links]
        print_table(("from", "to", "rate", "origin", "samples", "newest"), cells)
    else:
        print_lines(["the daemon knows fewer than two sites: see hydrator sites"])
    print_lines(
        f"{each.name}, {part}: {why}" for each in network.sources for part, why in each.failures.items()
    )


def _link_cells(link: Link, now: datetime) -> tuple[str, ...]:
    rate = link.rate
    ago = format_age(rate.measured_at, now) if rate.measured_at else ""
    samples = format_count(rate.samples, "sample") if rate.samples else ""
    return (link.source, link.destination, format_rate(rate.bytes_per_second), rate.origin, samples, ago)


def format_rate(bytes_per_second: float) -> str:
    """Return a rate as people write the speed of a link, in Gb/s, and below 0.01 Gb/s in Mb/s."""
    gbits = bytes_per_second / BYTES_PER_GBIT
    if gbits >= 999.5:
        return f"{gbits:.0f} Gb/s"
    return f"{gbits:.3g} Gb/s" if gbits >= 0.01 else f"{gbits * 1000:.3g} Mb/s"

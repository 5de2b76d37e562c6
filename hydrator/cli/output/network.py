"""Output of ``hydrator network``: the rates between all sites, and where each figure comes from."""

from collections.abc import Collection, Sequence
from datetime import datetime

from hydrator.cli.output.json_models.network import LinkJson, NetworkJson
from hydrator.cli.output.tables import print_lines, print_table
from hydrator.domain.model import Site, to_unix
from hydrator.domain.text import format_count, format_duration
from hydrator.reconcile.estimates.rates import BYTES_PER_GBIT, RateTable
from hydrator.state.network_rows import SourceStatus


def network_rows(table: RateTable, sites: Collection[Site], sources: Sequence[SourceStatus]) -> NetworkJson:
    """Return the rate of each pair of *sites*, ordered by source, and the state of the *sources* of rates."""
    ordered = sorted(sites)
    return {
        "links": [_link_row(table, one, other) for one in ordered for other in ordered if one != other],
        "sources": [
            {"source": each.name, "read_at": to_unix(each.read_at), "failures": dict(each.failures)}
            for each in sources
        ],
    }


def _link_row(table: RateTable, source: Site, destination: Site) -> LinkJson:
    rate = table.rate(source, destination)
    measured_at = rate.measured_at if rate else None
    return {
        "source": source,
        "destination": destination,
        "bytes_per_second": rate.bytes_per_second if rate else None,
        "origin": rate.origin if rate else None,
        "measured_at": to_unix(measured_at) if measured_at else None,
        "samples": rate.samples if rate else 0,
        "why_unknown": table.why_unknown(source, destination),
    }


def print_network(rows: NetworkJson, now: datetime) -> None:
    """Print one line for each pair of sites, then the sources that gave no answer."""
    if rows["links"]:
        cells = [_link_cells(row, now) for row in rows["links"]]
        print_table(("from", "to", "rate", "origin", "samples", "newest"), cells)
    else:
        print_lines(["the daemon knows fewer than two sites: see hydrator sites"])
    print_lines(
        f"{each['source']}, {part}: {why}"
        for each in rows["sources"]
        for part, why in each["failures"].items()
    )


def _link_cells(row: LinkJson, now: datetime) -> tuple[str, ...]:
    names = (row["source"], row["destination"])
    if row["bytes_per_second"] is None:
        return (*names, "unknown", row["why_unknown"], "", "")
    ago = "" if row["measured_at"] is None else f"{format_duration(to_unix(now) - row['measured_at'])} ago"
    samples = format_count(row["samples"], "sample") if row["samples"] else ""
    return (*names, format_rate(row["bytes_per_second"]), row["origin"] or "", samples, ago)


def format_rate(bytes_per_second: float) -> str:
    """Return a rate as people write the speed of a link, in Gb/s, and below 0.01 Gb/s in Mb/s."""
    gbits = bytes_per_second / BYTES_PER_GBIT
    return f"{gbits:.3g} Gb/s" if gbits >= 0.01 else f"{gbits * 1000:.3g} Mb/s"

"""Links between Rucio's storage elements: throughputs of the last hour, and distances.

Observed on Rucio 41.5.1. ``GET /requests/metrics`` returns one row for each pair of RSEs, with the files and
bytes that were transferred in the last 1 h and 6 h, those in the queue now, and the distance. The generic
permissions allow it to accounts with the attribute ``admin`` only; Rucio then answers status 500 with
``AccessDenied``. ``GET /rses/SOURCE/distances/DESTINATION`` is open to every account, one pair a call.

The throughput of an idle link is low because it is not used. So a throughput counts only if transfers are
waiting in the link's queue.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import permutations

from rucio.common.constants import HTTPMethod
from rucio.common.utils import build_url

from hydrator.domain.ads.estimates import CatalogueLink
from hydrator.domain.errors import CatalogueDenied, CatalogueError
from hydrator.domain.model import Site
from hydrator.domain.ports import Clock
from hydrator.domain.untrusted import valid_integer, valid_number

from ..responses import BadRow, Record, Rses, iter_records
from ..session.client import RucioConnection, RucioSettings
from ..session.login import RucioClient
from ..session.queries import QueryRunner
from ..session.transport import NotFound
from .directory import RseDirectory

MIN_FILES = 3
MIN_BYTES = 300_000_000
"""Least bytes in an hour: as three samples of 100 MB."""
MAX_DISTANCE_CALLS = 100
"""Queries of a distance in one run; the next run continues with the other pairs."""
DISTANCES_EVERY = timedelta(days=1)
METRICS_DENIED_FOR = timedelta(days=1)
"""After a denial the metrics are queried again after this time."""

RsePair = tuple[str, str]


class RucioLinks:
    """A ``LinkCatalogue`` of one Rucio server, with a connection of its own.

    Args:
        aliases: the name of each site in slots, by its name in Rucio.
    """

    def __init__(self, settings: RucioSettings, clock: Clock, aliases: Mapping[Site, Site]) -> None:
        self.name = settings.name
        self.refusal = ""
        own = replace(settings, token_dir=settings.token_dir / "network", concurrent_calls=1)
        self._clock = clock
        self._aliases = aliases
        self._queries = QueryRunner(own, RucioConnection(own))
        self._directory = RseDirectory(self._queries)
        self._denied_until: datetime | None = None
        self._distances: dict[RsePair, tuple[datetime, int | None]] = {}

    def close(self) -> None:
        """Close the connections."""
        self._queries.close()

    def read_links(self, sites: AbstractSet[Site]) -> Mapping[tuple[Site, Site], CatalogueLink]:
        """See :class:`hydrator.domain.ads.estimates.LinkCatalogue`."""
        with self._queries.start_poll():
            now = self._clock()
            site_of = self._map_sites(self._directory.read(now), sites)
            links = self._read_metrics(now)
            if links is None:
                links = self._read_distances(site_of, now)
        return merge_links(links, site_of)

    def _map_sites(self, rses: Rses, sites: AbstractSet[Site]) -> dict[str, Site]:
        """Return the site of each RSE on disk that can be read, for the RSEs of *sites*."""
        mapped = {
            name: self._aliases.get(rse.site, rse.site)
            for name, rse in rses.items()
            if rse.site and not (rse.is_tape or rse.is_deleted) and rse.is_readable
        }
        return {name: site for name, site in mapped.items() if site in sites}

    def _read_metrics(self, now: datetime) -> dict[RsePair, CatalogueLink] | None:
        """Return the links in Rucio's request metrics; None if this account may not read them."""
        if self._denied_until and now < self._denied_until:
            return None
        try:
            links = self._queries.ask(_request_metrics, lambda rows: parse_metrics(rows, now))
        except CatalogueError as error:
            if not (isinstance(error, CatalogueDenied) or "AccessDenied" in error.reason):
                raise
            self._denied_until = now + METRICS_DENIED_FOR
            self.refusal = f"the account may not read request metrics, only distances: {error.reason}"
            return None
        self.refusal = ""
        return links

    def _read_distances(self, site_of: Mapping[str, Site], now: datetime) -> dict[RsePair, CatalogueLink]:
        """Return the distances between one RSE of each site; query those that are unknown or a day old."""
        first_of = {site: name for name, site in sorted(site_of.items(), reverse=True)}
        pairs = list(permutations(sorted(first_of.values()), 2))
        due = [
            pair
            for pair in pairs
            if pair not in self._distances or now - self._distances[pair][0] >= DISTANCES_EVERY
        ]
        for pair in due[:MAX_DISTANCE_CALLS]:
            self._distances[pair] = (now, self._query_distance(*pair))
        return {
            pair: CatalogueLink(at, distance=distance)
            for pair, (at, distance) in self._distances.items()
            if pair in pairs and distance is not None
        }

    def _query_distance(self, source: str, destination: str) -> int | None:
        try:
            return self._queries.ask(lambda client: client.get_distance(source, destination), parse_distance)
        except NotFound:
            return None


def _request_metrics(client: RucioClient) -> object:
    url = build_url(client.host, path="requests/metrics")
    response = client._send_request(url, method=HTTPMethod.GET)
    if response.status_code == 200:
        return client._load_json_data(response)
    details = {"headers": response.headers, "status_code": response.status_code, "data": response.content}
    kind, message = client._get_exception(**details)
    raise kind(message)


def parse_distance(rows: object) -> int | None:
    """Return the distance in the answer about one pair; None if Rucio has none."""
    row = rows[0] if isinstance(rows, list) and rows else None
    return valid_integer(row.get("distance"), 1000) if isinstance(row, Mapping) else None


def parse_metrics(rows: Iterable[object], now: datetime) -> dict[RsePair, CatalogueLink]:
    """Return the link of each pair of RSEs in Rucio's request metrics.

    Raises:
        BadRow: a row does not name its RSEs.
    """
    return dict(_parse_link(row, now) for row in iter_records(rows, "requests/metrics"))


def _parse_link(row: Record, now: datetime) -> tuple[RsePair, CatalogueLink]:
    source, destination = row.get("src_rse"), row.get("dst_rse")
    if not (isinstance(source, str) and isinstance(destination, str)):
        raise BadRow("requests/metrics: a row does not name its RSEs")
    files = _total(row, "files", "done-total-1h")
    size = _total(row, "bytes", "done-total-1h")
    is_busy = _total(row, "files", "queued-total") > 0 and files >= MIN_FILES and size >= MIN_BYTES
    link = CatalogueLink(
        now,
        size / 3600 if is_busy else None,
        int(files) if is_busy else 0,
        valid_integer(row.get("distance"), 1000),
    )
    return (source, destination), link


def _total(row: Record, kind: str, key: str) -> float:
    totals = row.get(kind)
    return max(0.0, valid_number(totals.get(key)) or 0.0) if isinstance(totals, Mapping) else 0.0


def merge_links(
    links: Mapping[RsePair, CatalogueLink], site_of: Mapping[str, Site]
) -> dict[tuple[Site, Site], CatalogueLink]:
    """Return one link for each pair of sites: the sum of the throughputs, and the smallest distance."""
    merged: dict[tuple[Site, Site], CatalogueLink] = {}
    for (source, destination), link in sorted(links.items()):
        pair = site_of.get(source), site_of.get(destination)
        if pair[0] is None or pair[1] is None or pair[0] == pair[1]:
            continue
        known = pair[0], pair[1]
        merged[known] = _add_links(merged[known], link) if known in merged else link
    return merged


def _add_links(one: CatalogueLink, other: CatalogueLink) -> CatalogueLink:
    throughput = (one.bytes_per_second or 0.0) + (other.bytes_per_second or 0.0)
    distances = [link.distance for link in (one, other) if link.distance is not None]
    return CatalogueLink(
        min(one.read_at, other.read_at),
        throughput or None,
        one.files + other.files,
        min(distances, default=None),
    )

"""SKA Site Capabilities: which storage area is at which sites, and what is closed now.

What the service was seen to do, and what is done about it here:

- the name of a Rucio storage element may stand at several sites, in several areas: areas go by their id;
- its default answers leave out what is falsy (so tier 0) and what is inactive: we ask for all;
- a downtime is ``"<iso> to <iso>"``; a node, site, storage or area may be closed, and all below with it;
- an area may have no name (an ingest area), and some services name one by its storage element, not its id;
- compute that prepares data from an area (service ``prepare_data``) reads it, wherever it is.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hydrator.errors import CatalogueError, CatalogueGarbled
from hydrator.model import Site

from ._http import Server

_ALL = {"include_inactive": "true"}
_ROUTES = ("/nodes", "/sites", "/storages", "/storage-areas", "/services")


@dataclass(frozen=True, slots=True)
class Closing:
    """When something is closed, and what it is; without times, for as long as it is listed so."""

    what: str
    begins: datetime | None = None
    ends: datetime | None = None

    def holds(self, now: datetime) -> bool:
        return (self.begins is None or self.begins <= now) and (self.ends is None or now < self.ends)


@dataclass(frozen=True, slots=True)
class Area:
    """One storage area: the sites that read it, and when it, or what it stands in, is closed."""

    id: str
    name: str
    sites: frozenset[Site]
    closings: tuple[Closing, ...] = ()
    tier: int | None = None

    def closed(self, now: datetime) -> str:
        """Why nobody can count on it now; empty where it is open."""
        return next((closing.what for closing in self.closings if closing.holds(now)), "")


@dataclass(frozen=True, slots=True)
class Areas:
    """All areas by id; ``sites`` are all sites, also those without storage."""

    by_id: Mapping[str, Area] = field(default_factory=dict)
    sites: frozenset[Site] = frozenset()

    def named(self, name: str) -> tuple[Area, ...]:
        """The areas of a storage element, of which there may be several at several sites."""
        return tuple(area for _, area in sorted(self.by_id.items()) if area.name == name)

    def sites_of(self, name: str) -> frozenset[Site]:
        """The sites that read the storage element *name*; empty where none is known."""
        return frozenset(site for area in self.named(name) for site in area.sites)


class SiteCapabilities:
    """The service, asked anew every *refresh*; while it does not answer, what it said last stands.

    Sites and their storage change rarely, and downtimes are told with their
    times, so an old answer is a good one.
    """

    def __init__(self, server: Server, refresh: timedelta = timedelta(minutes=10)) -> None:
        self._server = server
        self._refresh = refresh
        self._lock = threading.Lock()
        self._last: tuple[datetime, Areas] | None = None
        self._tried: datetime | None = None
        self.failure = ""

    def areas(self, now: datetime) -> Areas:
        """All storage areas.

        Raises:
            CatalogueError: it does not answer, and never did.
        """
        with self._lock:
            if self._last and self._tried and timedelta(0) <= now - self._tried < self._refresh:
                return self._last[1]
            self._tried = now
            try:
                self._last = now, self._read()
                self.failure = ""
            except CatalogueError as error:
                self.failure = str(error)
                if self._last is None:
                    raise
            return self._last[1]

    def close(self) -> None:
        """Let go of connections."""
        self._server.close()

    def _read(self) -> Areas:
        nodes, sites, storages, areas, services = (self._rows(route) for route in _ROUTES)
        if not areas:
            raise CatalogueGarbled(self._server.name, "Site Capabilities lists no storage areas at all")
        try:
            return read_areas(nodes, sites, storages, areas, services)
        except ValueError as wrong:
            raise CatalogueGarbled(self._server.name, f"Site Capabilities: {wrong}") from None

    def _rows(self, route: str) -> list[Mapping[str, Any]]:
        answer = self._server.get(route, _ALL)
        if answer.status != 200 or not isinstance(answer.body, list) or answer.more:
            raise CatalogueGarbled(
                self._server.name,
                f"Site Capabilities answers {route} with no whole list: {answer.words[:80]}",
            )
        if not all(isinstance(row, dict) for row in answer.body):
            raise CatalogueGarbled(self._server.name, f"Site Capabilities: {route} lists what are no records")
        return answer.body


def read_areas(
    nodes: list[Mapping[str, Any]],
    sites: list[Mapping[str, Any]],
    storages: list[Mapping[str, Any]],
    areas: list[Mapping[str, Any]],
    services: list[Mapping[str, Any]],
) -> Areas:
    """From the flat lists of the service, asked with ``include_inactive``, to areas with their sites.

    Raises:
        ValueError: an area without an id or a site.
    """
    above: dict[str, tuple[Closing, ...]] = {}
    for row in nodes:
        above[f"node {row.get('name')}"] = _closings(row, f"node {row.get('name')}")
    for row in sites:
        mine = _closings(row, f"site {row.get('name')}")
        above[f"site {row.get('id')}"] = mine + above.get(f"node {row.get('parent_node_name')}", ())
    for row in storages:
        above[f"storage {row.get('id')}"] = _closings(row, f"storage {row.get('name') or row.get('host')}")
    reading = dict(_readers(services))
    found: dict[str, Area] = {}
    for row in areas:
        key, site = row.get("id"), row.get("parent_site_name")
        if not isinstance(key, str) or not key or not isinstance(site, str) or not site:
            raise ValueError(f"a storage area without an id or a site: {sorted(row)}")
        name = str(row.get("name") or "")
        closings = _closings(row, f"storage area {name or key}")
        closings += above.get(f"storage {row.get('parent_storage_id')}", ())
        closings += above.get(f"site {row.get('parent_site_id')}", ())
        others = reading.get(key, frozenset()) | (reading.get(name, frozenset()) if name else frozenset())
        tier = row.get("tier")
        found[key] = Area(
            key, name, frozenset({Site(site)}) | others, closings, tier if isinstance(tier, int) else None
        )
    named = {Site(row["name"]) for row in sites if isinstance(row.get("name"), str) and row["name"]}
    return Areas(found, frozenset(named) | {site for area in found.values() for site in area.sites})


def _readers(services: list[Mapping[str, Any]]) -> Iterator[tuple[str, frozenset[Site]]]:
    """By area id (or the storage element's name, where they wrote that), the sites whose compute reads it."""
    found: dict[str, set[Site]] = {}
    for row in services:
        area, site = row.get("associated_storage_area_id"), row.get("parent_site_name")
        prepares = row.get("type") == "prepare_data" and row.get("is_force_disabled") is not True
        if prepares and isinstance(area, str) and area and isinstance(site, str) and site:
            found.setdefault(area, set()).add(Site(site))
    for area, sites in found.items():
        yield area, frozenset(sites)


def _closings(row: Mapping[str, Any], what: str) -> tuple[Closing, ...]:
    """When *row* is closed; a downtime that cannot be read closes nothing, since most are over."""
    found = [Closing(f"{what} is disabled")] if row.get("is_force_disabled") is True else []
    downtimes = row.get("downtime")
    for each in downtimes if isinstance(downtimes, list) else []:
        text = each.get("date_range") if isinstance(each, dict) else each
        begins, separator, ends = str(text).partition(" to ")
        try:
            times = _time(begins), _time(ends)
        except ValueError:
            continue
        if separator:
            found.append(Closing(f"{what} has a downtime until {times[1]:%Y-%m-%d %H:%M} UTC", *times))
    return tuple(found)


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text.strip())
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)

"""SKA Site Capabilities: the sites of storage areas, and downtimes.

Observed properties of the service, and how this client handles each:

- several areas, at several sites, may have the same name, that of a Rucio storage element: this client
  identifies areas by their id;
- default answers omit inactive rows and false values (such as tier 0): the client requests all rows and
  values;
- a downtime is ``"<iso> to <iso>"``; the downtime closes a node, site, storage or area, and all areas
  below;
- an area may have no name (an ingest area); a service may refer to an area by its storage element, not by
  its id;
- a site with the service ``prepare_data`` for an area reads this area, even if the area is at another
  site.

If the row of an area is unreadable, the area is unknown. If the row of a storage, site or node is
unreadable, all areas below are unknown. A row without a readable key could belong to any area, so the
client rejects the whole answer.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from adapters.http.client import JsonClient
from adapters.untrusted_text import Record, is_text, quote_excerpt
from hydrator.domain.errors import CatalogueError, CatalogueGarbled
from hydrator.domain.model import Site
from hydrator.domain.untrusted import moment_in_utc

_DEADLINE_SECONDS = 60.0
_REFRESH = timedelta(minutes=10)
_SITE = re.compile(r"""[^\s"'\\`](?:[^"'\\`]{0,253}[^\s"'\\`])?""")
_QUERY = {"include_inactive": "true"}
_ROUTES = ("/nodes", "/sites", "/storages", "/storage-areas", "/services")


@dataclass(frozen=True, slots=True)
class Closing:
    """A period in which a node, site, storage or area is closed, with the reason.

    A closing without times lasts as long as Site Capabilities lists the closing.
    """

    reason: str
    begins_at: datetime | None = None
    ends_at: datetime | None = None

    def is_active(self, now: datetime) -> bool:
        return (self.begins_at is None or self.begins_at <= now) and (
            self.ends_at is None or now < self.ends_at
        )


@dataclass(frozen=True, slots=True)
class Area:
    """A storage area: the sites that read it, and the closings of the area and of its parents."""

    id: str
    name: str
    sites: frozenset[Site]
    closings: tuple[Closing, ...] = ()

    def closure_reason(self, now: datetime) -> str:
        """Return the reason why the area is closed at *now*; return '' if the area is open."""
        return next((closing.reason for closing in self.closings if closing.is_active(now)), "")


@dataclass(frozen=True, slots=True)
class Areas:
    """All storage areas by id; ``sites`` are all sites, also sites without storage.

    An area is unknown if its row, or the row of one of its parents or readers, is unreadable. An unknown
    area is not in ``by_id``; ``faults`` has the reason, by area id and by storage element.
    """

    by_id: Mapping[str, Area] = field(default_factory=dict)
    sites: frozenset[Site] = frozenset()
    faults: Mapping[str, str] = field(default_factory=dict)

    def find_by_name(self, name: str) -> tuple[Area, ...]:
        """Return the areas of the storage element *name*: it may have several areas, at several sites."""
        return tuple(area for _, area in sorted(self.by_id.items()) if area.name == name)

    def sites_of(self, name: str) -> frozenset[Site]:
        """Return the sites that read the storage element *name*; empty if no site is known."""
        return frozenset(site for area in self.find_by_name(name) for site in area.sites)


class SiteCapabilities:
    """A client of Site Capabilities with a cache; it queries the service again after ten minutes.

    If the service does not answer, the client uses the last answer: sites and their storage change rarely,
    and each downtime in the answer has a begin and an end.
    """

    def __init__(
        self,
        client: JsonClient,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._monotonic = monotonic
        self._last_areas: Areas | None = None
        self._tried_at: datetime | None = None

    def areas(self, now: datetime) -> Areas:
        """Return all storage areas, within a minute.

        Raises:
            CatalogueError: the service has not answered before and does not answer now.
        """
        if self._last_areas and self._tried_at and timedelta(0) <= now - self._tried_at < _REFRESH:
            return self._last_areas
        self._tried_at = now
        try:
            self._last_areas = self._fetch_areas()
        except CatalogueError:
            if self._last_areas is None:
                raise
        return self._last_areas

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _fetch_areas(self) -> Areas:
        until = self._monotonic() + _DEADLINE_SECONDS
        nodes, sites, storages, areas, services = (self._fetch_rows(route, until) for route in _ROUTES)
        if not areas:
            raise CatalogueGarbled(self._client.name, "Site Capabilities returns no storage areas")
        try:
            return build_areas(nodes, sites, storages, areas, services)
        except ValueError as error:
            raise CatalogueGarbled(self._client.name, f"Site Capabilities: {error}") from None

    def _fetch_rows(self, route: str, deadline_at: float) -> list[Any]:
        answer = self._client.get(route, _QUERY, within_seconds=deadline_at - self._monotonic())
        if answer.status != 200 or not isinstance(answer.body, list) or answer.has_next_page:
            raise CatalogueGarbled(
                self._client.name,
                f"the answer of Site Capabilities to {route} is not a complete list: {answer.detail[:80]}",
            )
        return answer.body


class _UnreadableRow(ValueError):
    """A row of Site Capabilities is unreadable; the message is the reason."""


@dataclass(frozen=True, slots=True)
class _ParentClosings:
    """Closings of the parents of areas (nodes, sites, storages); for an unreadable row, its fault.

    The keys are ``kind key``, for example ``node UK``.
    """

    closings: dict[str, tuple[Closing, ...]] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def add(self, place: str, row: Record, subject: str, *parents: tuple[str, str]) -> None:
        """Add *place* with the closings in its *row* and the closings of its *parents*.

        A parent is a pair: its kind, and the column of *row* that has the parent's key.
        """
        try:
            self.closings[place] = _closings(row, subject) + self.closings_of(row, *parents)
        except _UnreadableRow as error:
            self.faults[place] = str(error)

    def closings_of(self, row: Record, *parents: tuple[str, str]) -> tuple[Closing, ...]:
        """Return the closings (see Closing) of the *parents* of *row*.

        Raises:
            _UnreadableRow: a column of *row* is unreadable, or the row of a parent is unreadable.
        """
        closings: tuple[Closing, ...] = ()
        for kind, column in parents:
            place = f"{kind} {_read_text(row, column)}"
            if place in self.faults:
                raise _UnreadableRow(self.faults[place])
            closings += self.closings.get(place, ())
        return closings


def build_areas(
    nodes: list[Any], sites: list[Any], storages: list[Any], areas: list[Any], services: list[Any]
) -> Areas:
    """Build the areas, with their sites, from the service's five lists (queried with ``include_inactive``).

    Raises:
        ValueError: a row has no readable key.
    """
    parents = _find_parents(nodes, sites, storages)
    readers, faults = _find_readers(services)
    areas_by_id: dict[str, Area] = {}
    for row in areas:
        key = _read_key(row, "id", "a storage area")
        name = row.get("name")
        try:
            area = _build_area(key, row, parents, readers)
            fault = faults.get(key) or faults.get(area.name)
        except _UnreadableRow as error:
            fault = str(error)
        if fault:
            faults[key] = f"Site Capabilities: storage area {quote_excerpt(name or key)}: {fault}"
            if is_text(name):
                faults[name] = faults[key]
        else:
            areas_by_id[key] = area
    listed_sites = {Site(row["name"]) for row in sites if _is_site(row.get("name"))}
    return Areas(
        areas_by_id, frozenset(listed_sites.union(*(each.sites for each in areas_by_id.values()))), faults
    )


def _find_parents(nodes: list[Any], sites: list[Any], storages: list[Any]) -> _ParentClosings:
    """Return the closings (see Closing) of all nodes, sites and storages."""
    parents = _ParentClosings()
    for row in nodes:
        name = _read_key(row, "name", "a node")
        parents.add(f"node {name}", row, f"node {name}")
    for row in sites:
        key = _read_key(row, "id", "a site")
        parents.add(f"site {key}", row, f"site {row.get('name')}", ("node", "parent_node_name"))
    for row in storages:
        key = _read_key(row, "id", "a storage")
        parents.add(f"storage {key}", row, f"storage {row.get('name') or row.get('host')}")
    return parents


def _build_area(
    key: str, row: Record, parent_closings: _ParentClosings, readers: Mapping[str, frozenset[Site]]
) -> Area:
    name = _read_text(row, "name")
    closings = _closings(row, f"storage area {name or key}")
    closings += parent_closings.closings_of(row, ("storage", "parent_storage_id"), ("site", "parent_site_id"))
    others = readers.get(key, frozenset()) | (readers.get(name, frozenset()) if name else frozenset())
    mine = frozenset({_read_site(row)})
    return Area(key, name, mine | others, closings)


def _find_readers(services: list[Any]) -> tuple[dict[str, frozenset[Site]], dict[str, str]]:
    """Return, by area, the sites whose compute reads the area; and, by area, the fault of an unreadable row.

    The key of an area is the key in the row: the area's id, or the name of the storage element.
    """
    readers: dict[str, frozenset[Site]] = {}
    faults: dict[str, str] = {}
    for row in services:
        kind = _require_record(row, "a service").get("type")
        if row.get("associated_storage_area_id") in (None, "") or (is_text(kind) and kind != "prepare_data"):
            continue
        area = _read_key(row, "associated_storage_area_id", "a service")
        try:
            if _read_text(row, "type") and not _is_disabled(row):
                readers[area] = readers.get(area, frozenset()) | {_read_site(row)}
        except _UnreadableRow as error:
            faults[area] = f"the row of a service that reads the area: {error}"
    return readers, faults


def _require_record(row: object, subject: str) -> Record:
    if not isinstance(row, dict):
        raise ValueError(f"{subject} is not a record: {quote_excerpt(row)}")  # noqa: TRY004 - the data is wrong, not the code
    return row


def _read_key(row: object, column: str, subject: str) -> str:
    """Return the key of *row*; raise ValueError if the key is unreadable."""
    key = _require_record(row, subject).get(column)
    if not isinstance(key, str) or not is_text(key):
        raise ValueError(f"{subject} has no readable {column}: {quote_excerpt(key)}")
    return key


def _read_text(row: Record, column: str) -> str:
    """Return the text in *column* of *row*; return '' if the column is missing."""
    value = row.get(column)
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not is_text(value):
        raise _UnreadableRow(f"{column} is not a text: {quote_excerpt(value)}")
    return value


def _read_site(row: Record) -> Site:
    name = row.get("parent_site_name")
    if not _is_site(name):
        raise _UnreadableRow(f"parent_site_name is not the name of a site: {quote_excerpt(name)}")
    return Site(str(name))


def _is_site(name: object) -> bool:
    """Return whether *name* can be the name of a site; a name with quotes cannot."""
    return isinstance(name, str) and bool(_SITE.fullmatch(name)) and name.isprintable()


def _is_disabled(row: Record) -> bool:
    value = row.get("is_force_disabled")
    if value is not None and not isinstance(value, bool):
        raise _UnreadableRow(f"is_force_disabled is neither true nor false: {quote_excerpt(value)}")
    return value is True


def _closings(row: Record, subject: str) -> tuple[Closing, ...]:
    """Return the closings of *row*; ignore unreadable downtimes, because most downtimes are over."""
    closings = [Closing(f"{subject} is disabled")] if _is_disabled(row) else []
    downtimes = row.get("downtime")
    for each in downtimes if isinstance(downtimes, list) else []:
        text = each.get("date_range") if isinstance(each, dict) else each
        begins, separator, ends = str(text)[:200].partition(" to ")
        times = _parse_time(begins), _parse_time(ends)
        if separator and times[0] and times[1]:
            closings.append(Closing(f"{subject} has a downtime until {times[1]:%Y-%m-%d %H:%M} UTC", *times))
    return tuple(closings)


def _parse_time(text: str) -> datetime | None:
    try:
        return moment_in_utc(datetime.fromisoformat(text.strip()))
    except ValueError:
        return None

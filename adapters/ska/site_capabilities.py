"""SKA Site Capabilities: which storage area is at which sites, and what is closed now.

What the service was seen to do, and what is done about it here:

- the name of a Rucio storage element may stand at several sites, in several areas: areas go by their id;
- its default answers leave out what is falsy (so tier 0) and what is inactive: we ask for all;
- a downtime is ``"<iso> to <iso>"``; a node, site, storage or area may be closed, and all below with it;
- an area may have no name (an ingest area), and some services name one by its storage element, not its id;
- compute that prepares data from an area (service ``prepare_data``) reads it, wherever it is.

A row that cannot be read costs what depends on it: the area, or all areas of that storage, site or node.
One that does not even say whose it is could be anybody's, so that answer is not believed.
"""

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from adapters.bounded_json import is_text, quote_excerpt
from adapters.http.client import JsonClient
from hydrator.domain.errors import CatalogueError, CatalogueGarbled
from hydrator.domain.model import Site

_DEADLINE_SECONDS = 60.0
_SITE = re.compile(r"""[^\s"'\\`](?:[^"'\\`]{0,253}[^\s"'\\`])?""")
_QUERY = {"include_inactive": "true"}
_ROUTES = ("/nodes", "/sites", "/storages", "/storage-areas", "/services")


@dataclass(frozen=True, slots=True)
class Closing:
    """When something is closed, and what it is; without times, for as long as it is listed so."""

    reason: str
    begins_at: datetime | None = None
    ends_at: datetime | None = None

    def is_active(self, now: datetime) -> bool:
        return (self.begins_at is None or self.begins_at <= now) and (
            self.ends_at is None or now < self.ends_at
        )


@dataclass(frozen=True, slots=True)
class Area:
    """One storage area: the sites that read it, and when it, or what it stands in, is closed."""

    id: str
    name: str
    sites: frozenset[Site]
    closings: tuple[Closing, ...] = ()
    tier: int | None = None

    def closure_reason(self, now: datetime) -> str:
        """Why nobody can count on it now; empty where it is open."""
        return next((closing.reason for closing in self.closings if closing.is_active(now)), "")


@dataclass(frozen=True, slots=True)
class Areas:
    """All areas by id; ``sites`` are all sites, also those without storage.

    ``faults``, by area id and by storage element, say why one cannot be known: a row that it depends on
    cannot be read. Such an area is not in ``by_id``.
    """

    by_id: Mapping[str, Area] = field(default_factory=dict)
    sites: frozenset[Site] = frozenset()
    faults: Mapping[str, str] = field(default_factory=dict)

    def find_by_name(self, name: str) -> tuple[Area, ...]:
        """The areas of a storage element, of which there may be several at several sites."""
        return tuple(area for _, area in sorted(self.by_id.items()) if area.name == name)

    def sites_of(self, name: str) -> frozenset[Site]:
        """The sites that read the storage element *name*; empty where none is known."""
        return frozenset(site for area in self.find_by_name(name) for site in area.sites)


class SiteCapabilities:
    """The service, asked anew every *refresh*; while it does not answer, what it said last stands.

    Sites and their storage change rarely, and downtimes are told with their
    times, so an old answer is a good one.
    """

    def __init__(
        self,
        client: JsonClient,
        refresh: timedelta = timedelta(minutes=10),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._monotonic = monotonic
        self._refresh = refresh
        self._lock = threading.Lock()
        self._last_areas: tuple[datetime, Areas] | None = None
        self._tried_at: datetime | None = None
        self.failure = ""

    def areas(self, now: datetime) -> Areas:
        """All storage areas, asked for within a minute.

        Raises:
            CatalogueError: it does not answer, and never did.
        """
        with self._lock:
            if self._last_areas and self._tried_at and timedelta(0) <= now - self._tried_at < self._refresh:
                return self._last_areas[1]
            self._tried_at = now
            try:
                self._last_areas = now, self._fetch_areas()
                self.failure = ""
            except CatalogueError as error:
                self.failure = str(error)
                if self._last_areas is None:
                    raise
            return self._last_areas[1]

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()

    def _fetch_areas(self) -> Areas:
        until = self._monotonic() + _DEADLINE_SECONDS
        nodes, sites, storages, areas, services = (self._fetch_rows(route, until) for route in _ROUTES)
        if not areas:
            raise CatalogueGarbled(self._client.name, "Site Capabilities lists no storage areas at all")
        try:
            return build_areas(nodes, sites, storages, areas, services)
        except ValueError as wrong:
            raise CatalogueGarbled(self._client.name, f"Site Capabilities: {wrong}") from None

    def _fetch_rows(self, route: str, deadline_at: float) -> list[Any]:
        answer = self._client.get(route, _QUERY, within_seconds=deadline_at - self._monotonic())
        if answer.status != 200 or not isinstance(answer.body, list) or answer.has_next_page:
            raise CatalogueGarbled(
                self._client.name,
                f"Site Capabilities answers {route} with no whole list: {answer.detail[:80]}",
            )
        return answer.body


class _UnreadableRow(ValueError):
    """A row that cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class _ParentClosings:
    """What stands above storage areas, by ``kind key``: when it is closed, or why that cannot be read."""

    closings: dict[str, tuple[Closing, ...]] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def add(self, place: str, row: Mapping[str, Any], subject: str, *parents: tuple[str, str]) -> None:
        """Add *place*, which *row* describes, below *parents*: kinds, and the columns that name them."""
        try:
            self.closings[place] = _closings(row, subject) + self.closings_of(row, *parents)
        except _UnreadableRow as wrong:
            self.faults[place] = str(wrong)

    def closings_of(self, row: Mapping[str, Any], *parents: tuple[str, str]) -> tuple[Closing, ...]:
        """When what *row* describes is closed with its *parents*.

        Raises:
            _Unreadable: a column cannot be read, or a parent.
        """
        found: tuple[Closing, ...] = ()
        for kind, column in parents:
            place = f"{kind} {_read_text(row, column)}"
            if place in self.faults:
                raise _UnreadableRow(self.faults[place])
            found += self.closings.get(place, ())
        return found


def build_areas(
    nodes: list[Any], sites: list[Any], storages: list[Any], areas: list[Any], services: list[Any]
) -> Areas:
    """From the flat lists of the service, asked with ``include_inactive``, to areas with their sites.

    Raises:
        ValueError: a row does not say whose it is.
    """
    above = _ParentClosings()
    for row in nodes:
        name = _read_key(row, "name", "a node")
        above.add(f"node {name}", row, f"node {name}")
    for row in sites:
        above.add(
            f"site {_read_key(row, 'id', 'a site')}",
            row,
            f"site {row.get('name')}",
            ("node", "parent_node_name"),
        )
    for row in storages:
        key = _read_key(row, "id", "a storage")
        above.add(f"storage {key}", row, f"storage {row.get('name') or row.get('host')}")
    readers, faults = _find_readers(services)
    found: dict[str, Area] = {}
    for row in areas:
        key = _read_key(row, "id", "a storage area")
        name = row.get("name")
        try:
            area = _build_area(key, row, above, readers)
            why = faults.get(key) or faults.get(area.name)
        except _UnreadableRow as wrong:
            why = str(wrong)
        if why:
            faults[key] = f"Site Capabilities: storage area {quote_excerpt(name or key)}: {why}"
            if is_text(name):
                faults[name] = faults[key]
        else:
            found[key] = area
    named = {Site(row["name"]) for row in sites if _is_site(row.get("name"))}
    return Areas(found, frozenset(named) | {site for area in found.values() for site in area.sites}, faults)


def _build_area(
    key: str, row: Mapping[str, Any], parent_closings: _ParentClosings, readers: Mapping[str, frozenset[Site]]
) -> Area:
    name, tier = _read_text(row, "name"), row.get("tier")
    closings = _closings(row, f"storage area {name or key}")
    closings += parent_closings.closings_of(row, ("storage", "parent_storage_id"), ("site", "parent_site_id"))
    others = readers.get(key, frozenset()) | (readers.get(name, frozenset()) if name else frozenset())
    mine = frozenset({_read_site(row)})
    return Area(key, name, mine | others, closings, tier if isinstance(tier, int) else None)


def _find_readers(services: list[Any]) -> tuple[dict[str, frozenset[Site]], dict[str, str]]:
    """By area id (or the storage element's name, where they wrote that), the sites whose compute reads it.

    With it, by the same, why that cannot be known.
    """
    found: dict[str, frozenset[Site]] = {}
    faults: dict[str, str] = {}
    for row in services:
        kind = _require_record(row, "a service").get("type")
        if row.get("associated_storage_area_id") in (None, "") or (is_text(kind) and kind != "prepare_data"):
            continue
        area = _read_key(row, "associated_storage_area_id", "a service")
        try:
            if _read_text(row, "type") and not _is_disabled(row):
                found[area] = found.get(area, frozenset()) | {_read_site(row)}
        except _UnreadableRow as wrong:
            faults[area] = f"a service that reads it: {wrong}"
    return found, faults


def _require_record(row: object, subject: str) -> Mapping[str, Any]:
    if not isinstance(row, dict):
        raise ValueError(f"{subject} is not a record: {quote_excerpt(row)}")  # noqa: TRY004 - garbled, not a bug
    return row


def _read_key(row: object, column: str, subject: str) -> str:
    """Return what *row* is known by. Raises ValueError where it is not to be read: it could be anybody's."""
    key = _require_record(row, subject).get(column)
    if not isinstance(key, str) or not is_text(key):
        raise ValueError(f"{subject} without {column}: {quote_excerpt(key)}")
    return key


def _read_text(row: Mapping[str, Any], column: str) -> str:
    """The text at *column*, which may be missing."""
    value = row.get(column)
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not is_text(value):
        raise _UnreadableRow(f"{column} is not a text: {quote_excerpt(value)}")
    return value


def _read_site(row: Mapping[str, Any]) -> Site:
    name = row.get("parent_site_name")
    if not _is_site(name):
        raise _UnreadableRow(f"parent_site_name is not the name of a site: {quote_excerpt(name)}")
    return Site(str(name))


def _is_site(name: object) -> bool:
    """Return whether a site can be called so; one in quotes would be another site."""
    return isinstance(name, str) and bool(_SITE.fullmatch(name)) and name.isprintable()


def _is_disabled(row: Mapping[str, Any]) -> bool:
    value = row.get("is_force_disabled")
    if value is not None and not isinstance(value, bool):
        raise _UnreadableRow(f"is_force_disabled is neither true nor false: {quote_excerpt(value)}")
    return value is True


def _closings(row: Mapping[str, Any], subject: str) -> tuple[Closing, ...]:
    """When *row* is closed; a downtime that cannot be read closes nothing, since most are over."""
    found = [Closing(f"{subject} is disabled")] if _is_disabled(row) else []
    downtimes = row.get("downtime")
    for each in downtimes if isinstance(downtimes, list) else []:
        text = each.get("date_range") if isinstance(each, dict) else each
        begins, separator, ends = str(text)[:200].partition(" to ")
        try:
            times = _parse_time(begins), _parse_time(ends)
        except (ValueError, OverflowError):
            continue
        if separator:
            found.append(Closing(f"{subject} has a downtime until {times[1]:%Y-%m-%d %H:%M} UTC", *times))
    return tuple(found)


def _parse_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)

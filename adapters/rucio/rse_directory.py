"""RSEs: find Rucio's storage elements and their sites."""

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from adapters.ska.site_capabilities import Areas, SiteCapabilities
from adapters.untrusted_text import quote_excerpt
from hydrator.domain.errors import CatalogueError, CatalogueGarbled
from hydrator.domain.model import Site

from .responses import (
    BadRow,
    Record,
    Rows,
    Rse,
    Rses,
    describe_fault,
    iter_records,
    read_choice,
    read_flag,
    read_text,
    require_record,
)
from .session.queries import QueryRunner
from .session.transport import FAILURES_ALONE, NotFound

_KINDS = frozenset({"DISK", "TAPE"})
_MAX_MISSING = 20


class RseDirectory:
    """The directory of storage elements: every poll lists them; their attributes are cached.

    If the list lacks a known element, the poll queries this element by name, because the list may be
    incomplete. The element counts as deleted only if Rucio answers 404. The sites of a deleted element stay
    in the directory, without data; otherwise the ads of these sites would keep their last facts until the
    facts are too old.
    """

    def __init__(self, queries: QueryRunner, capabilities: SiteCapabilities | None = None) -> None:
        self._queries = queries
        self._capabilities = capabilities
        self._attribute_sites: dict[str, tuple[datetime, Site | None]] = {}
        self._last_rses: dict[str, Rse] = {}
        self._unlisted: set[str] = set()
        self._failed_at: dict[str, datetime] = {}
        self._storages_by_expression: dict[str, tuple[datetime, frozenset[str]]] = {}

    def read(self, now: datetime) -> Rses:
        """Return all storage elements by name, also those that were deleted since the daemon started.

        If nothing changed, return the same object as last time, because caches compare with ``is``.

        Raises:
            CatalogueError: the elements cannot be listed, or the site of none can be queried.
        """
        rows = self._queries.ask("list_rses", read=_parse_rses)
        if not rows:
            raise CatalogueGarbled(
                self._queries.name,
                "list_rses returns no storage elements; an empty catalogue is not plausible",
            )
        areas = self._read_areas(now)
        missing = {name for name, last in self._last_rses.items() if name not in rows and not last.is_deleted}
        listed = sorted(missing - self._unlisted)
        for name in [*sorted(missing & self._unlisted), *listed[:_MAX_MISSING]]:
            if row := self._query_row(name):
                rows[name] = row
            else:
                self._last_rses[name] = _mark_deleted(self._last_rses[name])
        if len(listed) > _MAX_MISSING:
            reason = f"list_rses omits {len(listed)} storage elements of the last poll, first {listed[0]}"
            raise CatalogueGarbled(self._queries.name, reason)
        failures: list[CatalogueError] = []
        rses = {name: self._build_rse(name, row, now, areas, failures) for name, row in sorted(rows.items())}
        if failures and not any(rse.sites for rse in rses.values()):
            raise failures[0]
        for name, last in self._last_rses.items():
            if name not in rses:
                rses[name] = last
                self._attribute_sites.pop(name, None)
            if former := _sites_until_now(last) - set(rses[name].sites):
                rses[name] = replace(rses[name], former_sites=frozenset(former))
        if rses != self._last_rses:
            self._last_rses = rses
        return self._last_rses

    def resolve_expression(self, expression: str, now: datetime) -> frozenset[str]:
        """Return the storage elements that the RSE *expression* matches.

        Raises:
            CatalogueError: the query failed.
        """
        if expression in self._last_rses:
            return frozenset({expression})
        cached = self._storages_by_expression.get(expression)
        if cached and now - cached[0] < self._queries.settings.attributes_every:
            return cached[1]
        names = self._queries.ask_rows(
            "list_rses", rse_expression=expression, read=lambda row: read_text(row, "rse")
        )
        self._storages_by_expression[expression] = now, frozenset(names)
        return frozenset(names)

    def add_unlisted(self, names: Iterable[str], now: datetime) -> None:
        """Query those of the storage elements *names*, which have data, that Rucio's list does not have.

        Raises:
            BadRow: a query failed now, or before at the same time *now*.
        """
        for name in sorted(set(names) - self._last_rses.keys()):
            if self._failed_at.get(name) != now:
                with contextlib.suppress(CatalogueError):
                    row, areas = self._query_row(name), self._read_areas(now)
                    self._last_rses[name] = (
                        self._build_rse(name, row, now, areas, []) if row else _build_deleted_rse(name)
                    )
                    self._unlisted.add(name)
                    continue
                self._failed_at[name] = now
            raise BadRow(f"there is data at {name}, which list_rses did not list")

    def _query_row(self, name: str) -> Record | None:
        """Query the row of one storage element; return None if the element was deleted.

        Raises:
            CatalogueError: the query failed.
        """
        try:
            return self._queries.ask(
                "get_rse", name, read=lambda row: _parse_rses([{"rse": name, **require_record(row)}])[name]
            )
        except NotFound as exc:
            if "RSENotFound" in exc.reason:
                return None
            raise

    def _read_areas(self, now: datetime) -> Areas:
        """Return the areas of Site Capabilities; return no areas if the service has not answered yet."""
        if self._capabilities:
            with contextlib.suppress(CatalogueError):
                return self._capabilities.areas(now)
        return Areas()

    def _build_rse(
        self, name: str, row: Record, now: datetime, areas: Areas, failures: list[CatalogueError]
    ) -> Rse:
        """Build the storage element; if the query for its site failed alone, add the error to *failures*."""
        try:
            tape = read_choice(_KINDS, row, "rse_type") == "TAPE"
            if read_flag(row, "deleted", default=False):
                return replace(_build_deleted_rse(name), is_tape=tape)
            readable = read_flag(row, "availability_read", default=True)
            writable = read_flag(row, "availability_write", default=True)
            volatile = read_flag(row, "volatile", default=False)
            staging_area = read_flag(row, "staging_area", default=False)
            site = self._find_site(name, now)
        except (BadRow, *FAILURES_ALONE) as exc:
            failures += [exc] if isinstance(exc, CatalogueError) else []
            last = self._last_rses.get(name)
            site = last.site if last else self._queries.settings.site_of(name)
            return Rse(name, site, is_tape=False, fault=describe_fault(exc))
        if not site and name in areas.faults:
            return Rse(name, None, tape, fault=areas.faults[name])
        rse_areas = areas.find_by_name(name)
        return Rse(
            name,
            site,
            tape,
            is_readable=readable and not (rse_areas and all(area.closure_reason(now) for area in rse_areas)),
            other_sites=frozenset() if site else areas.sites_of(name),
            is_writable=writable,
            is_volatile=volatile and not self._queries.settings.trust_caches,
            is_staging_area=staging_area,
        )

    def _find_site(self, storage: str, now: datetime) -> Site | None:
        """Return the site of a storage element: the configured site, else the value of ``site_attribute``.

        The daemon queries Rucio for the attribute once in ``attributes_every``.

        Raises:
            BadRow: the attribute is not a text.
            CatalogueError: the query failed, and no earlier answer exists.
        """
        settings = self._queries.settings
        configured = settings.site_of(storage)
        attribute = settings.site_attribute
        if configured or not attribute:
            return configured
        entry = self._attribute_sites.get(storage)
        if entry and now - entry[0] < settings.attributes_every:
            return entry[1]
        try:
            value = self._queries.ask(
                "list_rse_attributes", storage, read=lambda answer: _read_attribute(answer, attribute)
            )
        except NotFound as exc:
            if "RSENotFound" in exc.reason or entry is None:
                return None
            return entry[1]
        except CatalogueError:
            if entry is None:
                raise
            return entry[1]
        if value is not None and not isinstance(value, str):
            raise BadRow(f"{attribute} of {storage} is not a text: {quote_excerpt(value)}")
        site = Site(value.strip()) if value and value.strip() else None
        self._attribute_sites[storage] = (now, site)
        return site


def _sites_until_now(rse: Rse) -> frozenset[Site]:
    """Return the site of a storage element and its former sites."""
    return rse.former_sites | ({rse.site} if rse.site else frozenset[Site]())


def _mark_deleted(rse: Rse) -> Rse:
    """Return *rse*, marked as deleted; its site becomes a former site."""
    return Rse(rse.name, None, rse.is_tape, is_deleted=True, former_sites=_sites_until_now(rse))


def _build_deleted_rse(name: str) -> Rse:
    return Rse(name, None, is_tape=False, is_deleted=True)


def _read_attribute(answer: object, attribute: str) -> object:
    """Return the value of *attribute*; None without one. Rucio gives each storage element an attribute.

    Raises:
        BadRow: there are no attributes at all.
    """
    attributes = require_record(answer)
    if not attributes:
        raise BadRow("no attribute at all")
    return attributes.get(attribute)


def _parse_rses(rows: Rows) -> dict[str, Record]:
    """Return the rows by name. If a name has two different rows, return an unreadable row for it.

    Raises:
        BadRow: a row is not a record, or has no name.
    """
    rows_by_name: dict[str, Record] = {}
    for row in iter_records(rows):
        name = read_text(row, "rse")
        is_same = rows_by_name.get(name, row) == row
        rows_by_name[name] = row if is_same else {"rse_type": "listed twice with different values"}
    return rows_by_name

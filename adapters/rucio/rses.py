"""Rucio's storage elements (RSEs), and the sites they belong to."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from adapters.rucio.session.client import NotFound
from adapters.rucio.session.queries import Asker
from adapters.ska.site_capabilities import Areas, SiteCapabilities
from hydrator.domain.errors import CatalogueError, CatalogueGarbled
from hydrator.domain.model import Site

from .responses import BadRow, Storage, flag, one_of, record, text

_KINDS = frozenset({"DISK", "TAPE"})
_MOST_MISSING = 20


class StorageElements:
    """All storage elements, asked anew in every poll; their attributes are remembered for a while.

    One that was listed before and is not listed now is asked for by its name, since a list may have been cut:
    only where Rucio does not know it any more it was deleted. The sites that it was at stay named, with
    nothing there; else what was last known of them would stand until it is too old.
    """

    def __init__(self, asker: Asker, capabilities: SiteCapabilities | None = None) -> None:
        self._asker = asker
        self._capabilities = capabilities
        self._attribute_sites: dict[str, tuple[datetime, Site | None]] = {}
        self._last: dict[str, Storage] = {}
        self._alone: dict[str, tuple[datetime, Storage | None]] = {}

    def read(self, now: datetime) -> Mapping[str, Storage]:
        """All storage elements by name, also those that were deleted since we know them.

        Raises:
            CatalogueError: they cannot be listed, or one's site cannot be learned.
        """
        rows = self._asker.ask(lambda client: client.list_rses(), _rse_rows)
        if not rows:
            raise CatalogueGarbled(
                self._asker.name, "it lists no storage elements; that would be an empty catalogue"
            )
        areas = self._areas(now)
        missing = sorted(name for name, last in self._last.items() if name not in rows and not last.deleted)
        for name in missing[:_MOST_MISSING]:
            if row := self._row_of(name):
                rows[name] = row
            else:
                self._last[name] = _gone(self._last[name])
        if len(missing) > _MOST_MISSING:
            reason = f"list_rses leaves out {len(missing)} elements that it listed before, first {missing[0]}"
            raise CatalogueGarbled(self._asker.name, reason)
        found = {name: self._storage(name, row, now, areas) for name, row in sorted(rows.items())}
        for name, last in self._last.items():
            if name not in found:
                found[name] = last
                self._attribute_sites.pop(name, None)
            before, each = _before(last), found[name]
            if left := before - set(each.sites):
                found[name] = replace(each, left=frozenset(left))
        self._last = found
        return found

    def unlisted(self, name: str, now: datetime) -> Storage | None:
        """A storage element that the list left out and data is at; None where it cannot be learned."""
        known = self._alone.get(name)
        if known is None or known[0] != now:
            known = self._alone[name] = (now, self._asked_alone(name, now))
        return known[1]

    def _asked_alone(self, name: str, now: datetime) -> Storage | None:
        try:
            row = self._row_of(name)
            return self._storage(name, row, now, self._areas(now)) if row else _deleted(name)
        except CatalogueError:
            return None

    def _row_of(self, name: str) -> Mapping[str, object] | None:
        """Return what Rucio says of one storage element; None where it was deleted.

        Raises:
            CatalogueError: it could not be learned.
        """
        try:
            return self._asker.ask(
                lambda client: client.get_rse(name), lambda row: _rse_rows([{"rse": name, **row}])[name]
            )
        except NotFound as exc:
            if "RSENotFound" in exc.reason:
                return None
            raise

    def _areas(self, now: datetime) -> Areas:
        """What Site Capabilities says; nothing while it never answered: Rucio goes on without it."""
        if self._capabilities:
            with contextlib.suppress(CatalogueError):
                return self._capabilities.areas(now)
        return Areas()

    def _storage(self, name: str, row: Mapping[str, object], now: datetime, areas: Areas) -> Storage:
        try:
            tape = one_of(_KINDS, row, "rse_type", "list_rses") == "TAPE"
            if flag(row, "deleted", "list_rses", usual=False):
                return replace(_deleted(name), tape=tape)
            readable = flag(row, "availability_read", "list_rses", usual=True)
            writable = flag(row, "availability_write", "list_rses", usual=True)
            volatile = flag(row, "volatile", "list_rses", usual=False)
            site = self._site_of(name, now)
        except BadRow as exc:
            return Storage(name, self._last[name].site if name in self._last else None, False, fault=str(exc))
        if not site and name in areas.faults:
            return Storage(name, None, tape, fault=areas.faults[name])
        known = areas.named(name)
        return Storage(
            name,
            site,
            tape,
            readable=readable and not (known and all(area.closed(now) for area in known)),
            others=frozenset() if site else areas.sites_of(name),
            writable=writable,
            volatile=volatile and not self._asker.settings.trust_caches,
        )

    def _site_of(self, storage: str, now: datetime) -> Site | None:
        """The site of a storage element: configured, else its attribute, read every ``attributes_every``.

        Raises:
            BadRow: its attribute is no text.
            CatalogueError: it could not be learned and is not known from before.
        """
        settings = self._asker.settings
        configured = settings.site_of(storage)
        attribute = settings.site_attribute
        if configured or not attribute:
            return configured
        known = self._attribute_sites.get(storage)
        if known and now - known[0] < settings.attributes_every:
            return known[1]
        try:
            found = self._asker.ask(
                lambda client: client.list_rse_attributes(storage),
                lambda answer: record(answer, "list_rse_attributes").get(attribute),
            )
        except NotFound as exc:
            if "RSENotFound" in exc.reason or known is None:
                return None
            return known[1]
        except CatalogueError:
            if known is None:
                raise
            return known[1]
        if found is not None and not isinstance(found, str):
            raise BadRow(f"list_rse_attributes: {attribute} of {storage} is no text: {str(found)[:80]!r}")
        site = Site(found) if found else None
        self._attribute_sites[storage] = (now, site)
        return site


def _before(last: Storage) -> frozenset[Site]:
    """The sites that a storage element is known to have been at."""
    return last.left | ({last.site} if last.site else frozenset[Site]())


def _gone(last: Storage) -> Storage:
    """A storage element that was deleted since it was *last* seen."""
    return Storage(last.name, None, last.tape, deleted=True, left=_before(last))


def _deleted(name: str) -> Storage:
    return Storage(name, None, tape=False, deleted=True)


def _rse_rows(rows: Iterable[object]) -> dict[str, Mapping[str, object]]:
    """The rows by name; one that is listed twice, and not alike, has none that can be read.

    Raises:
        BadRow: one is no record, or has no name: whose it is cannot be told.
    """
    found: dict[str, Mapping[str, object]] = {}
    for each in rows:
        row = record(each, "list_rses")
        name = text(row, "rse", "list_rses")
        found[name] = row if found.get(name, row) == row else {"rse_type": "listed twice, and not alike"}
    return found

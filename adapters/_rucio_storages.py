"""Rucio's storage elements (RSEs), and the sites they belong to."""

import contextlib
from collections.abc import Iterable, Mapping
from datetime import datetime

from hydrator.errors import CatalogueError, CatalogueGarbled
from hydrator.model import Site

from ._rucio_ask import Asker
from ._rucio_client import NotFound
from ._rucio_rows import Storage, record, text
from .site_capabilities import Areas, SiteCapabilities


class StorageElements:
    """All storage elements, asked anew in every poll; their attributes are remembered for a while."""

    def __init__(self, asker: Asker, capabilities: SiteCapabilities | None = None) -> None:
        self._asker = asker
        self._capabilities = capabilities
        self._attribute_sites: dict[str, tuple[datetime, Site | None]] = {}

    def read(self, now: datetime) -> Mapping[str, Storage]:
        """All storage elements by name.

        Raises:
            CatalogueError: they cannot be listed, or one's site cannot be learned.
        """
        rows = self._asker.ask(lambda client: list(client.list_rses()), _rse_rows)
        if not rows:
            raise CatalogueGarbled(
                self._asker.name, "it lists no storage elements; that would be an empty catalogue"
            )
        for gone in self._attribute_sites.keys() - rows.keys():
            del self._attribute_sites[gone]
        areas = self._areas(now)
        return {name: self._storage(name, row, now, areas) for name, row in sorted(rows.items())}

    def _areas(self, now: datetime) -> Areas:
        """What Site Capabilities says; nothing while it never answered: Rucio goes on without it."""
        if self._capabilities:
            with contextlib.suppress(CatalogueError):
                return self._capabilities.areas(now)
        return Areas()

    def _storage(self, name: str, row: Mapping[str, object], now: datetime, areas: Areas) -> Storage:
        tape = str(row.get("rse_type")).upper() == "TAPE"
        if row.get("deleted"):
            return Storage(name, None, tape, deleted=True)
        site = self._site_of(name, now)
        known = areas.named(name)
        return Storage(
            name,
            site,
            tape,
            readable=row.get("availability_read") is not False
            and not (known and all(area.closed(now) for area in known)),
            others=frozenset() if site else areas.sites_of(name),
            writable=row.get("availability_write") is not False,
            volatile=row.get("volatile") is True and not self._asker.settings.trust_caches,
        )

    def _site_of(self, storage: str, now: datetime) -> Site | None:
        """The site of a storage element: configured, else its attribute, read every ``attributes_every``."""
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
        except NotFound:
            return None
        except CatalogueError:
            if known is None:
                raise
            return known[1]
        site = Site(found) if isinstance(found, str) and found else None
        self._attribute_sites[storage] = (now, site)
        return site


def _rse_rows(rows: Iterable[object]) -> dict[str, Mapping[str, object]]:
    records = (record(row, "list_rses") for row in rows)
    return {text(row, "rse", "list_rses"): row for row in records}

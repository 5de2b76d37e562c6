"""Destinations: the storage element of each site to which rules of ours may bring data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

from adapters.rucio.responses import Rse, Rses
from adapters.rucio.rse_directory import RseDirectory
from adapters.rucio.session.queries import QueryRunner
from hydrator.domain.model import Site
from hydrator.domain.ports.staging import RefusalKind, StagingKind, StagingOrder, StagingRefused


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """Options of the rules that the daemon adds to Rucio.

    Args:
        activity: the activity of each rule; Rucio accepts only the activities of its own list.
        storages: the RSE to which rules bring data, by site in slots; needed for a site with several disks.
        aliases: the name of each site in slots, by its name in Rucio.
        call_limit: the time limit of one call that adds, renews or ends rules.
        spaces: the bytes for all requests to a site whose free space Rucio does not know.
        kinds: the kinds of requests to make.
    """

    activity: str = "Staging"
    storages: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    aliases: Mapping[Site, Site] = field(default_factory=lambda: MappingProxyType({}))
    call_limit: timedelta = timedelta(seconds=20)
    spaces: Mapping[Site, int] = field(default_factory=lambda: MappingProxyType({}))
    kinds: frozenset[StagingKind] = frozenset(StagingKind)


class Destinations:
    """The storage elements by site; Rucio's list of them is read once in ``attributes_every``."""

    def __init__(self, queries: QueryRunner, options: RuleOptions) -> None:
        self._queries = queries
        self._options = options
        self._directory = RseDirectory(queries)
        self._read_at: datetime | None = None
        self.rses: Rses = {}

    def refresh(self, now: datetime, *, is_forced: bool = False) -> None:
        """Read the storage elements; unless *is_forced*, use an answer of a short time ago.

        Raises:
            CatalogueError: the storage elements cannot be read.
        """
        if (
            is_forced
            or self._read_at is None
            or now - self._read_at >= self._queries.settings.attributes_every
        ):
            self.rses = self._directory.read(now)
            self._read_at = now

    def sites_of(self, storage: str) -> frozenset[Site]:
        """Return the sites, by their names in slots, that read the storage element *storage*."""
        rse = self.rses.get(storage)
        sites = rse.sites if rse else ()
        return frozenset(self._options.aliases.get(site, site) for site in sites)

    def disk_sites_of(self, storage: str) -> frozenset[Site]:
        """Return the sites whose jobs can read *storage*; none for a tape and for a staging area."""
        rse = self.rses.get(storage)
        is_disk = rse is not None and not (rse.is_tape or rse.is_staging_area)
        return self.sites_of(storage) if is_disk else frozenset()

    def choose(self, order: StagingOrder) -> str:
        """Return the storage element for *order*.

        Raises:
            StagingRefused: the site has none or several, or the named one cannot be used.
        """
        wanted = order.storage or self._options.storages.get(order.site, "")
        if not wanted:
            return self._only_disk(order.site)
        rse = self.rses.get(wanted)
        if rse is None or rse.is_deleted:
            raise self._refuse(f"Rucio does not have the storage element {wanted}")
        if rse.fault:
            raise self._refuse(f"the storage element {wanted} is unreadable: {rse.fault}")
        if order.site not in self.sites_of(wanted):
            raise self._refuse(f"the storage element {wanted} is not at the site {order.site}")
        if rse.is_tape or rse.is_staging_area:
            raise self._refuse(f"the storage element {wanted} is not a disk")
        if not rse.is_readable and order.kind is StagingKind.STAGE:
            raise self._refuse(f"jobs cannot read the storage element {wanted} now")
        return wanted

    def disk_of(self, site: Site) -> str | None:
        """Return the storage element to which requests to *site* write; None if there is not just one."""
        wanted = self._options.storages.get(site)
        if wanted:
            return wanted if wanted in self.rses else None
        disks = self._disks_at(site)
        return disks[0].name if len(disks) == 1 else None

    def any_disk(self) -> str | None:
        """Return a storage element to which requests write; None if no site has one."""
        sites = {site for name in self.rses for site in self.sites_of(name)}
        return next((storage for site in sorted(sites) if (storage := self.disk_of(site))), None)

    def source_expression(self, order: StagingOrder, storage: str) -> str | None:
        """Return the RSE expression of the sources for *order*; None: every storage element.

        A pin may take files only from its own storage element, so it never moves a file. A request with a
        preferred source on tape may read any disk, but no other tape.
        """
        if order.kind is StagingKind.PIN:
            return storage
        if order.source is None:
            return None
        tapes = [
            rse.name
            for rse in self.rses.values()
            if rse.is_tape and not rse.is_deleted and order.source in self.sites_of(rse.name)
        ]
        return "|".join(["rse_type=DISK", *tapes]) if tapes else None

    def _only_disk(self, site: Site) -> str:
        disks = self._disks_at(site)
        if len(disks) == 1:
            return disks[0].name
        if not disks:
            raise self._refuse(f"Rucio has no disk at the site {site} that takes new data")
        names = ", ".join(rse.name for rse in disks[:5])
        raise self._refuse(f"the site {site} has {len(disks)} disks ({names}); set storage for this site")

    def _disks_at(self, site: Site) -> list[Rse]:
        """Return the disks of *site* that take new data and that jobs can read."""
        return [
            rse
            for rse in self.rses.values()
            if rse.is_writable
            and rse.is_readable
            and not (rse.is_tape or rse.is_deleted or rse.is_volatile or rse.is_staging_area or rse.fault)
            and site in self.sites_of(rse.name)
        ]

    def _refuse(self, reason: str) -> StagingRefused:
        return StagingRefused(self._queries.name, reason, RefusalKind.CLOSED)

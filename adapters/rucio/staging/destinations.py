"""Destinations of rules of ours: the storage element of each site, its free space, and sizes of datasets."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from adapters.rucio.dids import ContainerLister
from adapters.rucio.poll import DidErrors, Dids
from adapters.rucio.responses import (
    GarbledRow,
    Record,
    Rows,
    Rse,
    Rses,
    iter_records,
    parse_rows,
    read_flag,
    read_number,
    read_text,
    read_time,
    require_record,
)
from adapters.rucio.rse_directory import RseDirectory
from adapters.rucio.session.queries import QueryRunner
from adapters.rucio.session.transport import NotFound
from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import (
    RefusalKind,
    RequestProgress,
    SiteSpace,
    StagingKind,
    StagingOrder,
    StagingRefused,
    StagingSize,
)


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """Options of the rules that the daemon adds to Rucio.

    Args:
        activity: the activity of each rule; Rucio accepts only the activities of its own list.
        storages: the RSE to which rules bring data, by site in slots; needed for a site with several disks.
        aliases: the name of each site in slots, by its name in Rucio.
        call_limit: the time limit of one call that adds, renews or ends rules.
        spaces: the bytes for all requests to a site whose free space Rucio does not know.
    """

    activity: str = "Staging"
    storages: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    aliases: Mapping[Site, Site] = field(default_factory=lambda: MappingProxyType({}))
    call_limit: timedelta = timedelta(seconds=20)
    spaces: Mapping[Site, int] = field(default_factory=lambda: MappingProxyType({}))


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


_METADATA_CALL, _USAGE_CALL, _LIMITS_CALL = "get_metadata_bulk", "get_rse_usage", "get_rse_limits"


class _MeasuredDid(NamedTuple):
    """One DID of Rucio; *size* is None while it is open or not counted."""

    did: Did
    kind: str
    is_open: bool
    size: StagingSize | None


class DatasetSizes:
    """The sizes of closed datasets, and of closed containers of them; an open one may still grow."""

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._container_lister = ContainerLister(queries)

    def measure(self, dids: Dids) -> dict[Did, StagingSize]:
        """Return the size of each of *dids* that is known and final.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """
        rows = self._query(dids)
        sizes = {row.did: row.size for row in rows if row.kind != "CONTAINER" and row.size}
        members = {
            row.did: self._container_lister.list_members(row.did)
            for row in rows
            if row.kind == "CONTAINER" and not row.is_open
        }
        parts = {row.did: row.size for row in self._query(frozenset().union(*members.values()))}
        for did, each in members.items():
            if size := _add_sizes(parts.get(member) for member in each):
                sizes[did] = size
        return sizes

    def _query(self, dids: Dids) -> list[_MeasuredDid]:
        errors: DidErrors = {}
        rows = self._queries.query_in_batches(
            dids, errors, lambda client, batch: client.get_metadata_bulk(batch), _parse_metadata
        )
        if errors:
            raise errors[min(errors)]
        return rows


def _add_sizes(sizes: Iterable[StagingSize | None]) -> StagingSize | None:
    """Return the sum of *sizes*; None if there are none, or if one is unknown."""
    known, total_bytes, total_files = False, 0, 0
    for size in sizes:
        if size is None:
            return None
        known, total_bytes, total_files = True, total_bytes + size.bytes, total_files + (size.files or 0)
    return StagingSize(total_bytes, total_files) if known else None


def _parse_metadata(rows: Rows) -> list[_MeasuredDid | GarbledRow]:
    def read(did: Did, row: Record) -> _MeasuredDid:
        kind = read_text(row, "did_type", _METADATA_CALL)
        is_open = kind != "FILE" and read_flag(row, "is_open", _METADATA_CALL, default=False)
        size = read_number(row, "bytes", _METADATA_CALL)
        files = 1 if kind == "FILE" else read_number(row, "length", _METADATA_CALL)
        is_final = not is_open and size > 0 and files > 0
        return _MeasuredDid(did, kind, is_open, StagingSize(size, files) if is_final else None)

    return list(parse_rows(rows, _METADATA_CALL, read))


class StorageSpace:
    """The free space of storage elements, as their operators report it to Rucio.

    Rucio knows the free space only from a report of the storage itself (the source *storage* of
    ``get_rse_usage``). Its own count of files says nothing about the disk. The limit MinFreeSpace, which
    Rucio's deletion keeps free, is not available to requests.
    """

    def __init__(self, queries: QueryRunner, destinations: Destinations) -> None:
        self._queries = queries
        self._destinations = destinations

    def read(self, sites: AbstractSet[Site], now: datetime) -> dict[Site, SiteSpace]:
        """Return the space of the disk of each of *sites*, if it is known.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """
        spaces: dict[Site, SiteSpace] = {}
        for site in sorted(sites):
            storage = self._destinations.disk_of(site)
            if storage and (space := self._query(storage, now)):
                spaces[site] = space
        return spaces

    def _query(self, storage: str, now: datetime) -> SiteSpace | None:
        try:
            usage = self._queries.ask(
                lambda client: client.get_rse_usage(storage, filters={"source": "storage"}),
                lambda rows: _parse_usage(rows, now),
            )
            if usage is None:
                return None
            reserved = self._queries.ask(lambda client: client.get_rse_limits(storage), _parse_reserve)
        except NotFound:
            return None
        return SiteSpace(max(0, usage.free_bytes - reserved), usage.total_bytes, usage.as_of)


def remaining_spaces(
    spaces: Mapping[Site, int], progress: Sequence[RequestProgress], now: datetime
) -> dict[Site, SiteSpace]:
    """Return what our requests have left of *spaces*, the bytes that the operator gave to them by site.

    A site is missing if the size of the data that has arrived there is unknown.
    """
    remaining: dict[Site, SiteSpace] = {}
    for site, space in spaces.items():
        arrived = [one.bytes_done for one in progress if one.request.site == site and one.files_done]
        known = [size for size in arrived if size is not None]
        if len(known) == len(arrived):
            remaining[site] = SiteSpace(max(0, space - sum(known)), space, now)
    return remaining


def _parse_usage(rows: Rows, now: datetime) -> SiteSpace | None:
    """Return the space that the storage itself reported, at the time of its report."""
    for row in iter_records(rows, _USAGE_CALL):
        if row.get("source") == "storage" and row.get("free") is not None:
            free, used = read_number(row, "free", _USAGE_CALL), read_number(row, "used", _USAGE_CALL)
            return SiteSpace(free, free + used, min(now, read_time(row, "updated_at", _USAGE_CALL) or now))
    return None


def _parse_reserve(answer: object) -> int:
    """Return the bytes that Rucio's deletion keeps free."""
    limits = require_record(answer, _LIMITS_CALL)
    return read_number(limits, "MinFreeSpace", _LIMITS_CALL)

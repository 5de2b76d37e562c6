"""Storage elements that rules of ours go to: which one a site has, its free space, and sizes of datasets."""

from collections.abc import Mapping
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
    require_record,
)
from adapters.rucio.rse_directory import RseDirectory
from adapters.rucio.session.queries import QueryRunner
from adapters.rucio.session.transport import NotFound
from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import RefusalKind, StagingKind, StagingOrder, StagingRefused


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """Options of the rules that the daemon adds to Rucio.

    Args:
        pool: the name of the pool in their comments; rules with another name are not ours.
        activity: the activity of each rule; Rucio accepts only the activities of its own list.
        storages: the RSE to which rules bring data, by site in slots; needed for a site with several disks.
        aliases: the name of each site in slots, by its name in Rucio.
        call_limit: the time limit of one call that adds, renews or ends a rule.
    """

    pool: str = "pool"
    activity: str = "Staging"
    storages: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    aliases: Mapping[Site, Site] = field(default_factory=lambda: MappingProxyType({}))
    call_limit: timedelta = timedelta(seconds=20)


class Storages:
    """The storage elements by site; Rucio's list of them is read once in ``attributes_every``."""

    def __init__(self, queries: QueryRunner, options: RuleOptions) -> None:
        self._queries = queries
        self._options = options
        self._directory = RseDirectory(queries)
        self._read_at: datetime | None = None
        self.rses: Rses = {}

    def refresh(self, now: datetime) -> None:
        """Read the storage elements, unless an answer is young enough.

        Raises:
            CatalogueError: the storage elements cannot be read.
        """
        if self._read_at is None or now - self._read_at >= self._queries.settings.attributes_every:
            self.rses = self._directory.read(now)
            self._read_at = now

    def sites_of(self, storage: str) -> frozenset[Site]:
        """Return the sites, by their names in slots, that read the storage element *storage*."""
        rse = self.rses.get(storage)
        return frozenset(self._options.aliases.get(site, site) for site in (rse.sites if rse else ()))

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
        wanted, rse = order.storage or self._options.storages.get(order.site, ""), None
        if not wanted:
            return self._only_disk(order.site)
        rse = self.rses.get(wanted)
        if rse is None or rse.is_deleted or rse.fault:
            raise self._refuse(f"Rucio does not have the storage element {wanted}, or its row is unreadable")
        if order.site not in self.sites_of(wanted):
            raise self._refuse(f"the storage element {wanted} is not at the site {order.site}")
        if rse.is_tape or rse.is_staging_area:
            raise self._refuse(f"the storage element {wanted} is not a disk")
        if not rse.is_readable and order.kind is StagingKind.STAGE:
            raise self._refuse(f"jobs cannot read the storage element {wanted} now")
        return wanted

    def disk_of(self, site: Site) -> str | None:
        """Return the storage element to which requests to *site* write; None if there is not just one."""
        wanted, disks = self._options.storages.get(site), self._disks_at(site)
        if wanted:
            return wanted if wanted in self.rses else None
        return disks[0].name if len(disks) == 1 else None

    def any_disk(self) -> str | None:
        """Return a storage element to which requests write; None if no site has one."""
        sites = {site for name in self.rses for site in self.sites_of(name)}
        return next((storage for site in sorted(sites) if (storage := self.disk_of(site))), None)

    def source_expression(self, order: StagingOrder, storage: str) -> str | None:
        """Return the RSE expression of the sources for *order*; None: every storage element.

        A pin may take files only from its own storage element, so it never moves a file. A request with a
        source on tape may read any disk, but no other tape.
        """
        if order.kind is StagingKind.PIN:
            return storage
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

    def read_spaces(self, sites: AbstractSet[Site]) -> dict[Site, int | str]:
        """Return the free bytes of the disk of each of *sites*, or why its number cannot be used.

        Rucio knows the free space only from a report of the storage itself (the source *storage* of
        ``get_rse_usage``). The limit MinFreeSpace, which Rucio's deletion keeps free, is not available to
        requests. An odd number closes its own site only.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """
        spaces: dict[Site, int | str] = {}
        for site in sorted(sites):
            storage = self.disk_of(site)
            space = self._read_space(storage) if storage else None
            if space is not None:
                spaces[site] = space
        return spaces

    def _read_space(self, storage: str) -> int | str | None:
        try:
            rows = self._queries.ask(
                lambda client: client.get_rse_usage(storage, filters={"source": "storage"}),
                lambda rows: list(iter_records(rows, _USAGE_CALL)),
            )
            row = next((row for row in rows if row.get("source") == "storage"), None)
            if row is None or row.get("free") is None:
                return None
            limits = self._queries.ask(
                lambda client: client.get_rse_limits(storage),
                lambda answer: require_record(answer, _LIMITS_CALL),
            )
        except NotFound:
            return None
        numbers = {"free": row["free"], "used": row.get("used"), "MinFreeSpace": limits.get("MinFreeSpace")}
        for key, value in numbers.items():
            if value is not None and not (type(value) in (int, float) and 0 <= value < 2**63):
                return f"{storage} reports {key} = {str(value)[:40]}"
        return max(0, int(row["free"]) - int(numbers["MinFreeSpace"] or 0))


_METADATA_CALL, _USAGE_CALL, _LIMITS_CALL = "get_metadata_bulk", "get_rse_usage", "get_rse_limits"


class _MeasuredDid(NamedTuple):
    """One DID of Rucio; *size* is 0 while it is open or not counted."""

    did: Did
    kind: str
    is_open: bool
    size: int


def measure(queries: QueryRunner, dids: Dids) -> dict[Did, int]:
    """Return the size of each of *dids* that is known and final: an open dataset may still grow.

    A container has the sum of its datasets, because Rucio's own number is often missing.

    Raises:
        CatalogueError: the answer is missing or incomplete.
    """
    rows = _query_sizes(queries, dids)
    sizes = {row.did: row.size for row in rows if row.kind != "CONTAINER" and row.size}
    for container in (row for row in rows if row.kind == "CONTAINER" and not row.is_open):
        members = ContainerLister(queries).list_members(container.did)
        parts = {row.did: row.size for row in _query_sizes(queries, members)}
        if members and all(parts.get(each) for each in members):
            sizes[container.did] = sum(parts.values())
    return sizes


def _query_sizes(queries: QueryRunner, dids: Dids) -> list[_MeasuredDid]:
    errors: DidErrors = {}
    rows = queries.query_in_batches(
        dids, errors, lambda client, batch: client.get_metadata_bulk(batch), _parse_metadata
    )
    if errors:
        raise errors[min(errors)]
    return rows


def _parse_metadata(rows: Rows) -> list[_MeasuredDid | GarbledRow]:
    def read(did: Did, row: Record) -> _MeasuredDid:
        kind = read_text(row, "did_type", _METADATA_CALL)
        is_open = kind != "FILE" and read_flag(row, "is_open", _METADATA_CALL, default=False)
        return _MeasuredDid(did, kind, is_open, 0 if is_open else read_number(row, "bytes", _METADATA_CALL))

    return list(parse_rows(rows, _METADATA_CALL, read))

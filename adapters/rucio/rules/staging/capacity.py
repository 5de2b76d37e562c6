"""Capacity: the sizes of datasets, and the free space of the storage elements that requests write to."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import NamedTuple

from adapters.rucio.datasets.containers import ContainerLister
from adapters.rucio.poll import DidErrors, Dids
from adapters.rucio.responses import (
    GarbledRow,
    Record,
    Rows,
    iter_records,
    parse_rows,
    read_flag,
    read_number,
    read_text,
    read_time,
    require_record,
)
from adapters.rucio.session.queries import QueryRunner
from adapters.rucio.session.transport import NotFound
from hydrator.domain.model import Did, Site
from hydrator.domain.ports.staging import RequestProgress, SiteSpace, StagingSize

from .destinations import Destinations

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

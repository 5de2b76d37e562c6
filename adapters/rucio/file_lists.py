"""File lists: the files of a dataset, for unions of storage elements and for jobs.

Listing files costs Rucio much more than counting them. So the catalogue lists the files of a dataset
only if its parts may be complete together. It lists the files again if the counts change, or after
``verify_every``. Jobs get the addresses of files from a lister on a separate connection.
"""

import contextlib
from array import array
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

from adapters.untrusted_text import quote_excerpt
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
    TooManyFiles,
)
from hydrator.domain.model import DatasetFile, Did, FilesOnDisk
from hydrator.domain.ports import StepReporter
from hydrator.domain.sites import add_unions, number_files

from .dids import query_did
from .poll import NEVER, Dids, RucioPoll
from .replicas import count_files
from .responses import BadRow, Counts, Record, Rows, iter_records, read_amount, read_name, require_record
from .session.client import RucioConnection
from .session.queries import QueryRunner, SeriesGuard, did_record, split_did
from .session.settings import RucioSettings
from .session.transport import NotFound
from .states import available_storages, read_states


class _FileListing(NamedTuple):
    """The files and counts of a dataset by storage element, at the time *listed_at*."""

    listed_at: datetime
    counts: Counts
    files: Mapping[str, FilesOnDisk]


class FileLists:
    """A cache of the file lists of datasets at several storage elements, with a budget for queries."""

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._listings: dict[Did, _FileListing] = queries.create_memory()

    def read(self, poll: RucioPoll) -> None:
        """Add unions of files to the readings of *poll*, which judge each storage element alone.

        Store an error for each dataset without a list.
        """
        shared_counts = {did: each for did, each in poll.shared_counts.items() if did in poll.conclusions}
        for did in self._list_due(poll, shared_counts):
            poll.errors.setdefault(
                did, CatalogueUnreachable(self._queries.name, "its files were not listed yet")
            )
        for did in shared_counts:
            if did in poll.errors:
                del poll.conclusions[did]
                continue
            files, reading = self._listings[did].files, poll.conclusions[did]
            with_files = (replace(each, files=files.get(each.storage)) for each in reading.replicas)
            poll.conclusions[did] = replace(reading, replicas=add_unions(with_files))

    def _list_due(self, poll: RucioPoll, shared_counts: Mapping[Did, Counts]) -> Dids:
        """List the files of due datasets, as budget and time allow; return the datasets still to list."""
        unknown = {did for did, counts in shared_counts.items() if not self._is_unchanged(did, counts)}
        due = {did for did in shared_counts if did in unknown or self._is_due(did, poll.started_at)}

        def turn(did: Did) -> tuple[datetime, bool, Did]:
            listed_at = self._listings[did].listed_at if did in self._listings else NEVER
            return max(listed_at, self._queries.failed.failed_at(("files", did))), did not in unknown, did

        jobs = sorted(due, key=turn)[: max(1, self._queries.settings.deep_calls // 10)][::-1]
        guard = SeriesGuard(self._queries, reserve=0.3)
        task = partial(self._list_files, poll.started_at, shared_counts)
        for did, answer in self._queries.run_series(poll, "files", jobs, task, guard):
            if not isinstance(answer, CatalogueError):
                self._listings[did] = answer
                unknown.discard(did)
        return unknown

    def _is_unchanged(self, did: Did, counts: Counts) -> bool:
        listing = self._listings.get(did)
        return listing is not None and listing.counts == counts

    def _is_due(self, did: Did, now: datetime) -> bool:
        return now - self._listings[did].listed_at >= self._queries.settings.verify_every

    def _list_files(self, now: datetime, shared_counts: Mapping[Did, Counts], did: Did) -> _FileListing:
        counts = shared_counts[did]
        return self._queries.ask(
            "list_replicas",
            [did_record(did)],
            read=lambda rows: _FileListing(now, counts, files_at(did, rows, counts)),
            all_states=True,
            rse_expression="|".join(sorted(counts)),
            sort="random",
        )


def files_at(did: Did, rows: Rows, counts: Counts) -> Mapping[str, FilesOnDisk]:
    """Return the available files of *did* by storage element.

    Omit a storage element of which all files are inside archives: Rucio counts these files, but lists none.

    Raises:
        BadRow: a row is unreadable, or the files at a storage element are fewer than its count or more than
            the files of the dataset. The answer may be incomplete.
    """
    sizes: dict[str, float] = {}
    available: dict[str, set[str]] = {storage: set() for storage in counts}
    for row in iter_records(rows):
        file = read_name(row)
        for storage in available_storages(read_states(row)) & available.keys():
            available[storage].add(file)
            sizes[file] = read_amount(row, "bytes")
    archives = {storage for storage, files in available.items() if not files}
    if len(archives) < len(counts):
        available = {storage: files for storage, files in available.items() if storage not in archives}
    for storage in available:
        count = counts[storage]
        if not count.available_length <= len(available[storage]) <= count.length:
            files = f"{len(available[storage])} files of {did} at {storage}"
            raise BadRow(f"it lists {files}, and {count.available_length} were counted")
    numbers, masks = number_files(available)
    packed = array("d", (sizes[file] for file in numbers)).tobytes()
    return {
        storage: FilesOnDisk(mask, counts[storage].length, counts[storage].bytes, packed)
        for storage, mask in masks.items()
    }


_IN_ARCHIVE = "xrdcl.unzip="
"""Rucio appends this to the address of an archive, for a file inside it."""


class RucioFileLister:
    """A lister of files for the server in *settings*; see :class:`hydrator.domain.ports.FileLister`.

    *reporter* gets each dataset as a step.
    """

    def __init__(self, settings: RucioSettings, reporter: StepReporter | None = None) -> None:
        self.name = settings.name
        self._reporter = reporter
        self._queries = QueryRunner(settings, RucioConnection(settings))

    def close(self) -> None:
        """Close connections and forget the token."""
        self._queries.close()

    def list_files(
        self, dids: Dids, storages: AbstractSet[str], max_files: int
    ) -> Mapping[Did, tuple[DatasetFile, ...] | CatalogueError]:
        """List files within the time of one poll; see :meth:`hydrator.domain.ports.FileLister.list_files`."""
        files: dict[Did, tuple[DatasetFile, ...] | CatalogueError] = {}
        remaining = max_files
        with self._queries.start_poll():
            jobs = sorted(dids, reverse=True)
            for did, answer in self._queries.ask_each(
                jobs, lambda each: self._list_files_of(each, storages, max_files)
            ):
                if self._reporter:
                    self._reporter.advance()
                if isinstance(answer, CatalogueUnreachable | CatalogueDenied):
                    raise answer
                if isinstance(answer, CatalogueError):
                    files.update({} if isinstance(answer, NotFound) else {did: answer})
                    continue
                remaining -= len(answer)
                files[did] = answer if remaining >= 0 else TooManyFiles(self.name, max_files)
        return files

    def _list_files_of(self, did: Did, storages: AbstractSet[str], max_files: int) -> tuple[DatasetFile, ...]:
        """Return the files of one dataset, container or file; the number must match Rucio's count.

        The length of a container counts a file in two datasets twice.
        """
        info = query_did(self._queries, did, dynamic_depth="FILE")
        if info.length > max_files:
            raise TooManyFiles(self.name, max_files)
        sizes = dict(self._queries.ask_rows("list_files", *split_did(did), read=_read_size))
        if len(sizes) > info.length or (len(sizes) < info.length and info.kind != "CONTAINER"):
            reason = f"list_files lists {len(sizes)} of the {info.length} files of {did}"
            raise CatalogueGarbled(self.name, reason)
        listed = self._list_addresses(did, storages) if storages and sizes else {}
        addresses = {file: _keep_plain(by_rse) for file, by_rse in listed.items()}
        if storages and sizes and not any(addresses.values()):
            self._check_archives(did, storages, {rse for by_rse in listed.values() for rse in by_rse})
        return tuple(DatasetFile(file, sizes[file], addresses.get(file, {})) for file in sorted(sizes))

    def _check_archives(self, did: Did, storages: AbstractSet[str], inside: set[str]) -> None:
        """Raise CatalogueGarbled if Rucio has files of *did* at one of *storages*; none has an address.

        *inside* are the storage elements where a file has an address inside an archive only.
        """
        with contextlib.suppress(NotFound):  # a file or a container
            counts = count_files(self._queries, did)
            inside |= {name for name in storages & counts.keys() if counts[name].available_length}
        if inside:
            at = ", ".join(sorted(inside))
            reason = f"its files at {at} are inside archives, and Rucio has no address for any"
            raise CatalogueGarbled(self._queries.name, f"{reason}: a job would find no file of it there")

    def _list_addresses(self, did: Did, storages: AbstractSet[str]) -> dict[str, dict[str, tuple[str, ...]]]:
        """Return, for each file, its addresses at each storage element where the file is available."""
        expression = "|".join(sorted(storages))
        rows = self._queries.ask_rows(
            "list_replicas",
            [did_record(did)],
            read=_read_addresses,
            rse_expression=expression,
            domain="all",
            sort="random",
        )
        return dict(rows)


def _read_size(row: Record) -> tuple[str, int | None]:
    size = None if row.get("bytes") is None else round(read_amount(row, "bytes"))
    return read_name(row), size


def _keep_plain(addresses: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return *addresses* by storage element without those inside an archive: no job finds a file there."""
    plain = {rse: tuple(url for url in urls if _IN_ARCHIVE not in url) for rse, urls in addresses.items()}
    return {rse: urls for rse, urls in plain.items() if urls}


def _read_addresses(row: Record) -> tuple[str, dict[str, tuple[str, ...]]]:
    rses = require_record(row.get("rses") or {})
    for addresses in rses.values():
        if not isinstance(addresses, list) or not all(isinstance(url, str) for url in addresses):
            raise BadRow(f"expected addresses, got {quote_excerpt(addresses)}")
    return read_name(row), {rse: tuple(sorted(addresses)) for rse, addresses in rses.items()}

"""File unions: combine the files of a dataset at several storage elements that jobs of one site read.

Listing files costs Rucio much more than counting them. So the catalogue lists the files of a dataset
only if its parts may be complete together. It lists the files again if the counts change, or after
``verify_every``.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from adapters.rucio.poll import NEVER, Dids, RucioPoll, drop_all_but
from adapters.rucio.responses import BadRow, Counts, Rows, iter_records, read_amount, read_file, read_states
from adapters.rucio.session.queries import QueryRunner, did_record
from hydrator.domain.errors import CatalogueError, CatalogueUnreachable
from hydrator.domain.model import Did, FilesOnDisk
from hydrator.domain.sites import add_unions, number_files

_CALL = "list_replicas"


class _FileListing(NamedTuple):
    """The files and counts of a dataset by storage element, at the time *listed_at*."""

    listed_at: datetime
    counts: Counts
    files: Mapping[str, FilesOnDisk]


class FileLists:
    """A cache of the file lists of datasets at several storage elements, with a budget for queries."""

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._listings: dict[Did, _FileListing] = {}
        self._tried_at: dict[Did, datetime] = {}

    def read(self, poll: RucioPoll, shared_counts: Mapping[Did, Counts]) -> None:
        """Add unions of files to the readings of *poll*; store an error for each dataset without a list.

        Args:
            poll: the poll; its conclusions judge each storage element alone.
            shared_counts: by dataset, the counts at the storage elements to combine.
        """
        drop_all_but(shared_counts.keys(), self._listings, self._tried_at)
        for did in self._list_due(
            poll, {did: each for did, each in shared_counts.items() if did in poll.conclusions}
        ):
            poll.errors.setdefault(
                did, CatalogueUnreachable(self._queries.name, "its files were not listed yet")
            )
        for did in shared_counts.keys() & poll.conclusions.keys():
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
        jobs = sorted(due, key=lambda did: (self._tried_at.get(did, NEVER), did not in unknown, did))
        jobs = jobs[: max(1, self._queries.settings.deep_calls // 10)][::-1]
        for did, answer in self._queries.map_concurrently(
            jobs, lambda each: self._list_files(each, shared_counts[each], poll.started_at)
        ):
            self._tried_at[did] = poll.started_at
            if isinstance(answer, CatalogueError):
                poll.errors[did] = answer
            else:
                self._listings[did] = answer
                unknown.discard(did)
            if self._queries.is_late(0.3):
                jobs.clear()
        return unknown

    def _is_unchanged(self, did: Did, counts: Counts) -> bool:
        listing = self._listings.get(did)
        return listing is not None and listing.counts == counts

    def _is_due(self, did: Did, now: datetime) -> bool:
        return now - self._listings[did].listed_at >= self._queries.settings.verify_every

    def _list_files(self, did: Did, counts: Counts, now: datetime) -> _FileListing:
        return self._queries.ask(
            lambda client: list(
                client.list_replicas(
                    [did_record(did)],
                    all_states=True,
                    rse_expression="|".join(sorted(counts)),
                    sort="random",
                )
            ),
            lambda rows: _FileListing(now, counts, files_at(did, rows, counts)),
        )


def files_at(did: Did, rows: Rows, counts: Counts) -> Mapping[str, FilesOnDisk]:
    """Return the available files of *did* by storage element.

    Raises:
        BadRow: a row is unreadable, or the files at a storage element are fewer than its count or more than
            the files of the dataset. The answer may be incomplete.
    """
    sizes: dict[str, float] = {}
    available: dict[str, set[str]] = {storage: set() for storage in counts}
    for row in iter_records(rows, _CALL):
        file = read_file(row, _CALL)
        for storage, state in read_states(row, _CALL).items():
            if state == "AVAILABLE" and storage in available:
                available[storage].add(file)
                sizes[file] = read_amount(row, "bytes", _CALL)
    for storage, count in counts.items():
        if not count.available_length <= len(available[storage]) <= count.length:
            files = f"{len(available[storage])} files of {did} at {storage}"
            raise BadRow(f"{_CALL} lists {files}, and {count.available_length} were counted")
    numbers, masks = number_files(available)
    packed = array("d", (sizes[file] for file in numbers)).tobytes()
    return {
        storage: FilesOnDisk(mask, counts[storage].length, counts[storage].bytes, packed)
        for storage, mask in masks.items()
    }


def available_files(
    states: Sequence[tuple[str, Mapping[str, str]]], storages: Iterable[str]
) -> dict[str, FilesOnDisk]:
    """Return the available files by storage element, from the replica states of each file."""
    names = {
        storage: [file for file, where in states if where.get(storage) == "AVAILABLE"] for storage in storages
    }
    return {storage: FilesOnDisk(mask, len(states)) for storage, mask in number_files(names)[1].items()}

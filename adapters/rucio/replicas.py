"""Counts of datasets by storage element. Rucio's summary rows show which datasets to count file by file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nsmallest

from hydrator.domain.errors import CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did

from .dids import query_did
from .poll import NEVER, Dids, RucioPoll
from .responses import (
    Count,
    Counts,
    DatasetRow,
    largest_counts,
    parse_deep_rows,
    read_dataset_row,
)
from .session.queries import QueryRunner, SeriesGuard, split_did
from .session.transport import Forbidden

SummaryRows = tuple[DatasetRow, ...]
"""The summary rows of a dataset (list_dataset_replicas), sorted."""


@dataclass(frozen=True, slots=True)
class DatasetCount:
    """The count of a dataset.

    *has_matching_rows* is true if the dataset's summary *rows* had the same counts.
    *doubtful_storages* have files by the summary rows, but the count has no row at all: it may be incomplete,
    so nothing is concluded there. A count omits a single storage element if all files there are bad, which
    the summary may never notice.
    """

    counted_at: datetime
    rows: SummaryRows
    has_matching_rows: bool
    counts: Counts
    is_empty: bool
    doubtful_storages: frozenset[str] = frozenset()

    @property
    def rule_storages(self) -> frozenset[str]:
        """Return the storage elements with a row, and so with a rule."""
        return frozenset(row.storage for row in self.rows)

    @property
    def is_settled(self) -> bool:
        """Return True if no transfer is possible: all storage elements with a rule or files are complete."""
        names = self.rule_storages
        return bool(names) and all(
            name in self.counts and self.counts[name].is_complete for name in names | self.counts.keys()
        )


_LEAST_VERIFIED = 20
_VERIFIED_PART = 10
"""A poll verifies at most a tenth of all counts, the oldest first, but 20 if they are fewer."""


class DatasetCounter:
    """The last count of each dataset, and a budget for new counts.

    The poll counts datasets with incomplete or changed summary rows. Of all others, whose last count is older
    than ``verify_every``, it counts a tenth. If ``verify_every`` is zero, the poll counts all datasets.
    """

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._counts: dict[Did, DatasetCount] = queries.create_memory()
        self._missed_dids: set[Did] = set()

    def recount(self, dids: Dids) -> None:
        """Let the next polls count *dids*, or the datasets in them, once, also those that are not due."""
        self._missed_dids |= dids

    def iter_counts(self, poll: RucioPoll, dids: Dids) -> Iterator[Mapping[Did, DatasetCount]]:
        """Yield the counts of *dids*, but not of DIDs in ``poll.errors``.

        Datasets that need no new count come first, in batches, while other datasets are queried. The datasets
        that this poll counts come at the end.
        """
        dids = dids - poll.errors.keys()
        self._missed_dids = {
            did for did in dids if not self._missed_dids.isdisjoint({did, *poll.parents(did)})
        }
        due = self._choose_due(poll.started_at)
        to_count: dict[Did, SummaryRows] = {}
        for batch in self._queries.iter_batches(
            dids,
            poll.errors,
            "list_dataset_replicas_bulk",
            lambda _, row: read_dataset_row(row),
            did_type="DATASET",
        ):
            summary = {did: tuple(sorted(rows)) for did, rows in batch.items()}
            trusted = {
                did: self._counts[did]
                for did, rows in summary.items()
                if did not in self._missed_dids and self._is_unchanged(did, rows) and did not in due
            }
            to_count.update((did, rows) for did, rows in summary.items() if did not in trusted)
            yield trusted
        self._count_due(poll, to_count)
        yield {did: self._counts[did] for did in to_count if did not in poll.errors}

    def _choose_due(self, now: datetime) -> frozenset[Did]:
        """Return the datasets whose count this poll verifies, although nothing about them has changed."""
        due = [did for did in self._counts if self._is_due(did, now)]
        if self._queries.settings.verify_every > timedelta():
            most = max(_LEAST_VERIFIED, len(self._counts) // _VERIFIED_PART)
            due = nsmallest(most, due, key=lambda did: (self._counts[did].counted_at, did))
        return frozenset(due)

    def _is_due(self, did: Did, now: datetime) -> bool:
        return now - self._counts[did].counted_at >= self._queries.settings.verify_every

    def _is_unchanged(self, did: Did, rows: SummaryRows) -> bool:
        """Return whether the last count is valid: it matched its summary rows, now complete and unchanged."""
        last_count = self._counts.get(did)
        return (
            last_count is not None
            and last_count.has_matching_rows
            and last_count.rows == rows
            and all(row.amount.is_complete for row in rows)
        )

    def _order_by_urgency(
        self, rows_by_did: Mapping[Did, SummaryRows], now: datetime
    ) -> tuple[list[Did], set[Did]]:
        """Return the datasets to count, in order, and the set of unchanged datasets (their count is valid).

        Suspects, datasets whose summary rows changed or are incomplete, come before datasets that are only
        due for verification. But a tenth of the budget is for due datasets, and half of it, before all
        others, for datasets that jobs missed: anybody may report any number. All groups are in the order of
        the last attempt, so a dataset whose queries always fail comes last.
        """
        settings = self._queries.settings

        def turn(did: Did) -> tuple[datetime, Did]:
            counted_at = self._counts[did].counted_at if did in self._counts else NEVER
            return max(counted_at, self._queries.failed.failed_at(("count", did))), did

        unchanged = {did for did, rows in rows_by_did.items() if self._is_unchanged(did, rows)}
        suspects = sorted(rows_by_did.keys() - unchanged, key=turn)
        missed = sorted(unchanged & self._missed_dids, key=turn)[: max(1, settings.deep_calls // 2)]
        share = settings.deep_calls // 10
        due = sorted((did for did in unchanged.difference(missed) if self._is_due(did, now)), key=turn)
        return [*missed, *due[:share], *suspects, *due[share:]], unchanged

    def _not_counted_error(self, query_count: int) -> CatalogueUnreachable:
        """Return the error for a dataset that must wait: this poll counted *query_count* other datasets."""
        if self._queries.settings.deep_calls and not query_count:
            return self._queries.connection.deadline_error()
        reason = f"not counted yet: {query_count} other datasets came first in this poll"
        return CatalogueUnreachable(self._queries.name, reason)

    def _count_due(self, poll: RucioPoll, rows_by_did: Mapping[Did, SummaryRows]) -> None:
        """Count the due datasets until the budget is used, or only a fifth of the poll's time is left."""
        rows_by_did = {did: rows_by_did[did] for did in self._queries.hold_back(poll, "count", rows_by_did)}
        todo, unchanged = self._order_by_urgency(rows_by_did, poll.started_at)
        budget = 0 if self._queries.is_late(0.2) else self._queries.settings.deep_calls
        jobs, waiting = todo[:budget][::-1], todo[budget:]
        guard = SeriesGuard(self._queries, reserve=0.2)

        def count(did: Did) -> DatasetCount:
            return count_dataset(self._queries, did, rows_by_did[did], poll.started_at, self._counts.get(did))

        query_count = 0
        for did, answer in self._queries.run_series(poll, "count", jobs, count, guard):
            query_count += 1
            self._missed_dids.discard(did)
            if isinstance(answer, DatasetCount):
                self._counts[did] = answer
            elif isinstance(answer, Forbidden):
                _skip_neighbours(jobs)
        waiting += jobs
        if guard.denied:
            poll.errors.update(dict.fromkeys(waiting, guard.denied))
            return
        for did in waiting:
            if did not in unchanged:
                poll.errors[did] = self._not_counted_error(query_count)


def count_dataset(
    queries: QueryRunner, did: Did, rows: SummaryRows, now: datetime, previous: DatasetCount | None
) -> DatasetCount:
    """Count *did* file by file, and compare the count with its summary rows.

    If any storage element has fewer files than in the *previous* count (the first time: in the summary
    rows), count again, because the answer may have been incomplete.

    Raises:
        CatalogueError: the query failed, or the two counts differ.
    """
    counts = count_files(queries, did)
    shallow = largest_counts(row for row in rows if row.amount.available_length)
    files, shallow_files = _available_files(counts), _available_files(shallow)
    last_files = _available_files(previous.counts) if previous else shallow_files
    has_shrunk = any(number > files.get(storage, 0) for storage, number in last_files.items())
    if has_shrunk and count_files(queries, did) != counts:
        raise CatalogueGarbled(queries.name, f"list_dataset_replicas has two different counts of {did}")
    has_no_row = not counts and not any(row.amount.length for row in rows)
    is_empty = has_no_row and query_did(queries, did, dynamic_depth="FILE").length == 0
    doubtful = frozenset[str]() if counts else frozenset(shallow)
    return DatasetCount(now, rows, files == shallow_files, counts, is_empty, doubtful)


def _available_files(counts: Counts) -> dict[str, int]:
    return {storage: count.available_length for storage, count in counts.items()}


def count_files(queries: QueryRunner, did: Did) -> dict[str, Count]:
    """Return the files of *did* by storage element, as Rucio counts them now."""
    counts = queries.ask(
        "list_dataset_replicas",
        *split_did(did),
        read=lambda rows: largest_counts(parse_deep_rows(did, rows)),
        deep=True,
    )
    return {storage: count for storage, count in counts.items() if count.length}


def _skip_neighbours(jobs: list[Did]) -> None:
    """Rotate *jobs* after a 403: the next datasets have the same scope, and may be forbidden, too."""
    shift = len(jobs) * 3 // 8
    jobs[:] = [*jobs[shift:], *jobs[:shift]]

"""How much of each dataset is where: the cheap rows tell whom to count file by file."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import nsmallest

from adapters.rucio.session.queries import DenialCounter, QueryRunner, is_unanswered, split_did
from adapters.rucio.session.transport import Forbidden, NotFound
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did

from .background import BackgroundVerifier, QueryKey
from .poll import RucioPoll
from .responses import (
    Count,
    DatasetRow,
    has_shrunk,
    largest_counts,
    parse_dataset_rows,
    parse_deep_rows,
    read_amount,
    require_record,
)

_NEVER = datetime.min.replace(tzinfo=UTC)
RowsVersion = tuple[tuple[str, int, int, str], ...]
"""What the cheap rows of a dataset said: storage element, files, files there, when that was written."""


@dataclass(frozen=True, slots=True)
class DatasetCount:
    """A dataset counted at *at*; *agreed* when the cheap rows, *stamp*, said the same."""

    counted_at: datetime
    rows_version: RowsVersion
    has_matching_rows: bool
    counts: Mapping[str, Count]
    is_empty: bool

    def is_settled(self, rows: Sequence[DatasetRow]) -> bool:
        """Whether nothing can be moving: each element that a rule names or that has files is whole."""
        names = {row.storage for row in rows}
        return bool(names) and all(
            name in self.counts and self.counts[name].is_complete for name in names | self.counts.keys()
        )


CountWithRows = tuple[DatasetCount, list[DatasetRow]]
"""What was counted of a dataset, and its cheap rows."""
TrustedCount = tuple[Did, DatasetCount]
"""A count that a poll still believed."""


class DatasetCounter:
    """What was counted of each dataset, and the budget for counting more.

    What the cheap rows leave in doubt is counted in the poll. What is only due to be counted again is
    left to the *background*, so that a poll at rest counts nothing; where nothing is believed
    (``verify_every`` is zero), the poll counts it too.
    """

    def __init__(
        self, queries: QueryRunner, background: BackgroundVerifier[TrustedCount, DatasetCount]
    ) -> None:
        self._queries = queries
        self._background = background
        self._counts: dict[Did, DatasetCount] = {}
        self._failed_at: dict[Did, datetime] = {}
        self._trusted_dids: list[Did] = []

    def read(self, poll: RucioPoll, dids: AbstractSet[Did]) -> Iterator[Mapping[Did, CountWithRows]]:
        """The counts and the cheap rows of *dids*, less those that got lost on the way.

        They come in parts: what need not be counted now while others are asked for, the rest at the end.
        """
        dids = dids - poll.errors.keys()
        for memory in (self._counts, self._failed_at):
            for gone in memory.keys() - dids:
                del memory[gone]
        self._adopt_verified()
        self._trusted_dids = []
        left: dict[Did, list[DatasetRow]] = {}
        for cheap in self._read_cheap_rows(poll, dids):
            if not self._queries.settings.count_first:
                new = cheap.keys() - self._counts.keys()
                self._counts.update(
                    (did, _count_from_rows(cheap[did])) for did in new if _is_complete(cheap[did])
                )
            rests = {
                did: (self._counts[did], rows)
                for did, rows in cheap.items()
                if self._is_unchanged(did, rows) and self._is_trusted(poll, did)
            }
            self._trusted_dids += rests
            left.update((did, rows) for did, rows in cheap.items() if did not in rests)
            yield rests
        self._count_due(poll, left)
        yield {did: (self._counts[did], rows) for did, rows in left.items() if did not in poll.errors}

    def verification_queue(self) -> list[tuple[QueryKey, TrustedCount]]:
        """The counts that the last poll believed, in the order in which they come due."""
        counted = self._counts
        in_order = sorted(
            (did for did in self._trusted_dids if did in counted), key=lambda did: counted[did].counted_at
        )
        return [(("count", did), (did, counted[did])) for did in in_order]

    def _adopt_verified(self) -> None:
        """Take over what was verified in the background, where nothing newer is known."""
        for (did, old), new in self._background.take_verified():
            if self._counts.get(did) is old:
                self._counts[did] = replace(new, counts=old.counts) if new.counts == old.counts else new

    def _is_trusted(self, poll: RucioPoll, did: Did) -> bool:
        """May a count that stands be concluded from in this poll? One that fails to be verified is lost."""
        if not self._is_due(did, poll.started_at):
            return True
        error = self._background.error_of(("count", did))
        if error:
            poll.errors[did] = error
        return self._background.is_enabled and not error

    def _read_cheap_rows(
        self, poll: RucioPoll, dids: AbstractSet[Did]
    ) -> Iterator[Mapping[Did, list[DatasetRow]]]:
        for batch, answer in self._queries.iter_batches(
            dids,
            poll.errors,
            lambda client, batch: client.list_dataset_replicas_bulk(
                [{**did, "type": "DATASET"} for did in batch]
            ),
            lambda answer: parse_dataset_rows(answer, "list_dataset_replicas_bulk"),
        ):
            rows: dict[Did, list[DatasetRow]] = {did: [] for did in batch}
            for row in answer:
                if row.did in rows:
                    rows[row.did].append(row)
            yield rows

    def _is_due(self, did: Did, now: datetime) -> bool:
        return now - self._counts[did].counted_at >= self._queries.settings.verify_every

    def _is_unchanged(self, did: Did, rows: Sequence[DatasetRow]) -> bool:
        """Whether the last count may still stand: the cheap rows agreed with it, are whole and unchanged."""
        known = self._counts.get(did)
        return (
            known is not None
            and known.has_matching_rows
            and known.rows_version == _rows_version(rows)
            and _is_complete(rows, if_empty=True)
        )

    def _order_by_urgency(
        self, rows_by_did: Mapping[Did, list[DatasetRow]], now: datetime
    ) -> tuple[list[Did], set[Did]]:
        """Whom to count, in that order, and for whom of them the last count stands as long.

        Suspects come before those that are only due, or where much changes all would wait for
        them; a tenth of the budget is for what is due all the same. Of both, those tried longest ago:
        a dataset that never answers comes after all others.
        """
        settings = self._queries.settings

        def turn(did: Did) -> tuple[datetime, Did]:
            counted_at = self._counts[did].counted_at if did in self._counts else _NEVER
            return max(counted_at, self._failed_at.get(did, _NEVER)), did

        standing = {did for did, rows in rows_by_did.items() if self._is_unchanged(did, rows)}
        suspects = sorted(rows_by_did.keys() - standing, key=turn)
        share = settings.deep_calls // 10
        if self._background.is_enabled:
            crowded = len(suspects) > settings.deep_calls - share
            waiting = (did for did in self._trusted_dids if crowded and self._is_due(did, now))
            return [*nsmallest(share, waiting, key=turn), *suspects], standing
        due = sorted((did for did in standing if self._is_due(did, now)), key=turn)
        return [*due[:share], *suspects, *due[share:]], standing

    def _not_counted_error(self, asked_count: int) -> CatalogueUnreachable:
        """Why a dataset was not counted in this poll, in which *asked* others were."""
        if self._queries.settings.deep_calls and not asked_count:
            return self._queries.connection.deadline_error()
        return CatalogueUnreachable(self._queries.name, f"not counted: {asked_count} others were due first")

    def _count_due(self, poll: RucioPoll, rows_by_did: Mapping[Did, list[DatasetRow]]) -> None:
        """Count who must be, until the budget or the time is spent."""
        settings = self._queries.settings
        rows_by_did = {did: rows for did, rows in rows_by_did.items() if not self._has_error(poll, did)}
        todo, standing = self._order_by_urgency(rows_by_did, poll.started_at)
        stamps = {
            did: _rows_version(rows_by_did[did]) if did in rows_by_did else self._counts[did].rows_version
            for did in todo
        }
        reserve = 0.2 * settings.deadline.total_seconds()
        waiting = todo[settings.deep_calls :]
        jobs = todo[: settings.deep_calls][::-1]
        asked = unanswered = 0
        denials = DenialCounter(concurrent_calls=settings.concurrent_calls)
        if self._queries.connection.deadline.remaining_seconds < reserve:
            waiting, jobs = todo, []
        for did, counted_now in self._queries.map_concurrently(
            jobs,
            lambda each: count_dataset(
                self._queries, each, stamps[each], poll.started_at, self._counts.get(each)
            ),
        ):
            asked += 1
            if not isinstance(counted_now, CatalogueError):
                self._counts[did] = counted_now
                self._failed_at.pop(did, None)
            else:
                poll.errors[did] = counted_now
                self._retry_in_background(poll, did, stamps[did], counted_now)
            if denials.is_denied_after(counted_now) and isinstance(counted_now, CatalogueError):
                poll.errors.update(dict.fromkeys([*jobs, *waiting], counted_now))
                waiting = []
                jobs.clear()
            if isinstance(counted_now, Forbidden):
                _skip_neighbours(jobs)
            unanswered += is_unanswered(counted_now)
            if (
                self._queries.connection.deadline.remaining_seconds < reserve
                or unanswered >= self._queries.max_unanswered
            ):
                waiting += jobs
                jobs.clear()
        for did in waiting:
            if did not in standing:
                poll.errors[did] = self._not_counted_error(asked)

    def _has_error(self, poll: RucioPoll, did: Did) -> bool:
        """Is *did* lost already, or one that the background still asks for?"""
        error = self._background.error_of(("count", did))
        if error:
            poll.errors.setdefault(did, error)
        return did in poll.errors

    def _retry_in_background(
        self, poll: RucioPoll, did: Did, rows_version: RowsVersion, error: CatalogueError
    ) -> None:
        """Leave *did* to the background: no poll waits for it again before it was answered there."""
        self._failed_at[did] = poll.started_at
        if not isinstance(error, NotFound):
            before = self._counts.get(did)
            self._background.retry_later(
                ("count", did),
                error,
                lambda asker: count_dataset(asker, did, rows_version, poll.started_at, before),
            )


def count_dataset(
    queries: QueryRunner, did: Did, rows_version: RowsVersion, now: datetime, previous: DatasetCount | None
) -> DatasetCount:
    """Count *did* file by file, and compare that with what the cheap rows said.

    When there is less anywhere than *before*, or at first than the cheap rows said, it is counted again,
    since an answer that was cut looks like that.

    Raises:
        CatalogueError: it could not be counted, or twice and not alike.
    """
    scope, name = split_did(did)
    counts = _count_files(queries, did)
    shallow: dict[str, int] = {}
    for storage, _, available, _ in rows_version:
        if available:
            shallow[storage] = max(available, shallow.get(storage, 0))
    last = {k: v.available_length for k, v in previous.counts.items()} if previous else shallow
    if has_shrunk(counts, last) and _count_files(queries, did) != counts:
        raise CatalogueGarbled(queries.name, f"list_dataset_replicas counts the files of {did} in two ways")
    agreed = {k: v.available_length for k, v in counts.items()} == shallow
    empty = (
        not counts and not any(length for _, length, _, _ in rows_version) and _is_empty(queries, scope, name)
    )
    return DatasetCount(now, rows_version, agreed, counts, empty)


def _count_files(queries: QueryRunner, did: Did) -> dict[str, Count]:
    scope, name = split_did(did)
    return largest_counts(
        queries.ask(
            lambda client: client.list_dataset_replicas(scope, name, deep=True),
            lambda answer: parse_deep_rows(did, answer),
        )
    )


def _is_empty(queries: QueryRunner, scope: str, name: str) -> bool:
    """Return whether a dataset of which nothing is anywhere has no files at all."""
    return queries.ask(
        lambda client: client.get_did(scope, name, dynamic_depth="FILE"),
        lambda answer: read_amount(require_record(answer, "get_did"), "length", "get_did") == 0,
    )


def _skip_neighbours(jobs: list[Did]) -> None:
    """Go on with others of *jobs*: those next to a forbidden dataset are of its scope, and may be so too."""
    far = len(jobs) * 3 // 8
    jobs[:] = [*jobs[far:], *jobs[:far]]


def _is_complete(rows: Sequence[DatasetRow], *, if_empty: bool = False) -> bool:
    """Whether all *rows* are of whole copies; *none*: what is said of no rows."""
    return all(row.amount.is_complete for row in rows) if rows else if_empty


def _count_from_rows(rows: Sequence[DatasetRow]) -> DatasetCount:
    """What cheap *rows* say, taken for a count that is due."""
    return DatasetCount(
        _NEVER, _rows_version(rows), has_matching_rows=True, counts=largest_counts(rows), is_empty=False
    )


def _rows_version(rows: Iterable[DatasetRow]) -> RowsVersion:
    return tuple(
        sorted((row.storage, row.amount.length, row.amount.available_length, row.updated_at) for row in rows)
    )

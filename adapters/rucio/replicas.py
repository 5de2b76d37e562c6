"""How much of each dataset is where: the cheap rows tell whom to count file by file."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import nsmallest

from adapters.rucio.session.client import Forbidden, NotFound
from adapters.rucio.session.queries import Asker, Denials, is_silence, split
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did

from .background import Background, Key
from .poll import Poll
from .responses import (
    Count,
    DatasetRow,
    amount,
    counted,
    dataset_rows,
    deep_rows,
    has_shrunk,
    record,
)

_NEVER = datetime.min.replace(tzinfo=UTC)
Stamp = tuple[tuple[str, int, int, str], ...]
"""What the cheap rows of a dataset said: storage element, files, files there, when that was written."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A dataset counted at *at*; *agreed* when the cheap rows, *stamp*, said the same."""

    at: datetime
    stamp: Stamp
    agreed: bool
    counts: Mapping[str, Count]
    empty: bool

    def settled(self, rows: Sequence[DatasetRow]) -> bool:
        """Whether nothing can be moving: each element that a rule names or that has files is whole."""
        names = {row.storage for row in rows}
        return bool(names) and all(
            name in self.counts and self.counts[name].complete for name in names | self.counts.keys()
        )


Known = tuple[Counted, list[DatasetRow]]
"""What was counted of a dataset, and its cheap rows."""
Stood = tuple[Did, Counted]
"""A count that a poll still believed."""


class Counts:
    """What was counted of each dataset, and the budget for counting more.

    What the cheap rows leave in doubt is counted in the poll. What is only due to be counted again is
    left to the *background*, so that a poll at rest counts nothing; where nothing is believed
    (``verify_every`` is zero), the poll counts it too.
    """

    def __init__(self, asker: Asker, background: Background[Stood, Counted]) -> None:
        self._asker = asker
        self._background = background
        self._counted: dict[Did, Counted] = {}
        self._failed_at: dict[Did, datetime] = {}
        self._standing: list[Did] = []

    def read(self, poll: Poll, dids: AbstractSet[Did]) -> Iterator[Mapping[Did, Known]]:
        """The counts and the cheap rows of *dids*, less those that got lost on the way.

        They come in parts: what need not be counted now while others are asked for, the rest at the end.
        """
        dids = dids - poll.lost.keys()
        for memory in (self._counted, self._failed_at):
            for gone in memory.keys() - dids:
                del memory[gone]
        self._adopt()
        self._standing = []
        left: dict[Did, list[DatasetRow]] = {}
        for cheap in self._cheap_rows(poll, dids):
            if not self._asker.settings.count_first:
                new = cheap.keys() - self._counted.keys()
                self._counted.update((did, _taken(cheap[did])) for did in new if _whole(cheap[did]))
            rests = {
                did: (self._counted[did], rows)
                for did, rows in cheap.items()
                if self._stands(did, rows) and self._is_believed(poll, did)
            }
            self._standing += rests
            left.update((did, rows) for did, rows in cheap.items() if did not in rests)
            yield rests
        self._count(poll, left)
        yield {did: (self._counted[did], rows) for did, rows in left.items() if did not in poll.lost}

    def round(self) -> list[tuple[Key, Stood]]:
        """The counts that the last poll believed, in the order in which they come due."""
        counted = self._counted
        in_order = sorted((did for did in self._standing if did in counted), key=lambda did: counted[did].at)
        return [(("count", did), (did, counted[did])) for did in in_order]

    def _adopt(self) -> None:
        """Take over what was verified in the background, where nothing newer is known."""
        for (did, old), new in self._background.take_verified():
            if self._counted.get(did) is old:
                self._counted[did] = replace(new, counts=old.counts) if new.counts == old.counts else new

    def _is_believed(self, poll: Poll, did: Did) -> bool:
        """May a count that stands be concluded from in this poll? One that fails to be verified is lost."""
        if not self._is_due(did, poll.at):
            return True
        error = self._background.error_of(("count", did))
        if error:
            poll.lost[did] = error
        return self._background.enabled and not error

    def _cheap_rows(self, poll: Poll, dids: AbstractSet[Did]) -> Iterator[Mapping[Did, list[DatasetRow]]]:
        for batch, answer in self._asker.batches(
            dids,
            poll.lost,
            lambda client, batch: client.list_dataset_replicas_bulk(
                [{**did, "type": "DATASET"} for did in batch]
            ),
            lambda answer: dataset_rows(answer, "list_dataset_replicas_bulk"),
        ):
            rows: dict[Did, list[DatasetRow]] = {did: [] for did in batch}
            for row in answer:
                if row.did in rows:
                    rows[row.did].append(row)
            yield rows

    def _is_due(self, did: Did, now: datetime) -> bool:
        return now - self._counted[did].at >= self._asker.settings.verify_every

    def _stands(self, did: Did, rows: Sequence[DatasetRow]) -> bool:
        """Whether the last count may still stand: the cheap rows agreed with it, are whole and unchanged."""
        known = self._counted.get(did)
        return known is not None and known.agreed and known.stamp == _stamp(rows) and _whole(rows, none=True)

    def _in_turn(self, cheap: Mapping[Did, list[DatasetRow]], now: datetime) -> tuple[list[Did], set[Did]]:
        """Whom to count, in that order, and for whom of them the last count stands as long.

        Suspects come before those that are only due, or where much changes all would wait for
        them; a tenth of the budget is for what is due all the same. Of both, those tried longest ago:
        a dataset that never answers comes after all others.
        """
        settings = self._asker.settings

        def turn(did: Did) -> tuple[datetime, Did]:
            counted_at = self._counted[did].at if did in self._counted else _NEVER
            return max(counted_at, self._failed_at.get(did, _NEVER)), did

        standing = {did for did, rows in cheap.items() if self._stands(did, rows)}
        suspects = sorted(cheap.keys() - standing, key=turn)
        share = settings.deep_calls // 10
        if self._background.enabled:
            crowded = len(suspects) > settings.deep_calls - share
            waiting = (did for did in self._standing if crowded and self._is_due(did, now))
            return [*nsmallest(share, waiting, key=turn), *suspects], standing
        due = sorted((did for did in standing if self._is_due(did, now)), key=turn)
        return [*due[:share], *suspects, *due[share:]], standing

    def _uncounted(self, asked: int) -> CatalogueUnreachable:
        """Why a dataset was not counted in this poll, in which *asked* others were."""
        if self._asker.settings.deep_calls and not asked:
            return self._asker.connection.late()
        return CatalogueUnreachable(self._asker.name, f"not counted: {asked} others were due first")

    def _count(self, poll: Poll, cheap: Mapping[Did, list[DatasetRow]]) -> None:
        """Count who must be, until the budget or the time is spent."""
        settings = self._asker.settings
        cheap = {did: rows for did, rows in cheap.items() if not self._is_lost(poll, did)}
        todo, standing = self._in_turn(cheap, poll.at)
        stamps = {did: _stamp(cheap[did]) if did in cheap else self._counted[did].stamp for did in todo}
        reserve = 0.2 * settings.deadline.total_seconds()
        waiting = todo[settings.deep_calls :]
        jobs = todo[: settings.deep_calls][::-1]
        asked = unanswered = 0
        denials = Denials(beside=settings.concurrent_calls)
        if self._asker.connection.deadline.left < reserve:
            waiting, jobs = todo, []
        for did, counted_now in self._asker.side_by_side(
            jobs, lambda each: count_one(self._asker, each, stamps[each], poll.at, self._counted.get(each))
        ):
            asked += 1
            if not isinstance(counted_now, CatalogueError):
                self._counted[did] = counted_now
                self._failed_at.pop(did, None)
            else:
                poll.lost[did] = counted_now
                self._failed(poll, did, stamps[did], counted_now)
            if denials.denies(counted_now) and isinstance(counted_now, CatalogueError):
                poll.lost.update(dict.fromkeys([*jobs, *waiting], counted_now))
                waiting = []
                jobs.clear()
            if isinstance(counted_now, Forbidden):
                _look_elsewhere(jobs)
            unanswered += is_silence(counted_now)
            if self._asker.connection.deadline.left < reserve or unanswered >= self._asker.most_unanswered:
                waiting += jobs
                jobs.clear()
        for did in waiting:
            if did not in standing:
                poll.lost[did] = self._uncounted(asked)

    def _is_lost(self, poll: Poll, did: Did) -> bool:
        """Is *did* lost already, or one that the background still asks for?"""
        error = self._background.error_of(("count", did))
        if error:
            poll.lost.setdefault(did, error)
        return did in poll.lost

    def _failed(self, poll: Poll, did: Did, stamp: Stamp, error: CatalogueError) -> None:
        """Leave *did* to the background: no poll waits for it again before it was answered there."""
        self._failed_at[did] = poll.at
        if not isinstance(error, NotFound):
            before = self._counted.get(did)
            self._background.failed(
                ("count", did), error, lambda asker: count_one(asker, did, stamp, poll.at, before)
            )


def count_one(asker: Asker, did: Did, stamp: Stamp, at: datetime, before: Counted | None) -> Counted:
    """Count *did* file by file, and compare that with what the cheap rows said.

    When there is less anywhere than *before*, or at first than the cheap rows said, it is counted again,
    since an answer that was cut looks like that.

    Raises:
        CatalogueError: it could not be counted, or twice and not alike.
    """
    scope, name = split(did)
    counts = _deep(asker, did)
    shallow: dict[str, int] = {}
    for storage, _, available, _ in stamp:
        if available:
            shallow[storage] = max(available, shallow.get(storage, 0))
    last = {k: v.available_length for k, v in before.counts.items()} if before else shallow
    if has_shrunk(counts, last) and _deep(asker, did) != counts:
        raise CatalogueGarbled(asker.name, f"list_dataset_replicas counts the files of {did} in two ways")
    agreed = {k: v.available_length for k, v in counts.items()} == shallow
    empty = not counts and not any(length for _, length, _, _ in stamp) and _is_empty(asker, scope, name)
    return Counted(at, stamp, agreed, counts, empty)


def _deep(asker: Asker, did: Did) -> dict[str, Count]:
    scope, name = split(did)
    return counted(
        asker.ask(
            lambda client: client.list_dataset_replicas(scope, name, deep=True),
            lambda answer: deep_rows(did, answer),
        )
    )


def _is_empty(asker: Asker, scope: str, name: str) -> bool:
    """Return whether a dataset of which nothing is anywhere has no files at all."""
    return asker.ask(
        lambda client: client.get_did(scope, name, dynamic_depth="FILE"),
        lambda answer: amount(record(answer, "get_did"), "length", "get_did") == 0,
    )


def _look_elsewhere(jobs: list[Did]) -> None:
    """Go on with others of *jobs*: those next to a forbidden dataset are of its scope, and may be so too."""
    far = len(jobs) * 3 // 8
    jobs[:] = [*jobs[far:], *jobs[:far]]


def _whole(rows: Sequence[DatasetRow], *, none: bool = False) -> bool:
    """Whether all *rows* are of whole copies; *none*: what is said of no rows."""
    return all(row.amount.complete for row in rows) if rows else none


def _taken(rows: Sequence[DatasetRow]) -> Counted:
    """What cheap *rows* say, taken for a count that is due."""
    return Counted(_NEVER, _stamp(rows), agreed=True, counts=counted(rows), empty=False)


def _stamp(rows: Iterable[DatasetRow]) -> Stamp:
    return tuple(
        sorted((row.storage, row.amount.length, row.amount.available_length, row.stamp) for row in rows)
    )

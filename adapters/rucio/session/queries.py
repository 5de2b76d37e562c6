"""Queries to Rucio: single queries, series, and batches. A refused batch is halved to find the bad DID.

A query names a method of rucio-clients, and how to read its answer. An unreadable row raises BadRow; the
error of the query then begins with the method's name.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, MutableSequence, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from adapters.rucio.poll import NEVER, DidErrors, Dids, RucioPoll
from adapters.rucio.responses import BadRow, Record, Rows, iter_records, require_did
from adapters.worker import announce
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
)
from hydrator.domain.model import Did

from .client import RucioClient, RucioConnection, UnreadableAnswer
from .settings import RucioSettings
from .transport import Forbidden, InvalidRequest, NotFound, ServerFault

R = TypeVar("R")
T = TypeVar("T")
# 60 halvings of refused batches find five bad names in a thousand, but end soon if every query fails.
_MAX_HALVINGS = 60
MAX_UNANSWERED = 2
"""After so many unanswered queries for single DIDs, further queries wait for the next poll."""
_BRIEF_SHARE, _LEAST_SECONDS = 0.1, 1.0
"""Where some DIDs have no answer, the first query for another gets a tenth of ``timeout``, but a second; it
counts as a tenth of an unanswered query. So hundreds of silent DIDs delay the others by a few polls only."""
_ROWS_PER_LOOK = 1000
"""Rows of an answer between two looks at the clock."""
_MAX_FIRST_DENIALS = 3
_MAX_LATER_DENIALS = 30
_MAX_DENIED_BATCHES = 5
_SINGLE_DID_ERRORS = (InvalidRequest, UnreadableAnswer, ServerFault, Forbidden)


class DenialCounter:
    """A counter of 403 responses; it distinguishes a forbidden DID from a forbidden account.

    A single 403 means a forbidden DID. The account counts as denied in three cases: Rucio denied the first
    *limit* queries; it denied 30 queries in a row; it rejected the login.
    """

    def __init__(self, limit: int = _MAX_FIRST_DENIALS) -> None:
        self._limit = limit
        self._denials_in_row = 0

    def is_denied_after(self, answer: object) -> bool:
        """Count the next *answer*, which may be an error; return whether the account is denied."""
        if isinstance(answer, Forbidden):
            self._denials_in_row += 1
            return self._denials_in_row >= self._limit
        if not isinstance(answer, CatalogueError):
            self._denials_in_row, self._limit = 0, max(self._limit, _MAX_LATER_DENIALS)
        return isinstance(answer, CatalogueDenied)


QueryKey = tuple[str, Did]
"""The kind of a query (count, name, members, …), and its DID."""
_FIRST_WAIT = timedelta(seconds=30)
_MAX_WAIT = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _Failure:
    error: CatalogueError
    count: int
    failed_at: datetime
    retry_at: datetime
    recoveries: int


class FailedQueries:
    """The failed queries for single DIDs, each with its last error and the time of its next attempt.

    The next poll asks again, then polls after 1, 2, 4, … 60 minutes. So a DID without an answer delays only
    the polls in which its query is due. When one of these queries is answered, all others are due.
    """

    def __init__(self) -> None:
        self._failures: dict[QueryKey, _Failure] = {}
        self._recoveries = 0
        """The number of queries that were answered after a failure; each one ends all waits until then."""

    def add(self, key: QueryKey, error: CatalogueError, now: datetime) -> None:
        """Record that the query *key* failed; a 404 is an answer, so it needs no wait."""
        last = self._failures.get(key)
        count = 0 if isinstance(error, NotFound) else last.count + 1 if last else 1
        wait = min(_MAX_WAIT, _FIRST_WAIT * 2 ** min(count - 1, 10)) if count else timedelta()
        self._failures[key] = _Failure(error, count, now, now + wait, self._recoveries)

    def remove(self, key: QueryKey) -> None:
        """Record that the query *key* was answered; if it had failed, all others are due."""
        if (failure := self._failures.pop(key, None)) and failure.count:
            self._recoveries += 1

    def error_of(self, key: QueryKey, now: datetime) -> CatalogueError | None:
        """Return the last error of the query *key* if its next attempt is not due; else None."""
        failure = self._failures.get(key)
        is_waiting = failure and now < failure.retry_at and failure.recoveries == self._recoveries
        return failure.error if failure and is_waiting else None

    def failed_at(self, key: QueryKey) -> datetime:
        """Return when the query *key* failed last; the earliest time if it did not, or was answered since."""
        failure = self._failures.get(key)
        return failure.failed_at if failure else NEVER

    def forget_all_but(self, dids: Dids) -> None:
        """Forget the failed queries for all DIDs but *dids*."""
        self._failures = {key: each for key, each in self._failures.items() if key[1] in dids}


class QueryRunner:
    """A runner of queries on *connection*. Every failure is a CatalogueError that names the catalogue."""

    def __init__(self, settings: RucioSettings, connection: RucioConnection) -> None:
        self.settings = settings
        self.name = settings.name
        self.connection = connection
        self._about: Collection[str] = ()
        self._silent_dids: set[Did] = set()
        self._memories: list[dict[Did, Any]] = []
        self.failed = FailedQueries()
        self.share = 1.0
        """The part of ``timeout`` that the current query has."""

    def ask(self, call: str, *arguments: object, read: Callable[..., T], **options: object) -> T:
        """Pass the answer of the client's method *call* to *read*, and return the result.

        The method may return rows while they arrive: then only the result of *read* stays in memory.

        Raises:
            CatalogueError: the query failed.
        """
        announce(self._about)
        return self.connection.ask(partial(self._run, call, arguments, options, read))

    def ask_rows(
        self,
        call: str,
        *arguments: object,
        read: Callable[[Record], T],
        limit: int | None = None,
        **options: object,
    ) -> list[T]:
        """Return what *read* makes of each row, or of the first *limit* rows; see :meth:`ask`.

        A long answer that is not complete at the end of the poll is an error.
        """

        def read_all(rows: Rows) -> list[T]:
            found: list[T] = []
            for row in islice(iter_records(rows), limit):
                found.append(read(row))
                if len(found) % _ROWS_PER_LOOK == 0 and not self.connection.remaining_seconds:
                    raise self.connection.deadline_error()
            return found

        return self.ask(call, *arguments, read=read_all, **options)

    def write(self, call: str, *arguments: object, read: Callable[..., T], **options: object) -> T:
        """Send one write; see :meth:`ask`, and for the errors :meth:`RucioConnection.write`."""
        return self.connection.write(partial(self._run, call, arguments, options, read))

    def _run(
        self,
        call: str,
        arguments: Sequence[object],
        options: Mapping[str, object],
        read: Callable[..., T],
        client: RucioClient,
    ) -> T:
        try:
            return read(getattr(client, call)(*arguments, **options))
        except BadRow as exc:
            raise UnreadableAnswer(self.name, f"{call}: {exc}") from exc

    def start_poll(self) -> AbstractContextManager[None]:
        """Limit all queries of the ``with`` block to the time of one poll; use the current token for them."""
        return self.connection.start_poll(self.settings.deadline.total_seconds())

    def is_late(self, reserve: float) -> bool:
        """Return whether less than the fraction *reserve* (0 to 1) of the poll's time is left."""
        return self.connection.remaining_seconds < reserve * self.settings.deadline.total_seconds()

    def close(self) -> None:
        """Close the connection, and forget the token."""
        self.connection.close()

    def run_series(
        self,
        poll: RucioPoll,
        kind: str,
        jobs: MutableSequence[Did],
        task: Callable[[Did], R],
        guard: "SeriesGuard",
    ) -> Iterator[tuple[Did, R | CatalogueError]]:
        """Run *task*, a query of this *kind*, for each of *jobs*; record failures, also in ``poll.errors``.

        The jobs that are left in *jobs* at the end were not run, because *guard* stopped the series.
        """
        for did, answer in self.ask_each(jobs, task):
            if isinstance(answer, CatalogueError):
                poll.errors[did] = answer
                self.failed.add((kind, did), answer, poll.started_at)
            else:
                self.failed.remove((kind, did))
            yield did, answer
            if guard.should_stop_after(answer):
                return

    def hold_back(self, poll: RucioPoll, kind: str, dids: Collection[Did]) -> list[Did]:
        """Return the *dids* whose query of this *kind* is due, the one that failed last at the end.

        Each other one gets the error of its last query.
        """
        for did in dids:
            if error := self.failed.error_of((kind, did), poll.started_at):
                poll.errors.setdefault(did, error)
        due = (did for did in dids if did not in poll.errors)
        return sorted(due, key=lambda did: (self.failed.failed_at((kind, did)), did))

    def ask_each(
        self, jobs: MutableSequence[Did], task: Callable[[Did], R]
    ) -> Iterator[tuple[Did, R | CatalogueError]]:
        """Run *task* for each of *jobs*, the last job first; yield each with its result or error.

        The caller may change *jobs* meanwhile.
        """
        whole = self.settings.timeout.total_seconds()
        while jobs:
            job = jobs.pop()
            is_brief = bool(self._silent_dids) and job not in self._silent_dids
            self.share = max(_BRIEF_SHARE, min(1.0, _LEAST_SECONDS / whole)) if is_brief else 1.0
            self.connection.answer_seconds = self.share * whole
            try:
                answer = self._try((job,), lambda job=job: task(job))  # type: ignore[misc]
            finally:
                self.connection.answer_seconds = whole
            (self._silent_dids.add if is_unanswered(answer) else self._silent_dids.discard)(job)
            yield job, answer

    def query_in_batches(
        self,
        dids: Dids,
        errors: DidErrors,
        call: str,
        read: Callable[[Did, Record], T],
        **options: Any,  # noqa: ANN401 (those of the client's method)
    ) -> dict[Did, list[T]]:
        """Query *dids* in batches, and return all rows by DID; see :meth:`iter_batches`."""
        batches = self.iter_batches(dids, errors, call, read, **options)
        return {did: rows for batch in batches for did, rows in batch.items()}

    def iter_batches(
        self,
        dids: Dids,
        errors: DidErrors,
        call: str,
        read: Callable[[Did, Record], T],
        *,
        size: int | None = None,
        did_type: str = "",
        **options: object,
    ) -> Iterator[dict[Did, list[T]]]:
        """Query *dids* in batches; yield the rows of each batch by DID, as *read* returns them.

        If a batch fails, its DIDs get into *errors*; so does each DID with an unreadable row.

        Rucio refuses a whole batch if it considers one name malformed. Such a batch is halved until the bad
        name is alone. After Rucio denied the account, no further batch is sent. *did_type* is the type that
        *call* wants in the record of each DID.
        """
        todo = _split_into_batches(sorted(dids - errors.keys()), size or self.settings.batch)
        denials = DenialCounter(_MAX_DENIED_BATCHES)
        halvings = _MAX_HALVINGS

        def query(batch: Sequence[Did]) -> dict[Did, list[T]]:
            records = [did_record(did) | ({"type": did_type} if did_type else {}) for did in batch]
            rows, garbled = self.ask(call, records, read=partial(_group_rows, batch, read), **options)
            for did, reason in garbled.items():
                del rows[did]
                errors[did] = CatalogueGarbled(self.name, f"{call}: {reason}")
            return rows

        while todo:
            batch = todo.pop()
            answer = self._try(batch, partial(query, batch))
            is_denied = denials.is_denied_after(answer)
            if not isinstance(answer, CatalogueError):
                yield answer
                continue
            is_about_one_did, half = isinstance(answer, _SINGLE_DID_ERRORS), len(batch) // 2
            halvings -= is_about_one_did
            if is_about_one_did and half and halvings > 0 and not is_denied:
                halves = [batch[:half], batch[half:]]
                # first query both halves of a forbidden batch: Rucio answers one of them
                todo[:] = [*halves, *todo] if isinstance(answer, Forbidden) else [*todo, *halves]
                continue
            errors.update(dict.fromkeys(batch, answer))
            if is_denied:
                errors.update((did, answer) for unsent in todo for did in unsent)
                return

    def create_memory(self) -> dict[Did, Any]:
        """Return a new dictionary, from which :meth:`forget_all_but` deletes DIDs."""
        self._memories.append({})
        return self._memories[-1]

    def forget_all_but(self, dids: Dids) -> None:
        """Forget everything about all DIDs but *dids*: jobs need the others no longer."""
        self._silent_dids &= dids
        self.failed.forget_all_but(dids)
        for memory in self._memories:
            for did in memory.keys() - dids:
                del memory[did]

    def _try(self, about: Collection[str], task: Callable[[], R]) -> R | CatalogueError:
        """Run *task*, whose queries are about these datasets; return its result or error."""
        self._about = about
        try:
            return task()
        except CatalogueError as exc:
            return exc
        finally:
            self._about = ()


class SeriesGuard:
    """A guard that stops a series of queries for single DIDs; the rest waits for the next poll.

    It stops the series in three cases: Rucio denies the account; two queries, or more brief ones, had no
    answer; less than the
    fraction *reserve* (0 to 1) of the poll's time is left.
    """

    def __init__(self, queries: QueryRunner, reserve: float = 0.0) -> None:
        self.denied: CatalogueError | None = None
        self._queries = queries
        self._reserve = reserve
        self._denials = DenialCounter()
        self._unanswered = 0.0

    def should_stop_after(self, answer: object) -> bool:
        """Count the next *answer*, which may be an error; return whether to stop the series."""
        self._unanswered += self._queries.share * is_unanswered(answer)
        if self._denials.is_denied_after(answer) and isinstance(answer, CatalogueError):
            self.denied = answer
        is_late = self._queries.is_late(self._reserve)
        return bool(self.denied) or is_late or self._unanswered >= MAX_UNANSWERED


def _group_rows(
    dids: Sequence[Did], read: Callable[[Did, Record], T], rows: Rows
) -> tuple[dict[Did, list[T]], dict[Did, str]]:
    """Return what *read* makes of the rows of each of *dids*, and the reasons of the unreadable rows.

    Raises:
        BadRow: a row is about none of *dids*, so the answer is not reliable.
    """
    rows_by_did: dict[Did, list[T]] = {did: [] for did in dids}
    garbled: dict[Did, str] = {}
    for row in iter_records(rows):
        did = require_did(row, rows_by_did)
        try:
            rows_by_did[did].append(read(did, row))
        except BadRow as exc:
            garbled[did] = str(exc)
    return rows_by_did, garbled


def is_unanswered(answer: object) -> bool:
    """Return whether Rucio did not answer: such a failure takes a whole timeout, other failures do not."""
    return isinstance(answer, CatalogueUnreachable) and not isinstance(answer, ServerFault)


def did_record(did: Did) -> dict[str, str]:
    """Return *did* as a record with scope and name, as Rucio's bulk calls need it."""
    scope, name = split_did(did)
    return {"scope": scope, "name": name}


def _split_into_batches(dids: Sequence[Did], size: int) -> list[Sequence[Did]]:
    return [dids[start : start + size] for start in range(0, len(dids), size)]


def split_did(did: Did) -> tuple[str, str]:
    """Return the scope and the name of *did*."""
    scope, _, name = did.partition(":")
    return scope, name

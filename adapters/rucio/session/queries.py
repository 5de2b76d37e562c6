"""Queries to Rucio: single queries, series, and batches. A refused batch is halved to find the bad DID."""

from collections.abc import Callable, Collection, Iterable, Iterator, MutableSequence, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

from adapters.rucio.poll import DidErrors, Dids
from adapters.rucio.responses import BadRow, GarbledRow
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
from .transport import Forbidden, InvalidRequest, ServerFault

J = TypeVar("J")
R = TypeVar("R")
T = TypeVar("T")
BatchCall = Callable[[RucioClient, list[dict[str, str]]], Iterable[object]]
"""A call of Rucio's client for a batch of DIDs, each as a record of scope and name."""
BatchParser = Callable[[Iterable[object]], Iterable[T | GarbledRow]]
"""A parser of the rows of a batch; it returns tuples whose first element is their DID."""
# 60 halvings of refused batches find five bad names in a thousand, but end soon if every query fails.
_MAX_HALVINGS = 60
MAX_UNANSWERED = 2
"""After so many unanswered queries for single DIDs, further queries wait for the next poll."""
_BRIEF_SHARE, _LEAST_SECONDS = 0.1, 1.0
"""Where some DIDs have no answer, the first query for another gets a tenth of ``timeout``, but a second; it
counts as a tenth of an unanswered query. So hundreds of silent DIDs delay the others by a few polls only."""
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


class QueryRunner:
    """A runner of queries on *connection*. Every failure is a CatalogueError that names the catalogue."""

    def __init__(self, settings: RucioSettings, connection: RucioConnection) -> None:
        self.settings = settings
        self.name = settings.name
        self.connection = connection
        self._about: Collection[str] = ()
        self._silent_dids: set[Did] = set()
        self._memories: list[dict[Did, Any]] = []
        self.share = 1.0
        """The part of ``timeout`` that the current query has."""

    def ask(self, call: Callable[[RucioClient], object], read: Callable[..., T]) -> T:
        """Run *call*, pass its answer to *read*, and return the result; raise CatalogueGarbled for a bad row.

        *call* may return rows while they arrive: then only the result of *read* stays in memory.
        """
        announce(self._about)
        return self.connection.ask(lambda client: read(call(client)))

    def start_poll(self) -> AbstractContextManager[None]:
        """Limit all queries of the ``with`` block to the time of one poll; use the current token for them."""
        return self.connection.start_poll(self.settings.deadline.total_seconds())

    def is_late(self, reserve: float) -> bool:
        """Return whether less than the fraction *reserve* (0 to 1) of the poll's time is left."""
        return self.connection.deadline.remaining_seconds < reserve * self.settings.deadline.total_seconds()

    def close(self) -> None:
        """Close the connection, and forget the token."""
        self.connection.close()

    def ask_each(
        self, jobs: MutableSequence[Did], task: Callable[[Did], R], guard: "SeriesGuard | None" = None
    ) -> Iterator[tuple[Did, R | CatalogueError]]:
        """Run *task* for each of *jobs*, the last job first; yield each with its result or error.

        The jobs that are left in *jobs* at the end were not run, because *guard* stopped the series. The
        caller may change *jobs* meanwhile.
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
            if guard and guard.should_stop_after(answer):
                return

    def create_memory(self) -> dict[Did, Any]:
        """Return a new dictionary, from which :meth:`forget_all_but` deletes DIDs."""
        self._memories.append({})
        return self._memories[-1]

    def forget_all_but(self, dids: Dids) -> None:
        """Forget everything about all DIDs but *dids*: jobs need the others no longer."""
        self._silent_dids &= dids
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

    def query_in_batches(
        self,
        dids: Dids,
        errors: DidErrors,
        call: BatchCall,
        read: BatchParser[T],
        size: int | None = None,
    ) -> list[T]:
        """Query *dids* in batches, and return all records; see :meth:`iter_batches`."""
        return [each for _, records in self.iter_batches(dids, errors, call, read, size) for each in records]

    def iter_batches(
        self,
        dids: Dids,
        errors: DidErrors,
        call: BatchCall,
        read: BatchParser[T],
        size: int | None = None,
    ) -> Iterator[tuple[Sequence[Did], Iterable[T]]]:
        """Query *dids* in batches; yield each batch with its records.

        If a batch fails, its DIDs get into *errors*; so does each DID with an unreadable row.

        Rucio refuses a whole batch if it considers one name malformed. Such a batch is halved until the bad
        name is alone. After Rucio denied the account, no further batch is sent.
        """
        todo = _split_into_batches(sorted(dids - errors.keys()), size or self.settings.batch)
        denials = DenialCounter(_MAX_DENIED_BATCHES)
        denied: CatalogueError | None = None
        halvings = _MAX_HALVINGS
        while todo:
            batch = todo.pop()
            answer = self._try(batch, lambda batch=batch: self._query_batch(batch, call, read))  # type: ignore[misc]
            is_denied = denials.is_denied_after(answer)
            if not isinstance(answer, CatalogueError):
                yield self._drop_garbled_dids(batch, answer, errors)
                continue
            if is_denied:
                denied = denied or answer
            is_about_one_did = isinstance(answer, _SINGLE_DID_ERRORS)
            if is_about_one_did:
                halvings -= 1
            half = len(batch) // 2
            if is_about_one_did and half and halvings > 0 and not denied:
                halves = [batch[:half], batch[half:]]
                # first query both halves of a forbidden batch: Rucio answers one of them
                todo[:] = [*halves, *todo] if isinstance(answer, Forbidden) else [*todo, *halves]
                continue
            errors.update(dict.fromkeys(batch, answer))
            if denied:
                errors.update((did, denied) for unsent in todo for did in unsent)
                todo.clear()

    def _drop_garbled_dids(
        self, batch: Sequence[Did], answer: Iterable[T | GarbledRow], errors: DidErrors
    ) -> tuple[Sequence[Did], Iterable[T]]:
        """Return the DIDs of *batch* with readable rows, and these rows; put other DIDs into *errors*."""
        garbled = {each.did: each.reason for each in answer if isinstance(each, GarbledRow)}
        if not garbled:
            return batch, cast("Iterable[T]", answer)
        errors.update((did, CatalogueGarbled(self.name, reason)) for did, reason in garbled.items())
        rows = [
            each for each in answer if not isinstance(each, GarbledRow) and _did_of_row(each) not in garbled
        ]
        return [did for did in batch if did not in garbled], rows

    def _query_batch(
        self,
        dids: Sequence[Did],
        call: BatchCall,
        read: BatchParser[T],
    ) -> Iterable[T | GarbledRow]:
        names = [did_record(did) for did in dids]
        return self.ask(lambda client: call(client, names), lambda rows: _reject_stray_rows(dids, read(rows)))


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


def _did_of_row(row: object) -> Did:
    """Return the DID of a parsed row."""
    did: Did = cast("tuple[Did]", row)[0]
    return did


def _reject_stray_rows(dids: Sequence[Did], rows: Iterable[T]) -> Iterable[T]:
    """Return *rows* if all are about *dids*; if a row is about another DID, the answer is not reliable.

    Raises:
        BadRow: a row is about a DID that was not queried.
    """
    rows, queried = list(rows), frozenset(dids)
    if stray := next((_did_of_row(row) for row in rows if _did_of_row(row) not in queried), None):
        others = " and others" if len(dids) > 1 else ""
        raise BadRow(f"the query was for {dids[0]}{others}, the answer is about {stray[:100]!r}")
    return rows


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

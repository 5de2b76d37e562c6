"""Queries to Rucio on several connections: single queries, streams, and batches.

A refused batch is halved to find the bad DID.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from queue import LifoQueue, SimpleQueue
from typing import Generic, TypeVar, cast

from adapters.rucio.poll import DidErrors, Dids
from adapters.rucio.responses import BadRow, GarbledRow, Rows
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


class BackgroundQuery(Generic[R]):
    """A query that runs in another thread while the caller sends other queries."""

    def __init__(self, task: Callable[[], R], future: Future[R] | None = None) -> None:
        self._task, self._future = task, future

    @property
    def is_done(self) -> bool:
        """Return whether the query has ended; in a pool of one connection, :meth:`result` runs the query."""
        return self._future is not None and self._future.done()

    def result(self) -> R:
        """Return the result of the query; if the pool has only one connection, run the query now.

        Raises:
            CatalogueError: the query failed.
        """
        if self._future is None:
            self._future = Future()
            try:
                self._future.set_result(self._task())
            except CatalogueError as exc:
                self._future.set_exception(exc)
        return self._future.result()


class ConnectionPool:
    """A pool of *size* connections; queries that run alone all use *first_connection*."""

    def __init__(self, first_connection: RucioConnection, size: int) -> None:
        self._connections = (
            first_connection,
            *(first_connection.with_shared_deadline(each) for each in range(1, size)),
        )
        self._idle_connections: LifoQueue[RucioConnection] = LifoQueue()
        for each in reversed(self._connections):
            self._idle_connections.put(each)
        self._thread_local = threading.local()

    def run(self, call: Callable[[RucioClient], R]) -> R:
        """Run *call* on this thread's or an idle connection; see :meth:`RucioConnection.ask`."""
        own: RucioConnection | None = getattr(self._thread_local, "connection", None)
        if own is not None:
            return own.ask(call)
        with self._borrow_connection() as connection:
            return connection.ask(call)

    @contextmanager
    def run_in_background(self, task: Callable[[], R]) -> Iterator[BackgroundQuery[R]]:
        """Run the query *task* in a thread during the ``with`` block; wait for it at the block's end."""
        if len(self._connections) == 1:
            yield BackgroundQuery(task)
            return
        with ThreadPoolExecutor(1, thread_name_prefix="rucio") as thread:
            yield BackgroundQuery(task, thread.submit(self._run_on_connection, task))

    def map_concurrently(
        self, jobs: MutableSequence[J], task: Callable[[J], R]
    ) -> Iterator[tuple[J, R | CatalogueError]]:
        """Run *task* for each of *jobs*; yield each job when it ends, with its result or error.

        The last job starts first. The caller may add jobs to *jobs* or clear *jobs* meanwhile; jobs that have
        started are still yielded. *task* runs in several threads, so it must not change shared state.
        """
        if len(self._connections) == 1 or len(jobs) < 2:
            while jobs:
                job = jobs.pop()
                yield job, _result_or_error(task, job)
            return
        with ThreadPoolExecutor(len(self._connections), thread_name_prefix="rucio") as threads:
            running: dict[Future[R | CatalogueError], J] = {}

            def start_jobs() -> None:
                while jobs and len(running) < len(self._connections):
                    job = jobs.pop()
                    running[threads.submit(self._run_on_connection, _result_or_error, task, job)] = job

            start_jobs()
            while running:
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    job, outcome = running.pop(done), done.result()
                    if not isinstance(outcome, CatalogueError):
                        start_jobs()  # start the next query before the caller uses this result
                    yield job, outcome
                start_jobs()

    def close(self) -> None:
        """Close all connections and forget the tokens."""
        for each in self._connections:
            each.close()

    @contextmanager
    def _borrow_connection(self) -> Iterator[RucioConnection]:
        connection = self._idle_connections.get()
        try:
            yield connection
        finally:
            self._idle_connections.put(connection)

    def _run_on_connection(self, task: Callable[..., R], *args: object) -> R:
        with self._borrow_connection() as self._thread_local.connection:
            try:
                return task(*args)
            finally:
                del self._thread_local.connection


def _result_or_error(task: Callable[[J], R], job: J) -> R | CatalogueError:
    try:
        return task(job)
    except CatalogueError as exc:
        return exc


T = TypeVar("T")
BatchCall = Callable[[RucioClient, list[dict[str, str]]], Iterable[object]]
"""A call of Rucio's client for a batch of DIDs, each as a record of scope and name."""
BatchParser = Callable[[Iterable[object]], Iterable[T | GarbledRow]]
"""A parser of the rows of a batch; it returns tuples whose first element is their DID."""
# 60 halvings of refused batches find five bad names in a thousand, but end soon if every query fails.
_MAX_HALVINGS = 60
_ROWS_PER_CHUNK = 500
_MAX_UNANSWERED = 2
_MAX_FIRST_DENIALS = 3
_MAX_LATER_DENIALS = 30
_MAX_DENIED_BATCHES = 5
_SINGLE_DID_ERRORS = (InvalidRequest, UnreadableAnswer, ServerFault, Forbidden)


class DenialCounter:
    """A counter of 403 responses; it distinguishes a forbidden DID from a forbidden account.

    A single 403 means a forbidden DID. The account counts as denied in three cases: Rucio denied the first
    *limit* queries (at least ``concurrent_calls + 1``); it denied 30 queries in a row; it rejected the login.
    """

    def __init__(self, limit: int = _MAX_FIRST_DENIALS, *, concurrent_calls: int = 1) -> None:
        self._limit = max(limit, concurrent_calls + 1)
        self._denials_in_row = 0

    def is_denied_after(self, answer: object) -> bool:
        """Count the next *answer*, which may be an error; return whether the account is denied."""
        if isinstance(answer, Forbidden):
            self._denials_in_row += 1
            return self._denials_in_row >= self._limit
        if not isinstance(answer, CatalogueError):
            self._denials_in_row, self._limit = 0, max(self._limit, _MAX_LATER_DENIALS)
        return isinstance(answer, CatalogueDenied)


class QueryRunner(ConnectionPool):
    """A connection pool that runs queries on ``concurrent_calls`` connections; *connection* is the first.

    Every failure is a CatalogueError that names the catalogue.
    """

    def __init__(self, settings: RucioSettings, connection: RucioConnection) -> None:
        super().__init__(connection, settings.concurrent_calls)
        self.settings = settings
        self.name = settings.name
        self.connection = connection

    @property
    def max_unanswered(self) -> int:
        """After so many unanswered queries for single DIDs, further queries wait for the next poll."""
        return max(_MAX_UNANSWERED, self.settings.concurrent_calls)

    def ask(self, call: Callable[[RucioClient], object], read: Callable[..., T]) -> T:
        """Run *call*, pass its answer to *read*, and return the result; raise CatalogueGarbled for a bad row.

        *call* may return rows while they arrive: then only the result of *read* stays in memory.
        """
        return self.run(lambda client: read(call(client)))

    def start_poll(self) -> AbstractContextManager[None]:
        """Limit all queries of the ``with`` block to the time of one poll; use the current token for them."""
        return self.connection.start_poll(self.settings.deadline.total_seconds())

    def is_late(self, reserve: float) -> bool:
        """Return whether less than the fraction *reserve* (0 to 1) of the poll's time is left."""
        return self.connection.deadline.remaining_seconds < reserve * self.settings.deadline.total_seconds()

    def stream(
        self, call: Callable[[RucioClient], Iterable[object]], read: Callable[[Iterable[object]], Iterator[T]]
    ) -> Iterator[list[T]]:
        """Yield the results of *read* for a long answer, 500 at a time, while a thread receives the answer.

        Raises:
            CatalogueError: the answer is incomplete. Rows that arrived before the error are yielded.
        """
        chunks: SimpleQueue[list[T] | None] = SimpleQueue()

        def put_chunks(rows: Rows) -> None:
            records = read(rows)
            while chunk := list(islice(records, _ROWS_PER_CHUNK)):
                chunks.put(chunk)

        def fetch() -> None:
            try:
                self.ask(call, put_chunks)
            finally:
                chunks.put(None)

        with ThreadPoolExecutor(1, thread_name_prefix="rucio") as thread:
            query = thread.submit(fetch)
            while (chunk := chunks.get()) is not None:
                yield chunk
        query.result()

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
        """Query *dids* in batches; yield each batch with its records, while other batches are queried.

        If a batch fails, its DIDs get into *errors*; so does each DID with an unreadable row.

        Rucio refuses a whole batch if it considers one name malformed. Such a batch is halved until the bad
        name is alone. After Rucio denied the account, no further batch is sent.
        """
        todo = _split_into_batches(sorted(dids - errors.keys()), size or self.settings.batch)
        denials = DenialCounter(_MAX_DENIED_BATCHES)
        denied: CatalogueError | None = None
        halvings = _MAX_HALVINGS
        for batch, answer in self.map_concurrently(todo, lambda each: self._query_batch(each, call, read)):
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

    It stops the series in three cases: Rucio denies the account; ``max_unanswered`` queries had no answer;
    less than the fraction *reserve* (0 to 1) of the poll's time is left.
    """

    def __init__(self, queries: QueryRunner, reserve: float = 0.0) -> None:
        self.denied: CatalogueError | None = None
        self._queries = queries
        self._reserve = reserve
        self._denials = DenialCounter(concurrent_calls=queries.settings.concurrent_calls)
        self._unanswered = 0

    def should_stop_after(self, answer: object) -> bool:
        """Count the next *answer*, which may be an error; return whether to stop the series."""
        self._unanswered += is_unanswered(answer)
        if self._denials.is_denied_after(answer) and isinstance(answer, CatalogueError):
            self.denied = answer
        is_late = self._queries.is_late(self._reserve)
        return bool(self.denied) or is_late or self._unanswered >= self._queries.max_unanswered


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

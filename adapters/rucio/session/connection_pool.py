"""A connection pool for one Rucio server: several queries at a time, each on its own connection.

Only one thread may use a session of rucio-clients, because rucio-clients replaces the session after a refused
token. So every connection has its own client. All connections share the rate limit, the deadline, and a token
that Rucio did not issue. Connections stay logged in from poll to poll; threads end with their queries.
"""

import threading
from collections.abc import Callable, Iterator, MutableSequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from queue import LifoQueue
from typing import Generic, TypeVar

from hydrator.domain.errors import CatalogueError

from .client import RucioClient, RucioConnection

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

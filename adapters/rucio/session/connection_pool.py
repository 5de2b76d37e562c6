"""Several questions to one Rucio server at a time, each on a line of its own.

rucio-clients' session is for one thread (a refused token swaps it), so every line is a client of its own;
pace, deadline and token are common. Lines stay logged in from poll to poll; threads end with their questions.
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
    """What is learned beside other questions."""

    def __init__(self, task: Callable[[], R], future: Future[R] | None = None) -> None:
        self._task, self._future = task, future

    @property
    def is_done(self) -> bool:
        """Whether :meth:`result` need not wait; never where there is one line only."""
        return self._future is not None and self._future.done()

    def result(self) -> R:
        """What was learned; where there is one line only it is asked for now.

        Raises:
            CatalogueError: it could not be learned.
        """
        if self._future is None:
            self._future = Future()
            try:
                self._future.set_result(self._task())
            except CatalogueError as exc:
                self._future.set_exception(exc)
        return self._future.result()


class ConnectionPool:
    """At most *number* questions at a time; who asks one after the other stays on the *first* line."""

    def __init__(self, first_connection: RucioConnection, size: int) -> None:
        self._connections = (
            first_connection,
            *(first_connection.with_shared_deadline(each) for each in range(1, size)),
        )
        self._idle_connections: LifoQueue[RucioConnection] = LifoQueue()
        for each in reversed(self._connections):
            self._idle_connections.put(each)
        self._thread_local = threading.local()

    def ask(self, call: Callable[[RucioClient], R]) -> R:
        """Ask on the line of this thread, or on the first that is free; see :meth:`Connection.ask`."""
        mine: RucioConnection | None = getattr(self._thread_local, "connection", None)
        if mine is not None:
            return mine.ask(call)
        with self._borrow_connection() as line:
            return line.ask(call)

    @contextmanager
    def run_in_background(self, task: Callable[[], R]) -> Iterator[BackgroundQuery[R]]:
        """Begin *do*, which asks, beside what is asked inside; the end waits for it."""
        if len(self._connections) == 1:
            yield BackgroundQuery(task)
            return
        with ThreadPoolExecutor(1, thread_name_prefix="rucio") as thread:
            yield BackgroundQuery(task, thread.submit(self._run_on_connection, task))

    def map_concurrently(
        self, jobs: MutableSequence[J], task: Callable[[J], R]
    ) -> Iterator[tuple[J, R | CatalogueError]]:
        """Each of *jobs*, from the last to the first, with what *do* made of it, or its error; as they end.

        Who reads may add to *jobs* meanwhile, or clear them: what was begun by then is still told.
        *do* runs in several threads; it asks, and changes nothing that others see.
        """
        if len(self._connections) == 1 or len(jobs) < 2:
            while jobs:
                job = jobs.pop()
                yield job, _result_or_error(task, job)
            return
        with ThreadPoolExecutor(len(self._connections), thread_name_prefix="rucio") as threads:
            running: dict[Future[R | CatalogueError], J] = {}

            def begin() -> None:
                while jobs and len(running) < len(self._connections):
                    job = jobs.pop()
                    running[threads.submit(self._run_on_connection, _result_or_error, task, job)] = job

            begin()
            while running:
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    job, outcome = running.pop(done), done.result()
                    if not isinstance(outcome, CatalogueError):
                        begin()  # the server is not to wait until this one is thought through
                    yield job, outcome
                begin()

    def close(self) -> None:
        """Let go of all connections and of the tokens."""
        for each in self._connections:
            each.close()

    @contextmanager
    def _borrow_connection(self) -> Iterator[RucioConnection]:
        line = self._idle_connections.get()
        try:
            yield line
        finally:
            self._idle_connections.put(line)

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

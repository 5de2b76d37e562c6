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

from .client import Client, Connection

J = TypeVar("J")
R = TypeVar("R")


class Meanwhile(Generic[R]):
    """What is learned beside other questions."""

    def __init__(self, do: Callable[[], R], begun: Future[R] | None = None) -> None:
        self._do, self._begun = do, begun

    @property
    def ready(self) -> bool:
        """Whether :meth:`result` need not wait; never where there is one line only."""
        return self._begun is not None and self._begun.done()

    def result(self) -> R:
        """What was learned; where there is one line only it is asked for now.

        Raises:
            CatalogueError: it could not be learned.
        """
        if self._begun is None:
            self._begun = Future()
            try:
                self._begun.set_result(self._do())
            except CatalogueError as exc:
                self._begun.set_exception(exc)
        return self._begun.result()


class Lines:
    """At most *number* questions at a time; who asks one after the other stays on the *first* line."""

    def __init__(self, first: Connection, number: int) -> None:
        self._all = (first, *(first.beside(each) for each in range(1, number)))
        self._free: LifoQueue[Connection] = LifoQueue()
        for each in reversed(self._all):
            self._free.put(each)
        self._here = threading.local()

    def ask(self, call: Callable[[Client], R]) -> R:
        """Ask on the line of this thread, or on the first that is free; see :meth:`Connection.ask`."""
        mine: Connection | None = getattr(self._here, "line", None)
        if mine is not None:
            return mine.ask(call)
        with self._a_line() as line:
            return line.ask(call)

    @contextmanager
    def meanwhile(self, do: Callable[[], R]) -> Iterator[Meanwhile[R]]:
        """Begin *do*, which asks, beside what is asked inside; the end waits for it."""
        if len(self._all) == 1:
            yield Meanwhile(do)
            return
        with ThreadPoolExecutor(1, thread_name_prefix="rucio") as thread:
            yield Meanwhile(do, thread.submit(self._on_a_line, do))

    def side_by_side(
        self, jobs: MutableSequence[J], do: Callable[[J], R]
    ) -> Iterator[tuple[J, R | CatalogueError]]:
        """Each of *jobs*, from the last to the first, with what *do* made of it, or its error; as they end.

        Who reads may add to *jobs* meanwhile, or clear them: what was begun by then is still told.
        *do* runs in several threads; it asks, and changes nothing that others see.
        """
        if len(self._all) == 1 or len(jobs) < 2:
            while jobs:
                job = jobs.pop()
                yield job, _outcome(do, job)
            return
        with ThreadPoolExecutor(len(self._all), thread_name_prefix="rucio") as threads:
            running: dict[Future[R | CatalogueError], J] = {}

            def begin() -> None:
                while jobs and len(running) < len(self._all):
                    job = jobs.pop()
                    running[threads.submit(self._on_a_line, _outcome, do, job)] = job

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
        for each in self._all:
            each.close()

    @contextmanager
    def _a_line(self) -> Iterator[Connection]:
        line = self._free.get()
        try:
            yield line
        finally:
            self._free.put(line)

    def _on_a_line(self, do: Callable[..., R], *args: object) -> R:
        with self._a_line() as self._here.line:
            try:
                return do(*args)
            finally:
                del self._here.line


def _outcome(do: Callable[[J], R], job: J) -> R | CatalogueError:
    try:
        return do(job)
    except CatalogueError as exc:
        return exc

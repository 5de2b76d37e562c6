"""Several questions to one Rucio server at a time, each on a line of its own.

rucio-clients' session is for one thread (a refused token swaps it), so every line is a client of its own;
pace, deadline and token are common. Lines stay logged in from poll to poll; threads end with their questions.
"""

import threading
from collections.abc import Callable, Iterator, MutableSequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import TypeVar

from hydrator.errors import CatalogueError

from ._rucio_client import Connection

J = TypeVar("J")
R = TypeVar("R")


class Lines:
    """At most *number* questions at a time.

    What is asked outside of :meth:`side_by_side` takes the *first* line.
    """

    def __init__(self, first: Connection, number: int) -> None:
        self._all = (first, *(first.beside(each) for each in range(1, number)))
        self._free: SimpleQueue[Connection] = SimpleQueue()
        for each in self._all:
            self._free.put(each)
        self._here = threading.local()

    @property
    def line(self) -> Connection:
        """The line of the thread that asks."""
        mine: Connection = getattr(self._here, "line", self._all[0])
        return mine

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
            while jobs or running:
                while jobs and len(running) < len(self._all):
                    job = jobs.pop()
                    running[threads.submit(self._on_a_line, do, job)] = job
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(done), done.result()

    def close(self) -> None:
        """Let go of all connections and of the tokens."""
        for each in self._all:
            each.close()

    def _on_a_line(self, do: Callable[[J], R], job: J) -> R | CatalogueError:
        self._here.line = line = self._free.get()
        try:
            return _outcome(do, job)
        finally:
            del self._here.line
            self._free.put(line)


def _outcome(do: Callable[[J], R], job: J) -> R | CatalogueError:
    try:
        return do(job)
    except CatalogueError as exc:
        return exc

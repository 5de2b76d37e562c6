"""Asking Rucio: one question, or one about many DIDs in batches that single out whom it refuses."""

from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import islice
from queue import SimpleQueue
from typing import TypeVar

from hydrator.errors import CatalogueDenied, CatalogueError
from hydrator.model import Did

from ._rucio_client import Client, Connection, Refused, RucioSettings, Stumbled
from ._rucio_lines import Lines, Meanwhile

T = TypeVar("T")
J = TypeVar("J")
_HALVINGS = 60  # finds five bad names in a thousand; a server that fails over everything is let alone soon
_BUNCH = 500


class Asker:
    """Asks over *connection*, and beside it over as many more as *settings* allow.

    Every failure is a CatalogueError that names the catalogue.
    """

    def __init__(self, settings: RucioSettings, connection: Connection) -> None:
        self.settings = settings
        self.connection = connection
        self._lines = Lines(connection, settings.concurrent_calls)

    @property
    def name(self) -> str:
        return self.settings.name

    def ask(self, call: Callable[[Client], object], read: Callable[..., T]) -> T:
        """Ask, and *read* the answer; a row that is not what it should be is CatalogueGarbled.

        *call* may give rows as they come: of a long answer only what is read of it is kept.
        """
        return self._lines.ask(lambda client: read(call(client)))

    def meanwhile(self, do: Callable[[], T]) -> AbstractContextManager[Meanwhile[T]]:
        """Begin *do*, which asks, beside what is asked inside; see :meth:`Lines.meanwhile`."""
        return self._lines.meanwhile(do)

    def as_they_come(
        self, call: Callable[[Client], Iterable[object]], read: Callable[[Iterable[object]], Iterator[T]]
    ) -> Iterator[list[T]]:
        """What *read* makes of the rows of a long answer, some at a time while others are under way.

        Raises:
            CatalogueError: after what came, where it did not come whole.
        """
        bunches: SimpleQueue[list[T] | None] = SimpleQueue()

        def bunched(rows: Iterable[object]) -> None:
            made = read(rows)
            while bunch := list(islice(made, _BUNCH)):
                bunches.put(bunch)

        def fetch() -> None:
            try:
                self.ask(call, bunched)
            finally:
                bunches.put(None)

        with ThreadPoolExecutor(1, thread_name_prefix="rucio") as thread:
            asking = thread.submit(fetch)
            while (bunch := bunches.get()) is not None:
                yield bunch
        asking.result()

    def side_by_side(
        self, jobs: MutableSequence[J], do: Callable[[J], T]
    ) -> Iterator[tuple[J, T | CatalogueError]]:
        """Each of *jobs* with what *do* made of it, or its error; see :meth:`Lines.side_by_side`."""
        return self._lines.side_by_side(jobs, do)

    def close(self) -> None:
        """Let go of connections and of tokens."""
        self._lines.close()

    def in_batches(
        self,
        dids: AbstractSet[Did],
        lost: dict[Did, CatalogueError],
        call: Callable[[Client, list[dict[str, str]]], Iterable[object]],
        read: Callable[[Iterable[object]], Iterable[T]],
        size: int | None = None,
    ) -> list[T]:
        """Ask for *dids* in batches, and all that was read; see :meth:`batches`."""
        return [each for _, found in self.batches(dids, lost, call, read, size) for each in found]

    def batches(
        self,
        dids: AbstractSet[Did],
        lost: dict[Did, CatalogueError],
        call: Callable[[Client, list[dict[str, str]]], Iterable[object]],
        read: Callable[[Iterable[object]], Iterable[T]],
        size: int | None = None,
    ) -> Iterator[tuple[Sequence[Did], Iterable[T]]]:
        """Ask for *dids* in batches; each with what was read, while others are asked for.

        Those of a batch that fails are *lost*.

        Rucio refuses a whole batch for one name that it takes for malformed, so
        such a batch is halved until that name stands alone. Who is denied asks no more.
        """
        todo = _batches(sorted(dids - lost.keys()), size or self.settings.batch)
        denied: CatalogueDenied | None = None
        halvings = _HALVINGS
        for batch, answer in self.side_by_side(todo, lambda each: self._ask_about(each, call, read)):
            if not isinstance(answer, CatalogueError):
                yield batch, answer
                continue
            half, halvings = len(batch) // 2, halvings - isinstance(answer, Refused | Stumbled)
            if isinstance(answer, Refused | Stumbled) and half and halvings > 0 and not denied:
                todo += [batch[:half], batch[half:]]
                continue
            lost.update(dict.fromkeys(batch, answer))
            if isinstance(answer, CatalogueDenied):
                denied = denied or answer
                lost.update((did, denied) for left in todo for did in left)
                todo.clear()

    def _ask_about(
        self,
        dids: Sequence[Did],
        call: Callable[[Client, list[dict[str, str]]], Iterable[object]],
        read: Callable[[Iterable[object]], Iterable[T]],
    ) -> Iterable[T]:
        asked = [dict(zip(("scope", "name"), split(did), strict=True)) for did in dids]
        return self.ask(lambda client: call(client, asked), read)


def _batches(dids: Sequence[Did], size: int) -> list[Sequence[Did]]:
    return [dids[start : start + size] for start in range(0, len(dids), size)]


def split(did: Did) -> tuple[str, str]:
    """The scope and the name of *did*."""
    scope, _, name = did.partition(":")
    return scope, name

"""Asking Rucio: one question, or one about many DIDs in batches that single out whom it refuses."""

from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import islice
from queue import SimpleQueue
from typing import TypeVar, cast

from adapters.rucio.responses import BadRow, Garbled
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
)
from hydrator.domain.model import Did

from .client import (
    Client,
    Connection,
    Forbidden,
    Misread,
    Refused,
    RucioSettings,
    Stumbled,
)
from .connection_pool import Lines, Meanwhile

T = TypeVar("T")
J = TypeVar("J")
_HALVINGS = 60  # finds five bad names in a thousand; a server that fails over everything is let alone soon
_BUNCH = 500
_MOST_UNANSWERED = 2
_DENIALS = 3
_DENIALS_BETWEEN = 30
_DENIED_BATCHES = 5
_OF_ONE = (Refused, Misread, Stumbled, Forbidden)


class Denials:
    """Tell apart a DID that the account may not ask about, and an account that may not ask.

    A 403 to one question is about its DID. The account is denied when the first *most* questions were
    (more than are asked *beside* each other), when many in a row were, or when Rucio takes no login.
    """

    def __init__(self, most: int = _DENIALS, *, beside: int = 1) -> None:
        self._most = max(most, beside + 1)
        self._row = 0

    def denies(self, answer: object) -> bool:
        """Note the next *answer*, or error; is the account denied?"""
        if isinstance(answer, Forbidden):
            self._row += 1
            return self._row >= self._most
        if not isinstance(answer, CatalogueError):
            self._row, self._most = 0, max(self._most, _DENIALS_BETWEEN)
        return isinstance(answer, CatalogueDenied)


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

    @property
    def most_unanswered(self) -> int:
        """After so many questions about single DIDs without an answer, the others wait for the next poll."""
        return max(_MOST_UNANSWERED, self.settings.concurrent_calls)

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
        read: Callable[[Iterable[object]], Iterable[T | Garbled]],
        size: int | None = None,
    ) -> list[T]:
        """Ask for *dids* in batches, and all that was read; see :meth:`batches`."""
        return [each for _, found in self.batches(dids, lost, call, read, size) for each in found]

    def batches(
        self,
        dids: AbstractSet[Did],
        lost: dict[Did, CatalogueError],
        call: Callable[[Client, list[dict[str, str]]], Iterable[object]],
        read: Callable[[Iterable[object]], Iterable[T | Garbled]],
        size: int | None = None,
    ) -> Iterator[tuple[Sequence[Did], Iterable[T]]]:
        """Ask for *dids* in batches; each with what was read, while others are asked for.

        Those of a batch that fails are *lost*, and so is each of which a row cannot be read. What is
        *read* are tuples that begin with the DID they are about.

        Rucio refuses a whole batch for one name that it takes for malformed, so
        such a batch is halved until that name stands alone. An account that is denied asks no more.
        """
        todo = _batches(sorted(dids - lost.keys()), size or self.settings.batch)
        denials = Denials(_DENIED_BATCHES)
        denied: CatalogueError | None = None
        halvings = _HALVINGS
        for batch, answer in self.side_by_side(todo, lambda each: self._ask_about(each, call, read)):
            is_denied = denials.denies(answer)
            if not isinstance(answer, CatalogueError):
                yield self._readable(batch, answer, lost)
                continue
            if is_denied:
                denied = denied or answer
            half, halvings = len(batch) // 2, halvings - isinstance(answer, _OF_ONE)
            if isinstance(answer, _OF_ONE) and half and halvings > 0 and not denied:
                halves = [batch[:half], batch[half:]]
                # both halves of what is forbidden come before their halves: one of them is answered
                todo[:] = [*halves, *todo] if isinstance(answer, Forbidden) else [*todo, *halves]
                continue
            lost.update(dict.fromkeys(batch, answer))
            if denied:
                lost.update((did, denied) for left in todo for did in left)
                todo.clear()

    def _readable(
        self, batch: Sequence[Did], answer: Iterable[T | Garbled], lost: dict[Did, CatalogueError]
    ) -> tuple[Sequence[Did], Iterable[T]]:
        """Return those of *batch* whose rows can all be read, with their rows; the others are *lost*."""
        garbled = {each.did: each.reason for each in answer if isinstance(each, Garbled)}
        if not garbled:
            return batch, cast("Iterable[T]", answer)
        lost.update((did, CatalogueGarbled(self.name, reason)) for did, reason in garbled.items())
        rows = [each for each in answer if not isinstance(each, Garbled) and _about(each) not in garbled]
        return [did for did in batch if did not in garbled], rows

    def _ask_about(
        self,
        dids: Sequence[Did],
        call: Callable[[Client, list[dict[str, str]]], Iterable[object]],
        read: Callable[[Iterable[object]], Iterable[T | Garbled]],
    ) -> Iterable[T | Garbled]:
        asked = [dict(zip(("scope", "name"), split(did), strict=True)) for did in dids]
        return self.ask(lambda client: call(client, asked), lambda rows: _only_about(dids, read(rows)))


def _about(row: object) -> Did:
    """The DID that a row, as it was read, is about."""
    did: Did = cast("tuple[Did]", row)[0]
    return did


def _only_about(dids: Sequence[Did], rows: Iterable[T]) -> Iterable[T]:
    """*rows*, when all are about *dids*: in place of a row about another one was to be expected.

    Raises:
        BadRow: one is about a DID that was not asked for.
    """
    rows, asked = list(rows), frozenset(dids)
    if stray := next((_about(row) for row in rows if _about(row) not in asked), None):
        raise BadRow(f"asked about {dids[0]}{' and others' * (len(dids) > 1)}, it told of {stray[:100]!r}")
    return rows


def is_silence(answer: object) -> bool:
    """Did Rucio not answer at all? That takes a whole timeout, other failures are quick."""
    return isinstance(answer, CatalogueUnreachable) and not isinstance(answer, Stumbled)


def _batches(dids: Sequence[Did], size: int) -> list[Sequence[Did]]:
    return [dids[start : start + size] for start in range(0, len(dids), size)]


def split(did: Did) -> tuple[str, str]:
    """The scope and the name of *did*."""
    scope, _, name = did.partition(":")
    return scope, name

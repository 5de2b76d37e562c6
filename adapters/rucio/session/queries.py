"""Asking Rucio: one question, or one about many DIDs in batches that single out whom it refuses."""

from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import islice
from queue import SimpleQueue
from typing import TypeVar, cast

from adapters.rucio.responses import BadRow, GarbledRow
from adapters.rucio.session.transport import Forbidden, InvalidRequest, ServerFault
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
)
from hydrator.domain.model import Did

from .client import RucioClient, RucioConnection, RucioSettings, UnreadableAnswer
from .connection_pool import BackgroundQuery, ConnectionPool

T = TypeVar("T")
J = TypeVar("J")
_MAX_HALVINGS = (
    60  # finds five bad names in a thousand; a server that fails over everything is let alone soon
)
_ROWS_PER_CHUNK = 500
_MAX_UNANSWERED = 2
_MAX_FIRST_DENIALS = 3
_MAX_LATER_DENIALS = 30
_MAX_DENIED_BATCHES = 5
_SINGLE_DID_ERRORS = (InvalidRequest, UnreadableAnswer, ServerFault, Forbidden)


class DenialCounter:
    """Tell apart a DID that the account may not ask about, and an account that may not ask.

    A 403 to one question is about its DID. The account is denied when the first *most* questions were
    (more than are asked *beside* each other), when many in a row were, or when Rucio takes no login.
    """

    def __init__(self, limit: int = _MAX_FIRST_DENIALS, *, concurrent_calls: int = 1) -> None:
        self._limit = max(limit, concurrent_calls + 1)
        self._denials_in_row = 0

    def is_denied_after(self, answer: object) -> bool:
        """Note the next *answer*, or error; is the account denied?"""
        if isinstance(answer, Forbidden):
            self._denials_in_row += 1
            return self._denials_in_row >= self._limit
        if not isinstance(answer, CatalogueError):
            self._denials_in_row, self._limit = 0, max(self._limit, _MAX_LATER_DENIALS)
        return isinstance(answer, CatalogueDenied)


class QueryRunner:
    """Asks over *connection*, and beside it over as many more as *settings* allow.

    Every failure is a CatalogueError that names the catalogue.
    """

    def __init__(self, settings: RucioSettings, connection: RucioConnection) -> None:
        self.settings = settings
        self.connection = connection
        self._pool = ConnectionPool(connection, settings.concurrent_calls)

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def max_unanswered(self) -> int:
        """After so many questions about single DIDs without an answer, the others wait for the next poll."""
        return max(_MAX_UNANSWERED, self.settings.concurrent_calls)

    def ask(self, call: Callable[[RucioClient], object], read: Callable[..., T]) -> T:
        """Ask, and *read* the answer; a row that is not what it should be is CatalogueGarbled.

        *call* may give rows as they come: of a long answer only what is read of it is kept.
        """
        return self._pool.ask(lambda client: read(call(client)))

    def run_in_background(self, task: Callable[[], T]) -> AbstractContextManager[BackgroundQuery[T]]:
        """Begin *do*, which asks, beside what is asked inside; see :meth:`ConnectionPool.run_in_background`."""
        return self._pool.run_in_background(task)

    def stream(
        self, call: Callable[[RucioClient], Iterable[object]], read: Callable[[Iterable[object]], Iterator[T]]
    ) -> Iterator[list[T]]:
        """What *read* makes of the rows of a long answer, some at a time while others are under way.

        Raises:
            CatalogueError: after what came, where it did not come whole.
        """
        bunches: SimpleQueue[list[T] | None] = SimpleQueue()

        def bunched(rows: Iterable[object]) -> None:
            made = read(rows)
            while bunch := list(islice(made, _ROWS_PER_CHUNK)):
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

    def map_concurrently(
        self, jobs: MutableSequence[J], task: Callable[[J], T]
    ) -> Iterator[tuple[J, T | CatalogueError]]:
        """Each of *jobs* with what *do* made of it, or its error; see :meth:`ConnectionPool.map_concurrently`."""
        return self._pool.map_concurrently(jobs, task)

    def close(self) -> None:
        """Let go of connections and of tokens."""
        self._pool.close()

    def query_in_batches(
        self,
        dids: AbstractSet[Did],
        errors: dict[Did, CatalogueError],
        call: Callable[[RucioClient, list[dict[str, str]]], Iterable[object]],
        read: Callable[[Iterable[object]], Iterable[T | GarbledRow]],
        size: int | None = None,
    ) -> list[T]:
        """Ask for *dids* in batches, and all that was read; see :meth:`split_into_batches`."""
        return [each for _, found in self.iter_batches(dids, errors, call, read, size) for each in found]

    def iter_batches(
        self,
        dids: AbstractSet[Did],
        errors: dict[Did, CatalogueError],
        call: Callable[[RucioClient, list[dict[str, str]]], Iterable[object]],
        read: Callable[[Iterable[object]], Iterable[T | GarbledRow]],
        size: int | None = None,
    ) -> Iterator[tuple[Sequence[Did], Iterable[T]]]:
        """Ask for *dids* in batches; each with what was read, while others are asked for.

        Those of a batch that fails are *lost*, and so is each of which a row cannot be read. What is
        *read* are tuples that begin with the DID they are about.

        Rucio refuses a whole batch for one name that it takes for malformed, so
        such a batch is halved until that name stands alone. An account that is denied asks no more.
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
            half, halvings = len(batch) // 2, halvings - isinstance(answer, _SINGLE_DID_ERRORS)
            if isinstance(answer, _SINGLE_DID_ERRORS) and half and halvings > 0 and not denied:
                halves = [batch[:half], batch[half:]]
                # both halves of what is forbidden come before their halves: one of them is answered
                todo[:] = [*halves, *todo] if isinstance(answer, Forbidden) else [*todo, *halves]
                continue
            errors.update(dict.fromkeys(batch, answer))
            if denied:
                errors.update((did, denied) for left in todo for did in left)
                todo.clear()

    def _drop_garbled_dids(
        self, batch: Sequence[Did], answer: Iterable[T | GarbledRow], errors: dict[Did, CatalogueError]
    ) -> tuple[Sequence[Did], Iterable[T]]:
        """Return those of *batch* whose rows can all be read, with their rows; the others are *lost*."""
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
        call: Callable[[RucioClient, list[dict[str, str]]], Iterable[object]],
        read: Callable[[Iterable[object]], Iterable[T | GarbledRow]],
    ) -> Iterable[T | GarbledRow]:
        asked = [dict(zip(("scope", "name"), split_did(did), strict=True)) for did in dids]
        return self.ask(lambda client: call(client, asked), lambda rows: _reject_stray_rows(dids, read(rows)))


def _did_of_row(row: object) -> Did:
    """The DID that a row, as it was read, is about."""
    did: Did = cast("tuple[Did]", row)[0]
    return did


def _reject_stray_rows(dids: Sequence[Did], rows: Iterable[T]) -> Iterable[T]:
    """*rows*, when all are about *dids*: in place of a row about another one was to be expected.

    Raises:
        BadRow: one is about a DID that was not asked for.
    """
    rows, asked = list(rows), frozenset(dids)
    if stray := next((_did_of_row(row) for row in rows if _did_of_row(row) not in asked), None):
        raise BadRow(f"asked about {dids[0]}{' and others' * (len(dids) > 1)}, it told of {stray[:100]!r}")
    return rows


def is_unanswered(answer: object) -> bool:
    """Did Rucio not answer at all? That takes a whole timeout, other failures are quick."""
    return isinstance(answer, CatalogueUnreachable) and not isinstance(answer, ServerFault)


def _split_into_batches(dids: Sequence[Did], size: int) -> list[Sequence[Did]]:
    return [dids[start : start + size] for start in range(0, len(dids), size)]


def split_did(did: Did) -> tuple[str, str]:
    """The scope and the name of *did*."""
    scope, _, name = did.partition(":")
    return scope, name

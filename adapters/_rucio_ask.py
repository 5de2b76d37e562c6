"""Asking Rucio: one question, or one about many DIDs in batches that single out whom it refuses."""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

from hydrator.errors import CatalogueDenied, CatalogueError
from hydrator.model import Did

from ._rucio_client import Client, Connection, Refused, RucioSettings, Stumbled

T = TypeVar("T")
_HALVINGS = 60  # finds five bad names in a thousand; a server that fails over everything is let alone soon


class Asker:
    """Asks over one *connection*; every failure is a CatalogueError that names the catalogue."""

    def __init__(self, settings: RucioSettings, connection: Connection) -> None:
        self.settings = settings
        self.connection = connection

    @property
    def name(self) -> str:
        return self.settings.name

    def ask(self, call: Callable[[Client], object], read: Callable[..., T]) -> T:
        """Ask, and *read* the answer; a row that is not what it should be is CatalogueGarbled.

        *call* may give rows as they come: of a long answer only what is read of it is kept.
        """
        return self.connection.ask(lambda client: read(call(client)))

    def in_batches(
        self,
        dids: AbstractSet[Did],
        lost: dict[Did, CatalogueError],
        call: Callable[[Client, list[dict[str, str]]], Iterable[object]],
        read: Callable[[Iterable[object]], Iterable[T]],
        size: int | None = None,
    ) -> list[T]:
        """Ask for *dids* in batches; those of a batch that fails are *lost*.

        Rucio refuses a whole batch for one name that it takes for malformed, so
        such a batch is halved until that name stands alone. Who is denied asks no more.
        """
        todo = _batches(sorted(dids - lost.keys()), size or self.settings.batch)
        found: list[T] = []
        denied: CatalogueDenied | None = None
        halvings = _HALVINGS
        while todo:
            batch = todo.pop()
            if denied:
                lost.update(dict.fromkeys(batch, denied))
                continue
            try:
                found += self._ask_about(batch, call, read)
            except (Refused, Stumbled) as exc:
                half, halvings = len(batch) // 2, halvings - 1
                if half and halvings > 0:
                    todo += [batch[:half], batch[half:]]
                else:
                    lost.update(dict.fromkeys(batch, exc))
            except CatalogueDenied as exc:
                denied = exc
                lost.update(dict.fromkeys(batch, exc))
            except CatalogueError as exc:
                lost.update(dict.fromkeys(batch, exc))
        return found

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

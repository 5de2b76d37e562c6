"""Of which files a Rucio dataset consists, and at which address each is, on a connection of its own."""

import threading
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from adapters.rucio.responses import BadRow, amount, number, record, text
from adapters.rucio.session.client import Connection, NotFound, RucioSettings
from adapters.rucio.session.queries import Asker, split
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
    TooManyFiles,
)
from hydrator.domain.model import DatasetFile, Did


class RucioFiles:
    """Lists files by the server that *settings* name; see :class:`hydrator.domain.ports.FileLister`."""

    def __init__(self, settings: RucioSettings) -> None:
        self._settings = replace(settings, token_dir=settings.token_dir / "files")
        self._asker = Asker(self._settings, Connection(self._settings))
        self._one_at_a_time = threading.Lock()

    @property
    def name(self) -> str:
        return self._settings.name

    def close(self) -> None:
        """Close connections and forget the token."""
        self._asker.close()

    def files(
        self, dids: AbstractSet[Did], storages: AbstractSet[str], most: int
    ) -> Mapping[Did, tuple[DatasetFile, ...] | CatalogueError]:
        """See :meth:`hydrator.domain.ports.FileLister.files`; within the time of one poll."""
        found: dict[Did, tuple[DatasetFile, ...] | CatalogueError] = {}
        left = most
        with self._one_at_a_time, self._asker.connection.poll(self._settings.deadline.total_seconds()):
            jobs = sorted(dids, reverse=True)
            for did, answer in self._asker.side_by_side(jobs, lambda each: self._files(each, storages, most)):
                if isinstance(answer, CatalogueUnreachable | CatalogueDenied):
                    raise answer
                if isinstance(answer, CatalogueError):
                    found.update({} if isinstance(answer, NotFound) else {did: answer})
                    continue
                left -= len(answer)
                found[did] = answer if left >= 0 else TooManyFiles(self.name, most)
        return found

    def _files(self, did: Did, storages: AbstractSet[str], most: int) -> tuple[DatasetFile, ...]:
        """The files of one dataset, container or file: as many as Rucio counts."""
        scope, name = split(did)
        length = self._asker.ask(
            lambda client: client.get_did(scope, name, dynamic_depth="FILE"),
            _length,
        )
        if length > most:
            raise TooManyFiles(self.name, most)
        sizes = self._asker.ask(lambda client: client.list_files(scope, name), _sizes)
        if len(sizes) > length or (len(sizes) < length and not self._is_container(did)):
            raise CatalogueGarbled(self.name, f"list_files lists {len(sizes)} of the {length} files of {did}")
        where = self._addresses(did, storages) if storages and sizes else {}
        return tuple(DatasetFile(file, sizes[file], where.get(file, {})) for file in sorted(sizes))

    def _is_container(self, did: Did) -> bool:
        """A container counts a file for each of its datasets that has it."""
        scope, name = split(did)
        return self._asker.ask(
            lambda client: client.get_did(scope, name),
            lambda row: record(row, "get_did").get("type") == "CONTAINER",
        )

    def _addresses(self, did: Did, storages: AbstractSet[str]) -> dict[str, dict[str, tuple[str, ...]]]:
        """By file of *did*, its addresses by storage element; only of files that are whole there."""
        scope, name = split(did)
        return self._asker.ask(
            lambda client: client.list_replicas(
                [{"scope": scope, "name": name}],
                rse_expression="|".join(sorted(storages)),
                domain="all",
                sort="random",
            ),
            _addresses,
        )


def _length(answer: object) -> int:
    row = record(answer, "get_did")
    return 1 if row.get("type") == "FILE" else number(row, "length", "get_did")


def _sizes(rows: Iterable[object]) -> dict[str, int | None]:
    sizes: dict[str, int | None] = {}
    for each in rows:
        row = record(each, "list_files")
        known = row.get("bytes") is not None
        sizes[_did(row, "list_files")] = round(amount(row, "bytes", "list_files")) if known else None
    return sizes


def _addresses(rows: Iterable[object]) -> dict[str, dict[str, tuple[str, ...]]]:
    what = "list_replicas"
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for each in rows:
        row = record(each, what)
        rses = record(row.get("rses") or {}, what)
        for addresses in rses.values():
            if not isinstance(addresses, list) or not all(isinstance(one, str) for one in addresses):
                raise BadRow(f"{what}: expected addresses, got {str(addresses)[:80]!r}")
        found[_did(row, what)] = {rse: tuple(sorted(addresses)) for rse, addresses in rses.items()}
    return found


def _did(row: Mapping[str, object], what: str) -> str:
    return f"{text(row, 'scope', what)}:{text(row, 'name', what)}"

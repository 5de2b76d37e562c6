"""File lists: list the files of a Rucio dataset and their addresses, on a separate connection."""

import threading
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from adapters.rucio.poll import Dids
from adapters.rucio.responses import (
    BadRow,
    Rows,
    iter_records,
    read_amount,
    read_file,
    read_number,
    require_record,
)
from adapters.rucio.session.client import RucioConnection, RucioSettings
from adapters.rucio.session.queries import QueryRunner, did_record, split_did
from adapters.rucio.session.transport import NotFound
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
    TooManyFiles,
)
from hydrator.domain.model import DatasetFile, Did
from hydrator.domain.ports import StepReporter


class RucioFileLister:
    """A lister of files for the server in *settings*; see :class:`hydrator.domain.ports.FileLister`.

    *reporter* gets each dataset as a step.
    """

    def __init__(self, settings: RucioSettings, reporter: StepReporter | None = None) -> None:
        self.name = settings.name
        self._reporter = reporter
        self._settings = replace(settings, token_dir=settings.token_dir / "files")
        self._queries = QueryRunner(self._settings, RucioConnection(self._settings))
        self._one_at_a_time = threading.Lock()

    def close(self) -> None:
        """Close connections and forget the token."""
        self._queries.close()

    def list_files(
        self, dids: Dids, storages: AbstractSet[str], max_files: int
    ) -> Mapping[Did, tuple[DatasetFile, ...] | CatalogueError]:
        """List files within the time of one poll; see :meth:`hydrator.domain.ports.FileLister.list_files`."""
        files: dict[Did, tuple[DatasetFile, ...] | CatalogueError] = {}
        remaining = max_files
        with (
            self._one_at_a_time,
            self._queries.start_poll(),
        ):
            jobs = sorted(dids, reverse=True)
            for did, answer in self._queries.map_concurrently(
                jobs, lambda each: self._list_files_of(each, storages, max_files)
            ):
                if self._reporter:
                    self._reporter.advance()
                if isinstance(answer, CatalogueUnreachable | CatalogueDenied):
                    raise answer
                if isinstance(answer, CatalogueError):
                    files.update({} if isinstance(answer, NotFound) else {did: answer})
                    continue
                remaining -= len(answer)
                files[did] = answer if remaining >= 0 else TooManyFiles(self.name, max_files)
        return files

    def _list_files_of(self, did: Did, storages: AbstractSet[str], max_files: int) -> tuple[DatasetFile, ...]:
        """Return the files of one dataset, container or file; the number must match Rucio's count."""
        length = self._queries.ask(
            lambda client: client.get_did(*split_did(did), dynamic_depth="FILE"),
            _parse_length,
        )
        if length > max_files:
            raise TooManyFiles(self.name, max_files)
        sizes = self._queries.ask(lambda client: client.list_files(*split_did(did)), _parse_sizes)
        if len(sizes) > length or (len(sizes) < length and not self._is_container(did)):
            raise CatalogueGarbled(self.name, f"list_files lists {len(sizes)} of the {length} files of {did}")
        addresses = self._list_addresses(did, storages) if storages and sizes else {}
        return tuple(DatasetFile(file, sizes[file], addresses.get(file, {})) for file in sorted(sizes))

    def _is_container(self, did: Did) -> bool:
        """Return whether *did* is a container; a container's length counts a file in two datasets twice."""
        return self._queries.ask(
            lambda client: client.get_did(*split_did(did)),
            lambda row: require_record(row, "get_did").get("type") == "CONTAINER",
        )

    def _list_addresses(self, did: Did, storages: AbstractSet[str]) -> dict[str, dict[str, tuple[str, ...]]]:
        """Return, for each file, its addresses at each storage element where the file is available."""
        return self._queries.ask(
            lambda client: client.list_replicas(
                [did_record(did)],
                rse_expression="|".join(sorted(storages)),
                domain="all",
                sort="random",
            ),
            _parse_addresses,
        )


def _parse_length(answer: object) -> int:
    row = require_record(answer, "get_did")
    return 1 if row.get("type") == "FILE" else read_number(row, "length", "get_did")


def _parse_sizes(rows: Rows) -> dict[str, int | None]:
    sizes: dict[str, int | None] = {}
    for row in iter_records(rows, "list_files"):
        has_size = row.get("bytes") is not None
        size = round(read_amount(row, "bytes", "list_files")) if has_size else None
        sizes[read_file(row, "list_files")] = size
    return sizes


def _parse_addresses(rows: Rows) -> dict[str, dict[str, tuple[str, ...]]]:
    call = "list_replicas"
    addresses_by_file: dict[str, dict[str, tuple[str, ...]]] = {}
    for row in iter_records(rows, call):
        rses = require_record(row.get("rses") or {}, call)
        for addresses in rses.values():
            if not isinstance(addresses, list) or not all(isinstance(url, str) for url in addresses):
                raise BadRow(f"{call}: expected addresses, got {str(addresses)[:80]!r}")
        addresses_by_file[read_file(row, call)] = {
            rse: tuple(sorted(addresses)) for rse, addresses in rses.items()
        }
    return addresses_by_file

"""The expensive question to Rucio: one dataset file by file, on a connection of its own.

Rucio's own counts, the cheap rows and the deep ones, are left aside: the files
of a dataset are listed, and so are all replicas of each, with their states. So
files that went bad and were not recounted are missed, and files that have no
replica any more. It takes about a second for 300 files (Rucio 41.5.1).
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from adapters.rucio.datasets.dids import DidResolver
from adapters.rucio.datasets.file_unions import available_files
from adapters.rucio.rules.model import Movement
from adapters.rucio.session.client import RucioConnection, RucioSettings
from adapters.rucio.session.queries import QueryRunner, split_did
from adapters.ska.site_capabilities import SiteCapabilities
from hydrator.domain.errors import CatalogueError, CatalogueGarbled
from hydrator.domain.model import Did, ReplicaState, Seen
from hydrator.domain.ports import Clock
from hydrator.domain.sites import add_unions

from .responses import BadRow, Count, Rse, read_number, read_states, read_text, require_record
from .rses import RseDirectory
from .states import container_replicas, dataset_replicas

_CALL = "list_replicas(all_states=True)"
FileKey = tuple[str, str]
"""Scope and name; a file's name need not be one that a DID of ours could have."""


class RucioAuditor:
    """Asks the server that *settings* name, beside the catalogue that polls it."""

    def __init__(
        self, settings: RucioSettings, clock: Clock, capabilities: SiteCapabilities | None = None
    ) -> None:
        self._settings = replace(settings, token_dir=settings.token_dir / "audit", concurrent_calls=1)
        self._clock = clock
        self._queries = QueryRunner(self._settings, RucioConnection(self._settings))
        self._rses = RseDirectory(self._queries, capabilities)
        self._capabilities = capabilities
        self._resolver = DidResolver(self._queries)
        self._one_at_a_time = threading.Lock()

    @property
    def name(self) -> str:
        return self._settings.name

    def close(self) -> None:
        """Let go of connections and of the token."""
        self._queries.close()
        if self._capabilities:
            self._capabilities.close()

    def verify(self, did: Did) -> Seen:
        """See :class:`hydrator.domain.ports.Auditor`; within the time of one poll."""
        with (
            self._one_at_a_time,
            self._queries.connection.start_poll(self._settings.deadline.total_seconds()),
        ):
            at = self._clock()
            storages = self._rses.read(at)
            lost: dict[Did, CatalogueError] = {}
            kind = self._resolver.resolve_uncached({did}, lost)[did].kind
            parts = []
            if kind == "CONTAINER":
                members = self._resolver.list_members(did, lost)
                parts = [
                    part for each in sorted(members) if (part := self._verify_dataset(at, each, storages))
                ]
            elif kind in {"DATASET", "FILE"}:
                parts = list(filter(None, [self._verify_dataset(at, did, storages, is_file=kind == "FILE")]))
            elif kind != "ABSENT" and did not in lost:
                raise CatalogueGarbled(self.name, f"it calls {did} a {kind}, which this version cannot read")
            if did in lost:
                raise lost[did]
        if kind == "CONTAINER" and parts:
            return Seen(at, container_replicas(did, parts))
        return parts[0] if parts else Seen(at)

    def _verify_dataset(
        self, now: datetime, did: Did, rses: Mapping[str, Rse], *, is_file: bool = False
    ) -> Seen | None:
        """One dataset, or one file *alone*; None where there are no files in it."""
        scope, name = split_did(did)
        files = {(scope, name)} if is_file else self._list_files(scope, name)
        if not files:
            return None
        states = self._queries.ask(
            lambda client: list(
                client.list_replicas([{"scope": scope, "name": name}], all_states=True, sort="random")
            ),
            _parse_states,
        )
        if left_out := files - states.keys():
            reason = f"list_replicas says nothing of {len(left_out)} of the {len(files)} files of {did}"
            raise CatalogueGarbled(self.name, reason)
        counts, moves = _count_by_storage([states[file] for file in sorted(files)], len(files))
        try:
            replicas = dataset_replicas(did, counts, moves, rses, held_until=self._clock(), call=_CALL)
        except BadRow as exc:
            raise CatalogueGarbled(self.name, str(exc)) from exc
        lists = available_files([(f"{one}:{two}", states[one, two]) for one, two in sorted(files)], counts)
        known = (
            replace(each, files=lists[each.storage])
            if _can_be_combined(rses[each.storage], each.state) and each.storage in lists
            else each
            for each in replicas
        )
        return Seen(now, add_unions(known))

    def _list_files(self, scope: str, name: str) -> set[FileKey]:
        """The files of a dataset, as many as Rucio counts."""
        files = self._queries.ask(lambda client: client.list_files(scope, name), _parse_file_keys)
        length = self._queries.ask(
            lambda client: client.get_did(scope, name, dynamic_depth="FILE"),
            lambda answer: read_number(require_record(answer, "get_did"), "length", "get_did"),
        )
        if len(files) != length:
            raise CatalogueGarbled(
                self.name, f"list_files lists {len(files)} of the {length} files of {scope}:{name}"
            )
        return files


def _can_be_combined(rse: Rse, state: ReplicaState) -> bool:
    """Return whether files at *storage* count with others at its site."""
    return not (rse.is_tape or rse.is_volatile) and rse.is_readable and state is not ReplicaState.ON_TAPE


def _count_by_storage(
    states: Iterable[Mapping[str, str]], length: int
) -> tuple[dict[str, Count], dict[str, Movement]]:
    """By storage element, how many of *length* files it has, and whether any is on its way."""
    available: dict[str, int] = {}
    moving: dict[str, bool] = {}
    for each in states:
        for storage, state in each.items():
            available[storage] = available.get(storage, 0) + (state == "AVAILABLE")
            moving[storage] = moving.get(storage, False) or state == "COPYING"
    counts = {storage: Count(length, number, 0, 0) for storage, number in available.items()}
    return counts, {storage: Movement(is_moving=is_moving) for storage, is_moving in moving.items()}


def _parse_states(rows: Iterable[object]) -> dict[FileKey, Mapping[str, str]]:
    what = "list_replicas"
    records = (require_record(row, what) for row in rows)
    return {
        (read_text(row, "scope", what), read_text(row, "name", what)): read_states(row, what)
        for row in records
    }


def _parse_file_keys(rows: Iterable[object]) -> set[FileKey]:
    what = "list_files"
    records = (require_record(row, what) for row in rows)
    return {(read_text(row, "scope", what), read_text(row, "name", what)) for row in records}

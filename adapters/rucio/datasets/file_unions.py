"""Datasets whose files lie in several storage elements that jobs of one site read: listed file by file.

That costs Rucio much more than counting, so it is asked only of datasets that may be whole together, and
again when their counts changed or after ``verify_every``.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from adapters.rucio.poll import Poll
from adapters.rucio.responses import BadRow, Count, amount, record, states_of, text
from adapters.rucio.session.queries import Asker, split
from hydrator.domain.errors import CatalogueError, CatalogueUnreachable
from hydrator.domain.model import Did, FilesOnDisk
from hydrator.domain.unions import numbered, united

_CALL = "list_replicas"
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Listed:
    """Where the files of a dataset were at *at*, when *counts* were so."""

    at: datetime
    counts: Mapping[str, Count]
    files: Mapping[str, FilesOnDisk]


class FileLists:
    """Lists files of datasets at those elements where they may be whole together, within a budget."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._listed: dict[Did, _Listed] = {}
        self._tried: dict[Did, datetime] = {}

    def read(self, poll: Poll, shared: Mapping[Did, Mapping[str, Count]]) -> None:
        """Put into *poll* what the files of *shared* datasets make together; those not listed are lost.

        Args:
            poll: where they are concluded as their elements are, one by one.
            shared: the elements of each that are to be counted together, with their counts.
        """
        for memory in (self._listed, self._tried):
            for gone in memory.keys() - shared.keys():
                del memory[gone]
        for did in self._list(poll, {did: each for did, each in shared.items() if did in poll.parts}):
            poll.lost.setdefault(did, CatalogueUnreachable(self._asker.name, "its files were not listed yet"))
        for did in shared.keys() & poll.parts.keys():
            if did in poll.lost:
                del poll.parts[did]
                continue
            files, seen = self._listed[did].files, poll.parts[did]
            known = (replace(each, files=files.get(each.storage)) for each in seen.replicas)
            poll.parts[did] = replace(seen, replicas=united(known))

    def _list(self, poll: Poll, shared: Mapping[Did, Mapping[str, Count]]) -> AbstractSet[Did]:
        """List what must be, until the budget or the time is spent; answers what is left and not known."""
        settings = self._asker.settings
        unknown = {did for did, counts in shared.items() if not self._stands(did, counts)}
        due = {did for did in shared if did in unknown or self._is_due(did, poll.at)}
        jobs = sorted(due, key=lambda did: (self._tried.get(did, _NEVER), did not in unknown, did))
        jobs = jobs[: max(1, settings.deep_calls // 10)][::-1]
        for did, listed in self._asker.side_by_side(
            jobs, lambda each: self._list_one(each, shared[each], poll.at)
        ):
            self._tried[did] = poll.at
            if isinstance(listed, CatalogueError):
                poll.lost[did] = listed
            else:
                self._listed[did] = listed
                unknown.discard(did)
            if self._asker.connection.deadline.left < 0.3 * settings.deadline.total_seconds():
                jobs.clear()
        return unknown

    def _stands(self, did: Did, counts: Mapping[str, Count]) -> bool:
        known = self._listed.get(did)
        return known is not None and known.counts == counts

    def _is_due(self, did: Did, now: datetime) -> bool:
        return now - self._listed[did].at >= self._asker.settings.verify_every

    def _list_one(self, did: Did, counts: Mapping[str, Count], at: datetime) -> _Listed:
        scope, name = split(did)
        return self._asker.ask(
            lambda client: list(
                client.list_replicas(
                    [{"scope": scope, "name": name}],
                    all_states=True,
                    rse_expression="|".join(sorted(counts)),
                    sort="random",
                )
            ),
            lambda rows: _Listed(at, counts, files_at(did, rows, counts)),
        )


def files_at(did: Did, rows: Iterable[object], counts: Mapping[str, Count]) -> Mapping[str, FilesOnDisk]:
    """By storage element, the files of *did* that are available there, at least as many as were counted.

    Raises:
        BadRow: a row cannot be read, or there are fewer files in all: was the answer cut?
    """
    sizes: dict[str, float] = {}
    found: dict[str, set[str]] = {storage: set() for storage in counts}
    for each in rows:
        row = record(each, _CALL)
        file = f"{text(row, 'scope', _CALL)}:{text(row, 'name', _CALL)}"
        for storage, state in states_of(row, _CALL).items():
            if state == "AVAILABLE" and storage in found:
                found[storage].add(file)
                sizes[file] = amount(row, "bytes", _CALL)
    for storage, count in counts.items():
        if not count.available_length <= len(found[storage]) <= count.length:
            listed = f"{len(found[storage])} files of {did} at {storage}"
            raise BadRow(f"{_CALL} lists {listed}, and {count.available_length} were counted")
    numbers, masks = numbered(found)
    packed = array("d", (sizes[file] for file in numbers)).tobytes()
    return {
        storage: FilesOnDisk(mask, counts[storage].length, counts[storage].bytes, packed)
        for storage, mask in masks.items()
    }


def added_up(
    states: Sequence[tuple[str, Mapping[str, str]]], storages: Iterable[str]
) -> dict[str, FilesOnDisk]:
    """By storage element, which of all files are available there, from the states of each."""
    names = {
        storage: [file for file, where in states if where.get(storage) == "AVAILABLE"] for storage in storages
    }
    return {storage: FilesOnDisk(mask, len(states)) for storage, mask in numbered(names)[1].items()}

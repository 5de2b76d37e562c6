"""A catalogue in its worker: send a survey in parts, as rows that refer to names by index.

A part has the rows of some 500 datasets. A row without a change since the last poll is sent as a name only.
:mod:`adapters.catalogue_client` is the other end. This module imports little, for each worker has it.
"""

from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from typing import Any

from adapters.worker import Message, end_if_out_of_memory
from hydrator.domain.bugs import format_frames, locate_bug
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
    ConfigError,
)
from hydrator.domain.model import DatasetState, Did, Provenance, Replica, Seen, Survey, Unseen
from hydrator.domain.ports import Catalogue

_DIDS_PER_PART = 500
_BYTES_PER_PART = 400_000
"""A part ends at the row with which it is larger; the limit of a line is 1 MiB."""
MAX_SITES = 10_000
STATES = tuple(DatasetState)
"""The best state is first."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(at: datetime) -> int:
    return (at - EPOCH) // _MICROSECOND


def to_micros_or_none(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


class _PartBuilder:
    """One part of a survey while rows are added to it."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._provenances: dict[tuple[Provenance, str], int] = {}
        """The index of each provenance and storage."""
        self._part: dict[str, list[Any]] = {"seen": [], "unseen": [], "same": []}
        self._count = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._count >= _DIDS_PER_PART or self._bytes >= _BYTES_PER_PART

    def add(self, kind: str, row: Any, size: int) -> None:  # noqa: ANN401  (JSON)
        """Add a row of some *size* in bytes."""
        self._part[kind].append(row)
        self._count += 1
        self._bytes += size

    def add_seen(self, did: Did, seen: Seen) -> None:
        """Add the row of a dataset that the catalogue has answered about."""
        provenances = len(self._provenances)
        replicas = [
            (
                self._names.setdefault(replica.site, len(self._names)),
                STATES.index(replica.state),
                replica.fraction,
                self._index(replica),
            )
            for replica in seen.replicas
        ]
        unreachable = [self._names.setdefault(site, len(self._names)) for site in seen.unreachable_sites]
        variants = list(seen.case_variants)
        row = (did, to_micros(seen.as_of), seen.bytes_total, unreachable, variants, replicas)
        new = len(self._provenances) - provenances
        self.add("seen", row, 100 + 40 * len(replicas) + 400 * new + 500 * len(variants))

    def _index(self, replica: Replica) -> int:
        return self._provenances.setdefault((replica.provenance, replica.storage), len(self._provenances))

    def build(self) -> Message:
        """Return the part as JSON."""
        provenances = [
            (
                *(storage, one.reason[:500], one.rule, one.account),
                *(to_micros_or_none(one.expires_at), to_micros_or_none(one.ready_at)),
            )
            for one, storage in self._provenances
        ]
        return {**self._part, "names": list(self._names), "provenances": provenances}


ERRORS: dict[str, type[CatalogueError]] = {
    "unreachable": CatalogueUnreachable,
    "denied": CatalogueDenied,
    "garbled": CatalogueGarbled,
}
"""The errors that a worker reports, by their names in an answer."""


class CatalogueServer:
    """The answers of one catalogue in its worker."""

    def __init__(self, catalogue: Catalogue, bare: object) -> None:
        self._catalogue = catalogue
        self._bare = bare
        self._sent: dict[Did, Seen] = {}

    def answer(self, request: Message, send_part: Callable[[Any], None]) -> Message:
        """Answer a request of :class:`WorkerCatalogue`."""
        try:
            if request["call"] == "find":
                self._find(request["patterns"], send_part)
                return {"ok": None}
            return {"ok": self._read(request, send_part)}
        except Exception as error:  # noqa: BLE001  (the other process decides what to do)
            return describe_error(error)

    def _find(self, patterns: Collection[str], send_part: Callable[[Any], None]) -> None:
        names = sorted(self._catalogue.find(patterns))
        for start in range(0, len(names), _DIDS_PER_PART):
            send_part({"names": names[start : start + _DIDS_PER_PART]})

    def _read(self, request: Message, send_part: Callable[[Any], None]) -> Message:
        for did in request["forget"]:
            self._sent.pop(did, None)
        if request["recount"]:
            self._bare.recount(frozenset(request["recount"]))  # type: ignore[attr-defined]
        dids = frozenset(map(Did, request["dids"]))
        survey = self._catalogue.read(dids)
        for part in self._parts(survey, dids):
            send_part({"rows": part})
        return {
            "started_at": to_micros(survey.started_at),
            "sites": sorted(survey.sites),
            "unmapped": sorted(survey.unmapped_storages)[:MAX_SITES],
        }

    def _parts(self, survey: Survey, dids: AbstractSet[Did]) -> Iterator[Message]:
        part = _PartBuilder()
        for did in sorted(dids & survey.readings.keys()):
            reading, last = survey.readings[did], self._sent.get(did)
            if isinstance(reading, Unseen):
                part.add("unseen", (did, reading.reason[:500]), 300)
            elif reading.as_of == survey.started_at and reading.is_repeat_of(last):
                part.add("same", did, 60)
            else:
                self._sent[did] = reading
                part.add_seen(did, reading)
            if part.is_full:
                yield part.build()
                part = _PartBuilder()
        yield part.build()


def describe_error(error: Exception) -> Message:
    """Return *error* as an answer; a MemoryError, also as the cause, ends this process."""
    end_if_out_of_memory(error)
    if isinstance(error, ConfigError):
        return {"error": {"kind": "config", "problems": error.problems, "reason": str(error)}}
    if isinstance(error, CatalogueError):
        kinds = [kind for kind, one in ERRORS.items() if isinstance(error, one)]
        return {"error": {"kind": kinds[0] if kinds else "other", "reason": error.reason}}
    return {"error": {"kind": "bug", "reason": locate_bug(error), "frames": format_frames(error)}}

"""What Rucio's rows mean: values in, values out; no socket, no clock.

Rucio's words (RSE, lock, rule, length) stop here and in the two modules beside
it. The rules come from Rucio 41.5.1 as observed: see ``counted`` and ``state_at``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hydrator.errors import BadDid
from hydrator.model import Did, Replica, ReplicaState, Site, parse_did


class BadRow(ValueError):
    """An answer that is not what Rucio's interface promises; the text quotes it."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage element (RSE); *site* is None where nobody said which, and for one that is *deleted*."""

    name: str
    site: Site | None
    tape: bool
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """How much of a dataset one storage element has available; *length* is files, in all."""

    length: int
    available_length: int
    bytes: float
    available_bytes: float

    @property
    def complete(self) -> bool:
        """Nothing of nothing is not complete: 0 of 0 is what Rucio says before it has counted."""
        return 0 < self.length <= self.available_length

    @property
    def fraction(self) -> float:
        """Bytes there / bytes in all (files where bytes are unknown), 0 to 1."""
        part, whole = (
            (self.available_bytes, self.bytes) if self.bytes > 0 else (self.available_length, self.length)
        )
        return min(1.0, part / whole) if whole > 0 else 0.0


NOTHING = Count(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One row of list_dataset_replicas: a dataset at a storage element; *stamp* tells two versions apart."""

    did: Did
    storage: str
    count: Count
    stamp: str


@dataclass(frozen=True, slots=True)
class Lock:
    """What one rule wants of one dataset at one storage element."""

    did: Did
    storage: str
    state: str
    rule: str


@dataclass(frozen=True, slots=True)
class Movement:
    """What rules do about one dataset at one storage element."""

    moving: bool = False
    stuck: bool = False


STILL = Movement()


def record(row: object, what: str) -> Mapping[str, Any]:
    """*row*, when it is a record.

    Raises:
        BadRow: it is anything else; a proxy's web page arrives as one string.
    """
    if not isinstance(row, dict):
        raise BadRow(f"{what}: expected records, got {str(row)[:80]!r}")
    return row


def text(row: Mapping[str, Any], key: str, what: str) -> str:
    """The text at *key*; BadRow when there is none."""
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise BadRow(f"{what}: expected a text as {key!r}, got {str(value)[:80]!r}")
    return value


def amount(row: Mapping[str, Any], key: str, what: str) -> float:
    """The number at *key*, not negative; nothing counts as 0 (an open dataset has no size yet).

    SQLite and Oracle give integers, PostgreSQL floats.
    """
    value = row.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise BadRow(f"{what}: expected a number as {key!r}, got {str(value)[:80]!r}")
    return value


def did_of(row: Mapping[str, Any], what: str) -> Did | None:
    """The DID of *row*, or None where it has characters that no DID of ours can have."""
    try:
        return parse_did(f"{text(row, 'scope', what)}:{text(row, 'name', what)}")
    except BadDid:
        return None


def dataset_rows(rows: Iterable[object], what: str) -> list[DatasetRow]:
    """Rows of list_dataset_replicas and its bulk form.

    Raises:
        BadRow: one is not such a row.
    """
    return [row for row in (_dataset_row(record(each, what), what) for each in rows) if row]


def _dataset_row(row: Mapping[str, Any], what: str) -> DatasetRow | None:
    did = did_of(row, what)
    count = Count(
        length=int(amount(row, "length", what)),
        available_length=int(amount(row, "available_length", what)),
        bytes=amount(row, "bytes", what),
        available_bytes=amount(row, "available_bytes", what),
    )
    return DatasetRow(did, text(row, "rse", what), count, str(row.get("updated_at"))) if did else None


def locks(rows: Iterable[object], what: str) -> list[Lock]:
    """Rows of get_locks_for_dids.

    Raises:
        BadRow: one is not such a row.
    """
    found = []
    for each in rows:
        row = record(each, what)
        did = did_of(row, what)
        if did:
            fields = (text(row, "rse", what), text(row, "state", what), text(row, "rule_id", what))
            found.append(Lock(did, *fields))
    return found


def counted(rows: Iterable[DatasetRow]) -> dict[str, Count]:
    """By storage element, the larger count.

    Rucio answers two rows for one element when part of a dataset lies there
    as files and part in archives; what they share is not known, so they are not added up.
    """
    best: dict[str, Count] = {}
    for row in rows:
        known = best.get(row.storage)
        if known is None or known.available_length < row.count.available_length:
            best[row.storage] = row.count
    return best


def movements(rows: Iterable[Lock], suspended: frozenset[str]) -> dict[str, Movement]:
    """By storage element, what rules do; locks of *suspended* rules stay REPLICATING but move nothing."""
    found: dict[str, Movement] = {}
    for lock in rows:
        known = found.get(lock.storage, STILL)
        moving = lock.state == "REPLICATING" and lock.rule not in suspended
        stuck = lock.state == "STUCK" or (lock.state == "REPLICATING" and lock.rule in suspended)
        found[lock.storage] = Movement(known.moving or moving, known.stuck or stuck)
    return found


def state_at(storage: Storage, count: Count, movement: Movement) -> tuple[ReplicaState, float] | None:
    """The state of one dataset at one storage element and its fraction on disk, or None: not there.

    A rule promises data, it is not data: a complete count decides first. Of
    a dataset that is only partly on tape, or on its way to tape, nothing is on disk.
    """
    if storage.tape:
        return (ReplicaState.ON_TAPE, 0.0) if count.complete else None
    if count.complete:
        return ReplicaState.COMPLETE, 1.0
    if movement.moving:
        return ReplicaState.INCOMING, count.fraction
    if movement.stuck:
        return ReplicaState.STUCK, count.fraction
    return (ReplicaState.PARTIAL, count.fraction) if count.available_length > 0 else None


def dataset_replicas(
    did: Did,
    counts: Mapping[str, Count],
    moves: Mapping[str, Movement],
    storages: Mapping[str, Storage],
) -> tuple[Replica, ...]:
    """The replicas of one dataset, ordered by site and storage; elements without a site are left out.

    Raises:
        BadRow: one of *counts* is at an element that is not among *storages*: was that list cut short?
    """
    found = []
    for name in sorted(counts.keys() | (moves.keys() & storages.keys())):
        storage = storages.get(name)
        if storage is None:
            raise BadRow(f"{did} is at {name}, which list_rses did not list")
        if storage.site is None:
            continue
        state = state_at(storage, counts.get(name, NOTHING), moves.get(name, STILL))
        if state:
            found.append(Replica(did, storage.site, *state, storage=name))
    return tuple(sorted(found, key=lambda replica: (replica.site, replica.storage)))


def file_replicas(
    did: Did, states: Mapping[str, object], storages: Mapping[str, Storage]
) -> tuple[Replica, ...]:
    """The replicas of one file, from the states list_replicas gives by storage element."""
    counts = {name: Count(1, int(state == "AVAILABLE"), 0, 0) for name, state in states.items()}
    moves = {name: Movement(moving=state == "COPYING") for name, state in states.items()}
    return dataset_replicas(did, counts, moves, storages)


@dataclass(frozen=True, slots=True)
class Part:
    """One dataset of a container: its replicas and its size, None where unknown."""

    replicas: tuple[Replica, ...]
    bytes_total: int | None


def container_replicas(did: Did, parts: Iterable[Part]) -> tuple[Replica, ...]:
    """The replicas of a container: complete at a *site* when each of its datasets is, at any storage there.

    Datasets without files are not to be among *parts*: there is nothing of them to be anywhere.
    """
    parts = list(parts)
    sites = sorted({replica.site for part in parts for replica in part.replicas})
    return tuple(replica for site in sites for replica in _container_at(did, site, parts))


def _container_at(did: Did, site: Site, parts: list[Part]) -> list[Replica]:
    """Up to two: what is on disk or on its way there, and a whole copy on tape."""
    here = [[replica for replica in part.replicas if replica.site == site] for part in parts]
    states = [{replica.state for replica in replicas} for replicas in here]
    storage = ",".join(sorted({replica.storage for replicas in here for replica in replicas}))
    shares = [max((r.fraction or 0.0 for r in replicas), default=0.0) for replicas in here]
    fraction = _weighted(shares, [part.bytes_total for part in parts])
    found = []
    state = _container_state(states)
    if state:
        found.append(Replica(did, site, state, fraction, storage))
    if state is not ReplicaState.COMPLETE and all(ReplicaState.ON_TAPE in each for each in states):
        found.append(Replica(did, site, ReplicaState.ON_TAPE, 0.0, storage))
    return found


def _container_state(states: list[set[ReplicaState]]) -> ReplicaState | None:
    if all(ReplicaState.COMPLETE in each for each in states):
        return ReplicaState.COMPLETE
    missing = [each for each in states if ReplicaState.COMPLETE not in each]
    for state in (ReplicaState.INCOMING, ReplicaState.STUCK):
        if any(state in each for each in missing):
            return state
    on_disk = any(each & {ReplicaState.COMPLETE, ReplicaState.PARTIAL} for each in states)
    return ReplicaState.PARTIAL if on_disk else None


def _weighted(shares: list[float], sizes: list[int | None]) -> float:
    """The mean of *shares*, by size where all sizes are known."""
    known = [size for size in sizes if size is not None]
    weights = known if len(known) == len(shares) and sum(known) > 0 else [1] * len(shares)
    return sum(share * weight for share, weight in zip(shares, weights, strict=True)) / sum(weights)

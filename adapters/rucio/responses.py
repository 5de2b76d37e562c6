"""What Rucio's rows mean: values in, values out; no socket, no clock.

Rucio's words (RSE, lock, rule, length) stop here and in the modules beside
it. They mean what they meant in Rucio 41.5.1, as observed: see ``counted``.
"""

import contextlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Site, parse_did

T = TypeVar("T")


class BadRow(ValueError):
    """An answer that is not what Rucio's interface promises; the text quotes it."""


@dataclass(frozen=True, slots=True)
class Rse:
    """A storage element (RSE); *site* is None where nobody said which, and for one that is *deleted*.

    What is at one that is not *readable* helps no job, nothing arrives at one
    that is not *writable*, and a *volatile* one, a cache, drops data unannounced.
    *others* are further sites that read it as their own, *left* sites that it was at before: there
    was looked, and nothing of it is there now. Of one with a *fault* Rucio says what cannot be read.
    """

    name: str
    site: Site | None
    is_tape: bool
    is_deleted: bool = False
    is_readable: bool = True
    is_writable: bool = True
    is_volatile: bool = False
    other_sites: frozenset[Site] = frozenset()
    former_sites: frozenset[Site] = frozenset()
    fault: str = ""

    @property
    def sites(self) -> tuple[Site, ...]:
        """All sites that read it, sorted; none where nobody said which."""
        return tuple(sorted(({self.site} if self.site else frozenset[Site]()) | self.other_sites))


class Count(NamedTuple):
    """How much of a dataset one storage element has available; *length* is files, in all.

    It, rows, rules and locks are tuples of plain values, since there are many: the garbage collector
    passes over those.
    """

    length: int
    available_length: int
    bytes: float
    available_bytes: float

    @property
    def is_complete(self) -> bool:
        """Nothing of nothing is not complete: 0 of 0 is what Rucio says before it has counted."""
        return 0 < self.length <= self.available_length

    @property
    def fraction(self) -> float:
        """Bytes there / bytes in all (files where bytes are unknown), 0 to 1."""
        part, whole = (
            (self.available_bytes, self.bytes) if self.bytes > 0 else (self.available_length, self.length)
        )
        return min(1.0, part / whole) if whole > 0 else 0.0


NO_FILES = Count(0, 0, 0, 0)


class DatasetRow(NamedTuple):
    """One row of list_dataset_replicas: a dataset at a storage element; *stamp* tells two versions apart."""

    did: Did
    storage: str
    amount: Count
    updated_at: str


class GarbledRow(NamedTuple):
    """A row about *did* that cannot be read, and why: nothing may be concluded of that one."""

    did: Did
    reason: str


MAX_AMOUNT = 2**63
"""Files or bytes of which there are more are none: a column of Rucio's database holds less."""


def read_choice(choices: Collection[str], row: Mapping[str, Any], key: str, call: str) -> str:
    """The word at *key*, one of those *known*; BadRow for one that a newer Rucio may have."""
    word = read_text(row, key, call)
    if word not in choices:
        raise BadRow(f"{call}: {word[:80]!r} is no {key!r} that this version can read")
    return word


def read_flag(row: Mapping[str, Any], key: str, call: str, *, default: bool) -> bool:
    """The boolean at *key*, the *usual* one where there is none; BadRow for anything else."""
    value = row.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRow(f"{call}: expected true or false as {key!r}, got {str(value)[:80]!r}")
    return value


def require_record(row: object, call: str) -> Mapping[str, Any]:
    """*row*, when it is a record.

    Raises:
        BadRow: it is anything else; a proxy's web page arrives as one string.
    """
    if not isinstance(row, dict):
        raise BadRow(f"{call}: expected records, got {str(row)[:80]!r}")
    return row


def read_text(row: Mapping[str, Any], key: str, call: str) -> str:
    """The text at *key*, one object however many rows say the same; BadRow when there is none."""
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise BadRow(f"{call}: expected a text as {key!r}, got {str(value)[:80]!r}")
    return sys.intern(value)


def read_amount(row: Mapping[str, Any], key: str, call: str) -> float:
    """The number at *key*, not negative; nothing counts as 0 (an open dataset has no size yet).

    SQLite and Oracle give integers, PostgreSQL floats.
    """
    value = row.get(key)
    if type(value) is int and 0 <= value < MAX_AMOUNT:  # nearly always, and asked often
        return value
    if type(value) is float and 0 <= value < MAX_AMOUNT:
        return value
    if value is None:
        return 0
    raise BadRow(f"{call}: expected a number as {key!r}, got {str(value)[:80]!r}")


def read_number(row: Mapping[str, Any], key: str, call: str) -> int:
    """The whole number at *key*; see :func:`read_amount`."""
    value = read_amount(row, key, call)
    if value != int(value):
        raise BadRow(f"{call}: expected a whole number as {key!r}, got {value}")
    return int(value)


def read_time(row: Mapping[str, Any], key: str, call: str) -> datetime | None:
    """The time at *key*, None where there is none.

    Rucio writes dates as RFC 1123 has them, with UTC for the zone; of answers that are one
    record rucio-clients makes naive times of them.
    """
    value = row.get(key)
    if value is None:
        return None
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = parsedate_to_datetime(value)
    if not isinstance(value, datetime):
        raise BadRow(f"{call}: expected a time as {key!r}, got {str(value)[:80]!r}")
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def read_did(row: Mapping[str, Any], call: str) -> Did | None:
    """The DID of *row*, or None where it has characters that no DID of ours can have."""
    try:
        return Did(sys.intern(parse_did(f"{read_text(row, 'scope', call)}:{read_text(row, 'name', call)}")))
    except BadDid:
        return None


def parse_rows(
    rows: Iterable[object], call: str, read: Callable[[Did, Mapping[str, Any]], T]
) -> Iterator[T | GarbledRow]:
    """Return what *read* makes of each row of an answer about several DIDs, in its place what cannot be read.

    Raises:
        BadRow: of one it cannot even be told which DID it is about.
    """
    for each in rows:
        row = require_record(each, call)
        did = read_did(row, call)
        if did is None:
            raise BadRow(f"{call}: {row['scope']}:{row['name']} is not a DID that was asked for")
        try:
            yield read(did, row)
        except BadRow as exc:
            yield GarbledRow(did, str(exc))


def parse_dataset_rows(rows: Iterable[object], call: str) -> list[DatasetRow | GarbledRow]:
    """Rows of list_dataset_replicas and its bulk form; see :func:`parse_rows`.

    Often several rows of one dataset follow each other and say the same; that is kept once.

    Raises:
        BadRow: one is not such a row, and its dataset cannot be told.
    """
    count, stamp = NO_FILES, ""

    def read(did: Did, row: Mapping[str, Any]) -> DatasetRow:
        nonlocal count, stamp
        if (now := _read_count(row, call)) != count:
            count = now
        if (changed := str(row.get("updated_at"))) != stamp:
            stamp = changed
        return DatasetRow(did, read_text(row, "rse", call), count, stamp)

    return list(parse_rows(rows, call, read))


def parse_deep_rows(did: Did, rows: Iterable[object]) -> list[DatasetRow]:
    """Rows of list_dataset_replicas(deep=True) about *did*, which count its files now.

    Raises:
        BadRow: one cannot be read, is about another dataset (who answers of that has not said that *did*
            is nowhere), or counts more files than there are, or others than its neighbour.
    """
    what = "list_dataset_replicas(deep=True)"
    found: list[DatasetRow] = []
    for row in parse_dataset_rows(rows, what):
        if isinstance(row, GarbledRow):
            raise BadRow(row.reason)
        if row.did != did:
            raise BadRow(f"asked where {did} is, it told where {row.did} is")
        if row.amount.available_length > row.amount.length:
            counts = f"{row.amount.available_length} of {row.amount.length}"
            raise BadRow(f"{what}: {counts} files of {did} are at {row.storage}")
        if found and found[0].amount.length != row.amount.length:
            lengths = f"{found[0].amount.length} and {row.amount.length}"
            raise BadRow(f"{what}: {did} has {lengths} files")
        found.append(row)
    return found


def has_shrunk(current: Mapping[str, Count], previous: Mapping[str, int]) -> bool:
    """Return whether *now* there are fewer files of a dataset anywhere than *before*."""
    return any(files > current.get(storage, NO_FILES).available_length for storage, files in previous.items())


def _read_count(row: Mapping[str, Any], call: str) -> Count:
    return Count(
        length=read_number(row, "length", call),
        available_length=read_number(row, "available_length", call),
        bytes=read_amount(row, "bytes", call),
        available_bytes=read_amount(row, "available_bytes", call),
    )


_REPLICA_STATES = frozenset(
    {"AVAILABLE", "UNAVAILABLE", "COPYING", "BEING_DELETED", "BAD", "TEMPORARY_UNAVAILABLE"}
)


def read_states(row: Mapping[str, Any], call: str) -> Mapping[str, str]:
    """By storage element, the state of one file's replica there, in a row of list_replicas."""
    states = require_record(row.get("states") or {}, call)
    return {storage: read_choice(_REPLICA_STATES, states, storage, call) for storage in states}


def largest_counts(rows: Iterable[DatasetRow]) -> dict[str, Count]:
    """By storage element, the larger count.

    Rucio answers two rows for one element when part of a dataset lies there
    as files and part in archives; what they share is not known, so they are not added up.
    """
    best: dict[str, Count] = {}
    for row in rows:
        known = best.get(row.storage)
        if known is None or known.available_length < row.amount.available_length:
            best[row.storage] = row.amount
    return best

"""Responses of Rucio: parse rows into values. This module is pure: no socket, no clock.

Only this package uses Rucio's words (RSE, lock, rule, length). Their meaning is as observed in Rucio 41.5.1.
"""

import contextlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Site, parse_did
from hydrator.domain.untrusted import moment_in_utc

T = TypeVar("T")
Record = Mapping[str, Any]
"""One JSON object."""
Rows = Iterable[object]
"""The rows of an answer, as they arrive, before any check."""


class BadRow(ValueError):
    """A row does not have the form that Rucio's interface promises; the message quotes the wrong value."""


@dataclass(frozen=True, slots=True)
class Rse:
    """A storage element (RSE); *site* is None if the element is deleted or not mapped to a site.

    If *is_readable* is false, jobs cannot read its data. If *is_writable* is false, no data arrives. A
    volatile element is a cache: it deletes data without notice. A staging area has data only on its way from
    tape. *other_sites* read the element like their own storage. *former_sites* are earlier sites of the
    element: it has no data for them now. *fault* describes an unreadable row about the element.
    """

    name: str
    site: Site | None
    is_tape: bool
    is_deleted: bool = False
    is_readable: bool = True
    is_writable: bool = True
    is_volatile: bool = False
    is_staging_area: bool = False
    other_sites: frozenset[Site] = frozenset()
    former_sites: frozenset[Site] = frozenset()
    fault: str = ""

    @property
    def sites(self) -> tuple[Site, ...]:
        """Return all sites that read the element, sorted; empty if it is not mapped to a site."""
        return tuple(sorted(({self.site} if self.site else frozenset[Site]()) | self.other_sites))


@dataclass(frozen=True, slots=True)
class DidInfo:
    """Rucio's information about a DID: DATASET, CONTAINER or FILE; *bytes_total* is None for an open DID.

    *ends_at* is the end of the DID's own lifetime: all its rules end then, too. None: the DID has no end.
    """

    kind: str
    bytes_total: int | None
    is_open: bool = False
    ends_at: datetime | None = None


UNRESOLVED, ABSENT_DID = DidInfo("LOST", None), DidInfo("ABSENT", None)


class Count(NamedTuple):
    """The files and bytes of a dataset: all, and those available at one storage element.

    *length* is the number of files. Counts, rows, rules and locks are tuples of plain values, because there
    are many of them, and the garbage collector does not track such tuples.
    """

    length: int
    available_length: int
    bytes: float
    available_bytes: float

    @property
    def is_complete(self) -> bool:
        """Return whether all files are available; False for 0 of 0: Rucio has not counted the files yet."""
        return 0 < self.length <= self.available_length

    @property
    def fraction(self) -> float:
        """Return available bytes / all bytes, 0 to 1; if bytes are unknown, available files / all files."""
        part, whole = (
            (self.available_bytes, self.bytes) if self.bytes > 0 else (self.available_length, self.length)
        )
        return min(1.0, part / whole) if whole > 0 else 0.0


NO_FILES = Count(0, 0, 0, 0)
Counts = Mapping[str, Count]
"""The counts of one dataset, by storage element."""
Rses = Mapping[str, Rse]
"""The storage elements, by name."""


class DatasetRow(NamedTuple):
    """One row of list_dataset_replicas: a dataset at a storage element; *updated_at*: its last change."""

    did: Did
    storage: str
    amount: Count
    updated_at: str


class GarbledRow(NamedTuple):
    """An unreadable row about *did*, with the reason. The state of *did* is then unknown."""

    did: Did
    reason: str


MAX_AMOUNT = 2**63
"""An upper bound for numbers of files or bytes: a column of Rucio's database holds only smaller ones."""


def read_choice(choices: Collection[str], row: Record, key: str, call: str) -> str:
    """Return the word at *key*; raise BadRow if *choices* lacks the word (a newer Rucio may send it)."""
    word = read_text(row, key, call)
    if word not in choices:
        raise BadRow(f"{call}: this version of the daemon does not know the {key} {word[:80]!r}")
    return word


def read_flag(row: Record, key: str, call: str, *, default: bool) -> bool:
    """Return the boolean at *key*; return *default* if it is missing; raise BadRow for another value."""
    value = row.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRow(f"{call}: expected true or false as {key!r}, got {str(value)[:80]!r}")
    return value


def require_record(row: object, call: str) -> Record:
    """Return *row* if it is a record.

    Raises:
        BadRow: *row* is not a record. For example, the web page of a proxy arrives as one string.
    """
    if not isinstance(row, dict):
        raise BadRow(f"{call}: expected records, got {str(row)[:80]!r}")
    return row


def iter_records(rows: Rows, call: str) -> Iterator[Record]:
    """Yield each of *rows* if it is a record; see :func:`require_record`."""
    return (require_record(row, call) for row in rows)


def read_text(row: Record, key: str, call: str) -> str:
    """Return the text at *key*; raise BadRow if there is none. Equal texts share one object."""
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise BadRow(f"{call}: expected a text as {key!r}, got {str(value)[:80]!r}")
    return sys.intern(value)


def read_amount(row: Record, key: str, call: str) -> float:
    """Return the number at *key*, 0 or more; 0 if it is missing (an open dataset has no size yet).

    A Rucio server on SQLite or Oracle returns integers, on PostgreSQL floats.
    """
    value = row.get(key)
    if type(value) is int and 0 <= value < MAX_AMOUNT:  # test for an integer first: it is the usual case
        return value
    if type(value) is float and 0 <= value < MAX_AMOUNT:
        return value
    if value is None:
        return 0
    raise BadRow(f"{call}: expected a number as {key!r}, got {str(value)[:80]!r}")


def read_number(row: Record, key: str, call: str) -> int:
    """Return the whole number at *key*; see :func:`read_amount`."""
    value = read_amount(row, key, call)
    if value != int(value):
        raise BadRow(f"{call}: expected a whole number as {key!r}, got {value}")
    return int(value)


def read_time(row: Record, key: str, call: str) -> datetime | None:
    """Return the time at *key*; None if the row has no time at *key*.

    Rucio writes dates as in RFC 1123, in UTC. If the answer is a single record, rucio-clients converts its
    dates to naive times.
    """
    value = row.get(key)
    if value is None:
        return None
    if isinstance(value, str):
        with contextlib.suppress(ValueError, OverflowError, TypeError, IndexError):
            value = parsedate_to_datetime(value)
    moment = moment_in_utc(value) if isinstance(value, datetime) else None
    if moment is None:
        raise BadRow(f"{call}: expected a time as {key!r}, got {str(value)[:80]!r}")
    return moment


def read_file(row: Record, call: str) -> str:
    """Return ``scope:name`` of a file; the name may have characters that a valid DID cannot have."""
    return f"{read_text(row, 'scope', call)}:{read_text(row, 'name', call)}"


def read_did(row: Record, call: str) -> Did | None:
    """Return the DID of *row*; None if it has characters that a valid DID cannot have."""
    try:
        return Did(sys.intern(parse_did(f"{read_text(row, 'scope', call)}:{read_text(row, 'name', call)}")))
    except BadDid:
        return None


def parse_rows(rows: Rows, call: str, read: Callable[[Did, Record], T]) -> Iterator[T | GarbledRow]:
    """Yield for each row about a DID the result of *read*, or a GarbledRow if the row is unreadable.

    Raises:
        BadRow: the DID of a row is unreadable.
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


def parse_dataset_rows(rows: Rows, call: str) -> list[DatasetRow | GarbledRow]:
    """Parse rows of list_dataset_replicas and of its bulk form; see :func:`parse_rows`.

    Consecutive rows of one dataset often have equal values; equal values share one object.

    Raises:
        BadRow: the DID of a row is unreadable.
    """
    count, updated_at = NO_FILES, ""

    def read(did: Did, row: Record) -> DatasetRow:
        nonlocal count, updated_at
        if (row_count := _read_count(row, call)) != count:
            count = row_count
        if (row_time := str(row.get("updated_at"))) != updated_at:
            updated_at = row_time
        return DatasetRow(did, read_text(row, "rse", call), count, updated_at)

    return list(parse_rows(rows, call, read))


def parse_deep_rows(did: Did, rows: Rows) -> list[DatasetRow]:
    """Parse rows of list_dataset_replicas(deep=True) about *did*, for which Rucio counts the files.

    Raises:
        BadRow: a row is unreadable or is about another dataset; a row has more available files than files,
            or not the same number of files as the first row.
    """
    call = "list_dataset_replicas(deep=True)"
    parsed: list[DatasetRow] = []
    for row in parse_dataset_rows(rows, call):
        if isinstance(row, GarbledRow):
            raise BadRow(row.reason)
        if row.did != did:
            raise BadRow(f"{call}: the query was for {did}, the answer is about {row.did}")
        if row.amount.available_length > row.amount.length:
            counts = f"{row.amount.available_length} of {row.amount.length}"
            raise BadRow(f"{call}: {counts} files of {did} are at {row.storage}")
        if parsed and parsed[0].amount.length != row.amount.length:
            lengths = f"{parsed[0].amount.length} and {row.amount.length}"
            raise BadRow(f"{call}: {did} has {lengths} files")
        parsed.append(row)
    return parsed


def has_shrunk(current: Counts, previous: Mapping[str, int]) -> bool:
    """Return whether a dataset has fewer available files at any storage element than in *previous*."""
    return any(files > current.get(storage, NO_FILES).available_length for storage, files in previous.items())


def _read_count(row: Record, call: str) -> Count:
    return Count(
        length=read_number(row, "length", call),
        available_length=read_number(row, "available_length", call),
        bytes=read_amount(row, "bytes", call),
        available_bytes=read_amount(row, "available_bytes", call),
    )


def largest_counts(rows: Iterable[DatasetRow]) -> dict[str, Count]:
    """Return, for each storage element, its count, or the larger of its two counts.

    Rucio returns two rows for one element if a part of the dataset is there as files and a part in archives.
    A file may be in both parts, so the two counts are not added.
    """
    best: dict[str, Count] = {}
    for row in rows:
        largest = best.get(row.storage)
        if largest is None or largest.available_length < row.amount.available_length:
            best[row.storage] = row.amount
    return best

"""Responses of Rucio: parse rows into values. This module is pure: no socket, no clock.

Only this package uses Rucio's words (RSE, lock, rule, length). Their meaning is as observed in Rucio 41.5.1.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from adapters.http.rate_limiter import http_date
from adapters.untrusted_text import quote_excerpt
from hydrator.domain.errors import BadDid, CatalogueError
from hydrator.domain.model import Did, Site, parse_did
from hydrator.domain.untrusted import moment_in_utc

Record = Mapping[str, Any]
"""One JSON object."""
Rows = Iterable[object]
"""The rows of an answer, as they arrive, before any check."""


class BadRow(ValueError):
    """A row does not have the form that Rucio's interface promises; the message quotes the wrong value."""


def describe_fault(error: BadRow | CatalogueError) -> str:
    """Return the reason of *error*; its text may quote a value of Rucio, such as ``True`` or ``None``."""
    return error.reason if isinstance(error, CatalogueError) else str(error)


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
    *length* is the number of files, as Rucio counted them.
    """

    kind: str
    bytes_total: int | None
    is_open: bool = False
    ends_at: datetime | None = None
    length: int = 0


_KINDS = frozenset({"CONTAINER", "DATASET", "FILE"})
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
        """Return available bytes / all bytes, 0 to 1; if bytes are unknown, available files / all files.

        It is 1 if all files are available, whatever the sizes.
        """
        if self.is_complete:
            return 1.0
        part, whole = (
            (self.available_bytes, self.bytes) if self.bytes > 0 else (self.available_length, self.length)
        )
        return min(1.0, part / whole) if whole > 0 else 0.0


NO_FILES = Count(0, 0, 0, 0)
_share_count = lru_cache(4096)(Count)
"""Most rows of a dataset have equal counts, and share one object."""
Counts = Mapping[str, Count]
"""The counts of one dataset, by storage element."""
Rses = Mapping[str, Rse]
"""The storage elements, by name."""


class DatasetRow(NamedTuple):
    """One row of list_dataset_replicas about a dataset: a storage element; *updated_at*: its last change."""

    storage: str
    amount: Count
    updated_at: str


MAX_AMOUNT = 2**63
"""An upper bound for numbers of files or bytes: a column of Rucio's database holds only smaller ones."""


def read_choice(choices: Collection[str], row: Record, key: str) -> str:
    """Return the word at *key*; raise BadRow if *choices* lacks the word (a newer Rucio may send it)."""
    word = read_text(row, key)
    if word not in choices:
        raise BadRow(f"this version of the daemon does not know the {key} {quote_excerpt(word)}")
    return word


def read_flag(row: Record, key: str, *, default: bool) -> bool:
    """Return the boolean at *key*; return *default* if it is missing; raise BadRow for another value."""
    value = row.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRow(f"expected true or false as {key!r}, got {quote_excerpt(value)}")
    return value


def require_record(row: object) -> Record:
    """Return *row* if it is a record.

    Raises:
        BadRow: *row* is not a record. For example, the web page of a proxy arrives as one string.
    """
    if not isinstance(row, dict):
        raise BadRow(f"expected records, got {quote_excerpt(row)}")
    return row


def iter_records(rows: Rows) -> Iterator[Record]:
    """Yield each of *rows* if it is a record; see :func:`require_record`."""
    return map(require_record, rows)


def read_text(row: Record, key: str) -> str:
    """Return the text at *key*; raise BadRow if there is none. Equal texts share one object."""
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise BadRow(f"expected a text as {key!r}, got {quote_excerpt(value)}")
    return sys.intern(value)


def read_amount(row: Record, key: str) -> float:
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
    raise BadRow(f"expected a number of 0 or more as {key!r}, got {quote_excerpt(value)}")


def read_number(row: Record, key: str) -> int:
    """Return the whole number at *key*; see :func:`read_amount`."""
    value = read_amount(row, key)
    if value != int(value):
        raise BadRow(f"expected a whole number as {key!r}, got {quote_excerpt(value)}")
    return int(value)


def read_time(row: Record, key: str) -> datetime | None:
    """Return the time at *key*; None if the row has no time at *key*.

    Rucio writes dates as in RFC 1123, in UTC. If the answer is a single record, rucio-clients converts its
    dates to naive times.
    """
    value = row.get(key)
    if value is None:
        return None
    date = http_date(value) if isinstance(value, str) else value
    moment = moment_in_utc(date) if isinstance(date, datetime) else None
    if moment is None:
        raise BadRow(f"expected a time as {key!r}, got {quote_excerpt(value)}")
    return moment


def read_name(row: Record) -> Did:
    """Return ``scope:name`` of *row*; the name may have characters that a DID in an ad cannot have.

    It is for files, the members of containers and the subjects of rules: their names never enter an ad.
    """
    return Did(sys.intern(f"{read_text(row, 'scope')}:{read_text(row, 'name')}"))


def read_did(row: Record) -> Did | None:
    """Return the DID of *row*; None if it has characters that a DID in an ad cannot have."""
    try:
        return parse_did(read_name(row))
    except BadDid:
        return None


def require_did(row: Record, dids: Collection[Did]) -> Did:
    """Return the DID of *row*; raise BadRow if it is not one of *dids*, those of the query."""
    did = read_name(row)
    if did not in dids:
        asked = f"{min(dids)}{' and others' if len(dids) > 1 else ''}"
        raise BadRow(f"the query was for {asked}, the answer is about {quote_excerpt(did)}")
    return did


def read_did_info(row: Record) -> DidInfo:
    """Return the information of a row of get_metadata_bulk, or of get_did, which has other names."""
    is_bulk = "did_type" in row
    kind = read_choice(_KINDS, row, "did_type" if is_bulk else "type")
    return DidInfo(
        kind,
        None if row.get("bytes") is None else int(read_amount(row, "bytes")),
        read_flag(row, "is_open" if is_bulk else "open", default=False),
        read_time(row, "expired_at"),
        1 if kind == "FILE" else read_number(row, "length"),
    )


def read_dataset_row(row: Record) -> DatasetRow:
    """Return the row of list_dataset_replicas or of its bulk form."""
    amount = _share_count(
        read_number(row, "length"),
        read_number(row, "available_length"),
        read_amount(row, "bytes"),
        read_amount(row, "available_bytes"),
    )
    return DatasetRow(read_text(row, "rse"), amount, sys.intern(str(row.get("updated_at"))))


def parse_deep_rows(did: Did, rows: Rows) -> list[DatasetRow]:
    """Parse rows of list_dataset_replicas(deep=True) about *did*, for which Rucio counts the files.

    Raises:
        BadRow: a row is unreadable or is about another dataset; a row has more available files than files,
            or not the same number of files as the first row.
    """
    parsed: list[DatasetRow] = []
    for record in iter_records(rows):
        require_did(record, {did})
        row = read_dataset_row(record)
        amount = row.amount
        if amount.available_length > amount.length:
            raise BadRow(f"{amount.available_length} of {amount.length} files of {did} are at {row.storage}")
        if parsed and parsed[0].amount.length != amount.length:
            raise BadRow(f"{did} has {parsed[0].amount.length} and {amount.length} files")
        parsed.append(row)
    return parsed


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

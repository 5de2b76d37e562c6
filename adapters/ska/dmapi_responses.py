"""Responses of DMAPI: parse JSON into values; refuse a form that no recorded answer has. Pure module."""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from adapters.untrusted_text import Record, is_text, quote_excerpt
from hydrator.domain.model import Did
from hydrator.domain.sites import number_files

_HASHED_PATH = re.compile(r"/[0-9a-f]{2}/[0-9a-f]{2}/(.+)\Z", re.DOTALL)
_ABSENT_ERROR = re.compile(r"DataIdentifierNotFound|ScopeNotFound")


_KINDS = ("CONTAINER", "DATASET", "FILE")


class BadAnswer(ValueError):
    """DMAPI sent an unreadable answer or row; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Location:
    """One storage element with some or all files of a dataset.

    ``is_dataset`` is None if the answer does not have this key. ``mask`` has one bit for each file of the
    dataset, set if the file is at this location. A file has the same bit in all locations of an answer (see
    ``FilesOnDisk``).
    """

    storage: str
    area: str | None
    file_count: int
    is_dataset: bool | None
    mask: int = 0


@dataclass(frozen=True, slots=True)
class DatasetSize:
    """The size of a DID, from Rucio's columns in DMAPI's metadata; ``file_count`` is None if unknown."""

    kind: str
    file_count: int | None
    bytes_total: int | None
    is_settled: bool


def parse_locations(body: Any) -> tuple[tuple[Location, ...], int]:  # noqa: ANN401 - JSON
    """Parse an answer of ``locate``: return the sorted locations, and the length of its longest list.

    The longest list is the list of the answer itself, or the list of replicas in one of its rows. Recorded
    forms: until 2024 a record ``{storage: {replicas, services}}``; 2025 a list of entries; 2026 a
    list of entries with ``is_dataset``. All keys except ``identifier`` and ``replicas`` may be missing. If
    a row is unreadable, reject the whole answer: without the files of this row, the dataset would look
    incomplete.

    Raises:
        BadAnswer: the answer has none of these forms, or one of its rows is unreadable.
    """
    if isinstance(body, dict) and body and all(isinstance(each, dict) for each in body.values()):
        entries: list[Any] = [{**each, "identifier": key} for key, each in body.items()]
    elif isinstance(body, list):
        entries = body
    else:
        raise BadAnswer(
            f"the answer of locate is neither a list nor a record of locations{_describe_value(body)}"
        )
    files: dict[tuple[str, str | None], set[str]] = {}
    flags: set[bool | None] = set()
    longest = len(entries)
    for entry in entries:
        storage, area, replicas = _parse_location(entry)
        longest = max(longest, len(replicas))
        flags.add(_read_flag(entry, "is_dataset", f"the location at {quote_excerpt(storage)}"))
        # an answer may list a location twice: join the files of both entries
        files.setdefault((storage, area), set()).update(file_name(each) for each in replicas)
    if {True, False} <= flags:
        raise BadAnswer("the answer of locate has both is_dataset true and is_dataset false for one DID")
    is_dataset = next((each for each in flags if each is not None), None)
    _, masks = number_files(files) if len(files) > 1 else ({}, dict.fromkeys(files, 0))
    locations = [
        Location(*place, len(names), is_dataset, masks[place]) for place, names in files.items() if names
    ]
    return tuple(sorted(locations, key=lambda each: (each.storage, each.area or ""))), longest


def _parse_location(entry: Any) -> tuple[str, str | None, list[Any]]:  # noqa: ANN401 - JSON
    """Return the storage element, the area and the replicas of one row of the answer."""
    if not isinstance(entry, dict):
        raise BadAnswer(f"a location is not a record{_describe_value(entry)}")
    storage, area, replicas = (
        entry.get(key) for key in ("identifier", "associated_storage_area_id", "replicas")
    )
    if not isinstance(storage, str) or not is_text(storage):
        raise BadAnswer(f"the identifier of a location is not a text{_describe_value(storage)}")
    if not isinstance(replicas, list):
        raise BadAnswer(f"the replicas at {quote_excerpt(storage)} are not a list{_describe_value(replicas)}")
    if area is not None and area != "" and not is_text(area):
        raise BadAnswer(f"the storage area of {quote_excerpt(storage)} is not a text{_describe_value(area)}")
    return storage, area or None, replicas


def _read_flag(row: Record, key: str, where: str) -> bool | None:
    value = row.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise BadAnswer(f"{key} of {where} is neither true nor false{_describe_value(value)}")


def _describe_value(value: object) -> str:
    """Return the end of an error message, with the wrong *value*; return '' for a list or a record."""
    return "" if isinstance(value, dict | list) else f": {quote_excerpt(value)}"


def file_name(url: object) -> str:
    """Return the file's name in *url*: the part after Rucio's hash folders, the same at all storage elements.

    An answer may have two URLs of one file, for two protocols. Their hosts, ports and folders may differ.

    Raises:
        BadAnswer: *url* is not the address of a file.
    """
    try:
        path = unquote(urlsplit(url).path, errors="surrogateescape") if isinstance(url, str) else ""
    except ValueError:
        path = ""
    if not (is_text(url) and is_text(path)) or path.endswith("/"):
        raise BadAnswer(f"a replica is not the address of a file{_describe_value(url)}")
    hashed = _HASHED_PATH.search(path)
    return hashed[1] if hashed else path


def parse_size(did: Did, body: Any) -> DatasetSize:  # noqa: ANN401 - JSON
    """Return the files and bytes of *did* from its metadata (``plugin=DID_COLUMN``, Rucio's columns).

    The recorded form is a flat record; its keys are the names of Rucio's columns. Any key may be missing.

    Raises:
        BadAnswer: *body* is not a record, is about another DID, or has an unreadable column.
    """
    if not isinstance(body, dict):
        raise BadAnswer(f"the metadata is not a record{_describe_value(body)}")
    for key, mine in zip(("scope", "name"), did.split(":", 1), strict=True):
        if body.get(key) not in (None, mine):
            raise BadAnswer(f"the metadata is about another {key}{_describe_value(body[key])}")
    kind = body.get("did_type")
    if kind is not None and kind not in _KINDS:
        raise BadAnswer(f"did_type in the metadata is not one of Rucio's types{_describe_value(kind)}")
    files, total = _read_count(body, "length"), _read_count(body, "bytes")
    if kind in (None, "CONTAINER"):  # the length of a container is not its number of files
        files = None
    is_open = _read_flag(body, "is_open", "the metadata")
    return DatasetSize(kind or "", 1 if kind == "FILE" else files, total, is_open is False)


def _read_count(body: Record, key: str) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise BadAnswer(f"{key} in the metadata is not a number of files or bytes{_describe_value(value)}")
    return value or None


def is_absent(detail: str) -> bool:
    """Return True if *detail*, the text of a 404, says that the DID does not exist; False: a wrong URL."""
    return bool(_ABSENT_ERROR.search(detail))


def parse_namespaces(body: Any) -> tuple[str, ...]:  # noqa: ANN401 - JSON
    """Return all namespaces, sorted.

    Raises:
        BadAnswer: *body* is not a list, is empty, or has an unreadable row.
    """
    for each in check_namespaces(body):
        if not is_text(each):
            raise BadAnswer(f"a namespace is not a text{_describe_value(each)}")
    return tuple(sorted(set(body)))


def check_namespaces(body: Any) -> list[Any]:  # noqa: ANN401 - JSON
    """Return the unparsed rows of a listing of namespaces, to check only that DMAPI works.

    Raises:
        BadAnswer: *body* is not a list, or is empty.
    """
    if not isinstance(body, list):
        raise BadAnswer(f"the namespaces are not a list{_describe_value(body)}")
    if not body:
        raise BadAnswer("the list of namespaces is empty; an empty catalogue is not plausible")
    return body


def parse_listing(namespace: str, body: Any) -> set[Did]:  # noqa: ANN401 - JSON
    """Return the DIDs of a listing of *namespace*.

    No such answer was recorded. The two accepted forms are inferred: names, with or without scope, or
    records with ``name``.

    Raises:
        BadAnswer: *body* has neither of these forms.
    """
    if not isinstance(body, list):
        raise BadAnswer(f"the listing of {namespace} is not a list{_describe_value(body)}")
    dids = set[Did]()
    for row in body:
        name = row.get("name") if isinstance(row, dict) else row
        if not isinstance(name, str) or not is_text(name):
            raise BadAnswer(
                f"the listing of {namespace} has a row without a readable name{_describe_value(name)}"
            )
        dids.add(Did(name if name.startswith(f"{namespace}:") else f"{namespace}:{name}"))
    return dids

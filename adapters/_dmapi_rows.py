"""What DMAPI's answers say: values in, values out; anything else than what was recorded is refused."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from hydrator.model import Did

_HASHED = re.compile(r"/[0-9a-f]{2}/[0-9a-f]{2}/(.+)\Z", re.DOTALL)
_ABSENT = re.compile(r"DataIdentifierNotFound|ScopeNotFound")


class BadAnswer(ValueError):
    """An answer of no shape that was recorded; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Location:
    """One storage element with some of a dataset's files; ``is_dataset`` is None where it is not told."""

    storage: str
    area: str | None
    files: frozenset[str]
    is_dataset: bool | None


@dataclass(frozen=True, slots=True)
class Size:
    """What Rucio's columns say of a DID, through DMAPI; ``files`` is None where they do not count."""

    kind: str
    files: int | None
    bytes_total: int | None
    settled: bool


def locations(body: Any) -> tuple[tuple[Location, ...], int]:  # noqa: ANN401 - JSON
    """The locations in an answer of ``locate``, ordered by storage element, and the longest list in it.

    Recorded: to 2024 a record ``{storage: {replicas, services}}``; 2025 a list of entries; 2026 the same
    with ``is_dataset``. All but ``identifier`` and ``replicas`` may be missing.

    Raises:
        BadAnswer: it is none of these.
    """
    if isinstance(body, dict) and all(
        isinstance(each, dict) and "replicas" in each for each in body.values()
    ):
        entries: list[Any] = [{"identifier": key, **each} for key, each in body.items()]
    elif isinstance(body, list):
        entries = body
    else:
        raise BadAnswer("locate answers neither a list of locations nor a record of them")
    found: dict[tuple[str, str], Location] = {}
    longest = len(entries)
    for entry in entries:
        one, length = _location(entry)
        longest = max(longest, length)
        known = found.get((one.storage, one.area or ""))
        if known:  # the same place twice: its files are all that either names
            one = Location(one.storage, one.area, one.files | known.files, one.is_dataset)
        found[one.storage, one.area or ""] = one
    return tuple(each for _, each in sorted(found.items()) if each.files), longest


def _location(entry: Any) -> tuple[Location, int]:  # noqa: ANN401 - JSON
    storage = entry.get("identifier") if isinstance(entry, dict) else None
    replicas = entry.get("replicas") if isinstance(entry, dict) else None
    if not isinstance(storage, str) or not storage:
        raise BadAnswer("a location has no identifier")
    if not isinstance(replicas, list) or not all(isinstance(each, str) and each for each in replicas):
        raise BadAnswer(f"the replicas at {storage} are no list of texts")
    area, is_dataset = entry.get("associated_storage_area_id"), entry.get("is_dataset")
    return (
        Location(
            storage,
            area if isinstance(area, str) and area else None,
            frozenset(file_of(each) for each in replicas),
            is_dataset if isinstance(is_dataset, bool) else None,
        ),
        len(replicas),
    )


def file_of(url: str) -> str:
    """What names the file at *url* at every storage element: its name below Rucio's folders of two letters.

    The same file may be told under two protocols, with other hosts, ports and folders before that.
    """
    path = unquote(urlsplit(url).path)
    hashed = _HASHED.search(path)
    return hashed[1] if hashed else path


def size(body: Any) -> Size:  # noqa: ANN401 - JSON
    """How many files and bytes a DID has, from its metadata (``plugin=DID_COLUMN``, Rucio's columns).

    Recorded is that this is a flat record; the names of the columns are Rucio's own.

    Raises:
        BadAnswer: it is no record.
    """
    if not isinstance(body, dict):
        raise BadAnswer("metadata is no record")
    kind = str(body.get("did_type") or "")
    files, total = _count(body.get("length")), _count(body.get("bytes"))
    if kind == "CONTAINER":  # its length is not that of its files
        files = None
    return Size(kind, 1 if kind == "FILE" else files, total, body.get("is_open") is False)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def is_absent(words: str) -> bool:
    """Does a 404 with *words* say that the DID does not exist? Any other 404 is a wrong address."""
    return bool(_ABSENT.search(words))


def namespaces(body: Any) -> tuple[str, ...]:  # noqa: ANN401 - JSON
    """All namespaces, sorted.

    Raises:
        BadAnswer: no list of texts, or an empty one.
    """
    if not isinstance(body, list) or not all(isinstance(each, str) and each for each in body):
        raise BadAnswer("the namespaces are no list of texts")
    if not body:
        raise BadAnswer("it lists no namespaces; that would be an empty catalogue")
    return tuple(sorted(set(body)))


def listed(namespace: str, body: Any) -> Iterable[Did]:  # noqa: ANN401 - JSON
    """The DIDs in a listing of *namespace*. Inferred: names, with or without scope, or records with ``name``.

    Raises:
        BadAnswer: it is none of these.
    """
    if not isinstance(body, list):
        raise BadAnswer(f"the listing of {namespace} is no list")
    for row in body:
        name = row.get("name") if isinstance(row, Mapping) else row
        if not isinstance(name, str) or not name:
            raise BadAnswer(f"the listing of {namespace} has a row without a name")
        yield Did(name if name.startswith(f"{namespace}:") else f"{namespace}:{name}")

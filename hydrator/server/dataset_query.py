"""The query of an HTTP question for datasets: which are named, or which page of all is wanted."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, parse_did

from .responses import Refusal

MOST_DATASETS: Final = 1000
"""Datasets in one answer to a question that names none."""


@dataclass(frozen=True, slots=True)
class DatasetQuery:
    """Named datasets, or all demanded ones where none is named: at most *limit* of those after a DID."""

    dids: frozenset[Did] = frozenset()
    after: Did | None = None
    limit: int = MOST_DATASETS

    def page(self, demanded: Iterable[Did]) -> tuple[list[Did], Did | None]:
        """Return a page in order of DIDs, and the DID after which the next one begins, if there is one."""
        left = (did for did in self.dids or demanded if self.after is None or did > self.after)
        found = heapq.nsmallest(self.limit + 1, left)
        return found[: self.limit], found[self.limit - 1] if len(found) > self.limit else None


def asked_datasets(query: bytes) -> DatasetQuery:
    """Read ``did=…&did=…&limit=…&after=…``; without a limit all named datasets are in one answer."""
    asked: dict[str, list[str]] = {"did": [], "limit": [], "after": []}
    for name, text in _fields(query):
        if name not in asked:
            detail = f"unknown parameter {name[:100]!r}; use did=scope:name, limit and after"
            raise Refusal(400, "bad query", detail)
        asked[name].append(text)
    dids = frozenset(map(_did, asked["did"]))
    limits = [_limit(text) for text in asked["limit"]]
    afters = [_did(text) for text in asked["after"]]
    most = max(len(dids), MOST_DATASETS)
    return DatasetQuery(dids, afters[-1] if afters else None, limits[-1] if limits else most)


def _limit(text: str) -> int:
    digits = text.lstrip("0")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 5 and int(digits) <= MOST_DATASETS):
        raise Refusal(400, "bad query", f"limit is a number from 1 to {MOST_DATASETS}, not {text[:20]!r}")
    return int(digits)


def asked_dids(query: bytes) -> frozenset[Did]:
    """Read the DIDs of ``did=…&did=…``."""
    asked = set()
    for name, text in _fields(query):
        if name != "did":
            raise Refusal(400, "bad query", f"unknown parameter {name[:100]!r}; use did=scope:name")
        asked.add(_did(text))
    return frozenset(asked)


def _fields(query: bytes) -> Iterator[tuple[str, str]]:
    """Split a query into names and values. ``+`` stands for itself: DIDs may contain it and never a space."""
    for part in query.decode("latin-1").split("&"):
        if part:
            name, _, text = part.partition("=")
            yield unquote(name), unquote(text)


def _did(text: str) -> Did:
    try:
        return parse_did(text)
    except BadDid as exc:
        raise Refusal(400, "bad DID", str(exc)) from exc

"""The query of an HTTP question for datasets: which are named, or which page of all is wanted."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, parse_did

from ..responses import HttpError

MAX_DATASETS: Final = 1000
"""Datasets in one answer to a question that names none."""


@dataclass(frozen=True, slots=True)
class DatasetQuery:
    """Named datasets, or all demanded ones where none is named: at most *limit* of those after a DID."""

    dids: frozenset[Did] = frozenset()
    after_did: Did | None = None
    limit: int = MAX_DATASETS

    def page(self, demanded_dids: Iterable[Did]) -> tuple[list[Did], Did | None]:
        """Return a page in order of DIDs, and the DID after which the next one begins, if there is one."""
        left = (did for did in self.dids or demanded_dids if self.after_did is None or did > self.after_did)
        found = heapq.nsmallest(self.limit + 1, left)
        return found[: self.limit], found[self.limit - 1] if len(found) > self.limit else None


def parse_dataset_query(query: bytes) -> DatasetQuery:
    """Read ``did=…&did=…&limit=…&after=…``; without a limit all named datasets are in one answer."""
    asked: dict[str, list[str]] = {"did": [], "limit": [], "after": []}
    for name, text in _split_fields(query):
        if name not in asked:
            detail = f"unknown parameter {name[:100]!r}; use did=scope:name, limit and after"
            raise HttpError(400, "bad query", detail)
        asked[name].append(text)
    dids = frozenset(map(_parse_did_value, asked["did"]))
    limits = [_parse_limit(text) for text in asked["limit"]]
    afters = [_parse_did_value(text) for text in asked["after"]]
    most = max(len(dids), MAX_DATASETS)
    return DatasetQuery(dids, afters[-1] if afters else None, limits[-1] if limits else most)


def _parse_limit(text: str) -> int:
    digits = text.lstrip("0")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 5 and int(digits) <= MAX_DATASETS):
        raise HttpError(400, "bad query", f"limit is a number from 1 to {MAX_DATASETS}, not {text[:20]!r}")
    return int(digits)


def parse_dids(query: bytes) -> frozenset[Did]:
    """Read the DIDs of ``did=…&did=…``."""
    asked = set()
    for name, text in _split_fields(query):
        if name != "did":
            raise HttpError(400, "bad query", f"unknown parameter {name[:100]!r}; use did=scope:name")
        asked.add(_parse_did_value(text))
    return frozenset(asked)


def _split_fields(query: bytes) -> Iterator[tuple[str, str]]:
    """Split a query into names and values. ``+`` stands for itself: DIDs may contain it and never a space."""
    for part in query.decode("latin-1").split("&"):
        if part:
            name, _, text = part.partition("=")
            yield unquote(name), unquote(text)


def _parse_did_value(text: str) -> Did:
    try:
        return parse_did(text)
    except BadDid as exc:
        raise HttpError(400, "bad DID", str(exc)) from exc

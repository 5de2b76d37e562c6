"""Queries of the API: datasets by name or by page, patterns, keys of sets, and sites with a similar name."""

import difflib
import heapq
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from hydrator.domain.ads.dataset_sets import can_be_key
from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Site, parse_did

from .responses import HttpError

MAX_DATASETS: Final = 1000
"""Largest number of datasets in one answer to a query that names no dataset."""
MAX_NAME_COMPARED: Final = 200
"""Largest length, in characters, of a name for which the server looks for similar sites."""


@dataclass(frozen=True, slots=True)
class DatasetQuery:
    """A query for named datasets, or for all demanded datasets if ``dids`` is empty.

    A page has the named datasets, or at most MAX_DATASETS, all after ``after_did`` in sort order.
    """

    dids: frozenset[Did] = frozenset()
    after_did: Did | None = None

    def page(self, demanded_dids: Iterable[Did]) -> tuple[list[Did], Did | None]:
        """Return one page of sorted DIDs; also the page's last DID if there is a next page, else None."""
        dids = (did for did in self.dids or demanded_dids if self.after_did is None or did > self.after_did)
        limit = max(len(self.dids), MAX_DATASETS)
        page = heapq.nsmallest(limit + 1, dids)
        return page[:limit], page[limit - 1] if len(page) > limit else None


def parse_dataset_query(query: bytes) -> DatasetQuery:
    """Parse ``did=…&did=…&after=…``."""
    texts: dict[str, list[str]] = {"did": [], "after": []}
    for name, text in _split_fields(query):
        if name not in texts:
            detail = f"unknown parameter {name[:100]!r}; use did=scope:name and after"
            raise HttpError(400, "bad query", detail)
        texts[name].append(text)
    dids = frozenset(map(_parse_did_value, texts["did"]))
    afters = [_parse_did_value(text) for text in texts["after"]]
    return DatasetQuery(dids, afters[-1] if afters else None)


def parse_set_keys(query: bytes) -> frozenset[str]:
    """Parse the keys of ``key=…&key=…``."""
    keys = set()
    for name, text in _split_fields(query):
        if name != "key":
            raise HttpError(400, "bad query", f"unknown parameter {name[:100]!r}; use key=KEY")
        if not can_be_key(text):
            detail = f"key is the DataLocalityKey of a job or a dataset (scope:name), not {text[:100]!r}"
            raise HttpError(400, "bad key", detail)
        keys.add(text)
    return frozenset(keys)


def parse_patterns(query: bytes) -> frozenset[str]:
    """Parse the patterns of ``match=…&match=…``."""
    patterns = set()
    for name, text in _split_fields(query):
        if name != "match" or not text or not text.isprintable():
            raise HttpError(400, "bad query", f"use match=PATTERN, not {name[:100]!r} with {text[:100]!r}")
        patterns.add(text)
    return frozenset(patterns)


def _split_fields(query: bytes) -> Iterator[tuple[str, str]]:
    """Split a query into names and values. A ``+`` is not a space: a DID may contain ``+``, but no space."""
    for part in query.decode("latin-1").split("&"):
        if part:
            name, _, text = part.partition("=")
            yield unquote(name), unquote(text)


def _parse_did_value(text: str) -> Did:
    try:
        return parse_did(text)
    except BadDid as exc:
        raise HttpError(400, "bad DID", str(exc)) from exc


def find_similar_sites(name: str, sites: Collection[Site], limit: int = 5) -> list[Site]:
    """Return up to *limit* sites whose names look like *name*, without regard to letter case."""
    if len(name) > MAX_NAME_COMPARED:
        return []
    sites_by_lower: dict[str, list[Site]] = {}
    for site in sorted(sites):
        sites_by_lower.setdefault(site.lower(), []).append(site)
    matches = difflib.get_close_matches(name.lower(), list(sites_by_lower), n=limit, cutoff=0.5)
    return [site for lower in matches for site in sites_by_lower[lower]][:limit]

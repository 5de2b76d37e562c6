"""Queries of the API: names of datasets, patterns, keys of sets, and sites with a similar name."""

import difflib
from collections.abc import Collection
from typing import Final
from urllib.parse import unquote

from hydrator.domain.ads.dataset_sets import can_be_key
from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Site, parse_did
from hydrator.domain.text import group_pairs

from .responses import HttpError

MAX_NAME_COMPARED: Final = 200
"""Largest length, in characters, of a name for which the server looks for similar sites."""


def parse_dids(query: bytes) -> frozenset[Did]:
    """Parse the names of ``did=…&did=…``, one at least."""
    texts = _list_values(query, "did")
    if not texts:
        raise HttpError(400, "bad query", "name the datasets: did=scope:name&did=scope:name")
    try:
        return frozenset(map(parse_did, texts))
    except BadDid as exc:
        raise HttpError(400, "bad DID", str(exc)) from exc


def parse_set_keys(query: bytes) -> frozenset[str]:
    """Parse the keys of ``key=…&key=…``."""
    keys = _list_values(query, "key")
    for text in keys:
        if not can_be_key(text):
            detail = f"key is the DataLocalityKey of a job or a dataset (scope:name), not {text[:100]!r}"
            raise HttpError(400, "bad key", detail)
    return frozenset(keys)


def parse_patterns(query: bytes) -> frozenset[str]:
    """Parse the patterns of ``match=…&match=…``."""
    patterns = _list_values(query, "match")
    for text in patterns:
        if not text or not text.isprintable():
            raise HttpError(400, "bad query", f"use match=PATTERN, not {text[:100]!r}")
    return frozenset(patterns)


def _list_values(query: bytes, parameter: str) -> list[str]:
    """Return the values of *parameter*, the only one that *query* may have.

    A ``+`` is not a space: a DID may contain ``+``, but no space.
    """
    values = []
    for part in filter(None, query.decode("latin-1").split("&")):
        name, _, text = map(unquote, part.partition("="))
        if name != parameter:
            raise HttpError(400, "bad query", f"unknown parameter {name[:100]!r}; use {parameter}=…")
        values.append(text)
    return values


def find_similar_sites(name: str, sites: Collection[Site], limit: int = 5) -> list[Site]:
    """Return up to *limit* sites whose names look like *name*, without regard to letter case."""
    if len(name) > MAX_NAME_COMPARED:
        return []
    sites_by_lower = group_pairs((site.lower(), site) for site in sorted(sites))
    matches = difflib.get_close_matches(name.lower(), list(sites_by_lower), n=limit, cutoff=0.5)
    return [site for lower in matches for site in sites_by_lower[lower]][:limit]

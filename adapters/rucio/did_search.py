"""Search for DIDs in Rucio by patterns, and for DIDs that differ from a demanded DID in letter case only."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from os.path import commonprefix
from re import sub

from adapters.did_matching import filter_by_patterns
from adapters.untrusted_text import quote_excerpt
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Reading, Seen
from hydrator.domain.text import group_pairs

from .poll import NEVER, Dids
from .responses import BadRow, read_did
from .session.queries import QueryRunner, split_did

_MIN_FILE_CHARS = 6
"""Shortest beginning of a name for which files are listed, such as the number of an observation."""


class DidSearch:
    """A search for datasets, containers and archives by pattern."""

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Return all datasets and containers whose DIDs match one of *patterns*, and single archives.

        A scope may have millions of files. So files are listed only for a pattern that ends with ``.tar``,
        and begins with a scope and some characters of the name.
        """
        scopes = self.list_scopes() if patterns else ()
        could_match = [
            (pattern, scope) for pattern in patterns for scope in scopes if _could_match(pattern, scope)
        ]
        searches = {(scope, _server_pattern(pattern, scope), "collection") for pattern, scope in could_match}
        searches |= {
            (scope, name, "file") for pattern, scope in could_match if (name := _file_pattern(pattern, scope))
        }
        dids = {did for search in sorted(searches) for did in self.list_matching(*search)}
        return filter_by_patterns(dids, patterns)

    def list_scopes(self) -> tuple[str, ...]:
        """Return all scopes, sorted."""
        return self._queries.ask("list_scopes", read=_parse_scopes)

    def list_matching(self, scope: str, pattern: str, kind: str = "collection") -> Iterator[Did]:
        """Yield the DIDs in *scope* that match *pattern* (``*`` only); the server may ignore case."""
        filters = [{"name": pattern}]
        rows = self._queries.ask_rows("list_dids", scope, filters, read=read_did, did_type=kind, long=True)
        return (did for did in rows if did)


def _parse_scopes(answer: object) -> tuple[str, ...]:
    if not isinstance(answer, list) or not all(isinstance(scope, str) for scope in answer):
        raise BadRow(f"expected a list of texts, got {quote_excerpt(answer)}")
    return tuple(sorted(answer))


def _could_match(pattern: str, scope: str) -> bool:
    """Return whether *pattern* can match DIDs in *scope*, judged by the text before the first wildcard."""
    literal = sub(r"[*?\[].*", "", pattern)
    return f"{scope}:".startswith(literal) or literal.startswith(f"{scope}:")


def _server_pattern(pattern: str, scope: str) -> str:
    """Return a pattern for Rucio, with ``*`` only; it matches all names that *pattern* matches, or more."""
    literal = sub(r"[*?\[].*", "", pattern)
    name = literal.removeprefix(f"{scope}:")
    if name == literal:
        return "*"
    return name if literal == pattern else f"{name}*"


def _file_pattern(pattern: str, scope: str) -> str:
    """Return a pattern for Rucio that all files match whose DIDs *pattern* matches; empty to list none."""
    name = _server_pattern(pattern, scope)
    is_wanted = len(name.rstrip("*")) >= _MIN_FILE_CHARS and pattern.endswith(".tar")
    return name.replace("*", "*.tar") if is_wanted else ""


_SEARCH_SECONDS = 20.0
_RETRY_AFTER = timedelta(minutes=10)


class CaseVariantFinder:
    """A periodic search for DIDs that differ in letter case only.

    The search is slow on large scopes, so it runs for 20 s after each poll, scope by scope. If the
    search of a scope fails, the poll does not fail. The last result stays valid, and the scope is searched
    again after 10 minutes or less.
    """

    def __init__(self, queries: QueryRunner, search: DidSearch) -> None:
        self._queries = queries
        self._did_search = search
        self._variants: dict[Did, frozenset[Did]] = queries.create_memory()
        self._due_at: dict[Did, datetime] = queries.create_memory()
        self._retry_at: dict[str, datetime] = {}
        """By scope in lower case, "" for the list of scopes: the end of the pause after a failed query.

        It holds for new DIDs, too: otherwise a new DID in each poll would repeat the query in each poll.
        """

    def add_case_variants(self, readings: Mapping[Did, Reading], now: datetime) -> dict[Did, Reading]:
        """Return *readings*, each with its case variants from the last search."""
        every = self._queries.settings.twins_every
        due = {
            did
            for did, reading in readings.items()
            if isinstance(reading, Seen) and every is not None and self._due_at.get(did, now) <= now
        }
        if due and every is not None:
            self._search_due(due, now, every)
        return {
            did: replace(reading, case_variants=self._variants[did])
            if isinstance(reading, Seen) and self._variants.get(did)
            else reading
            for did, reading in readings.items()
        }

    def _search_due(self, due_dids: Dids, now: datetime, search_every: timedelta) -> None:
        """Search scope by scope until the 20 s are over; first the scope that has been due for longest."""
        groups = group_pairs((split_did(did)[0].casefold(), did) for did in sorted(due_dids))
        ready = [folded for folded in groups if self._retry_at.get(folded, now) <= now]
        waiting = sorted(ready, key=lambda folded: (self._first_due_at(groups[folded]), folded))
        if not waiting or self._retry_at.get("", now) > now:
            return
        retry_at = now + min(search_every, _RETRY_AFTER)
        try:
            with self._queries.connection.start_poll(_SEARCH_SECONDS):
                scopes = self._did_search.list_scopes()
                for folded in waiting:
                    self._retry_at[folded] = retry_at
                    dids = groups.pop(folded)
                    with suppress(CatalogueError):
                        self._search(dids, [scope for scope in scopes if scope.casefold() == folded])
                        self._due_at.update(dict.fromkeys(dids, now + search_every))
                        del self._retry_at[folded]
                    if not self._queries.connection.remaining_seconds:
                        return
        except CatalogueError:
            self._retry_at[""] = retry_at

    def _first_due_at(self, dids: Sequence[Did]) -> datetime:
        return min(self._due_at.get(did, NEVER) for did in dids)

    def _search(self, dids: Sequence[Did], scopes: Sequence[str]) -> None:
        pattern = _any_case_pattern([split_did(did)[1] for did in dids])
        spellings: dict[str, set[Did]] = defaultdict(set)
        for scope in scopes:
            for name in self._did_search.list_matching(scope, pattern):
                spellings[name.casefold()].add(name)
        self._variants.update((did, frozenset(spellings[did.casefold()] - {did})) for did in dids)


def _any_case_pattern(names: Sequence[str]) -> str:
    """Return a pattern that matches each of *names* in any letter case; its only wildcard is ``*``."""
    if len(names) == 1:
        return sub(r"[A-Za-z]+", "*", names[0])
    prefix = commonprefix(list(names))  # noqa: RUF071 (the prefix is of characters, not of folders)
    return sub(r"\*+", "*", sub(r"[A-Za-z]+", "*", prefix) + "*")

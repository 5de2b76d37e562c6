"""Search for DIDs in Rucio by patterns, scope by scope."""

from collections.abc import Collection, Iterator
from re import sub

from adapters.did_matching import filter_by_patterns
from adapters.rucio.responses import BadRow, iter_records, read_did
from adapters.rucio.session.queries import QueryRunner
from hydrator.domain.model import Did


class DidSearch:
    """A search for datasets and containers by pattern."""

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Return all datasets and containers whose DIDs match one of *patterns*."""
        scopes = self.list_scopes() if patterns else ()
        scope_patterns = {
            (scope, _server_pattern(pattern, scope))
            for pattern in patterns
            for scope in scopes
            if _could_match(pattern, scope)
        }
        dids = {did for scope, each in sorted(scope_patterns) for did in self.list_matching(scope, each)}
        return filter_by_patterns(dids, patterns)

    def list_scopes(self) -> tuple[str, ...]:
        """Return all scopes, sorted."""
        return self._queries.ask(lambda client: client.list_scopes(), _parse_scopes)

    def list_matching(self, scope: str, pattern: str) -> Iterator[Did]:
        """Yield the DIDs in *scope* that match *pattern* (``*`` only); the server may ignore case."""
        rows = self._queries.ask(
            lambda client: list(
                client.list_dids(scope, [{"name": pattern}], did_type="collection", long=True)
            ),
            lambda answer: [read_did(row, "list_dids") for row in iter_records(answer, "list_dids")],
        )
        return (did for did in rows if did)


def _parse_scopes(answer: object) -> tuple[str, ...]:
    if not isinstance(answer, list) or not all(isinstance(scope, str) for scope in answer):
        raise BadRow(f"list_scopes: expected a list of texts, got {str(answer)[:80]!r}")
    return tuple(sorted(answer))


def _could_match(pattern: str, scope: str) -> bool:
    """Return whether *pattern* can match DIDs in *scope*, judged by the text before the first wildcard."""
    literal = sub(r"[*?\[].*", "", pattern)
    return f"{scope}:".startswith(literal) or literal.startswith(f"{scope}:")


def _server_pattern(pattern: str, scope: str) -> str:
    """Return a pattern for Rucio, with ``*`` only; it matches all names that *pattern* matches, or more."""
    start, prefix = f"{scope}:", sub(r"[*?\[].*", "", pattern)
    if not prefix.startswith(start):
        return "*"
    if prefix == pattern:
        return prefix[len(start) :]
    return prefix[len(start) :] + "*"

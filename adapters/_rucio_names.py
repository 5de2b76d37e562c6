"""What Rucio's names are: datasets, containers and what is in them, files, or nothing."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from re import sub

from hydrator.errors import CatalogueError, CatalogueGarbled
from hydrator.model import Did

from ._names import matching
from ._rucio_ask import Asker, split
from ._rucio_client import NotFound, Refused
from ._rucio_rows import BadRow, amount, did_of, moment, record, text


@dataclass(frozen=True, slots=True)
class Entry:
    """What Rucio says a name is: DATASET, CONTAINER or FILE; *bytes_total* None while it is open.

    *ends_at* is when the DID itself ends, with all its rules; None: never.
    """

    kind: str
    bytes_total: int | None
    open: bool = False
    ends_at: datetime | None = None


class Names:
    """Looks names up."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._datasets: dict[Did, tuple[datetime, Entry]] = {}

    def remembered(
        self, dids: AbstractSet[Did], lost: dict[Did, CatalogueError], now: datetime
    ) -> dict[Did, Entry]:
        """What each name is, as :meth:`entries`; of datasets as learned at most ``verify_every`` ago."""
        believed = self._asker.settings.verify_every
        known = {
            did: kept for did, kept in self._datasets.items() if did in dids and now - kept[0] < believed
        }
        found = self.entries(dids - known.keys(), lost)
        known.update((did, (now, entry)) for did, entry in found.items() if entry.kind == "DATASET")
        self._datasets = known
        found.update((did, entry) for did, (_, entry) in known.items())
        return found

    def forget(self, dids: Iterable[Did]) -> None:
        """Ask anew what *dids* are."""
        for did in dids:
            self._datasets.pop(did, None)

    def entries(self, dids: AbstractSet[Did], lost: dict[Did, CatalogueError]) -> dict[Did, Entry]:
        """What each name is; one the bulk call leaves out is asked for alone: only a 404 makes it ABSENT."""
        found: dict[Did, Entry] = defaultdict(lambda: Entry("LOST", None))
        refused: dict[Did, CatalogueError] = {}
        found.update(
            self._asker.in_batches(
                dids, refused, lambda client, batch: client.get_metadata_bulk(batch), _meta_rows
            )
        )
        for did in sorted(dids - found.keys()):
            if did in refused and not isinstance(refused[did], Refused):
                lost[did] = refused[did]
                continue
            try:
                found[did] = self._entry_alone(did)
            except CatalogueError as exc:
                lost[did] = exc
        return found

    def _entry_alone(self, did: Did) -> Entry:
        scope, name = split(did)
        try:
            return self._asker.ask(lambda client: client.get_did(scope, name), _did_row)
        except NotFound:
            return Entry("ABSENT", None)

    def members(self, container: Did, lost: dict[Did, CatalogueError]) -> frozenset[Did]:
        """All datasets in *container*, at any depth; where they cannot be listed it is *lost*."""
        limit = self._asker.settings.max_parts
        seen, todo, datasets = {container}, [container], set[Did]()
        try:
            while todo:
                for child, kind in self._children(todo.pop()):
                    if kind == "CONTAINER" and child not in seen:
                        seen.add(child)
                        todo.append(child)
                    elif kind == "DATASET":
                        datasets.add(child)
                if len(datasets) > limit:
                    raise CatalogueGarbled(self._asker.name, f"{container} has more than {limit} datasets")
        except CatalogueError as exc:
            lost[container] = exc
            return frozenset()
        return frozenset(datasets)

    def _children(self, container: Did) -> list[tuple[Did, str]]:
        scope, name = split(container)
        return self._asker.ask(lambda client: list(client.list_content(scope, name)), _content)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """All datasets and containers whose DIDs match one of *patterns*."""
        scopes = self.scopes() if patterns else ()
        questions = {
            (scope, _server_pattern(pattern, scope))
            for pattern in patterns
            for scope in scopes
            if _could_match(pattern, scope)
        }
        found = {did for scope, wanted in sorted(questions) for did in self.like(scope, wanted)}
        return matching(found, patterns)

    def scopes(self) -> tuple[str, ...]:
        """All scopes."""
        return self._asker.ask(lambda client: client.list_scopes(), _scope_rows)

    def like(self, scope: str, pattern: str) -> Iterator[Did]:
        """Datasets and containers in *scope* like *pattern* (``*`` only; the server may ignore case)."""
        rows = self._asker.ask(
            lambda client: list(
                client.list_dids(scope, [{"name": pattern}], did_type="collection", long=True)
            ),
            lambda answer: [did_of(record(row, "list_dids"), "list_dids") for row in answer],
        )
        return (did for did in rows if did)


def _meta_rows(rows: Iterable[object]) -> list[tuple[Did, Entry]]:
    what, found = "get_metadata_bulk", []
    for each in rows:
        row = record(each, what)
        did = did_of(row, what)
        if did:
            ends_at = moment(row, "expired_at", what)
            entry = Entry(text(row, "did_type", what), _size(row, what), row.get("is_open") is True, ends_at)
            found.append((did, entry))
    return found


def _did_row(answer: object) -> Entry:
    row = record(answer, "get_did")
    ends_at = moment(row, "expired_at", "get_did")
    return Entry(text(row, "type", "get_did"), _size(row, "get_did"), row.get("open") is True, ends_at)


def _size(row: Mapping[str, object], what: str) -> int | None:
    return None if row.get("bytes") is None else int(amount(row, "bytes", what))


def _content(rows: Iterable[object]) -> list[tuple[Did, str]]:
    """Children and what they are.

    Raises:
        BadRow: also where a child's name is none of ours: a part that cannot be asked about is not left out.
    """
    found = []
    for each in rows:
        row = record(each, "list_content")
        did = did_of(row, "list_content")
        if did is None:
            raise BadRow(f"list_content: {row['scope']}:{row['name']} is not a DID we can ask about")
        found.append((did, text(row, "type", "list_content")))
    return found


def _scope_rows(answer: object) -> tuple[str, ...]:
    if not isinstance(answer, list) or not all(isinstance(scope, str) for scope in answer):
        raise BadRow(f"list_scopes: expected a list of texts, got {str(answer)[:80]!r}")
    return tuple(sorted(answer))


def _could_match(pattern: str, scope: str) -> bool:
    """Whether a DID in *scope* may match *pattern*, as far as the text before the first wildcard tells."""
    literal = sub(r"[*?\[].*", "", pattern)
    return f"{scope}:".startswith(literal) or literal.startswith(f"{scope}:")


def _server_pattern(pattern: str, scope: str) -> str:
    """A pattern for names in *scope*, with ``*`` only, that matches at least what *pattern* does."""
    start, prefix = f"{scope}:", sub(r"[*?\[].*", "", pattern)
    if not prefix.startswith(start):
        return "*"
    if prefix == pattern:
        return prefix[len(start) :]
    return prefix[len(start) :] + "*"

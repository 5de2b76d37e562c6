"""What Rucio's names are: datasets, containers and what is in them, files, or nothing."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from heapq import nsmallest
from re import sub
from typing import Any

from adapters.did_matching import filter_by_patterns
from adapters.rucio.background import BackgroundVerifier, QueryKey
from adapters.rucio.responses import (
    BadRow,
    GarbledRow,
    parse_rows,
    read_amount,
    read_choice,
    read_did,
    read_flag,
    read_text,
    read_time,
    require_record,
)
from adapters.rucio.session.queries import DenialCounter, QueryRunner, is_unanswered, split_did
from adapters.rucio.session.transport import InvalidRequest, NotFound
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did

_COLLECTION_TYPES = frozenset({"CONTAINER", "DATASET"})


@dataclass(frozen=True, slots=True)
class DidInfo:
    """What Rucio says a name is: DATASET, CONTAINER or FILE; *bytes_total* None while it is open.

    *ends_at* is when the DID itself ends, with all its rules; None: never.
    """

    kind: str
    bytes_total: int | None
    is_open: bool = False
    ends_at: datetime | None = None


UNRESOLVED, ABSENT_DID = DidInfo("LOST", None), DidInfo("ABSENT", None)
_NEVER = datetime.min.replace(tzinfo=UTC)
_MAX_SINGLE_QUERIES = 500  # names that one poll asks for one by one
_MAX_ABSENT_RECHECKS = 50  # absent names that one poll asks for once more


class DidResolver:
    """Looks names up: in bulk, and one by one what the bulk call leaves out, after all else in a poll.

    Names that were there before are asked for apart from new ones, and from those that were absent: a
    batch that fails over one of these takes none of those with it. A name that failed alone is left
    to the *background*.
    """

    def __init__(self, queries: QueryRunner, background: BackgroundVerifier[Any, Any] | None = None) -> None:
        self._queries = queries
        self._background = background
        self._dataset_infos: dict[Did, tuple[datetime, DidInfo]] = {}
        self._existing_dids: set[Did] = set()
        self._absent_at: dict[Did, datetime] = {}
        self._refused_dids: set[Did] = set()
        self._late_infos: dict[Did, DidInfo] = {}
        self._tried_at: dict[Did, datetime] = {}

    def resolve(
        self, dids: AbstractSet[Did], errors: dict[Did, CatalogueError], now: datetime
    ) -> dict[Did, DidInfo]:
        """Return what each name is; of datasets as learned at most ``verify_every`` ago.

        A name that a 404 called absent is so until the bulk call, or another look-up, finds it. One that
        neither knows is LOST, for :meth:`look_up`.
        """
        believed = self._queries.settings.verify_every
        known = {
            did: kept for did, kept in self._dataset_infos.items() if did in dids and now - kept[0] < believed
        }
        self._forget_all_but(dids)
        todo = self._reject_dotted(dids - known.keys(), errors)
        there, absent = todo & self._existing_dids, todo & self._absent_at.keys()
        found: dict[Did, DidInfo] = defaultdict(lambda: UNRESOLVED)
        for group in (there, todo - there - absent, absent - self._refused_dids):
            found.update(self._query_in_bulk(group, errors))
        found.update((did, self._late_infos.pop(did)) for did in todo & self._late_infos.keys())
        for did in found:
            self._absent_at.pop(did, None)
            self._refused_dids.discard(did)
        known.update((did, (now, entry)) for did, entry in found.items() if entry.kind == "DATASET")
        self._dataset_infos = known
        self._existing_dids = {*known, *found, *(there & errors.keys())}
        found.update((did, ABSENT_DID) for did in absent - found.keys() - errors.keys())
        found.update((did, entry) for did, (_, entry) in known.items())
        return found

    def _forget_all_but(self, dids: AbstractSet[Did]) -> None:
        for memory in (self._absent_at, self._late_infos, self._tried_at):
            for gone in memory.keys() - dids:
                del memory[gone]
        self._refused_dids &= dids

    def _reject_dotted(self, dids: AbstractSet[Did], errors: dict[Did, CatalogueError]) -> AbstractSet[Did]:
        """Return those of *dids* that can stand in a URL, where a part that is only dots leads elsewhere."""
        dotted = {did for did in dids if not {".", ".."}.isdisjoint(split_did(did))}
        for did in dotted:
            why = f"{did}: a scope or name that is only dots cannot be asked about: it would be another URL"
            errors[did] = CatalogueGarbled(self._queries.name, why)
        return dids - dotted

    def _query_in_bulk(self, dids: AbstractSet[Did], errors: dict[Did, CatalogueError]) -> dict[Did, DidInfo]:
        """Look *dids* up by the bulk call; it leaves absent names out, and refuses batches for some."""
        refused: dict[Did, CatalogueError] = {}
        answers = self._queries.query_in_batches(
            dids, refused, lambda client, batch: client.get_metadata_bulk(batch), _parse_metadata
        )
        for did, error in refused.items():
            if isinstance(error, InvalidRequest):
                self._refused_dids.add(did)
            else:
                errors[did] = error
        return {did: entry for did, entry in answers if did in dids}

    def look_up_unresolved(
        self,
        did_infos: dict[Did, DidInfo],
        dids: AbstractSet[Did],
        errors: dict[Did, CatalogueError],
        now: datetime,
        within_seconds: float,
    ) -> None:
        """Ask one by one for those of *dids* that are LOST: only a 404 makes a name ABSENT.

        First those never tried, then those tried longest ago; within *seconds*, and so many. What is
        found is read in the next poll. Some names that are absent for long are asked for once more.
        """
        doubtful = [did for did in dids if did_infos[did].kind == UNRESOLVED.kind and did not in errors]
        for did in doubtful:
            if error := self._background_error(("name", did)):
                errors[did] = error
        in_order = sorted(
            set(doubtful) - errors.keys(), key=lambda did: (self._tried_at.get(did, _NEVER), did)
        )
        todo = [*in_order[:_MAX_SINGLE_QUERIES], *self._absent_to_recheck(now)][::-1]
        asked = 0
        if todo and within_seconds > 0:
            with self._queries.connection.start_poll(within_seconds):
                asked = self._query_one_by_one(todo, did_infos, errors, now)
        for did in in_order:
            if did not in errors and did_infos[did].kind == UNRESOLVED.kind:
                why = f"its name was not looked up: {asked} others were, tried longer ago"
                errors[did] = CatalogueUnreachable(self._queries.name, why)

    def _query_one_by_one(
        self, todo: list[Did], did_infos: dict[Did, DidInfo], errors: dict[Did, CatalogueError], now: datetime
    ) -> int:
        """Look up *todo*, from the last on, until Rucio denies us or leaves some unanswered."""
        asked = unanswered = 0
        denials = DenialCounter(concurrent_calls=self._queries.settings.concurrent_calls)
        for did, answer in self._queries.map_concurrently(todo, self._query_one):
            asked += 1
            self._tried_at[did] = now
            if isinstance(answer, CatalogueError):
                self._retry_in_background(("name", did), answer, partial(_look_up_in_background, did=did))
                if did not in self._absent_at:
                    errors[did] = answer
            elif answer.kind == ABSENT_DID.kind:
                did_infos[did] = answer
                self._absent_at[did] = now
            else:
                self._late_infos[did] = answer
                errors[did] = CatalogueUnreachable(
                    self._queries.name, "its name was found; the next poll reads it"
                )
            unanswered += is_unanswered(answer)
            if denials.is_denied_after(answer) or unanswered >= self._queries.max_unanswered:
                todo.clear()
        return asked

    def _absent_to_recheck(self, now: datetime) -> list[Did]:
        """Some names that the bulk call may leave out although they exist by now."""
        every = self._queries.settings.verify_every
        due = (did for did, at in self._absent_at.items() if now - at >= every and at < now)
        return nsmallest(
            _MAX_ABSENT_RECHECKS, due, key=lambda did: (max(self._absent_at[did], self._tried_at[did]), did)
        )

    def _background_error(self, key: QueryKey) -> CatalogueError | None:
        return self._background.error_of(key) if self._background else None

    def _retry_in_background(
        self, key: QueryKey, error: CatalogueError, ask: Callable[[QueryRunner], object]
    ) -> None:
        if self._background and not isinstance(error, NotFound):
            self._background.retry_later(key, error, ask)

    def confirm_absent(self, dids: AbstractSet[Did], now: datetime) -> dict[Did, DidInfo]:
        """Return those of *dids*, for which Rucio said 404, that the bulk call does not know either."""
        for did in dids:
            self._dataset_infos.pop(did, None)
        unknown: dict[Did, CatalogueError] = {}
        known = self._query_in_bulk(dids, unknown)
        absent = dids - known.keys() - unknown.keys()
        self._existing_dids -= absent
        for did in absent:
            self._absent_at[did] = self._tried_at[did] = now
        return dict.fromkeys(absent, ABSENT_DID)

    def resolve_uncached(
        self, dids: AbstractSet[Did], errors: dict[Did, CatalogueError]
    ) -> dict[Did, DidInfo]:
        """Return what each name is, all asked at once: for few names."""
        found: dict[Did, DidInfo] = defaultdict(lambda: UNRESOLVED)
        found.update(self._query_in_bulk(self._reject_dotted(dids, errors), errors))
        for did in sorted(dids - found.keys() - errors.keys()):
            try:
                found[did] = self._query_one(did)
            except CatalogueError as exc:
                errors[did] = exc
        return found

    def _query_one(self, did: Did) -> DidInfo:
        scope, name = split_did(did)
        try:
            return self._queries.ask(
                lambda client: client.get_did(scope, name), lambda row: _parse_did_info(row, did)
            )
        except NotFound:
            return ABSENT_DID

    def list_all_members(
        self, containers: AbstractSet[Did], errors: dict[Did, CatalogueError], now: datetime
    ) -> dict[Did, frozenset[Did]]:
        """The datasets in each of *containers*; those that cannot be listed are *lost*, and come last."""
        found: dict[Did, frozenset[Did]] = {}
        unanswered = 0
        for did in sorted(containers, key=lambda each: (self._tried_at.get(each, _NEVER), each)):
            found[did] = frozenset()
            if error := self._background_error(("members", did)):
                errors[did] = error
            elif unanswered >= self._queries.max_unanswered:
                errors[did] = CatalogueUnreachable(self._queries.name, "not listed: others were not answered")
            else:
                found[did] = self.list_members(did, errors)
                if did in errors:
                    self._tried_at[did] = now
                    unanswered += is_unanswered(errors[did])
                    self._retry_in_background(
                        ("members", did), errors[did], partial(_list_in_background, did=did)
                    )
        return found

    def list_members(self, container: Did, errors: dict[Did, CatalogueError]) -> frozenset[Did]:
        """All datasets in *container*, at any depth; where they cannot be listed it is *lost*."""
        try:
            return self._list_datasets(container)
        except CatalogueError as exc:
            errors[container] = exc
            return frozenset()

    def _list_datasets(self, container: Did) -> frozenset[Did]:
        limit = self._queries.settings.max_parts
        seen, todo, datasets = {container}, [container], set[Did]()
        while todo:
            for child, kind in self._list_children(todo.pop()):
                if kind == "CONTAINER" and child not in seen:
                    seen.add(child)
                    todo.append(child)
                elif kind == "DATASET":
                    datasets.add(child)
            if len(datasets) > limit:
                raise CatalogueGarbled(self._queries.name, f"{container} has more than {limit} datasets")
        return frozenset(datasets)

    def _list_children(self, container: Did) -> list[tuple[Did, str]]:
        scope, name = split_did(container)
        return self._queries.ask(lambda client: client.list_content(scope, name), _parse_content)

    def query_size(self, container: Did) -> int:
        """The bytes of all files in *container*, added up by Rucio now.

        Raises:
            CatalogueError: they could not be learned.
        """
        scope, name = split_did(container)
        return self._queries.ask(
            lambda client: client.get_did(scope, name, dynamic_depth="FILE"),
            lambda row: _parse_did_info(row, container).bytes_total or 0,
        )

    def is_any_open(self, dids: Iterable[Did]) -> bool:
        """Return whether one of *dids*, as last learned, may still grow."""
        return any(self._dataset_infos[did][1].is_open for did in dids if did in self._dataset_infos)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """All datasets and containers whose DIDs match one of *patterns*."""
        scopes = self.list_scopes() if patterns else ()
        questions = {
            (scope, _server_pattern(pattern, scope))
            for pattern in patterns
            for scope in scopes
            if _could_match(pattern, scope)
        }
        found = {did for scope, wanted in sorted(questions) for did in self.list_matching(scope, wanted)}
        return filter_by_patterns(found, patterns)

    def list_scopes(self) -> tuple[str, ...]:
        """All scopes."""
        return self._queries.ask(lambda client: client.list_scopes(), _parse_scopes)

    def list_matching(self, scope: str, pattern: str) -> Iterator[Did]:
        """Datasets and containers in *scope* like *pattern* (``*`` only; the server may ignore case)."""
        rows = self._queries.ask(
            lambda client: list(
                client.list_dids(scope, [{"name": pattern}], did_type="collection", long=True)
            ),
            lambda answer: [read_did(require_record(row, "list_dids"), "list_dids") for row in answer],
        )
        return (did for did in rows if did)


def _look_up_in_background(queries: QueryRunner, did: Did) -> DidInfo:
    return DidResolver(queries)._query_one(did)


def _list_in_background(queries: QueryRunner, did: Did) -> frozenset[Did]:
    return DidResolver(queries)._list_datasets(did)


def _parse_metadata(rows: Iterable[object]) -> list[tuple[Did, DidInfo] | GarbledRow]:
    what = "get_metadata_bulk"

    def read(did: Did, row: Mapping[str, Any]) -> tuple[Did, DidInfo]:
        ends_at = read_time(row, "expired_at", what)
        is_open = read_flag(row, "is_open", what, default=False)
        return did, DidInfo(read_text(row, "did_type", what), _read_size(row, what), is_open, ends_at)

    return list(parse_rows(rows, what, read))


def _parse_did_info(answer: object, did: Did) -> DidInfo:
    what = "get_did"
    row = require_record(answer, what)
    if read_did(row, what) != did:
        raise BadRow(f"{what}: asked what {did} is, it told what {row['scope']}:{row['name']} is")
    ends_at = read_time(row, "expired_at", what)
    is_open = read_flag(row, "open", what, default=False)
    return DidInfo(read_text(row, "type", what), _read_size(row, what), is_open, ends_at)


def _read_size(row: Mapping[str, object], call: str) -> int | None:
    return None if row.get("bytes") is None else int(read_amount(row, "bytes", call))


def _parse_content(rows: Iterable[object]) -> list[tuple[Did, str]]:
    """Children and what they are.

    Raises:
        BadRow: also where a child's name is none of ours: a part that cannot be asked about is not left out.
    """
    found = []
    for each in rows:
        row = require_record(each, "list_content")
        did = read_did(row, "list_content")
        if did is None:
            raise BadRow(f"list_content: {row['scope']}:{row['name']} is not a DID we can ask about")
        found.append((did, read_choice(_COLLECTION_TYPES, row, "type", "list_content")))
    return found


def _parse_scopes(answer: object) -> tuple[str, ...]:
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

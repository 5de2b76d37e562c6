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

from adapters.did_matching import matching
from adapters.rucio.background import Background, Key
from adapters.rucio.responses import (
    BadRow,
    Garbled,
    amount,
    did_of,
    each_about,
    flag,
    moment,
    one_of,
    record,
    text,
)
from adapters.rucio.session.client import NotFound, Refused
from adapters.rucio.session.queries import Asker, Denials, is_silence, split
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did

_PARTS = frozenset({"CONTAINER", "DATASET"})


@dataclass(frozen=True, slots=True)
class Entry:
    """What Rucio says a name is: DATASET, CONTAINER or FILE; *bytes_total* None while it is open.

    *ends_at* is when the DID itself ends, with all its rules; None: never.
    """

    kind: str
    bytes_total: int | None
    open: bool = False
    ends_at: datetime | None = None


LOST, ABSENT = Entry("LOST", None), Entry("ABSENT", None)
_NEVER = datetime.min.replace(tzinfo=UTC)
_MOST_ALONE = 500  # names that one poll asks for one by one
_MOST_AGAIN = 50  # absent names that one poll asks for once more


class Names:
    """Looks names up: in bulk, and one by one what the bulk call leaves out, after all else in a poll.

    Names that were there before are asked for apart from new ones, and from those that were absent: a
    batch that fails over one of these takes none of those with it. A name that failed alone is left
    to the *background*.
    """

    def __init__(self, asker: Asker, background: Background[Any, Any] | None = None) -> None:
        self._asker = asker
        self._background = background
        self._datasets: dict[Did, tuple[datetime, Entry]] = {}
        self._there: set[Did] = set()
        self._absent: dict[Did, datetime] = {}
        self._refused: set[Did] = set()
        self._late: dict[Did, Entry] = {}
        self._tried: dict[Did, datetime] = {}

    def remembered(
        self, dids: AbstractSet[Did], lost: dict[Did, CatalogueError], now: datetime
    ) -> dict[Did, Entry]:
        """Return what each name is; of datasets as learned at most ``verify_every`` ago.

        A name that a 404 called absent is so until the bulk call, or another look-up, finds it. One that
        neither knows is LOST, for :meth:`look_up`.
        """
        believed = self._asker.settings.verify_every
        known = {
            did: kept for did, kept in self._datasets.items() if did in dids and now - kept[0] < believed
        }
        self._forget_all_but(dids)
        todo = self._without_dots(dids - known.keys(), lost)
        there, absent = todo & self._there, todo & self._absent.keys()
        found: dict[Did, Entry] = defaultdict(lambda: LOST)
        for group in (there, todo - there - absent, absent - self._refused):
            found.update(self._in_bulk(group, lost))
        found.update((did, self._late.pop(did)) for did in todo & self._late.keys())
        for did in found:
            self._absent.pop(did, None)
            self._refused.discard(did)
        known.update((did, (now, entry)) for did, entry in found.items() if entry.kind == "DATASET")
        self._datasets = known
        self._there = {*known, *found, *(there & lost.keys())}
        found.update((did, ABSENT) for did in absent - found.keys() - lost.keys())
        found.update((did, entry) for did, (_, entry) in known.items())
        return found

    def _forget_all_but(self, dids: AbstractSet[Did]) -> None:
        for memory in (self._absent, self._late, self._tried):
            for gone in memory.keys() - dids:
                del memory[gone]
        self._refused &= dids

    def _without_dots(self, dids: AbstractSet[Did], lost: dict[Did, CatalogueError]) -> AbstractSet[Did]:
        """Return those of *dids* that can stand in a URL, where a part that is only dots leads elsewhere."""
        dotted = {did for did in dids if not {".", ".."}.isdisjoint(split(did))}
        for did in dotted:
            why = f"{did}: a scope or name that is only dots cannot be asked about: it would be another URL"
            lost[did] = CatalogueGarbled(self._asker.name, why)
        return dids - dotted

    def _in_bulk(self, dids: AbstractSet[Did], lost: dict[Did, CatalogueError]) -> dict[Did, Entry]:
        """Look *dids* up by the bulk call; it leaves absent names out, and refuses batches for some."""
        refused: dict[Did, CatalogueError] = {}
        answers = self._asker.in_batches(
            dids, refused, lambda client, batch: client.get_metadata_bulk(batch), _meta_rows
        )
        for did, error in refused.items():
            if isinstance(error, Refused):
                self._refused.add(did)
            else:
                lost[did] = error
        return {did: entry for did, entry in answers if did in dids}

    def look_up(
        self,
        entries: dict[Did, Entry],
        dids: AbstractSet[Did],
        lost: dict[Did, CatalogueError],
        now: datetime,
        seconds: float,
    ) -> None:
        """Ask one by one for those of *dids* that are LOST: only a 404 makes a name ABSENT.

        First those never tried, then those tried longest ago; within *seconds*, and so many. What is
        found is read in the next poll. Some names that are absent for long are asked for once more.
        """
        doubtful = [did for did in dids if entries[did].kind == LOST.kind and did not in lost]
        for did in doubtful:
            if error := self._still_failing(("name", did)):
                lost[did] = error
        in_order = sorted(set(doubtful) - lost.keys(), key=lambda did: (self._tried.get(did, _NEVER), did))
        todo = [*in_order[:_MOST_ALONE], *self._absent_for_long(now)][::-1]
        asked = 0
        if todo and seconds > 0:
            with self._asker.connection.poll(seconds):
                asked = self._one_by_one(todo, entries, lost, now)
        for did in in_order:
            if did not in lost and entries[did].kind == LOST.kind:
                why = f"its name was not looked up: {asked} others were, tried longer ago"
                lost[did] = CatalogueUnreachable(self._asker.name, why)

    def _one_by_one(
        self, todo: list[Did], entries: dict[Did, Entry], lost: dict[Did, CatalogueError], now: datetime
    ) -> int:
        """Look up *todo*, from the last on, until Rucio denies us or leaves some unanswered."""
        asked = unanswered = 0
        denials = Denials(beside=self._asker.settings.concurrent_calls)
        for did, answer in self._asker.side_by_side(todo, self._entry_alone):
            asked += 1
            self._tried[did] = now
            if isinstance(answer, CatalogueError):
                self._failed(("name", did), answer, partial(_look_up_beside, did=did))
                if did not in self._absent:
                    lost[did] = answer
            elif answer.kind == ABSENT.kind:
                entries[did] = answer
                self._absent[did] = now
            else:
                self._late[did] = answer
                lost[did] = CatalogueUnreachable(
                    self._asker.name, "its name was found; the next poll reads it"
                )
            unanswered += is_silence(answer)
            if denials.denies(answer) or unanswered >= self._asker.most_unanswered:
                todo.clear()
        return asked

    def _absent_for_long(self, now: datetime) -> list[Did]:
        """Some names that the bulk call may leave out although they exist by now."""
        every = self._asker.settings.verify_every
        due = (did for did, at in self._absent.items() if now - at >= every and at < now)
        return nsmallest(_MOST_AGAIN, due, key=lambda did: (max(self._absent[did], self._tried[did]), did))

    def _still_failing(self, key: Key) -> CatalogueError | None:
        return self._background.error_of(key) if self._background else None

    def _failed(self, key: Key, error: CatalogueError, ask: Callable[[Asker], object]) -> None:
        if self._background and not isinstance(error, NotFound):
            self._background.failed(key, error, ask)

    def gone(self, dids: AbstractSet[Did], now: datetime) -> dict[Did, Entry]:
        """Return those of *dids*, for which Rucio said 404, that the bulk call does not know either."""
        for did in dids:
            self._datasets.pop(did, None)
        unknown: dict[Did, CatalogueError] = {}
        known = self._in_bulk(dids, unknown)
        absent = dids - known.keys() - unknown.keys()
        self._there -= absent
        for did in absent:
            self._absent[did] = self._tried[did] = now
        return dict.fromkeys(absent, ABSENT)

    def entries(self, dids: AbstractSet[Did], lost: dict[Did, CatalogueError]) -> dict[Did, Entry]:
        """Return what each name is, all asked at once: for few names."""
        found: dict[Did, Entry] = defaultdict(lambda: LOST)
        found.update(self._in_bulk(self._without_dots(dids, lost), lost))
        for did in sorted(dids - found.keys() - lost.keys()):
            try:
                found[did] = self._entry_alone(did)
            except CatalogueError as exc:
                lost[did] = exc
        return found

    def _entry_alone(self, did: Did) -> Entry:
        scope, name = split(did)
        try:
            return self._asker.ask(lambda client: client.get_did(scope, name), lambda row: _did_row(row, did))
        except NotFound:
            return ABSENT

    def members_of(
        self, containers: AbstractSet[Did], lost: dict[Did, CatalogueError], now: datetime
    ) -> dict[Did, frozenset[Did]]:
        """The datasets in each of *containers*; those that cannot be listed are *lost*, and come last."""
        found: dict[Did, frozenset[Did]] = {}
        unanswered = 0
        for did in sorted(containers, key=lambda each: (self._tried.get(each, _NEVER), each)):
            found[did] = frozenset()
            if error := self._still_failing(("members", did)):
                lost[did] = error
            elif unanswered >= self._asker.most_unanswered:
                lost[did] = CatalogueUnreachable(self._asker.name, "not listed: others were not answered")
            else:
                found[did] = self.members(did, lost)
                if did in lost:
                    self._tried[did] = now
                    unanswered += is_silence(lost[did])
                    self._failed(("members", did), lost[did], partial(_list_beside, did=did))
        return found

    def members(self, container: Did, lost: dict[Did, CatalogueError]) -> frozenset[Did]:
        """All datasets in *container*, at any depth; where they cannot be listed it is *lost*."""
        try:
            return self._listed(container)
        except CatalogueError as exc:
            lost[container] = exc
            return frozenset()

    def _listed(self, container: Did) -> frozenset[Did]:
        limit = self._asker.settings.max_parts
        seen, todo, datasets = {container}, [container], set[Did]()
        while todo:
            for child, kind in self._children(todo.pop()):
                if kind == "CONTAINER" and child not in seen:
                    seen.add(child)
                    todo.append(child)
                elif kind == "DATASET":
                    datasets.add(child)
            if len(datasets) > limit:
                raise CatalogueGarbled(self._asker.name, f"{container} has more than {limit} datasets")
        return frozenset(datasets)

    def _children(self, container: Did) -> list[tuple[Did, str]]:
        scope, name = split(container)
        return self._asker.ask(lambda client: client.list_content(scope, name), _content)

    def size(self, container: Did) -> int:
        """The bytes of all files in *container*, added up by Rucio now.

        Raises:
            CatalogueError: they could not be learned.
        """
        scope, name = split(container)
        return self._asker.ask(
            lambda client: client.get_did(scope, name, dynamic_depth="FILE"),
            lambda row: _did_row(row, container).bytes_total or 0,
        )

    def is_open(self, dids: Iterable[Did]) -> bool:
        """Return whether one of *dids*, as last learned, may still grow."""
        return any(self._datasets[did][1].open for did in dids if did in self._datasets)

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


def _look_up_beside(asker: Asker, did: Did) -> Entry:
    return Names(asker)._entry_alone(did)


def _list_beside(asker: Asker, did: Did) -> frozenset[Did]:
    return Names(asker)._listed(did)


def _meta_rows(rows: Iterable[object]) -> list[tuple[Did, Entry] | Garbled]:
    what = "get_metadata_bulk"

    def read(did: Did, row: Mapping[str, Any]) -> tuple[Did, Entry]:
        ends_at = moment(row, "expired_at", what)
        is_open = flag(row, "is_open", what, usual=False)
        return did, Entry(text(row, "did_type", what), _size(row, what), is_open, ends_at)

    return list(each_about(rows, what, read))


def _did_row(answer: object, did: Did) -> Entry:
    what = "get_did"
    row = record(answer, what)
    if did_of(row, what) != did:
        raise BadRow(f"{what}: asked what {did} is, it told what {row['scope']}:{row['name']} is")
    ends_at = moment(row, "expired_at", what)
    is_open = flag(row, "open", what, usual=False)
    return Entry(text(row, "type", what), _size(row, what), is_open, ends_at)


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
        found.append((did, one_of(_PARTS, row, "type", "list_content")))
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

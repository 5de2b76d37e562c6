"""A Catalogue on Rucio: which datasets are at which sites, and what is moving.

Rucio keeps two answers. The cheap one (bulk, "shallow") is a table that daemons
refresh: it says 0 of 0 before they have counted, misses replicas without a
rule, and is not told of files that went bad. The true one ("deep") counts
files and takes one call for each dataset. So the cheap answer tells whom to count: what
it does not show as whole and unchanged is counted in every poll, the rest
every ``verify_every``. What was not counted is Unseen, never absent and never complete.
Neither answer distinguishes a container or a name that does not exist from an
empty dataset, so names are looked up first, and containers are taken apart.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from os.path import commonprefix
from re import sub
from typing import TypeVar

from hydrator.errors import CatalogueDenied, CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.model import Did, Reading, Replica, Seen, Site, Survey, Unseen
from hydrator.ports import Clock

from ._names import matching
from ._rucio_client import Client, Connection, NotFound, Refused, RucioSettings, Stumbled
from ._rucio_rows import (
    BadRow,
    Count,
    DatasetRow,
    Lock,
    Movement,
    Part,
    Storage,
    amount,
    container_replicas,
    counted,
    dataset_replicas,
    dataset_rows,
    did_of,
    file_replicas,
    locks,
    movements,
    record,
    text,
)

__all__ = ["RucioCatalogue", "RucioSettings"]

T = TypeVar("T")
_FILES_A_CALL = 200
_TWIN_SECONDS = 20.0
_HALVINGS = 60  # finds five bad names in a thousand; a server that fails over everything is let alone soon


@dataclass(frozen=True, slots=True)
class _Entry:
    """What Rucio says a name is: DATASET, CONTAINER or FILE; *bytes_total* None while it is open."""

    kind: str
    bytes_total: int | None


@dataclass(frozen=True, slots=True)
class _Counted:
    """A dataset counted at *at*; *agreed* when the cheap rows, *stamp*, said the same."""

    at: datetime
    stamp: tuple[object, ...]
    agreed: bool
    counts: Mapping[str, Count]
    empty: bool


@dataclass
class _Poll:
    """What one poll has learned so far; *lost* has the DIDs it could not learn of, and why."""

    at: datetime
    storages: Mapping[str, Storage]
    lost: dict[Did, CatalogueError] = field(default_factory=dict)
    parts: dict[Did, Part] = field(default_factory=dict)
    empty: set[Did] = field(default_factory=set)


class RucioCatalogue:
    """A Rucio server as a Catalogue; see the module's text for what it trusts."""

    def __init__(self, settings: RucioSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._connection = Connection(settings)
        self._one_at_a_time = threading.Lock()
        self._attribute_sites: dict[str, tuple[datetime, Site | None]] = {}
        self._counted: dict[Did, _Counted] = {}
        self._twins: dict[Did, frozenset[Did]] = {}
        self._twins_at: dict[Did, datetime] = {}

    @property
    def name(self) -> str:
        return self._settings.name

    def close(self) -> None:
        """Let go of connections and of the token."""
        self._connection.close()

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Say where each of *dids* is; see ``Catalogue.read``.

        Raises:
            CatalogueError: it could not answer, or for none of *dids*.
        """
        with self._one_at_a_time:
            at = self._clock()
            with self._connection.poll(self._settings.deadline.total_seconds()):
                poll = _Poll(at, self._storages(at))
                readings = self._readings(poll, dids)
            if dids and dids <= poll.lost.keys():
                raise poll.lost[min(dids)]
            readings = self._with_twins(readings, at)
        return Survey(
            catalogue=self.name,
            at=at,
            sites=frozenset(each.site for each in poll.storages.values() if each.site),
            readings=readings,
            unmapped=frozenset(
                each.name for each in poll.storages.values() if each.site is None and not each.deleted
            ),
        )

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """All datasets and containers whose DIDs match; see ``Catalogue.find``.

        Raises:
            CatalogueError: they could not all be listed.
        """
        with self._one_at_a_time, self._connection.poll(self._settings.deadline.total_seconds()):
            scopes = self._scopes() if patterns else ()
            questions = {
                (scope, _server_pattern(pattern, scope))
                for pattern in patterns
                for scope in scopes
                if _could_match(pattern, scope)
            }
            found = {did for scope, wanted in sorted(questions) for did in self._names(scope, wanted)}
        return matching(found, patterns)

    # -- storage elements and their sites

    def _storages(self, now: datetime) -> Mapping[str, Storage]:
        """All storage elements by name."""
        rows = self._ask(lambda client: list(client.list_rses()), _rse_rows)
        if not rows:
            raise CatalogueGarbled(
                self.name, "it lists no storage elements; that would be an empty catalogue"
            )
        for gone in self._attribute_sites.keys() - rows.keys():
            del self._attribute_sites[gone]
        return {name: self._storage(name, row, now) for name, row in sorted(rows.items())}

    def _storage(self, name: str, row: Mapping[str, object], now: datetime) -> Storage:
        tape = str(row.get("rse_type")).upper() == "TAPE"
        if row.get("deleted"):
            return Storage(name, None, tape, deleted=True)
        return Storage(name, self._site_of(name, now), tape)

    def _site_of(self, storage: str, now: datetime) -> Site | None:
        """The site of a storage element: configured, else its attribute, read every ``attributes_every``."""
        configured = self._settings.site_of(storage)
        attribute = self._settings.site_attribute
        if configured or not attribute:
            return configured
        known = self._attribute_sites.get(storage)
        if known and now - known[0] < self._settings.attributes_every:
            return known[1]
        try:
            found = self._ask(
                lambda client: client.list_rse_attributes(storage),
                lambda answer: record(answer, "list_rse_attributes").get(attribute),
            )
        except NotFound:
            return None
        except CatalogueError:
            if known is None:
                raise
            return known[1]
        site = Site(found) if isinstance(found, str) and found else None
        self._attribute_sites[storage] = (now, site)
        return site

    # -- readings

    def _readings(self, poll: _Poll, dids: AbstractSet[Did]) -> dict[Did, Reading]:
        entries = self._entries(dids, poll)
        members = {did: self._members(did, poll) for did in sorted(dids) if entries[did].kind == "CONTAINER"}
        datasets = {did for did in dids if entries[did].kind == "DATASET"}
        datasets |= {part for parts in members.values() for part in parts}
        self._read_datasets(poll, datasets, entries)
        self._read_files(poll, {did for did in dids if entries[did].kind == "FILE"}, entries)
        for did, parts in members.items():
            self._fold_container(poll, did, parts)
        return {did: _reading(poll, did, entries[did].kind) for did in sorted(dids)}

    def _entries(self, dids: AbstractSet[Did], poll: _Poll) -> Mapping[Did, _Entry]:
        """What each name is; one the bulk call leaves out is asked for alone: only a 404 makes it ABSENT."""
        found: dict[Did, _Entry] = defaultdict(lambda: _Entry("LOST", None))
        refused: dict[Did, CatalogueError] = {}
        for did, kind, size in self._in_batches(
            dids, refused, lambda client, batch: client.get_metadata_bulk(batch), _meta_rows
        ):
            found[did] = _Entry(kind, size)
        for did in sorted(dids - found.keys()):
            if did in refused and not isinstance(refused[did], Refused):
                poll.lost[did] = refused[did]
                continue
            try:
                found[did] = self._entry_alone(did)
            except CatalogueError as exc:
                poll.lost[did] = exc
        return found

    def _entry_alone(self, did: Did) -> _Entry:
        scope, name = _split(did)
        try:
            return self._ask(lambda client: client.get_did(scope, name), _did_row)
        except NotFound:
            return _Entry("ABSENT", None)

    def _members(self, container: Did, poll: _Poll) -> frozenset[Did]:
        """All datasets in *container*, at any depth; where they cannot be listed it is lost."""
        seen, todo, datasets = {container}, [container], set[Did]()
        try:
            while todo:
                for child, kind in self._children(todo.pop()):
                    if kind == "CONTAINER" and child not in seen:
                        seen.add(child)
                        todo.append(child)
                    elif kind == "DATASET":
                        datasets.add(child)
                if len(datasets) > self._settings.max_parts:
                    limit = self._settings.max_parts
                    raise CatalogueGarbled(self.name, f"{container} has more than {limit} datasets")
        except CatalogueError as exc:
            poll.lost[container] = exc
            return frozenset()
        return frozenset(datasets)

    def _children(self, container: Did) -> list[tuple[Did, str]]:
        scope, name = _split(container)
        return self._ask(lambda client: list(client.list_content(scope, name)), _content)

    def _fold_container(self, poll: _Poll, container: Did, members: AbstractSet[Did]) -> None:
        missing = sorted(did for did in members if did in poll.lost)
        if missing:
            reason = f"of its {len(members)} datasets {len(missing)} are unseen, first {missing[0]}: "
            poll.lost[container] = type(first := poll.lost[missing[0]])(self.name, reason + first.reason)
        if container in poll.lost:
            return
        parts = [poll.parts[did] for did in sorted(members) if did not in poll.empty]
        sizes = [part.bytes_total for part in parts]
        total = sum(size for size in sizes if size is not None) if None not in sizes else None
        poll.parts[container] = Part(container_replicas(container, parts) if parts else (), total)

    # -- datasets

    def _read_datasets(self, poll: _Poll, dids: AbstractSet[Did], entries: Mapping[Did, _Entry]) -> None:
        """Count what must be counted, ask what moves, and put the replicas of *dids* into *poll*."""
        dids = dids - poll.lost.keys()
        cheap = self._cheap_rows(poll, dids)
        for did in self._counted.keys() - dids:
            del self._counted[did]
        dids = dids - poll.lost.keys()
        self._count(poll, {did: cheap[did] for did in dids if not self._believed(did, cheap[did], poll.at)})
        dids = dids - poll.lost.keys()
        unsettled = {did for did in dids if not self._settled(did, cheap[did])}
        moves = self._movements(poll, unsettled)
        for did in dids - poll.lost.keys():
            known = self._counted[did]
            counts = [*known.counts.values(), *(row.count for row in cheap[did] if row.count.length > 0)]
            entry = entries[did].bytes_total if did in entries else None
            size = int(counts[0].bytes) if counts else 0 if known.empty else entry
            self._conclude(poll, did, size, dataset_replicas, known.counts, moves.get(did, {}))
            if known.empty:
                poll.empty.add(did)

    def _conclude(
        self,
        poll: _Poll,
        did: Did,
        size: int | None,
        replicas: Callable[..., tuple[Replica, ...]],
        *evidence: object,
    ) -> None:
        """Put what *replicas* makes of *evidence* into *poll*; it may find it cannot be."""
        try:
            poll.parts[did] = Part(replicas(did, *evidence, poll.storages), size)
        except BadRow as exc:
            poll.lost[did] = CatalogueGarbled(self.name, str(exc))

    def _cheap_rows(self, poll: _Poll, dids: AbstractSet[Did]) -> Mapping[Did, list[DatasetRow]]:
        rows: dict[Did, list[DatasetRow]] = {did: [] for did in dids}
        answers = self._in_batches(
            dids,
            poll.lost,
            lambda client, batch: client.list_dataset_replicas_bulk(
                [{**did, "type": "DATASET"} for did in batch]
            ),
            lambda answer: dataset_rows(answer, "list_dataset_replicas_bulk"),
        )
        for row in answers:
            if row.did in rows:
                rows[row.did].append(row)
        return rows

    def _believed(self, did: Did, rows: Sequence[DatasetRow], now: datetime) -> bool:
        """Whether the last count still stands: the cheap rows agreed with it, are whole and unchanged."""
        known = self._counted.get(did)
        return (
            known is not None
            and known.agreed
            and known.stamp == _stamp(rows)
            and all(row.count.complete for row in rows)
            and now - known.at < self._settings.verify_every
        )

    def _settled(self, did: Did, rows: Sequence[DatasetRow]) -> bool:
        """Whether nothing can be moving: each element that a rule names or that has files is whole."""
        counts = self._counted[did].counts
        names = {row.storage for row in rows}
        return bool(names) and all(name in counts and counts[name].complete for name in names | counts.keys())

    def _count(self, poll: _Poll, todo: Mapping[Did, list[DatasetRow]]) -> None:
        """Count *todo*, those counted longest ago first, until the budget or the time is spent."""
        never = datetime.min.replace(tzinfo=poll.at.tzinfo)

        def turn(did: Did) -> tuple[datetime, Did]:
            return (self._counted[did].at if did in self._counted else never, did)

        reserve = 0.2 * self._settings.deadline.total_seconds()
        denied: CatalogueError | None = None
        for asked, did in enumerate(sorted(todo, key=turn)):
            if denied:
                poll.lost[did] = denied
            elif asked >= self._settings.deep_calls or self._connection.deadline.left < reserve:
                poll.lost[did] = CatalogueUnreachable(
                    self.name, f"not counted: {asked} others were due first"
                )
            else:
                try:
                    self._counted[did] = self._count_one(did, todo[did], poll.at)
                except CatalogueError as exc:
                    poll.lost[did] = exc
                    denied = exc if isinstance(exc, CatalogueDenied) else None

    def _count_one(self, did: Did, cheap: Sequence[DatasetRow], at: datetime) -> _Counted:
        scope, name = _split(did)
        rows = self._ask(
            lambda client: list(client.list_dataset_replicas(scope, name, deep=True)),
            lambda answer: dataset_rows(answer, "list_dataset_replicas"),
        )
        counts = counted(row for row in rows if row.did == did)
        shallow = counted(cheap)
        agreed = {k: v.available_length for k, v in counts.items()} == {
            k: v.available_length for k, v in shallow.items() if v.available_length
        }
        empty = not counts and not any(row.count.length for row in cheap) and self._is_empty(scope, name)
        return _Counted(at, _stamp(cheap), agreed, counts, empty)

    def _is_empty(self, scope: str, name: str) -> bool:
        """Whether a dataset of which nothing is anywhere has no files at all."""
        return self._ask(
            lambda client: client.get_did(scope, name, dynamic_depth="FILE"),
            lambda answer: amount(record(answer, "get_did"), "length", "get_did") == 0,
        )

    # -- what moves

    def _movements(self, poll: _Poll, dids: AbstractSet[Did]) -> Mapping[Did, Mapping[str, Movement]]:
        """By dataset and storage element, what rules do."""
        found: dict[Did, list[Lock]] = {did: [] for did in dids}
        answers = self._in_batches(
            dids,
            poll.lost,
            lambda client, batch: client.get_locks_for_dids([{**did, "type": "dataset"} for did in batch]),
            lambda answer: locks(answer, "get_locks_for_dids"),
        )
        for lock in answers:
            if lock.did in found:
                found[lock.did].append(lock)
        for did in sorted(dids - poll.lost.keys()):
            if not found[did]:
                try:
                    found[did] = self._file_locks(did)
                except CatalogueError as exc:
                    poll.lost[did] = exc
        suspended = self._suspended(poll, found)
        return {did: movements(rows, suspended) for did, rows in found.items()}

    def _file_locks(self, did: Did) -> list[Lock]:
        """Locks of rules that spread files over elements: those (grouping NONE) have none for the dataset."""
        scope, name = _split(did)
        rules = self._ask(lambda client: list(client.list_did_rules(scope, name)), _active_rules)
        found = []
        for rule in rules:
            found += [Lock(did, storage, state, rule) for storage, state in sorted(self._locks_of(rule))]
        return found

    def _locks_of(self, rule: str) -> set[tuple[str, str]]:
        return self._ask(lambda client: list(client.list_replica_locks(rule)), _file_lock_rows)

    def _suspended(self, poll: _Poll, found: Mapping[Did, Sequence[Lock]]) -> frozenset[str]:
        """The rules that are suspended; where that cannot be learned, what they would move is lost."""
        moving = {did for did, rows in found.items() if any(lock.state == "REPLICATING" for lock in rows)}
        if not moving:
            return frozenset()
        try:
            return self._ask(
                lambda client: list(client.list_replication_rules({"state": "U"})),
                lambda rows: frozenset(text(record(row, "rules"), "id", "rules") for row in rows),
            )
        except CatalogueError as exc:
            poll.lost.update(dict.fromkeys(moving, exc))
            return frozenset()

    # -- files

    def _read_files(self, poll: _Poll, dids: AbstractSet[Did], entries: Mapping[Did, _Entry]) -> None:
        states: dict[Did, Mapping[str, object]] = {did: {} for did in dids}
        answers = self._in_batches(
            dids,
            poll.lost,
            lambda client, batch: client.list_replicas(batch, all_states=True, sort="random"),
            _file_rows,
            size=_FILES_A_CALL,
        )
        states.update((did, row) for did, row in answers if did in states)
        for did in dids - poll.lost.keys():
            self._conclude(poll, did, entries[did].bytes_total, file_replicas, states[did])

    # -- names

    def _scopes(self) -> tuple[str, ...]:
        return self._ask(lambda client: client.list_scopes(), _scope_rows)

    def _names(self, scope: str, pattern: str) -> Iterator[Did]:
        """Datasets and containers in *scope* like *pattern* (``*`` only; the server may ignore case)."""
        rows = self._ask(
            lambda client: list(
                client.list_dids(scope, [{"name": pattern}], did_type="collection", long=True)
            ),
            lambda answer: [did_of(record(row, "list_dids"), "list_dids") for row in answer],
        )
        return (did for did in rows if did)

    def _with_twins(self, readings: Mapping[Did, Reading], now: datetime) -> dict[Did, Reading]:
        """*readings* with the DIDs that differ from each in letter case only, as last looked for.

        The search is slow on large scopes, so it has a time of its own, and when it fails what it knew
        stands: a catalogue is not given up for it.
        """
        every = self._settings.twins_every
        for did in self._twins_at.keys() - readings.keys():
            del self._twins_at[did], self._twins[did]
        due = {
            did
            for did, reading in readings.items()
            if isinstance(reading, Seen) and every is not None and self._due(did, now, every)
        }
        if due:
            try:
                with self._connection.poll(_TWIN_SECONDS):
                    self._find_twins(due)
            except CatalogueError:
                due = {did for did in due if did not in self._twins}
                self._twins.update(dict.fromkeys(due, frozenset()))
            self._twins_at.update(dict.fromkeys(due, now))
        return {
            did: replace(reading, twins=self._twins[did])
            if isinstance(reading, Seen) and self._twins.get(did)
            else reading
            for did, reading in readings.items()
        }

    def _due(self, did: Did, now: datetime, every: timedelta) -> bool:
        return did not in self._twins_at or now - self._twins_at[did] >= every

    def _find_twins(self, dids: AbstractSet[Did]) -> None:
        scopes = self._scopes()
        for folded, group in groupby(
            sorted(dids, key=str.casefold), key=lambda did: _split(did)[0].casefold()
        ):
            wanted = list(group)
            pattern = _any_case([_split(did)[1] for did in wanted])
            names = {n for s in scopes if s.casefold() == folded for n in self._names(s, pattern)}
            spelled: dict[str, set[Did]] = defaultdict(set)
            for name in names:
                spelled[name.casefold()].add(name)
            self._twins.update((did, frozenset(spelled[did.casefold()] - {did})) for did in wanted)

    # -- asking

    def _ask(self, call: Callable[[Client], object], read: Callable[..., T]) -> T:
        """Ask, and *read* the answer; a row that is not what it should be is CatalogueGarbled."""
        answer = self._connection.ask(call)
        try:
            return read(answer)
        except BadRow as exc:
            raise CatalogueGarbled(self.name, str(exc)) from exc

    def _in_batches(
        self,
        dids: AbstractSet[Did],
        lost: dict[Did, CatalogueError],
        call: Callable[[Client, list[dict[str, str]]], Iterable[object]],
        read: Callable[[list[object]], Iterable[T]],
        size: int | None = None,
    ) -> list[T]:
        """Ask for *dids* in batches; those of a batch that fails are *lost*.

        Rucio refuses a whole batch for one name that it takes for malformed, so
        such a batch is halved until that name stands alone. Who is denied asks no more.
        """
        todo = _batches(sorted(dids - lost.keys()), size or self._settings.batch)
        found: list[T] = []
        denied: CatalogueDenied | None = None
        halvings = _HALVINGS
        while todo:
            batch = todo.pop()
            if denied:
                lost.update(dict.fromkeys(batch, denied))
                continue
            try:
                found += self._ask_about(batch, call, read)
            except (Refused, Stumbled) as exc:
                half, halvings = len(batch) // 2, halvings - 1
                if half and halvings > 0:
                    todo += [batch[:half], batch[half:]]
                else:
                    lost.update(dict.fromkeys(batch, exc))
            except CatalogueDenied as exc:
                denied = exc
                lost.update(dict.fromkeys(batch, exc))
            except CatalogueError as exc:
                lost.update(dict.fromkeys(batch, exc))
        return found

    def _ask_about(
        self,
        dids: Sequence[Did],
        call: Callable[[Client, list[dict[str, str]]], Iterable[object]],
        read: Callable[[list[object]], Iterable[T]],
    ) -> Iterable[T]:
        asked = [dict(zip(("scope", "name"), _split(did), strict=True)) for did in dids]
        return self._ask(lambda client: list(call(client, asked)), read)


def _batches(dids: Sequence[Did], size: int) -> list[Sequence[Did]]:
    return [dids[start : start + size] for start in range(0, len(dids), size)]


def _split(did: Did) -> tuple[str, str]:
    scope, _, name = did.partition(":")
    return scope, name


def _stamp(rows: Iterable[DatasetRow]) -> tuple[object, ...]:
    return tuple(
        sorted((row.storage, row.count.length, row.count.available_length, row.stamp) for row in rows)
    )


def _reading(poll: _Poll, did: Did, kind: str) -> Reading:
    if did in poll.lost:
        return Unseen(poll.lost[did].reason)
    if kind == "ABSENT":
        return Seen(poll.at)
    part = poll.parts.get(did)
    if part is None:
        return Unseen(f"Rucio calls it a {kind}, which this version cannot read")
    return Seen(poll.at, part.replicas, part.bytes_total)


def _rse_rows(rows: Iterable[object]) -> dict[str, Mapping[str, object]]:
    records = (record(row, "list_rses") for row in rows)
    return {text(row, "rse", "list_rses"): row for row in records}


def _meta_rows(rows: Iterable[object]) -> list[tuple[Did, str, int | None]]:
    what, found = "get_metadata_bulk", []
    for each in rows:
        row = record(each, what)
        did = did_of(row, what)
        if did:
            size = row.get("bytes")
            found.append(
                (did, text(row, "did_type", what), size if size is None else int(amount(row, "bytes", what)))
            )
    return found


def _did_row(answer: object) -> _Entry:
    row = record(answer, "get_did")
    size = row.get("bytes")
    return _Entry(
        text(row, "type", "get_did"), None if size is None else int(amount(row, "bytes", "get_did"))
    )


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


def _active_rules(rows: Iterable[object]) -> list[str]:
    """The rules that have file locks only, and are not done."""
    found = []
    for each in rows:
        row = record(each, "list_did_rules")
        if row.get("grouping") == "NONE" and row.get("state") in {"REPLICATING", "STUCK", "SUSPENDED"}:
            found.append(text(row, "id", "list_did_rules"))
    return found


def _file_lock_rows(rows: Iterable[object]) -> set[tuple[str, str]]:
    what = "list_replica_locks"
    each = (record(row, what) for row in rows)
    return {(text(row, "rse", what), text(row, "state", what)) for row in each}


def _file_rows(rows: Iterable[object]) -> list[tuple[Did, Mapping[str, object]]]:
    found = []
    for each in rows:
        row = record(each, "list_replicas")
        did = did_of(row, "list_replicas")
        if did:
            found.append((did, record(row.get("states") or {}, "list_replicas")))
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


def _any_case(names: Sequence[str]) -> str:
    """A pattern, with ``*`` only, that matches each of *names* in any spelling."""
    if len(names) == 1:
        return sub(r"[A-Za-z]+", "*", names[0])
    shared = commonprefix(list(names))  # noqa: RUF071 (of characters, which is what a pattern needs)
    return sub(r"\*+", "*", sub(r"[A-Za-z]+", "*", shared) + "*")

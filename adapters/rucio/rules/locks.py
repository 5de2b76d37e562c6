"""What Rucio's rules do about datasets: their locks, what moves, what stands still, what is to go."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from adapters.rucio.poll import RucioPoll
from adapters.rucio.responses import read_choice, read_did, read_text, require_record
from adapters.rucio.session.client import UnreadableAnswer
from adapters.rucio.session.connection_pool import BackgroundQuery
from adapters.rucio.session.queries import DenialCounter, QueryRunner, is_unanswered, split_did
from adapters.rucio.session.transport import NotFound
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did, Provenance

from .cache import RuleCache
from .model import (
    LOCK_STATES,
    UNFINISHED_STATES,
    Lock,
    Movement,
    Rule,
    movement_without_locks,
    movements,
    parse_locks,
    parse_rules,
)

Movements = Mapping[Did, Mapping[str, Movement]]
_MAX_PARENTS = 50
_MAX_HISTORIES = 1000  # in one poll
_UNREADABLE_ROW_ERRORS = (CatalogueGarbled, UnreadableAnswer)
"""Errors of a row that cannot be read; of the other kinds nothing was learned."""
_NEVER = datetime.min.replace(tzinfo=UTC)
_LAST_RULE_ENDED = Provenance(reason="whole, but its last rule has ended")


@dataclass(frozen=True, slots=True)
class _CachedMovements:
    """What locks and their rules came to; no rule among them ends, so only a change of these changes it."""

    locks: Sequence[Lock]
    rules: Sequence[Rule | None]
    movements: Mapping[str, Movement]


@dataclass(frozen=True, slots=True)
class _DatasetLocks:
    """The locks of a dataset as read at *at*."""

    read_at: datetime
    locks: Sequence[Lock]


@dataclass(frozen=True, slots=True)
class _RuleHistory:
    """What the history of its rules says of a dataset at *storages*, where no lock holds it.

    *locks* stand for rules that hold single files there, *ended* are the elements of rules that are gone.
    """

    read_at: datetime
    storages: frozenset[str]
    locks: Sequence[Lock] = ()
    ended_storages: frozenset[str] = frozenset()


class LockTracker:
    """Asks for locks: of what may be moving in every poll, of what is whole now and then.

    Locks of what is whole tell when its rules end. They are worth asking for
    but no reason to call a dataset unseen, and wait where time is short.
    """

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._rule_cache = RuleCache(queries)
        self._dataset_locks: dict[Did, _DatasetLocks] = {}
        self._parents: dict[Did, tuple[datetime, frozenset[Did]]] = {}
        self._ended_storages: dict[Did, frozenset[str]] = {}
        self._histories: dict[Did, _RuleHistory] = {}
        self._history_failed_at: dict[Did, datetime] = {}
        self._cached_movements: dict[Did, _CachedMovements] = {}
        self._refresh_query = BackgroundQuery[frozenset[Did]](frozenset)
        self._pending_rules: Mapping[Did, list[Rule]] | None = None

    @contextmanager
    def refresh_rules(self, poll: RucioPoll, dids: AbstractSet[Did]) -> Iterator[None]:
        """Learn what changed of the rules beside what is asked inside; all else but *dids* is forgotten."""
        dropped = (
            self._dataset_locks,
            self._parents,
            self._ended_storages,
            self._cached_movements,
            self._histories,
            self._history_failed_at,
        )
        for memory in dropped:
            for gone in memory.keys() - dids:
                del memory[gone]
        self._pending_rules = None
        with self._queries.run_in_background(
            lambda: self._rule_cache.refresh(poll.started_at)
        ) as self._refresh_query:
            yield

    def cached_movements(self, poll: RucioPoll, rule_storages: Mapping[Did, AbstractSet[str]]) -> Movements:
        """What rules do with those of *held*, settled datasets, for which nothing more need be asked.

        None of them before the changes of the rules are known.
        """
        if not self._refresh_query.is_done:
            return {}
        try:
            changed = self._refresh_query.result()
        except CatalogueError:
            changed = frozenset()
        known = self._rule_cache.rules_by_id
        return {
            did: self._movements_of(poll, did)
            for did in rule_storages
            if not self._are_locks_due(poll, did, changed)
            and all(lock.rule in known for lock in self._locks_of(did))
        }

    def read_movements(
        self,
        poll: RucioPoll,
        settled_by_did: Mapping[Did, bool],
        rule_storages: Mapping[Did, AbstractSet[str]],
    ) -> Iterator[tuple[Did, Mapping[str, Movement]]]:
        """Each dataset with what rules do at storage elements, as it is learned, while others are asked for.

        Of unsettled ones, what cannot be learned is lost.

        Args:
            poll: where lost ones are noted.
            settled: every dataset that was counted, and whether nothing can be moving.
            held: the storage elements where rules hold it, by the cheap rows.
        """
        unsettled = {did for did, still in settled_by_did.items() if not still}
        try:
            changed = self._refresh_query.result()
        except CatalogueError as exc:
            changed = frozenset()
            poll.errors.update(dict.fromkeys(unsettled, exc))
        self._ask_locks(poll, unsettled, poll.errors, rule_storages)
        self._ask_file_locks(
            poll, {did for did in unsettled - poll.errors.keys() if not self._dataset_locks[did].locks}
        )
        due = {
            did for did, still in settled_by_did.items() if still and self._are_locks_due(poll, did, changed)
        }
        told = set()
        for did, found in self._permanent_locks({did: rule_storages[did] for did in due}):
            self._dataset_locks[did] = _DatasetLocks(poll.started_at, found)
            told.add(did)
            yield did, self._movements_of(poll, did)
        self._ask_locks_of_settled(poll, due - told)
        left = sorted(settled_by_did.keys() - told)
        self._load_rules(poll, {did: settled_by_did[did] for did in left})
        for did in left:
            if did not in poll.errors:
                yield did, self._movements_of(poll, did)

    def _are_locks_due(self, poll: RucioPoll, did: Did, changed_dids: AbstractSet[Did]) -> bool:
        """Whether the locks of a settled dataset must be asked for."""
        held = self._dataset_locks.get(did)
        if held is None or poll.started_at - held.read_at >= self._queries.settings.verify_every:
            return True
        return bool(changed_dids) and not changed_dids.isdisjoint({did, *poll.parents(did)})

    def _locks_of(self, did: Did) -> Sequence[Lock]:
        held = self._dataset_locks[did].locks if did in self._dataset_locks else ()
        past = self._histories.get(did)
        return [*held, *past.locks] if past and past.locks else held

    # -- locks of whole datasets

    def _ask_locks(
        self,
        poll: RucioPoll,
        dids: AbstractSet[Did],
        errors: dict[Did, CatalogueError],
        rule_storages: Mapping[Did, AbstractSet[str]],
    ) -> None:
        """Ask for the locks of *dids*, and again for those of which one is missing: an answer may be cut."""
        found = self._fetch_locks(dids - errors.keys(), errors)
        fewer = {
            did
            for did, rows in found.items()
            if self._is_lock_missing(did, rows, rule_storages.get(did, frozenset()))
        }
        again = self._fetch_locks(fewer, errors)
        for did in fewer - errors.keys():
            if set(again[did]) != set(found[did]):
                errors[did] = CatalogueGarbled(
                    self._queries.name, f"get_locks_for_dids says two things of the locks of {did}"
                )
        self._dataset_locks.update(
            (did, _DatasetLocks(poll.started_at, rows)) for did, rows in found.items() if did not in errors
        )

    def _fetch_locks(
        self, dids: AbstractSet[Did], errors: dict[Did, CatalogueError]
    ) -> Mapping[Did, Sequence[Lock]]:
        found: dict[Did, list[Lock]] = {did: [] for did in dids}
        answers = self._queries.query_in_batches(
            dids,
            errors,
            lambda client, batch: client.get_locks_for_dids([{**did, "type": "dataset"} for did in batch]),
            lambda answer: parse_locks(answer, "get_locks_for_dids"),
        )
        for lock in answers:
            found[lock.did].append(lock)
        return {did: rows for did, rows in found.items() if did not in errors}

    def _is_lock_missing(
        self, did: Did, current_locks: Sequence[Lock], rule_storages: AbstractSet[str]
    ) -> bool:
        """Return whether *found* lacks a lock: one of a rule that was there, or at a first look one where
        the cheap rows have a rule *named*.
        """
        last = self._dataset_locks.get(did)
        if last is None:
            return not rule_storages <= {lock.storage for lock in current_locks}
        there = {(lock.storage, lock.rule) for lock in current_locks}
        return any(
            (lock.storage, lock.rule) not in there and not self._rule_cache.is_deleted(lock.rule)
            for lock in last.locks
        )

    def _ask_locks_of_settled(self, poll: RucioPoll, dids: AbstractSet[Did]) -> None:
        """Those never asked about first, then those asked longest ago, until half of the time is spent."""
        settings = self._queries.settings
        never = datetime.min.replace(tzinfo=poll.started_at.tzinfo)
        due = sorted(
            (self._dataset_locks[did].read_at if did in self._dataset_locks else never, did) for did in dids
        )
        missed: dict[Did, CatalogueError] = {}
        at_once = settings.batch * settings.concurrent_calls
        for start in range(0, len(due), at_once):
            if self._queries.connection.deadline.remaining_seconds < 0.5 * settings.deadline.total_seconds():
                return
            self._ask_locks(poll, {did for _, did in due[start : start + at_once]}, missed, {})
            poll.errors.update(
                (did, error) for did, error in missed.items() if type(error) in _UNREADABLE_ROW_ERRORS
            )

    def _permanent_locks(
        self, rule_storages: Mapping[Did, AbstractSet[str]]
    ) -> Iterator[tuple[Did, Sequence[Lock]]]:
        """Of rules that tell enough, what their locks would; that costs Rucio a tenth of the same locks."""
        try:
            yield from self._rule_cache.permanent_locks(rule_storages)
        except CatalogueError:
            return  # locks are asked for

    # -- locks of single files

    def _ask_file_locks(self, poll: RucioPoll, dids: AbstractSet[Did]) -> None:
        """Locks of rules that spread files over elements: those (grouping NONE) have none for the dataset."""
        of_did: dict[Did, list[Rule]] = {}
        for did in sorted(dids):
            try:
                found: list[Lock] = []
                for owner in (did, *sorted(self._ancestors(did, poll))):
                    if owner not in of_did:
                        of_did[owner] = self._spreading_rules(owner)
                    for rule in of_did[owner]:
                        found += self._file_locks(did, rule)
                self._dataset_locks[did] = _DatasetLocks(poll.started_at, found)
            except CatalogueError as exc:
                poll.errors[did] = exc

    def _spreading_rules(self, did: Did) -> list[Rule]:
        scope, name = split_did(did)
        found = self._queries.ask(
            lambda client: client.list_did_rules(scope, name),
            lambda rows: parse_rules(rows, "list_did_rules"),
        )
        return [rule for rule in found if rule.grouping == "NONE" and rule.state in UNFINISHED_STATES]

    def _file_locks(self, did: Did, rule: Rule) -> list[Lock]:
        """What *rule* wants of *did*; of a rule for more than *did*, the locks on its files only."""
        rows = self._queries.ask(lambda client: client.list_replica_locks(rule.id), _parse_file_locks)
        mine = None if rule.did == did else self._file_dids(did)
        states = {(storage, state) for file, storage, state in rows if mine is None or file in mine}
        return [Lock(did, storage, state, rule.id) for storage, state in sorted(states)]

    def _file_dids(self, did: Did) -> frozenset[Did | None]:
        scope, name = split_did(did)
        return self._queries.ask(
            lambda client: client.list_files(scope, name),
            lambda rows: frozenset(read_did(require_record(row, "list_files"), "list_files") for row in rows),
        )

    def _ancestors(self, did: Did, poll: RucioPoll) -> frozenset[Did]:
        """The containers *did* is in, at any height, as last looked up."""
        known = self._parents.get(did)
        if known and poll.started_at - known[0] < self._queries.settings.verify_every:
            return known[1]
        self._parents[did] = (poll.started_at, self._query_ancestors(did))
        return self._parents[did][1]

    def _query_ancestors(self, did: Did) -> frozenset[Did]:
        """The containers *did* is in, at any height."""
        found: set[Did] = set()
        todo = [did]
        while todo and len(found) < _MAX_PARENTS:
            scope, name = split_did(todo.pop())
            try:
                above = self._queries.ask(
                    lambda client, scope=scope, name=name: client.list_parent_dids(scope, name),  # type: ignore[misc]
                    lambda rows: {
                        read_did(require_record(row, "list_parent_dids"), "list_parent_dids") for row in rows
                    },
                )
            except NotFound:
                continue
            todo += [each for each in above if each and each not in found]
            found |= {each for each in above if each}
        return frozenset(found)

    # -- rules that are gone

    def storages_needing_history(
        self,
        poll: RucioPoll,
        did: Did,
        complete_storages: AbstractSet[str],
        storages_with_rules: Container[str],
    ) -> frozenset[str]:
        """The elements of *whole*, less those *held*, where the history of its rules is to be asked for.

        None of a dataset whose locks were not asked for yet.
        """
        if did not in self._dataset_locks:
            return frozenset()
        locked = {
            lock.storage
            for lock in self._dataset_locks[did].locks
            if not self._rule_cache.is_deleted(lock.rule)
        }
        past = self._histories.get(did)
        if past and poll.started_at - past.read_at >= self._queries.settings.verify_every:
            past = None
        known = past.storages if past else frozenset()
        return frozenset(
            each for each in complete_storages - known - locked if each not in storages_with_rules
        )

    def read_histories(
        self, poll: RucioPoll, storages_by_did: Mapping[Did, frozenset[str]]
    ) -> Iterator[tuple[Did, Mapping[str, Movement]]]:
        """Each dataset with what rules do at storage elements, once it is known whether rules ended there.

        Data that a rule let go lies there until it is deleted, as data does that never had a rule. Rucio
        tells the two apart in the history of the rules, whoever was there to see them end. Datasets of
        which it cannot be learned are lost; what is only due to be asked again is as it was.
        """
        settings = self._queries.settings

        def turn(did: Did) -> tuple[datetime, Did]:
            asked_at = self._histories[did].read_at if did in self._histories else _NEVER
            return max(asked_at, self._history_failed_at.get(did, _NEVER)), did

        jobs = sorted(storages_by_did, key=turn)
        waiting, jobs = jobs[_MAX_HISTORIES:], jobs[:_MAX_HISTORIES][::-1]
        denials, unanswered = DenialCounter(concurrent_calls=settings.concurrent_calls), 0
        for did, past in self._queries.map_concurrently(
            jobs, lambda each: self._read_history(poll, each, storages_by_did[each])
        ):
            if isinstance(past, CatalogueError):
                poll.errors[did] = past
                self._history_failed_at[did] = poll.started_at
            else:
                known = self._histories.get(did)
                locks = (
                    (*known.locks, *past.locks) if known and known.read_at == poll.started_at else past.locks
                )
                self._histories[did] = replace(past, locks=locks)
                self._ended_storages[did] = self._ended_storages.get(did, frozenset()) | past.ended_storages
            unanswered += is_unanswered(past)
            is_over = (
                self._queries.connection.deadline.remaining_seconds < 0.2 * settings.deadline.total_seconds()
            )
            if denials.is_denied_after(past) or unanswered >= self._queries.max_unanswered or is_over:
                waiting += jobs
                jobs.clear()
        late = CatalogueUnreachable(self._queries.name, "the history of its rules was not asked for in time")
        new = {
            did
            for did in waiting
            if did not in self._histories or storages_by_did[did] - self._histories[did].storages
        }
        poll.errors.update(dict.fromkeys(new, late))
        done = sorted(storages_by_did.keys() - poll.errors.keys())
        self._load_rules(poll, dict.fromkeys(done, True))
        for did in done:
            if did not in poll.errors:
                yield did, self._movements_of(poll, did)

    def _read_history(self, poll: RucioPoll, did: Did, storages: frozenset[str]) -> _RuleHistory:
        """Ask what became of the rules that wanted *did* at *storages*, also of those on its containers."""
        parents = self._parents.get(did)
        fresh = parents and poll.started_at - parents[0] < self._queries.settings.verify_every
        owners = {did, *(parents[1] if parents and fresh else self._query_ancestors(did))}
        locks, ended = [], set[str]()
        for owner in sorted(owners):
            for rule, expression in sorted(self._list_past_rules(owner)):
                here = {each for each in storages if self._may_match(poll, expression, each)}
                if here and self._rule_cache.exists(rule):
                    locks += [Lock(did, each, "OK", rule) for each in sorted(here)]
                else:
                    ended |= here
        return _RuleHistory(
            poll.started_at, storages, locks, frozenset(ended) - {lock.storage for lock in locks}
        )

    def _list_past_rules(self, did: Did) -> frozenset[tuple[str, str]]:
        """All rules that ever were on *did*, with their expressions."""
        scope, name = split_did(did)
        try:
            return self._queries.ask(
                lambda client: client.list_replication_rule_full_history(scope, name), _parse_past_rules
            )
        except NotFound:
            return frozenset()

    def _may_match(self, poll: RucioPoll, expression: str, storage: str) -> bool:
        """Return whether *expression* means *storage*; one that Rucio cannot read any more may have."""
        try:
            return storage in self._rule_cache.resolve_expression(expression, poll.rses, poll.started_at)
        except CatalogueGarbled:
            return True

    # -- what they do

    def _load_rules(self, poll: RucioPoll, settled_by_did: Mapping[Did, bool]) -> None:
        """Learn the rules of all locks; unsettled datasets of which one could not be learned are lost."""
        late: CatalogueError = CatalogueUnreachable(
            self._queries.name, "its rules were not asked for in time"
        )
        try:
            missing = self._rule_cache.load_rules_of(
                lock for did in settled_by_did for lock in self._locks_of(did)
            )
        except CatalogueError as exc:
            known, late = self._rule_cache.rules_by_id, exc
            locks_of_all = (lock.rule for did in settled_by_did for lock in self._locks_of(did))
            missing = frozenset(rule for rule in locks_of_all if rule not in known)
        for did, still in settled_by_did.items():
            if not still and any(lock.rule in missing for lock in self._locks_of(did)):
                poll.errors.setdefault(did, late)

    def _movements_of(self, poll: RucioPoll, did: Did) -> Mapping[str, Movement]:
        held_until = poll.started_at + self._queries.settings.expiry_margin
        lasting = self._movements_of_locks(did, held_until)
        found = dict(lasting)
        for storage, rule in self._rules_without_locks(poll, did):
            found.setdefault(storage, movement_without_locks(rule, held_until=held_until))
        ending = {storage for storage, move in found.items() if move.ends_at and move.ends_at <= held_until}
        ended = self._ended_storages.get(did, frozenset()) - found.keys()
        found.update(
            (storage, Movement(ends_at=poll.started_at, provenance=_LAST_RULE_ENDED)) for storage in ended
        )
        if ending or ended or did in self._ended_storages:
            self._ended_storages[did] = frozenset(ending | ended)
        return lasting if found == lasting else found

    def _movements_of_locks(self, did: Did, held_until: datetime) -> Mapping[str, Movement]:
        """What its locks come to: the same object as in the last poll where nothing of it changed or can."""
        held, known = self._locks_of(did), self._rule_cache.rules_by_id
        rules_now = [known.get(lock.rule) for lock in held]
        before = self._cached_movements.get(did)
        if before and before.locks is held and before.rules == rules_now:
            return before.movements
        found = movements(held, known, held_until=held_until)
        self._cached_movements.pop(did, None)
        if all(rule is None or rule.expires_at is None for rule in rules_now):
            self._cached_movements[did] = _CachedMovements(held, rules_now, found)
        return found

    def _rules_without_locks(self, poll: RucioPoll, did: Did) -> Iterable[tuple[str, Rule]]:
        """Rules without locks that want *did*, where that can be at one site only."""
        if self._pending_rules is None:
            self._pending_rules = self._rule_cache.pending_rules()
        pending = self._pending_rules
        if not pending:
            return
        owners = {did, *poll.parents(did)} | self._parents.get(did, (poll.started_at, frozenset[Did]()))[1]
        for rule in [rule for owner in sorted(owners & pending.keys()) for rule in pending[owner]]:
            try:
                names = self._rule_cache.resolve_expression(rule.expression, poll.rses, poll.started_at)
            except CatalogueError:
                continue  # it is not known where, so nothing is said of anywhere
            disks = sorted(name for name in names if name in poll.rses and not poll.rses[name].is_tape)
            if disks and len({poll.rses[name].sites for name in disks}) == 1:
                yield disks[0], rule


def _parse_past_rules(rows: Iterable[object]) -> frozenset[tuple[str, str]]:
    what = "list_replication_rule_full_history"
    each = (require_record(row, what) for row in rows)
    return frozenset(
        (read_text(row, "rule_id", what), read_text(row, "rse_expression", what)) for row in each
    )


def _parse_file_locks(rows: Iterable[object]) -> set[tuple[Did | None, str, str]]:
    what = "list_replica_locks"
    each = (require_record(row, what) for row in rows)
    return {
        (read_did(row, what), read_text(row, "rse", what), read_choice(LOCK_STATES, row, "state", what))
        for row in each
    }

"""Locks and rules of datasets: which datasets are moving or stuck, and when their rules end.

:class:`LockTracker` is what a poll uses; it reads locks, and the histories of ended rules.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import NamedTuple

from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did, Provenance

from .dids import ParentFinder
from .poll import NEVER, DidErrors, Dids, RucioPoll, StoragesByDid
from .replicas import DatasetCount
from .responses import Record, read_choice, read_name, read_text
from .rse_directory import RseDirectory
from .rules import RuleCache
from .session.client import UnreadableAnswer
from .session.queries import QueryRunner, SeriesGuard, split_did
from .session.transport import NotFound
from .states import (
    LOCK_STATES,
    UNFINISHED_STATES,
    Lock,
    Movement,
    Movements,
    Rule,
    movement_without_locks,
    movements,
    read_lock,
    read_rule,
)

_MAX_HISTORIES = 1000  # in one poll


@dataclass(frozen=True, slots=True)
class _RuleHistory:
    """The history of a dataset's rules at *storages*, the storage elements where the dataset has no lock.

    *locks* has one lock for each existing rule that matches one of *storages*; such a rule holds single
    files. At *ended_storages* all rules have ended.
    """

    read_at: datetime
    storages: AbstractSet[str]
    locks: Sequence[Lock] = ()
    ended_storages: frozenset[str] = frozenset()


class RuleHistories:
    """A cache of rule histories by dataset."""

    def __init__(
        self, queries: QueryRunner, rses: RseDirectory, rule_cache: RuleCache, parents: ParentFinder
    ) -> None:
        self._queries = queries
        self._rses = rses
        self._rule_cache = rule_cache
        self._parents = parents
        self._histories: dict[Did, _RuleHistory] = queries.create_memory()

    def locks_of(self, did: Did) -> Sequence[Lock]:
        """Return locks for the rules that hold single files of *did*."""
        history = self._histories.get(did)
        return history.locks if history else ()

    def storages_to_query(
        self,
        poll: RucioPoll,
        did: Did,
        dataset_locks: Sequence[Lock],
        complete_storages: AbstractSet[str],
        storages_with_rules: Container[str],
    ) -> frozenset[str]:
        """Return the *complete_storages* without rule and lock whose rule history is due for a query."""
        locked = {lock.storage for lock in dataset_locks if not self._rule_cache.is_deleted(lock.rule)}
        history = self._histories.get(did)
        if history and poll.started_at - history.read_at >= self._queries.settings.verify_every:
            history = None
        queried = history.storages if history else frozenset()
        return frozenset(
            each for each in complete_storages - queried - locked if each not in storages_with_rules
        )

    def read(self, poll: RucioPoll, storages_by_did: StoragesByDid) -> StoragesByDid:
        """Query the histories, oldest first; return, by dataset, the storage elements whose rules have ended.

        If a query fails, or if time is too short for a first query, the dataset gets into ``poll.errors``. If
        time is too short for a repeated query, the last history stays valid.
        """
        ended_storages: dict[Did, frozenset[str]] = {}
        in_order = sorted(storages_by_did, key=self._turn)
        waiting, jobs = in_order[_MAX_HISTORIES:], in_order[:_MAX_HISTORIES][::-1]
        task = partial(self._query, poll, storages_by_did)
        guard = SeriesGuard(self._queries, reserve=0.2)
        for did, history in self._queries.run_series(poll, "history", jobs, task, guard):
            if not isinstance(history, CatalogueError):
                previous = self._histories.get(did)
                earlier = previous.locks if previous and previous.read_at == poll.started_at else ()
                self._histories[did] = replace(history, locks=(*earlier, *history.locks))
                ended_storages[did] = history.ended_storages
        late = CatalogueUnreachable(self._queries.name, "no time was left to query the history of its rules")
        poll.errors.update(
            (did, late)
            for did in waiting + jobs
            if did not in self._histories or storages_by_did[did] - self._histories[did].storages
        )
        return ended_storages

    def _turn(self, did: Did) -> tuple[datetime, Did]:
        """Return the sort key of *did*: the time of the last attempt."""
        read_at = self._histories[did].read_at if did in self._histories else NEVER
        return max(read_at, self._queries.failed.failed_at(("history", did))), did

    def _query(self, poll: RucioPoll, storages_by_did: StoragesByDid, did: Did) -> _RuleHistory:
        """Query all rules that ever applied to *did*, or one of its containers, at its storage elements."""
        storages = storages_by_did[did]
        owners = {did, *self._parents.find(did, poll.started_at, keep=False)}
        locks, ended = [], set[str]()
        for owner in sorted(owners):
            for rule, expression in sorted(query_past_rules(self._queries, owner)):
                matches = {each for each in storages if self._may_match(poll, expression, each)}
                if matches and self._rule_cache.exists(rule):
                    locks += [Lock(did, each, "OK", rule) for each in sorted(matches)]
                else:
                    ended |= matches
        return _RuleHistory(
            poll.started_at, storages, locks, frozenset(ended) - {lock.storage for lock in locks}
        )

    def _may_match(self, poll: RucioPoll, expression: str, storage: str) -> bool:
        """Return whether *expression* matches *storage*; True if Rucio can no longer parse the expression."""
        try:
            return storage in self._rses.resolve_expression(expression, poll.started_at)
        except CatalogueGarbled:
            return True


def query_past_rules(queries: QueryRunner, did: Did) -> frozenset[tuple[str, str]]:
    """Return all rules that *did* ever had, with their expressions."""

    def read(row: Record) -> tuple[str, str]:
        return read_text(row, "rule_id"), read_text(row, "rse_expression")

    try:
        return frozenset(queries.ask_rows("list_replication_rule_full_history", *split_did(did), read=read))
    except NotFound:
        return frozenset()


def query_locks(queries: QueryRunner, dids: Dids, errors: DidErrors) -> dict[Did, list[Lock]]:
    """Return the locks of each of the datasets *dids*; one whose query fails gets into *errors*."""
    return queries.query_in_batches(dids, errors, "get_locks_for_dids", read_lock, did_type="dataset")


_UNREADABLE_ROW_ERRORS = (CatalogueGarbled, UnreadableAnswer)
"""Errors for an unreadable row. After any other error the old locks are still the best information."""


class _DatasetLocks(NamedTuple):
    """The locks of a dataset, and the time when they were read."""

    read_at: datetime
    locks: Sequence[Lock]


class LockReader:
    """A reader of locks, with a cache by dataset."""

    def __init__(self, queries: QueryRunner, rule_cache: RuleCache, parents: ParentFinder) -> None:
        self._queries = queries
        self._rule_cache = rule_cache
        self._parents = parents
        self._dataset_locks: dict[Did, _DatasetLocks] = queries.create_memory()

    def locks_of(self, did: Did) -> Sequence[Lock] | None:
        """Return the locks of *did* from the last query, however old; None if there was no query."""
        entry = self._dataset_locks.get(did)
        return entry.locks if entry else None

    def is_due(self, poll: RucioPoll, did: Did, changed_dids: Dids) -> bool:
        """Return whether to query a settled dataset's locks: after ``verify_every``, or if a rule changed."""
        entry = self._dataset_locks.get(did)
        if entry is None or poll.started_at - entry.read_at >= self._queries.settings.verify_every:
            return True
        return bool(changed_dids) and not changed_dids.isdisjoint({did, *poll.parents(did)})

    def read_unsettled(self, poll: RucioPoll, dids: Dids, rule_storages: StoragesByDid) -> None:
        """Query the locks of *dids*; if a dataset has no locks, query the locks on its files.

        A dataset whose locks cannot be read gets into ``poll.errors``.
        """
        self._read(poll, dids, poll.errors, rule_storages)
        self._read_file_locks(
            poll, {did for did in dids - poll.errors.keys() if not self._dataset_locks[did].locks}
        )

    def iter_permanent(
        self, poll: RucioPoll, rule_storages: StoragesByDid
    ) -> Iterator[tuple[Did, Sequence[Lock]]]:
        """Yield datasets whose rules imply their locks; querying rules costs a tenth of querying locks."""
        try:
            for did, locks in self._rule_cache.iter_permanent_locks(rule_storages):
                self._dataset_locks[did] = _DatasetLocks(poll.started_at, locks)
                yield did, locks
        except CatalogueError:
            return  # the caller queries the locks instead

    def read_settled(self, poll: RucioPoll, dids: Dids) -> None:
        """Query the locks of *dids*, the oldest first, until half of the poll's time is over.

        If a query fails, the old locks stay valid. If a row is unreadable, its dataset gets into
        ``poll.errors``.
        """
        settings = self._queries.settings
        due = sorted(
            (self._dataset_locks[did].read_at if did in self._dataset_locks else NEVER, did) for did in dids
        )
        failures: DidErrors = {}
        step = settings.batch
        for start in range(0, len(due), step):
            if self._queries.is_late(0.5):
                return
            self._read(poll, {did for _, did in due[start : start + step]}, failures, {})
            poll.errors.update(
                (did, error) for did, error in failures.items() if type(error) in _UNREADABLE_ROW_ERRORS
            )

    def _read(
        self,
        poll: RucioPoll,
        dids: Dids,
        errors: DidErrors,
        rule_storages: StoragesByDid,
    ) -> None:
        """Query the locks of *dids*; if a lock is missing, query again, as the answer may be incomplete."""
        first = query_locks(self._queries, dids - errors.keys(), errors)
        suspects = {
            did
            for did, locks in first.items()
            if self._is_lock_missing(did, locks, rule_storages.get(did, frozenset()))
        }
        second = query_locks(self._queries, suspects, errors)
        for did in suspects - errors.keys():
            if set(second[did]) != set(first[did]):
                errors[did] = CatalogueGarbled(
                    self._queries.name, f"get_locks_for_dids has two different answers for {did}"
                )
        self._dataset_locks.update(
            (did, _DatasetLocks(poll.started_at, locks)) for did, locks in first.items() if did not in errors
        )

    def _is_lock_missing(self, did: Did, locks: Sequence[Lock], rule_storages: AbstractSet[str]) -> bool:
        """Return whether *locks* lacks a lock that the last answer had and whose rule still exists.

        In the first answer for a dataset, a lock is missing if the summary rows show a rule without its lock.
        """
        last = self._dataset_locks.get(did)
        if last is None:
            return not rule_storages <= {lock.storage for lock in locks}
        present = {(lock.storage, lock.rule) for lock in locks}
        return any(
            (lock.storage, lock.rule) not in present and not self._rule_cache.is_deleted(lock.rule)
            for lock in last.locks
        )

    # -- locks of single files

    def _read_file_locks(self, poll: RucioPoll, dids: Dids) -> None:
        """Query the file locks of rules with grouping NONE; such rules have no dataset locks."""
        rules_of = cache(self._query_spreading_rules)

        def query(did: Did) -> Sequence[Lock]:
            locks: list[Lock] = []
            for owner in (did, *sorted(self._parents.find(did, poll.started_at))):
                for rule in rules_of(owner):
                    locks += self._query_file_locks(did, rule)
            return locks

        failed = self._queries.failed
        jobs = sorted(dids, key=lambda did: (failed.failed_at(("file locks", did)), did), reverse=True)
        guard = SeriesGuard(self._queries, reserve=0.2)
        for did, locks in self._queries.run_series(poll, "file locks", jobs, query, guard):
            if not isinstance(locks, CatalogueError):
                self._dataset_locks[did] = _DatasetLocks(poll.started_at, locks)
        late = CatalogueUnreachable(self._queries.name, "no time was left to query its rules")
        poll.errors.update(dict.fromkeys(jobs, late))

    def _query_spreading_rules(self, did: Did) -> list[Rule]:
        rules = self._queries.ask_rows("list_did_rules", *split_did(did), read=read_rule)
        return [rule for rule in rules if rule.grouping == "NONE" and rule.state in UNFINISHED_STATES]

    def _query_file_locks(self, did: Did, rule: Rule) -> list[Lock]:
        """Return locks of *rule* for the files of *did*: one for each pair of storage element and state."""

        def read(row: Record) -> tuple[Did, str, str]:
            return read_name(row), read_text(row, "rse"), read_choice(LOCK_STATES, row, "state")

        rows = self._queries.ask_rows("list_replica_locks", rule.id, read=read)
        own_files = None
        if rule.did != did:
            own_files = frozenset(self._queries.ask_rows("list_files", *split_did(did), read=read_name))
        states = {(storage, state) for file, storage, state in rows if own_files is None or file in own_files}
        return [Lock(did, storage, state, rule.id) for storage, state in sorted(states)]


_LAST_RULE_ENDED = Provenance(reason="its last rule has ended")


class _CachedMovements(NamedTuple):
    """Movements caused by locks and rules without an end; they change only if a lock or rule changes."""

    locks: Sequence[Lock]
    rules: Mapping[str, Rule]
    movements: Movements


class LockTracker:
    """A tracker of movements, the effects of rules on datasets.

    It queries the locks of unsettled datasets in every poll, and of settled datasets less often.
    A settled dataset is complete at all its storage elements. The daemon needs its locks only
    to know when its rules end, so queries for these locks wait if time is short.
    """

    def __init__(self, queries: QueryRunner, rses: RseDirectory) -> None:
        self._rses = rses
        self._rule_cache = RuleCache(queries)
        self._parents = ParentFinder(queries)
        self._lock_reader = LockReader(queries, self._rule_cache, self._parents)
        self._histories = RuleHistories(queries, rses, self._rule_cache, self._parents)
        self._ended_storages: dict[Did, frozenset[str]] = queries.create_memory()
        self._cached_movements: dict[Did, _CachedMovements] = queries.create_memory()
        self._pending_rules: Mapping[Did, list[Rule]] = {}

    def iter_movements(
        self,
        poll: RucioPoll,
        counts: Mapping[Did, DatasetCount],
    ) -> Iterator[tuple[Did, Movements]]:
        """Yield each dataset of *counts* with its movements by storage element.

        An unsettled dataset whose locks or rules cannot be read gets into ``poll.errors``.
        """
        unsettled = {did for did, count in counts.items() if not count.is_settled}
        try:
            known = (lock for did in counts for lock in self._locks_of(did))
            changed = self._rule_cache.refresh(poll.started_at, known)
        except CatalogueError as exc:
            changed = frozenset()
            poll.errors.update(dict.fromkeys(unsettled, exc))
        self._pending_rules = self._rule_cache.pending_rules()
        rule_storages = {did: count.rule_storages for did, count in counts.items()}
        self._lock_reader.read_unsettled(poll, unsettled, rule_storages)
        settled = counts.keys() - unsettled
        due = {did for did in settled if self._lock_reader.is_due(poll, did, changed)}
        permanent = set()
        for did, _ in self._lock_reader.iter_permanent(poll, {did: rule_storages[did] for did in due}):
            permanent.add(did)
            yield did, self._movements_of(poll, did)
        self._lock_reader.read_settled(poll, due - permanent)
        yield from self._load_and_iter(poll, unsettled, settled - permanent)

    def storages_needing_history(
        self,
        poll: RucioPoll,
        did: Did,
        complete_storages: AbstractSet[str],
        storages_with_rules: Container[str],
    ) -> frozenset[str]:
        """Return the storage elements whose rule history must be queried; none if the locks are unknown."""
        locks = self._lock_reader.locks_of(did)
        if locks is None:
            return frozenset()
        return self._histories.storages_to_query(poll, did, locks, complete_storages, storages_with_rules)

    def iter_histories(
        self, poll: RucioPoll, storages_by_did: StoragesByDid
    ) -> Iterator[tuple[Did, Movements]]:
        """Query histories; then yield each dataset with its movements, including those of ended rules."""
        for did, storages in self._histories.read(poll, storages_by_did).items():
            self._ended_storages[did] = self._ended_storages.get(did, frozenset()) | storages
        yield from self._load_and_iter(poll, frozenset(), storages_by_did.keys() - poll.errors.keys())

    def _load_and_iter(
        self, poll: RucioPoll, unsettled: Dids, settled: Dids
    ) -> Iterator[tuple[Did, Movements]]:
        self._load_rules(poll, unsettled, settled)
        for did in sorted(unsettled | settled):
            if did not in poll.errors:
                yield did, self._movements_of(poll, did)

    def _locks_of(self, did: Did) -> Sequence[Lock]:
        locks, past = self._lock_reader.locks_of(did) or (), self._histories.locks_of(did)
        return [*locks, *past] if past else locks

    def _load_rules(self, poll: RucioPoll, unsettled: Dids, settled: Dids) -> None:
        """Load the rules of all locks.

        If a rule cannot be loaded, each unsettled dataset with a lock of this rule gets an error. For a
        settled one the rule counts as it was last read.
        """
        missing = self._rule_cache.load_rules_of(
            lock for did in unsettled | settled for lock in self._locks_of(did)
        )
        for did in unsettled:
            failed = [missing[lock.rule] for lock in self._locks_of(did) if lock.rule in missing]
            if failed:
                poll.errors.setdefault(did, failed[0])

    def _movements_of(self, poll: RucioPoll, did: Did) -> Movements:
        """Return the movements of *did*; if nothing changed, return the same object as in the last poll."""
        from_locks = self._movements_of_locks(poll, did)
        merged = dict(from_locks)
        for storage, rule in self._rules_without_locks(poll, did):
            merged.setdefault(storage, movement_without_locks(rule, held_until=poll.held_until))
        ending = {
            storage for storage, move in merged.items() if move.ends_at and move.ends_at <= poll.held_until
        }
        ended = self._ended_storages.get(did, frozenset()) - merged.keys()
        merged.update(
            (storage, Movement(ends_at=poll.started_at, provenance=_LAST_RULE_ENDED)) for storage in ended
        )
        if ending or ended or did in self._ended_storages:
            self._ended_storages[did] = frozenset(ending | ended)
        return from_locks if merged == from_locks else merged

    def _movements_of_locks(self, poll: RucioPoll, did: Did) -> Movements:
        locks = self._locks_of(did)
        rules = {lock.rule: rule for lock in locks if (rule := self._rule_cache.find(lock.rule))}
        cached = self._cached_movements.get(did)
        if cached and cached.locks is locks and cached.rules == rules:
            return cached.movements
        new_movements = movements(locks, rules, held_until=poll.held_until)
        self._cached_movements.pop(did, None)
        if all(rule.expires_at is None for rule in rules.values()):
            self._cached_movements[did] = _CachedMovements(locks, rules, new_movements)
        return new_movements

    def _rules_without_locks(self, poll: RucioPoll, did: Did) -> Iterable[tuple[str, Rule]]:
        """Yield the rules without locks that apply to *did* and whose expression matches only one site."""
        pending = self._pending_rules
        if not pending:
            return
        owners = {did, *poll.parents(did), *self._parents.last_parents(did)}
        for rule in [rule for owner in sorted(owners & pending.keys()) for rule in pending[owner]]:
            try:
                names = self._rses.resolve_expression(rule.expression, poll.started_at)
            except CatalogueError:
                continue  # the storage elements of this expression are unknown
            disks = sorted(name for name in names if name in poll.rses and not poll.rses[name].is_tape)
            if disks and len({poll.rses[name].sites for name in disks}) == 1:
                yield disks[0], rule

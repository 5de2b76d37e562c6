"""Locks and rules of datasets: compute their effect, the movements; use caches if nothing changed."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import NamedTuple

from adapters.rucio.datasets.containers import ParentFinder
from adapters.rucio.poll import Dids, RucioPoll, StoragesByDid, drop_all_but
from adapters.rucio.session.connection_pool import BackgroundQuery
from adapters.rucio.session.queries import QueryRunner
from hydrator.domain.errors import CatalogueError, CatalogueUnreachable
from hydrator.domain.model import Did, Provenance

from .cache import RuleCache
from .histories import RuleHistories
from .lock_reader import LockReader
from .model import Lock, Movement, Movements, Rule, movement_without_locks, movements

_LAST_RULE_ENDED = Provenance(reason="whole, but its last rule has ended")


class _CachedMovements(NamedTuple):
    """Movements caused by locks and rules without an end; they change only if a lock or rule changes."""

    locks: Sequence[Lock]
    rules: Sequence[Rule | None]
    movements: Movements


class LockTracker:
    """A tracker of movements, the effects of rules on datasets.

    It queries the locks of unsettled datasets in every poll, and of settled datasets less often.
    A settled dataset is complete at all its storage elements. The daemon needs its locks only
    to know when its rules end, so queries for these locks wait if time is short.
    """

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._rule_cache = RuleCache(queries)
        self._parents = ParentFinder(queries)
        self._lock_reader = LockReader(queries, self._rule_cache, self._parents)
        self._histories = RuleHistories(queries, self._rule_cache, self._parents)
        self._ended_storages: dict[Did, frozenset[str]] = {}
        self._cached_movements: dict[Did, _CachedMovements] = {}
        self._refresh_query = BackgroundQuery[frozenset[Did]](frozenset)
        self._pending_rules: Mapping[Did, list[Rule]] | None = None

    @contextmanager
    def refresh_rules_in_background(self, poll: RucioPoll, dids: Dids) -> Iterator[None]:
        """Query the changed rules in a thread during the ``with`` block; forget all datasets but *dids*."""
        self._lock_reader.forget_all_but(dids)
        self._histories.forget_all_but(dids)
        self._parents.forget_all_but(dids)
        drop_all_but(dids, self._ended_storages, self._cached_movements)
        self._pending_rules = None
        with self._queries.run_in_background(
            lambda: self._rule_cache.refresh(poll.started_at)
        ) as self._refresh_query:
            yield

    def cached_movements(self, poll: RucioPoll, settled_dids: Iterable[Did]) -> Mapping[Did, Movements]:
        """Return the movements of the *settled_dids* that need no further query.

        Return no movements until Rucio has answered the query for changed rules.
        """
        if not self._refresh_query.is_done:
            return {}
        try:
            changed = self._refresh_query.result()
        except CatalogueError:
            changed = frozenset()
        rules = self._rule_cache.rules_by_id
        return {
            did: self._movements_of(poll, did)
            for did in settled_dids
            if not self._lock_reader.is_due(poll, did, changed)
            and all(lock.rule in rules for lock in self._locks_of(did))
        }

    def iter_movements(
        self,
        poll: RucioPoll,
        settled_by_did: Mapping[Did, bool],
        rule_storages: StoragesByDid,
    ) -> Iterator[tuple[Did, Movements]]:
        """Yield each dataset with its movements by storage element, while other datasets are queried.

        An unsettled dataset whose locks or rules cannot be read gets into ``poll.errors``.

        Args:
            poll: the current poll.
            settled_by_did: all datasets with a count; True if nothing of the dataset can be moving.
            rule_storages: by dataset, the storage elements with a rule, from the summary rows.
        """
        unsettled = {did for did, is_settled in settled_by_did.items() if not is_settled}
        try:
            changed = self._refresh_query.result()
        except CatalogueError as exc:
            changed = frozenset()
            poll.errors.update(dict.fromkeys(unsettled, exc))
        self._lock_reader.read_unsettled(poll, unsettled, rule_storages)
        due = {
            did
            for did, is_settled in settled_by_did.items()
            if is_settled and self._lock_reader.is_due(poll, did, changed)
        }
        permanent = set()
        for did, _ in self._lock_reader.iter_permanent(poll, {did: rule_storages[did] for did in due}):
            permanent.add(did)
            yield did, self._movements_of(poll, did)
        self._lock_reader.read_settled(poll, due - permanent)
        yield from self._load_and_iter(
            poll, {did: settled_by_did[did] for did in settled_by_did.keys() - permanent}
        )

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
        yield from self._load_and_iter(poll, dict.fromkeys(storages_by_did.keys() - poll.errors.keys(), True))

    def _load_and_iter(
        self, poll: RucioPoll, settled_by_did: Mapping[Did, bool]
    ) -> Iterator[tuple[Did, Movements]]:
        self._load_rules(poll, settled_by_did)
        for did in sorted(settled_by_did):
            if did not in poll.errors:
                yield did, self._movements_of(poll, did)

    def _locks_of(self, did: Did) -> Sequence[Lock]:
        locks, past = self._lock_reader.locks_of(did) or (), self._histories.locks_of(did)
        return [*locks, *past] if past else locks

    def _load_rules(self, poll: RucioPoll, settled_by_did: Mapping[Did, bool]) -> None:
        """Load the rules of all locks.

        If a rule cannot be loaded, each unsettled dataset with a lock of this rule gets an error.
        """
        late: CatalogueError = CatalogueUnreachable(self._queries.name, "no time was left to query its rules")
        try:
            missing = self._rule_cache.load_rules_of(
                lock for did in settled_by_did for lock in self._locks_of(did)
            )
        except CatalogueError as exc:
            cached_rules, late = self._rule_cache.rules_by_id, exc
            rule_ids = (lock.rule for did in settled_by_did for lock in self._locks_of(did))
            missing = frozenset(rule for rule in rule_ids if rule not in cached_rules)
        for did, is_settled in settled_by_did.items():
            if not is_settled and any(lock.rule in missing for lock in self._locks_of(did)):
                poll.errors.setdefault(did, late)

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
        locks, cached_rules = self._locks_of(did), self._rule_cache.rules_by_id
        rules = [cached_rules.get(lock.rule) for lock in locks]
        cached = self._cached_movements.get(did)
        if cached and cached.locks is locks and cached.rules == rules:
            return cached.movements
        new_movements = movements(locks, cached_rules, held_until=poll.held_until)
        self._cached_movements.pop(did, None)
        if all(rule is None or rule.expires_at is None for rule in rules):
            self._cached_movements[did] = _CachedMovements(locks, rules, new_movements)
        return new_movements

    def _rules_without_locks(self, poll: RucioPoll, did: Did) -> Iterable[tuple[str, Rule]]:
        """Yield the rules without locks that apply to *did* and whose expression matches only one site."""
        if self._pending_rules is None:
            self._pending_rules = self._rule_cache.pending_rules()
        pending = self._pending_rules
        if not pending:
            return
        owners = {did, *poll.parents(did), *self._parents.last_parents(did)}
        for rule in [rule for owner in sorted(owners & pending.keys()) for rule in pending[owner]]:
            try:
                names = self._rule_cache.resolve_expression(rule.expression, poll.rses, poll.started_at)
            except CatalogueError:
                continue  # the storage elements of this expression are unknown
            disks = sorted(name for name in names if name in poll.rses and not poll.rses[name].is_tape)
            if disks and len({poll.rses[name].sites for name in disks}) == 1:
                yield disks[0], rule

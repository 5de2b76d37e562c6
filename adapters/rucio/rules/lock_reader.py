"""Locks of datasets: query them in bulk or file by file, or derive them from rules without an end."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import NamedTuple

from adapters.rucio.datasets.containers import ParentFinder
from adapters.rucio.poll import NEVER, DidErrors, Dids, RucioPoll, StoragesByDid, drop_all_but
from adapters.rucio.responses import Rows, iter_records, read_choice, read_did, read_text
from adapters.rucio.session.client import UnreadableAnswer
from adapters.rucio.session.queries import QueryRunner, split_did
from hydrator.domain.errors import CatalogueError, CatalogueGarbled
from hydrator.domain.model import Did

from .cache import RuleCache
from .model import LOCK_STATES, UNFINISHED_STATES, Lock, Rule, parse_locks, parse_rules

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
        self._dataset_locks: dict[Did, _DatasetLocks] = {}

    def forget_all_but(self, dids: Dids) -> None:
        """Forget the locks of all datasets but *dids*."""
        drop_all_but(dids, self._dataset_locks)

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
        step = settings.batch * settings.concurrent_calls
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
        first = self._query(dids - errors.keys(), errors)
        suspects = {
            did
            for did, locks in first.items()
            if self._is_lock_missing(did, locks, rule_storages.get(did, frozenset()))
        }
        second = self._query(suspects, errors)
        for did in suspects - errors.keys():
            if set(second[did]) != set(first[did]):
                errors[did] = CatalogueGarbled(
                    self._queries.name, f"get_locks_for_dids has two different answers for {did}"
                )
        self._dataset_locks.update(
            (did, _DatasetLocks(poll.started_at, locks)) for did, locks in first.items() if did not in errors
        )

    def _query(self, dids: Dids, errors: DidErrors) -> Mapping[Did, Sequence[Lock]]:
        locks_by_did: dict[Did, list[Lock]] = {did: [] for did in dids}
        answers = self._queries.query_in_batches(
            dids,
            errors,
            lambda client, batch: client.get_locks_for_dids([{**did, "type": "dataset"} for did in batch]),
            lambda answer: parse_locks(answer, "get_locks_for_dids"),
        )
        for lock in answers:
            locks_by_did[lock.did].append(lock)
        return {did: locks for did, locks in locks_by_did.items() if did not in errors}

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
        rules_by_owner: dict[Did, list[Rule]] = {}
        for did in sorted(dids):
            try:
                locks: list[Lock] = []
                for owner in (did, *sorted(self._parents.find(did, poll.started_at))):
                    if owner not in rules_by_owner:
                        rules_by_owner[owner] = self._query_spreading_rules(owner)
                    for rule in rules_by_owner[owner]:
                        locks += self._query_file_locks(did, rule)
                self._dataset_locks[did] = _DatasetLocks(poll.started_at, locks)
            except CatalogueError as exc:
                poll.errors[did] = exc

    def _query_spreading_rules(self, did: Did) -> list[Rule]:
        rules = self._queries.ask(
            lambda client: client.list_did_rules(*split_did(did)),
            lambda rows: parse_rules(rows, "list_did_rules"),
        )
        return [rule for rule in rules if rule.grouping == "NONE" and rule.state in UNFINISHED_STATES]

    def _query_file_locks(self, did: Did, rule: Rule) -> list[Lock]:
        """Return locks of *rule* for the files of *did*: one for each pair of storage element and state."""
        rows = self._queries.ask(lambda client: client.list_replica_locks(rule.id), _parse_file_locks)
        own_files = None if rule.did == did else self._query_file_dids(did)
        states = {(storage, state) for file, storage, state in rows if own_files is None or file in own_files}
        return [Lock(did, storage, state, rule.id) for storage, state in sorted(states)]

    def _query_file_dids(self, did: Did) -> frozenset[Did | None]:
        return self._queries.ask(
            lambda client: client.list_files(*split_did(did)),
            lambda rows: frozenset(read_did(row, "list_files") for row in iter_records(rows, "list_files")),
        )


def _parse_file_locks(rows: Rows) -> set[tuple[Did | None, str, str]]:
    call = "list_replica_locks"
    return {
        (read_did(row, call), read_text(row, "rse", call), read_choice(LOCK_STATES, row, "state", call))
        for row in iter_records(rows, call)
    }

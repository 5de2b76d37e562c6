"""Rule histories: find out whether a rule that held a complete copy has ended.

After a rule ends, its data stays until Rucio deletes the data. Other data never had a rule and stays, too.
Only the history of the rules shows the difference, even for rules that ended before the daemon started.
"""

from collections.abc import Container, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime

from adapters.rucio.datasets.containers import ParentFinder
from adapters.rucio.poll import NEVER, Dids, RucioPoll, StoragesByDid, drop_all_but
from adapters.rucio.responses import Rows, iter_records, read_text
from adapters.rucio.session.queries import QueryRunner, SeriesGuard, split_did
from adapters.rucio.session.transport import NotFound
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did

from .cache import RuleCache
from .model import Lock

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

    def __init__(self, queries: QueryRunner, rule_cache: RuleCache, parents: ParentFinder) -> None:
        self._queries = queries
        self._rule_cache = rule_cache
        self._parents = parents
        self._histories: dict[Did, _RuleHistory] = {}
        self._failed_at: dict[Did, datetime] = {}

    def forget_all_but(self, dids: Dids) -> None:
        """Forget the histories of all datasets but *dids*."""
        drop_all_but(dids, self._histories, self._failed_at)

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
        guard = SeriesGuard(self._queries, reserve=0.2)
        for did, history in self._queries.map_concurrently(
            jobs, lambda each: self._query(poll, each, storages_by_did[each])
        ):
            if isinstance(history, CatalogueError):
                poll.errors[did] = history
                self._failed_at[did] = poll.started_at
            else:
                previous = self._histories.get(did)
                earlier = previous.locks if previous and previous.read_at == poll.started_at else ()
                self._histories[did] = replace(history, locks=(*earlier, *history.locks))
                ended_storages[did] = history.ended_storages
            if guard.should_stop_after(history):
                waiting += jobs
                jobs.clear()
        late = CatalogueUnreachable(self._queries.name, "no time was left to query the history of its rules")
        poll.errors.update(
            (did, late)
            for did in waiting
            if did not in self._histories or storages_by_did[did] - self._histories[did].storages
        )
        return ended_storages

    def _turn(self, did: Did) -> tuple[datetime, Did]:
        """Return the sort key of *did*: the time of the last attempt."""
        read_at = self._histories[did].read_at if did in self._histories else NEVER
        return max(read_at, self._failed_at.get(did, NEVER)), did

    def _query(self, poll: RucioPoll, did: Did, storages: AbstractSet[str]) -> _RuleHistory:
        """Query all rules that ever applied to *did*, or one of its containers, at *storages*."""
        owners = {did, *self._parents.find(did, poll.started_at, keep=False)}
        locks, ended = [], set[str]()
        for owner in sorted(owners):
            for rule, expression in sorted(self._query_past_rules(owner)):
                matches = {each for each in storages if self._may_match(poll, expression, each)}
                if matches and self._rule_cache.exists(rule):
                    locks += [Lock(did, each, "OK", rule) for each in sorted(matches)]
                else:
                    ended |= matches
        return _RuleHistory(
            poll.started_at, storages, locks, frozenset(ended) - {lock.storage for lock in locks}
        )

    def _query_past_rules(self, did: Did) -> frozenset[tuple[str, str]]:
        """Return all rules that *did* ever had, with their expressions."""
        try:
            return self._queries.ask(
                lambda client: client.list_replication_rule_full_history(*split_did(did)), _parse_past_rules
            )
        except NotFound:
            return frozenset()

    def _may_match(self, poll: RucioPoll, expression: str, storage: str) -> bool:
        """Return whether *expression* matches *storage*; True if Rucio can no longer parse the expression."""
        try:
            return storage in self._rule_cache.resolve_expression(expression, poll.rses, poll.started_at)
        except CatalogueGarbled:
            return True


def _parse_past_rules(rows: Rows) -> frozenset[tuple[str, str]]:
    call = "list_replication_rule_full_history"
    return frozenset(
        (read_text(row, "rule_id", call), read_text(row, "rse_expression", call))
        for row in iter_records(rows, call)
    )

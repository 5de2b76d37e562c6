"""Rule search: find the rules of every account for a dataset, so that nothing is asked for twice.

A query for locks shows, in bulk, which rules keep or bring a dataset to which storage element. It does not
show rules without dataset locks: rules that wait for approval or for their injection, and rules that spread
single files (grouping NONE). So a dataset without a lock at the sites of the search is looked up by itself:
the rules on it, and the rules on the containers that it is in. An empty answer about locks is not believed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from adapters.rucio.dids import ContainerLister, DidResolver, ParentFinder
from adapters.rucio.poll import DidErrors, Dids
from adapters.rucio.responses import Rows, iter_records, parse_deep_rows, read_text
from adapters.rucio.rule_cache import RuleCache
from adapters.rucio.session.queries import QueryRunner, split_did
from adapters.rucio.session.transport import NotFound
from adapters.rucio.states import (
    LOCK_STATES,
    PENDING_STATES,
    Lock,
    Rule,
    parse_locks,
    parse_rules,
    request_state,
)
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import ExistingRule

from .destinations import Destinations
from .own_rules import OwnRule

_MAX_HISTORIES = 50
"""Datasets of one container whose past rules are read; for more, the answer is that they have none."""


class RuleSearch:
    """A search for the rules of every account; it asks Rucio and uses no answer older than one call."""

    def __init__(self, queries: QueryRunner, destinations: Destinations) -> None:
        self._queries = queries
        self._destinations = destinations
        self._rule_cache = RuleCache(queries)
        self._parents = ParentFinder(queries)
        self._resolver = DidResolver(queries)
        self._container_lister = ContainerLister(queries)

    def find(
        self, dids: Dids, sites: AbstractSet[Site], own: Mapping[str, OwnRule], now: datetime
    ) -> list[ExistingRule]:
        """Return the rules for *dids* at *sites* that have not ended; *own* has the rules of ours by id.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """
        self._rule_cache.refresh(now)
        errors: DidErrors = {}
        kinds = {did: info.kind for did, info in self._resolver.resolve_uncached(dids, errors).items()}
        datasets = {did for did, kind in kinds.items() if kind == "DATASET"}
        locks = self._query_locks(datasets, errors)
        if errors:
            raise errors[min(errors)]
        rules = self._load_rules([lock for each in locks.values() for lock in each])
        found: dict[tuple[Did, str, str], ExistingRule] = {}

        def keep(did: Did, rule: Rule, storage: str, state: str) -> bool:
            here = self._destinations.disk_sites_of(storage) & sites
            is_current = rule.expires_at is None or rule.expires_at > now
            for site in here if is_current else ():
                found[did, rule.id, site] = self._build(did, site, storage, rule, state, own)
            return bool(here) and is_current

        for did in sorted(did for did, kind in kinds.items() if kind != "ABSENT"):
            known = [lock for lock in locks.get(did, ()) if lock.rule in rules]
            matches = [keep(did, rules[lock.rule], lock.storage, lock.state) for lock in known]
            if not any(matches):
                locked = frozenset(lock.rule for lock in locks.get(did, ()))
                for rule, storage in self._iter_rules_without_locks(did, locked, sites, now):
                    keep(did, rule, storage, rule.state)
        return list(found.values())

    def _build(
        self, did: Did, site: Site, storage: str, rule: Rule, state: str, own: Mapping[str, OwnRule]
    ) -> ExistingRule:
        decisive = rule.state if rule.state not in LOCK_STATES else state
        tag = own[rule.id].mark.tag if rule.id in own else ""
        request = request_state(decisive, rule.error)
        return ExistingRule(did, site, storage, request, rule.account, rule.id, tag, rule.expires_at)

    def _load_rules(self, locks: Sequence[Lock]) -> Mapping[str, Rule]:
        """Return the rules of *locks* by id, without those that were deleted meanwhile."""
        if self._rule_cache.load_rules_of(locks):
            raise CatalogueUnreachable(self._queries.name, "no time was left to query the rules of locks")
        ids = {lock.rule for lock in locks}
        rules = {each: rule for each, rule in self._rule_cache.rules_by_id.items() if each in ids}
        self._require_readable(rules.values())
        return rules

    def _query_locks(self, datasets: Dids, errors: DidErrors) -> Mapping[Did, Sequence[Lock]]:
        locks: dict[Did, list[Lock]] = {did: [] for did in datasets}
        answers = self._queries.query_in_batches(
            datasets,
            errors,
            lambda client, batch: client.get_locks_for_dids([{**did, "type": "dataset"} for did in batch]),
            lambda answer: parse_locks(answer, "get_locks_for_dids"),
        )
        for lock in answers:
            locks[lock.did].append(lock)
        return locks

    def _iter_rules_without_locks(
        self, did: Did, locked: AbstractSet[str], sites: AbstractSet[Site], now: datetime
    ) -> Iterator[tuple[Rule, str]]:
        """Yield the rules on *did* and on its containers that may be at *sites*, with a storage element.

        The locks of the rules *locked* are known, and are elsewhere. Any other rule counts, also one that
        should have locks: Rucio has not made them yet, or its answer about locks was empty.
        """
        for owner in (did, *sorted(self._parents.find(did, now))):
            if self._queries.is_late(0.1):
                raise CatalogueUnreachable(self._queries.name, "no time was left to query all rules")
            for rule in self._query_rules_on(owner):
                if rule.id in locked and rule.state not in PENDING_STATES:
                    continue
                for storage in self._storages_of(rule, sites, now):
                    yield rule, storage

    def _query_rules_on(self, owner: Did) -> list[Rule]:
        try:
            rules = self._queries.ask(
                lambda client: client.list_did_rules(*split_did(owner)),
                lambda rows: parse_rules(rows, "list_did_rules"),
            )
        except NotFound:
            return []
        self._require_readable(rules)
        return rules

    def _storages_of(self, rule: Rule, sites: AbstractSet[Site], now: datetime) -> frozenset[str]:
        """Return the storage elements of *rule* at *sites*.

        If the rule had a choice, they are those with its files, and none if its files are at several sites.
        If no file of the rule is known, they are all that it could choose.
        """
        matches = self._rule_cache.resolve_expression(rule.expression, self._destinations.rses, now)
        here = frozenset(each for each in matches if self._destinations.disk_sites_of(each) & sites)
        if not here or len(matches) == 1 or rule.state in PENDING_STATES:
            return here
        used = self._queries.ask(lambda client: client.list_replica_locks(rule.id), _parse_lock_storages)
        if not used:
            return here
        common = frozenset(sites).intersection(*(self._destinations.disk_sites_of(each) for each in used))
        return here & used if common else frozenset()

    def _require_readable(self, rules: Iterable[Rule]) -> None:
        for rule in rules:
            if rule.fault:
                raise CatalogueGarbled(self._queries.name, rule.fault)

    # -- data without rules

    def find_files_without_rule(
        self, storages: Mapping[Did, str], now: datetime
    ) -> Mapping[Did, bool | CatalogueError]:
        """Return, by DID, whether its storage element has files that no rule keeps there, and none ever kept.

        Rucio never deletes such files by itself. But after the end of a rule on them it may.

        Args:
            storages: one storage element for each DID.

        Raises:
            CatalogueError: Rucio did not answer for any DID.
        """
        errors: DidErrors = {}
        infos = self._resolver.resolve_uncached(storages.keys(), errors)
        members = {did: self._members(did, infos[did].kind) for did in storages.keys() - errors.keys()}
        locks = self._query_locks(frozenset().union(*members.values()), errors)
        results: dict[Did, bool | CatalogueError] = dict(errors)
        for did, datasets in members.items():
            try:
                failed = next((errors[each] for each in sorted(datasets) if each in errors), None)
                results[did] = failed or self._has_bare_files(did, datasets, locks, storages[did], now)
            except CatalogueError as error:
                results[did] = error
        return results

    def _members(self, did: Did, kind: str) -> frozenset[Did]:
        return self._container_lister.list_members(did) if kind == "CONTAINER" else frozenset({did})

    def _has_bare_files(
        self, did: Did, datasets: Dids, locks: Mapping[Did, Sequence[Lock]], storage: str, now: datetime
    ) -> bool:
        unlocked = sorted(
            each for each in datasets if storage not in {lock.storage for lock in locks.get(each, ())}
        )
        suspects = [each for each in unlocked if self._has_files(each, storage)]
        if not suspects or (did not in suspects and self._had_rule(did, storage, now)):
            return False
        return len(suspects) > _MAX_HISTORIES or any(
            not any(self._had_rule(owner, storage, now) for owner in (each, *self._parents.find(each, now)))
            for each in suspects
        )

    def _has_files(self, did: Did, storage: str) -> bool:
        rows = self._queries.ask(
            lambda client: client.list_dataset_replicas(*split_did(did), deep=True),
            lambda answer: parse_deep_rows(did, answer),
        )
        return any(row.storage == storage and row.amount.available_length > 0 for row in rows)

    def _had_rule(self, did: Did, storage: str, now: datetime) -> bool:
        try:
            expressions = self._queries.ask(
                lambda client: client.list_replication_rule_full_history(*split_did(did)), _parse_expressions
            )
        except NotFound:
            return False
        return any(self._matches(expression, storage, now) for expression in expressions)

    def _matches(self, expression: str, storage: str, now: datetime) -> bool:
        try:
            return storage in self._rule_cache.resolve_expression(expression, self._destinations.rses, now)
        except CatalogueGarbled:
            return False  # Rucio can no longer parse the expression


def _parse_lock_storages(rows: Rows) -> frozenset[str]:
    call = "list_replica_locks"
    return frozenset(read_text(row, "rse", call) for row in iter_records(rows, call))


def _parse_expressions(rows: Rows) -> frozenset[str]:
    call = "list_replication_rule_full_history"
    return frozenset(read_text(row, "rse_expression", call) for row in iter_records(rows, call))

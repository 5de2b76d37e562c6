"""Rule cache: query a rule of Rucio once, then only if it changed, and again after ``verify_every``.

A query for changed rules does not show deleted rules. So the cache is emptied once in ``verify_every``.
The cache has all rules of the server that have no locks yet (waiting for approval, or INJECT).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice

from hydrator.domain.errors import CatalogueError, CatalogueUnreachable
from hydrator.domain.model import Did

from .poll import StoragesByDid
from .responses import BadRow, Record, iter_records, read_text, require_record
from .session.queries import QueryRunner, split_did
from .session.transport import FAILURES_ALONE, InvalidRequest, NotFound, ServerFault
from .states import PENDING_STATES, Lock, Rule, parse_rules

# a query also asks for changes in the 2 minutes before the last query: Rucio commits some changes late
_OVERLAP = timedelta(minutes=2)
_MIN_RULES_FOR_SCOPE_QUERY = 20  # with so many unknown rules or more, list all rules of the scope
_MAX_RULES_PER_SCOPE = 20_000
_MAX_RULES_PER_DATASET = 5  # reading more rules costs more than querying the locks
_MAX_FAILED = 20  # of so many rules that cannot be read alone, the poll asks about no further one
_MAX_LISTED_PER_RULE = 20  # a query for one rule costs as much as some fifty rules in a list
_RULE_CALL = "get_replication_rule"
_RFC1123 = "%a, %d %b %Y %H:%M:%S UTC"


@dataclass
class _CachedRules:
    """The cached rules.

    *read_at* is the time when the cache was last emptied, and *former* what it had then. *asked_at* is the
    time of the last query, by the server's clock.
    """

    read_at: datetime
    asked_at: datetime
    rules: dict[str, Rule] = field(default_factory=dict)
    former: Mapping[str, Rule] = field(default_factory=dict)
    deleted_ids: set[str] = field(default_factory=set)


def require_rule(answer: object, rule: str) -> Record:
    """Return *answer* if it is the row of the rule with the id *rule*.

    Raises:
        BadRow: it is about another rule, or not a record.
    """
    row = require_record(answer, _RULE_CALL)
    if row.get("id") != rule:
        raise BadRow(f"the query was for rule {rule}, the answer is about rule {str(row.get('id'))[:80]}")
    return row


class RuleCache:
    """A cache of rules by their ids; :meth:`refresh` updates it."""

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._cache: _CachedRules | None = None
        self._storages_by_expression: dict[str, tuple[datetime, frozenset[str]]] = {}

    def refresh(self, now: datetime) -> frozenset[Did]:
        """Update the cache; return the DIDs whose rules changed.

        Raises:
            CatalogueError: the query failed; the cache is unchanged.
        """
        page, asked_at = self._cache, self._queries.connection.server_time or now
        if page is None or now - page.read_at >= self._queries.settings.verify_every:
            fresh: dict[str, Rule] = {}
            for state in sorted(PENDING_STATES.values()):
                fresh.update(self._list_rules({"state": state}))
            self._cache = _CachedRules(now, asked_at, fresh, {**page.former, **page.rules} if page else {})
            return frozenset()
        since = (page.asked_at - _OVERLAP).astimezone(UTC).strftime(_RFC1123)
        try:
            changed = self._list_rules({"updated_after": since})
        except (InvalidRequest, ServerFault):  # the server cannot list changed rules: read all rules again
            self._cache = None
            return self.refresh(now)
        page.asked_at = asked_at
        touched = {rule.did for rule in changed.values() if rule.did and page.rules.get(rule.id) != rule}
        page.rules.update(
            (key, rule) for key, rule in changed.items() if key in page.rules or rule.state in PENDING_STATES
        )
        page.deleted_ids -= changed.keys()
        return frozenset(touched)

    @property
    def rules_by_id(self) -> Mapping[str, Rule]:
        """Return the cached rules, by their ids."""
        return self._cache.rules if self._cache else {}

    def find(self, rule: str) -> Rule | None:
        """Return the rule with this id as it was last read; None if it was deleted, or never read."""
        page = self._cache
        if page is None or rule in page.deleted_ids:
            return None
        return page.rules.get(rule) or page.former.get(rule)

    def load_rules_of(self, locks: Iterable[Lock]) -> Mapping[str, CatalogueError]:
        """Query the rules of *locks* that are not cached; return the errors of those still missing, by id."""
        page = self._cache
        if page is None:
            return {}
        unknown: dict[str, set[str]] = {}
        for lock in locks:
            if lock.rule not in page.rules and lock.rule not in page.deleted_ids:
                unknown.setdefault(split_did(lock.did)[0], set()).add(lock.rule)
        missing: dict[str, CatalogueError] = {}
        for scope, ids in sorted(unknown.items()):
            if len(ids) >= _MIN_RULES_FOR_SCOPE_QUERY:
                max_rules = max(_MAX_RULES_PER_SCOPE, _MAX_LISTED_PER_RULE * len(ids))
                try:
                    listed = self._list_rules({"scope": scope}, max_rules)
                except CatalogueError as exc:
                    missing |= dict.fromkeys(ids, exc)
                    continue
                page.rules.update((key, rule) for key, rule in listed.items() if key in ids)
        todo = sorted(set().union(*unknown.values()) - page.rules.keys() - missing.keys(), reverse=True)
        return missing | self._fetch_rules(page, todo)

    def _fetch_rules(self, page: _CachedRules, todo: list[str]) -> dict[str, CatalogueError]:
        """Query the rules *todo*, from last to first; return the errors of those that stay unknown."""
        missing: dict[str, CatalogueError] = {}
        failure: CatalogueError | None = None
        while todo and failure is None:
            rule = todo.pop()
            try:
                page.rules[rule] = self._fetch_rule(rule)
            except NotFound:
                page.deleted_ids.add(rule)
            except CatalogueError as exc:
                missing[rule] = exc
                if not isinstance(exc, FAILURES_ALONE) or len(missing) >= _MAX_FAILED:
                    failure = exc
            if failure is None and self._queries.is_late(0.3):
                failure = CatalogueUnreachable(self._queries.name, "no time was left to query its rules")
        return missing | {rule: failure for rule in todo if failure}

    def iter_permanent_locks(self, rule_storages: StoragesByDid) -> Iterator[tuple[Did, Sequence[Lock]]]:
        """Yield, with its locks, each dataset that has a permanent rule for each of its *rule_storages*.

        A rule implies its lock if it has no end, is on the dataset itself, and its expression is the name of
        one storage element. Other datasets are skipped: a rule of a container, or with another expression,
        may hold them.

        Raises:
            CatalogueError: the rules of a scope cannot be listed.
        """
        by_scope: dict[str, list[Did]] = {}
        for did in sorted(rule_storages):
            by_scope.setdefault(split_did(did)[0], []).append(did)
        for scope, dids in by_scope.items():
            if self._cache and len(dids) >= _MIN_RULES_FOR_SCOPE_QUERY:
                rules_by_did = {did: dict[str, Rule]() for did in dids if rule_storages[did]}
                listed = self._list_rules({"scope": scope}, _MAX_RULES_PER_DATASET * len(dids))
                for rule in listed.values():
                    rules = rules_by_did.get(rule.did) if rule.did else None
                    if rules is None or rule.did is None or rule.state != "OK" or rule.expires_at is not None:
                        continue
                    rules[rule.expression] = rule
                    if rule_storages[rule.did] <= rules.keys():
                        del rules_by_did[rule.did]
                        holding = [rules[name] for name in sorted(rule_storages[rule.did])]
                        self._cache.rules.update((each.id, each) for each in holding)
                        yield rule.did, [Lock(rule.did, each.expression, "OK", each.id) for each in holding]

    def pending_rules(self) -> Mapping[Did, list[Rule]]:
        """Return, by DID, the rules that have no locks yet."""
        rules_by_did: dict[Did, list[Rule]] = {}
        for rule in self.rules_by_id.values():
            if rule.did and rule.state in PENDING_STATES:
                rules_by_did.setdefault(rule.did, []).append(rule)
        return rules_by_did

    def resolve_expression(self, expression: str, storages: Iterable[str], now: datetime) -> frozenset[str]:
        """Return the storage elements that *expression* matches.

        Raises:
            CatalogueError: the query failed.
        """
        if expression in storages:
            return frozenset({expression})
        cached = self._storages_by_expression.get(expression)
        if cached and now - cached[0] < self._queries.settings.attributes_every:
            return cached[1]
        storages_now = self._queries.ask(
            lambda client: client.list_rses(rse_expression=expression),
            lambda rows: frozenset(
                read_text(row, "rse", "list_rses") for row in iter_records(rows, "list_rses")
            ),
        )
        self._storages_by_expression[expression] = (now, storages_now)
        return storages_now

    def is_deleted(self, rule: str) -> bool:
        """Return whether Rucio answered 404 for the rule with this id."""
        return self._cache is not None and rule in self._cache.deleted_ids

    def exists(self, rule: str) -> bool:
        """Return whether the rule with this id still exists.

        Raises:
            CatalogueError: the query failed.
        """
        if rule in self.rules_by_id:
            return True
        try:
            self._fetch_rule(rule)
        except NotFound:
            return False
        return True

    def _list_rules(self, filters: Mapping[str, str], max_rules: int | None = None) -> dict[str, Rule]:
        rules = self._queries.ask(
            lambda client: islice(client.list_replication_rules(dict(filters)), max_rules),
            lambda rows: parse_rules(rows, "list_replication_rules"),
        )
        return {rule.id: rule for rule in rules}

    def _fetch_rule(self, rule: str) -> Rule:
        return self._queries.ask(
            lambda client: client.get_replication_rule(rule),
            lambda row: parse_rules([require_rule(row, rule)], _RULE_CALL)[0],
        )

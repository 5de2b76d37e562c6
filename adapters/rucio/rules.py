"""Rules by their ids, and a cache of them: query a rule once, then only if it changed.

The cache asks about a rule again after ``verify_every``: a query for changed rules does not show deleted
rules. The cache has all rules of the server that have no locks yet (waiting for approval, or INJECT).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from adapters.untrusted_text import quote_excerpt
from hydrator.domain.errors import CatalogueError, CatalogueUnreachable
from hydrator.domain.model import Did
from hydrator.domain.text import group_pairs

from .poll import StoragesByDid
from .responses import BadRow, Record, read_text, require_record
from .session.queries import QueryRunner, split_did
from .session.transport import FAILURES_ALONE, InvalidRequest, NotFound, ServerFault
from .states import PENDING_STATES, Lock, Rule, read_rule

T = TypeVar("T")
# a query also asks for changes in the 2 minutes before the last query: Rucio commits some changes late
_OVERLAP = timedelta(minutes=2)
_MIN_RULES_FOR_SCOPE_QUERY = 20  # with so many unknown rules or more, list all rules of the scope
_MAX_RULES_PER_SCOPE = 20_000
_MAX_RULES_PER_DATASET = 5  # reading more rules costs more than querying the locks
_MAX_FAILED = 20  # of so many rules that cannot be read alone, the poll asks about no further one
_MAX_LISTED_PER_RULE = 20  # a query for one rule costs as much as some fifty rules in a list
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


def fetch_rule(queries: QueryRunner, rule: str, read: Callable[[Record], T]) -> T:
    """Return what *read* makes of the row of the rule with the id *rule*.

    Raises:
        CatalogueError: the answer is missing, or about another rule. NotFound: Rucio does not have the rule.
    """

    def read_answer(answer: object) -> T:
        row = require_record(answer)
        if row.get("id") != rule:
            raise BadRow(f"the query was for rule {rule}, the answer is about {quote_excerpt(row.get('id'))}")
        return read(row)

    return queries.ask("get_replication_rule", rule, read=read_answer)


def fetch_rules(
    queries: QueryRunner, ids: Iterable[str], read: Callable[[Record], T], reserve: float = 0.0
) -> dict[str, T | CatalogueError | None]:
    """Return what *read* makes of the rules, by id; the error of a query that failed; None after a 404.

    Query one by one, until less than the fraction *reserve* of the poll's time is left.
    """
    found: dict[str, T | CatalogueError | None] = {}
    todo = sorted(ids, reverse=True)
    failure: CatalogueError | None = None
    failed_count = 0
    while todo and failure is None:
        rule = todo.pop()
        try:
            found[rule] = fetch_rule(queries, rule, read)
        except NotFound:
            found[rule] = None
        except CatalogueError as exc:
            found[rule], failed_count = exc, failed_count + 1
            if not isinstance(exc, FAILURES_ALONE) or failed_count >= _MAX_FAILED:
                failure = exc
        if failure is None and queries.is_late(reserve):
            failure = CatalogueUnreachable(queries.name, "no time was left to query its rules")
    return found | dict.fromkeys(todo, failure)


def fetch_rules_of(
    queries: QueryRunner, locks: Iterable[Lock], read: Callable[[Record], T], reserve: float = 0.0
) -> dict[str, T | CatalogueError | None]:
    """Return the rules of *locks*; see :func:`fetch_rules`.

    Many rules of datasets in one scope are read from the list of the scope's rules.
    """
    ids_by_scope: dict[str, set[str]] = {}
    for lock in locks:
        ids_by_scope.setdefault(split_did(lock.did)[0], set()).add(lock.rule)
    found: dict[str, T | CatalogueError | None] = {}
    for scope, ids in sorted(ids_by_scope.items()):
        if len(ids) >= _MIN_RULES_FOR_SCOPE_QUERY:
            limit = max(_MAX_RULES_PER_SCOPE, _MAX_LISTED_PER_RULE * len(ids))
            try:
                found |= dict(_list_rules_of(queries, scope, ids, read, limit))
            except CatalogueError as exc:
                found |= dict.fromkeys(ids, exc)
    todo = set().union(*ids_by_scope.values()) - found.keys()
    return found | fetch_rules(queries, todo, read, reserve)


def _list_rules_of(
    queries: QueryRunner, scope: str, ids: AbstractSet[str], read: Callable[[Record], T], limit: int
) -> list[tuple[str, T]]:
    """Return those of the rules *ids* that the list of the scope's rules has and *read* can read."""

    def read_wanted(row: Record) -> tuple[str, T] | None:
        rule = read_text(row, "id")
        with suppress(BadRow):
            return (rule, read(row)) if rule in ids else None
        return None

    rows = queries.ask_rows("list_replication_rules", {"scope": scope}, read=read_wanted, limit=limit)
    return [row for row in rows if row]


class RuleCache:
    """A cache of rules by their ids; :meth:`refresh` updates it."""

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._cache: _CachedRules | None = None

    def refresh(self, now: datetime, locks: Iterable[Lock]) -> frozenset[Did]:
        """Update the cache; return the DIDs whose rules changed.

        When the cache is emptied, the rules of *locks*, all that are known, stay as former rules.

        Raises:
            CatalogueError: the query failed; the cache is unchanged.
        """
        page, asked_at = self._cache, self._queries.connection.server_time or now
        changed: dict[str, Rule] | None = None
        if page and now - page.read_at < self._queries.settings.verify_every:
            since = (page.asked_at - _OVERLAP).astimezone(UTC).strftime(_RFC1123)
            with suppress(InvalidRequest, ServerFault):  # it cannot list changed rules: read all rules again
                changed = self._list_rules({"updated_after": since})
        if page is None or changed is None:
            fresh: dict[str, Rule] = {}
            for state in sorted(PENDING_STATES.values()):
                fresh.update(self._list_rules({"state": state}))
            known = {**page.former, **page.rules} if page else {}
            former = {lock.rule: known[lock.rule] for lock in locks if lock.rule in known}
            self._cache = _CachedRules(now, asked_at, fresh, former)
            return frozenset()
        page.asked_at = asked_at
        touched = {rule.did for rule in changed.values() if page.rules.get(rule.id) != rule}
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
        unknown = (
            lock for lock in locks if lock.rule not in page.rules and lock.rule not in page.deleted_ids
        )
        missing: dict[str, CatalogueError] = {}
        for key, rule in fetch_rules_of(self._queries, unknown, read_rule, reserve=0.3).items():
            if rule is None:
                page.deleted_ids.add(key)
            elif isinstance(rule, CatalogueError):
                missing[key] = rule
            else:
                page.rules[key] = rule
        return missing

    def iter_permanent_locks(self, rule_storages: StoragesByDid) -> Iterator[tuple[Did, Sequence[Lock]]]:
        """Yield, with its locks, each dataset that has a permanent rule for each of its *rule_storages*.

        A rule implies its lock if it has no end, is on the dataset itself, and its expression is the name of
        one storage element. Other datasets are skipped: a rule of a container, or with another expression,
        may hold them.

        Raises:
            CatalogueError: the rules of a scope cannot be listed.
        """
        by_scope = group_pairs((split_did(did)[0], did) for did in sorted(rule_storages))
        for scope, dids in by_scope.items():
            if self._cache and len(dids) >= _MIN_RULES_FOR_SCOPE_QUERY:
                rules_by_did = {did: dict[str, Rule]() for did in dids if rule_storages[did]}
                listed = self._list_rules({"scope": scope}, _MAX_RULES_PER_DATASET * len(dids))
                for rule in listed.values():
                    rules = rules_by_did.get(rule.did)
                    if rules is None or rule.state != "OK" or rule.expires_at is not None:
                        continue
                    rules[rule.expression] = rule
                    if rule_storages[rule.did] <= rules.keys():
                        del rules_by_did[rule.did]
                        holding = [rules[name] for name in sorted(rule_storages[rule.did])]
                        self._cache.rules.update((each.id, each) for each in holding)
                        yield rule.did, [Lock(rule.did, each.expression, "OK", each.id) for each in holding]

    def pending_rules(self) -> Mapping[Did, list[Rule]]:
        """Return, by DID, the rules that have no locks yet."""
        pending = (rule for rule in self.rules_by_id.values() if rule.state in PENDING_STATES)
        return group_pairs((rule.did, rule) for rule in pending)

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
            fetch_rule(self._queries, rule, read_rule)
        except NotFound:
            return False
        return True

    def _list_rules(self, filters: Mapping[str, str], limit: int | None = None) -> dict[str, Rule]:
        rules = self._queries.ask_rows("list_replication_rules", filters, read=read_rule, limit=limit)
        return {rule.id: rule for rule in rules}

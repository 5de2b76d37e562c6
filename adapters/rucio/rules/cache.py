"""Rucio's rules, remembered: read once, then only those that changed, and all anew now and then.

A deletion shows in no delta, so what is remembered is dropped every ``verify_every``.
Rules without locks yet (to be approved, to be injected) are kept whoever they are for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice

from adapters.rucio.responses import read_text, require_record
from adapters.rucio.session.queries import QueryRunner, split_did
from adapters.rucio.session.transport import InvalidRequest, NotFound, ServerFault
from hydrator.domain.model import Did

from .model import PENDING_STATES, Lock, Rule, iter_rules, parse_rules

_OVERLAP = timedelta(minutes=2)  # transactions that were open when we asked last
_MIN_RULES_FOR_SCOPE_QUERY = 20  # so many unknown rules of one scope are asked for together
_MAX_RULES_PER_SCOPE = 20_000
_MAX_RULES_PER_DATASET = 5  # more in a list than that cost more than the locks they stand for
_MAX_LISTED_PER_RULE = 20  # a rule asked for alone costs as much as some fifty in a list
_RFC1123 = "%a, %d %b %Y %H:%M:%S UTC"


@dataclass
class _CachedRules:
    """What was read since the last sweep at *at*; *asked_at* is the server's time at the last question."""

    read_at: datetime
    asked_at: datetime
    rules: dict[str, Rule] = field(default_factory=dict)
    deleted_ids: set[str] = field(default_factory=set)


class RuleCache:
    """Rules by their ids, as fresh as the last :meth:`refresh`."""

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._cache: _CachedRules | None = None
        self._storages_by_expression: dict[str, tuple[datetime, frozenset[str]]] = {}

    def refresh(self, now: datetime) -> frozenset[Did]:
        """Bring what is remembered up to date; the DIDs whose rules changed.

        Raises:
            CatalogueError: it could not be learned; what is remembered is as old as it was.
        """
        page, asked_at = self._cache, self._queries.connection.server_time or now
        if page is None or now - page.read_at >= self._queries.settings.verify_every:
            fresh: dict[str, Rule] = {}
            for state in sorted(PENDING_STATES.values()):
                fresh.update(self._list_rules({"state": state}))
            self._cache = _CachedRules(now, asked_at, fresh)
            return frozenset()
        since = (page.asked_at - _OVERLAP).astimezone(UTC).strftime(_RFC1123)
        try:
            changed = self._list_rules({"updated_after": since})
        except (InvalidRequest, ServerFault):  # a server that cannot tell what changed: read it all anew
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
        """The rules learned so far, by their ids."""
        return self._cache.rules if self._cache else {}

    def load_rules_of(self, locks: Iterable[Lock]) -> frozenset[str]:
        """Ask for the rules of *locks* that are not known; those that there was no time for are returned.

        Raises:
            CatalogueError: they could not be learned.
        """
        page = self._cache
        if page is None:
            return frozenset(lock.rule for lock in locks)
        unknown: dict[str, set[str]] = {}
        for lock in locks:
            if lock.rule not in page.rules and lock.rule not in page.deleted_ids:
                unknown.setdefault(split_did(lock.did)[0], set()).add(lock.rule)
        for scope, ids in sorted(unknown.items()):
            if len(ids) >= _MIN_RULES_FOR_SCOPE_QUERY:
                most = max(_MAX_RULES_PER_SCOPE, _MAX_LISTED_PER_RULE * len(ids))
                listed = self._list_rules({"scope": scope}, max_rules=most)
                page.rules.update((key, rule) for key, rule in listed.items() if key in ids)
        left = sorted({each for ids in unknown.values() for each in ids} - page.rules.keys())
        reserve = 0.3 * self._queries.settings.deadline.total_seconds()
        for place, each in enumerate(left):
            if self._queries.connection.deadline.remaining_seconds < reserve:
                return frozenset(left[place:])
            try:
                page.rules[each] = self._fetch_rule(each)
            except NotFound:
                page.deleted_ids.add(each)
        return frozenset()

    def permanent_locks(
        self, rule_storages: Mapping[Did, AbstractSet[str]]
    ) -> Iterator[tuple[Did, Sequence[Lock]]]:
        """The locks of those datasets that rules of their own hold for good wherever they are *held*.

        They come as they are found, while the rest is listed. A rule without an end on the dataset
        itself, at one storage element by its name, tells all that its lock would. Of others nothing
        is said: a container's rule may hold them, or an expression.

        Raises:
            CatalogueError: the rules of a scope could not be listed.
        """
        by_scope: dict[str, list[Did]] = {}
        for did in sorted(rule_storages):
            by_scope.setdefault(split_did(did)[0], []).append(did)
        for scope, dids in by_scope.items():
            if self._cache and len(dids) >= _MIN_RULES_FOR_SCOPE_QUERY:
                own = {did: dict[str, Rule]() for did in dids if rule_storages[did]}
                for rule in self._stream_rules({"scope": scope}, _MAX_RULES_PER_DATASET * len(dids)):
                    mine = own.get(rule.did) if rule.did else None
                    if mine is None or rule.did is None or rule.state != "OK" or rule.expires_at is not None:
                        continue
                    mine[rule.expression] = rule
                    if rule_storages[rule.did] <= mine.keys():
                        del own[rule.did]
                        all_of_it = [mine[name] for name in sorted(rule_storages[rule.did])]
                        self._cache.rules.update((each.id, each) for each in all_of_it)
                        yield rule.did, [Lock(rule.did, each.expression, "OK", each.id) for each in all_of_it]

    def pending_rules(self) -> Mapping[Did, list[Rule]]:
        """By DID, the rules on it that have no locks yet."""
        found: dict[Did, list[Rule]] = {}
        for rule in self.rules_by_id.values():
            if rule.did and rule.state in PENDING_STATES:
                found.setdefault(rule.did, []).append(rule)
        return found

    def resolve_expression(self, expression: str, storages: Iterable[str], now: datetime) -> frozenset[str]:
        """The storage elements that *expression* means.

        Raises:
            CatalogueError: they could not be learned.
        """
        if expression in storages:
            return frozenset({expression})
        known = self._storages_by_expression.get(expression)
        if known and now - known[0] < self._queries.settings.attributes_every:
            return known[1]
        found = self._queries.ask(
            lambda client: client.list_rses(rse_expression=expression),
            lambda rows: frozenset(
                read_text(require_record(row, "list_rses"), "rse", "list_rses") for row in rows
            ),
        )
        self._storages_by_expression[expression] = (now, found)
        return found

    def is_deleted(self, rule: str) -> bool:
        """Return whether Rucio said that it has no rule with this id any more."""
        return self._cache is not None and rule in self._cache.deleted_ids

    def exists(self, rule: str) -> bool:
        """Return whether there still is a rule with this id.

        Raises:
            CatalogueError: it could not be learned.
        """
        if rule in self.rules_by_id:
            return True
        try:
            self._fetch_rule(rule)
        except NotFound:
            return False
        return True

    def _stream_rules(self, filters: Mapping[str, str], max_rules: int) -> Iterator[Rule]:
        """The rules of a list of up to *most*, while others are under way."""
        for bunch in self._queries.stream(
            lambda client: islice(client.list_replication_rules(dict(filters)), max_rules),
            lambda rows: iter_rules(rows, "list_replication_rules"),
        ):
            yield from bunch

    def _list_rules(self, filters: Mapping[str, str], max_rules: int | None = None) -> dict[str, Rule]:
        found = self._queries.ask(
            lambda client: islice(client.list_replication_rules(dict(filters)), max_rules),
            lambda rows: parse_rules(rows, "list_replication_rules"),
        )
        return {rule.id: rule for rule in found}

    def _fetch_rule(self, rule: str) -> Rule:
        found = self._queries.ask(
            lambda client: client.get_replication_rule(rule),
            lambda row: parse_rules([row], "get_replication_rule")[0],
        )
        if found.id == rule:
            return found
        return Rule(rule, None, "", "", fault=f"asked for rule {rule}, it told of rule {found.id[:80]}")

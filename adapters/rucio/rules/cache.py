"""Rucio's rules, remembered: read once, then only those that changed, and all anew now and then.

A deletion shows in no delta, so what is remembered is dropped every ``verify_every``.
Rules without locks yet (to be approved, to be injected) are kept whoever they are for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice

from adapters.rucio.responses import record, text
from adapters.rucio.session.client import NotFound, Refused, Stumbled
from adapters.rucio.session.queries import Asker, split
from hydrator.domain.model import Did

from .model import PENDING, Lock, Rule, each_rule, rules

_OVERLAP = timedelta(minutes=2)  # transactions that were open when we asked last
_A_SCOPE_FROM = 20  # so many unknown rules of one scope are asked for together
_MOST_OF_A_SCOPE = 20_000
_RULES_A_DATASET = 5  # more in a list than that cost more than the locks they stand for
_MOST_FOR_ONE = 20  # a rule asked for alone costs as much as some fifty in a list
_RFC1123 = "%a, %d %b %Y %H:%M:%S UTC"


@dataclass
class _Page:
    """What was read since the last sweep at *at*; *asked_at* is the server's time at the last question."""

    at: datetime
    asked_at: datetime
    rules: dict[str, Rule] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)


class RuleBook:
    """Rules by their ids, as fresh as the last :meth:`refresh`."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._page: _Page | None = None
        self._places: dict[str, tuple[datetime, frozenset[str]]] = {}

    def refresh(self, now: datetime) -> frozenset[Did]:
        """Bring what is remembered up to date; the DIDs whose rules changed.

        Raises:
            CatalogueError: it could not be learned; what is remembered is as old as it was.
        """
        page, asked_at = self._page, self._asker.connection.server_time or now
        if page is None or now - page.at >= self._asker.settings.verify_every:
            fresh: dict[str, Rule] = {}
            for state in sorted(PENDING.values()):
                fresh.update(self._listed({"state": state}))
            self._page = _Page(now, asked_at, fresh)
            return frozenset()
        since = (page.asked_at - _OVERLAP).astimezone(UTC).strftime(_RFC1123)
        try:
            changed = self._listed({"updated_after": since})
        except (Refused, Stumbled):  # a server that cannot tell what changed: read it all anew
            self._page = None
            return self.refresh(now)
        page.asked_at = asked_at
        touched = {rule.did for rule in changed.values() if rule.did and page.rules.get(rule.id) != rule}
        page.rules.update(
            (key, rule) for key, rule in changed.items() if key in page.rules or rule.state in PENDING
        )
        page.gone -= changed.keys()
        return frozenset(touched)

    @property
    def known(self) -> Mapping[str, Rule]:
        """The rules learned so far, by their ids."""
        return self._page.rules if self._page else {}

    def learn(self, locks: Iterable[Lock]) -> frozenset[str]:
        """Ask for the rules of *locks* that are not known; those that there was no time for are returned.

        Raises:
            CatalogueError: they could not be learned.
        """
        page = self._page
        if page is None:
            return frozenset(lock.rule for lock in locks)
        unknown: dict[str, set[str]] = {}
        for lock in locks:
            if lock.rule not in page.rules and lock.rule not in page.gone:
                unknown.setdefault(split(lock.did)[0], set()).add(lock.rule)
        for scope, ids in sorted(unknown.items()):
            if len(ids) >= _A_SCOPE_FROM:
                most = max(_MOST_OF_A_SCOPE, _MOST_FOR_ONE * len(ids))
                listed = self._listed({"scope": scope}, most=most)
                page.rules.update((key, rule) for key, rule in listed.items() if key in ids)
        left = sorted({each for ids in unknown.values() for each in ids} - page.rules.keys())
        reserve = 0.3 * self._asker.settings.deadline.total_seconds()
        for place, each in enumerate(left):
            if self._asker.connection.deadline.left < reserve:
                return frozenset(left[place:])
            try:
                page.rules[each] = self._one(each)
            except NotFound:
                page.gone.add(each)
        return frozenset()

    def lasting(self, held: Mapping[Did, AbstractSet[str]]) -> Iterator[tuple[Did, Sequence[Lock]]]:
        """The locks of those datasets that rules of their own hold for good wherever they are *held*.

        They come as they are found, while the rest is listed. A rule without an end on the dataset
        itself, at one storage element by its name, tells all that its lock would. Of others nothing
        is said: a container's rule may hold them, or an expression.

        Raises:
            CatalogueError: the rules of a scope could not be listed.
        """
        by_scope: dict[str, list[Did]] = {}
        for did in sorted(held):
            by_scope.setdefault(split(did)[0], []).append(did)
        for scope, dids in by_scope.items():
            if self._page and len(dids) >= _A_SCOPE_FROM:
                own = {did: dict[str, Rule]() for did in dids if held[did]}
                for rule in self._coming({"scope": scope}, _RULES_A_DATASET * len(dids)):
                    mine = own.get(rule.did) if rule.did else None
                    if mine is None or rule.did is None or rule.state != "OK" or rule.expires_at is not None:
                        continue
                    mine[rule.expression] = rule
                    if held[rule.did] <= mine.keys():
                        del own[rule.did]
                        all_of_it = [mine[name] for name in sorted(held[rule.did])]
                        self._page.rules.update((each.id, each) for each in all_of_it)
                        yield rule.did, [Lock(rule.did, each.expression, "OK", each.id) for each in all_of_it]

    def pending(self) -> Mapping[Did, list[Rule]]:
        """By DID, the rules on it that have no locks yet."""
        found: dict[Did, list[Rule]] = {}
        for rule in self.known.values():
            if rule.did and rule.state in PENDING:
                found.setdefault(rule.did, []).append(rule)
        return found

    def places(self, expression: str, storages: Iterable[str], now: datetime) -> frozenset[str]:
        """The storage elements that *expression* means.

        Raises:
            CatalogueError: they could not be learned.
        """
        if expression in storages:
            return frozenset({expression})
        known = self._places.get(expression)
        if known and now - known[0] < self._asker.settings.attributes_every:
            return known[1]
        found = self._asker.ask(
            lambda client: client.list_rses(rse_expression=expression),
            lambda rows: frozenset(text(record(row, "list_rses"), "rse", "list_rses") for row in rows),
        )
        self._places[expression] = (now, found)
        return found

    def is_gone(self, rule: str) -> bool:
        """Return whether Rucio said that it has no rule with this id any more."""
        return self._page is not None and rule in self._page.gone

    def exists(self, rule: str) -> bool:
        """Return whether there still is a rule with this id.

        Raises:
            CatalogueError: it could not be learned.
        """
        if rule in self.known:
            return True
        try:
            self._one(rule)
        except NotFound:
            return False
        return True

    def _coming(self, filters: Mapping[str, str], most: int) -> Iterator[Rule]:
        """The rules of a list of up to *most*, while others are under way."""
        for bunch in self._asker.as_they_come(
            lambda client: islice(client.list_replication_rules(dict(filters)), most),
            lambda rows: each_rule(rows, "list_replication_rules"),
        ):
            yield from bunch

    def _listed(self, filters: Mapping[str, str], most: int | None = None) -> dict[str, Rule]:
        found = self._asker.ask(
            lambda client: islice(client.list_replication_rules(dict(filters)), most),
            lambda rows: rules(rows, "list_replication_rules"),
        )
        return {rule.id: rule for rule in found}

    def _one(self, rule: str) -> Rule:
        found = self._asker.ask(
            lambda client: client.get_replication_rule(rule),
            lambda row: rules([row], "get_replication_rule")[0],
        )
        if found.id == rule:
            return found
        return Rule(rule, None, "", "", fault=f"asked for rule {rule}, it told of rule {found.id[:80]}")

"""Account rules: the rules of ours that Rucio has now, all of them or one."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice

from adapters.rucio.responses import BadRow, Rows
from adapters.rucio.session.queries import QueryRunner
from adapters.rucio.session.transport import NotFound
from hydrator.domain.errors import CatalogueGarbled
from hydrator.domain.ports import Clock
from hydrator.domain.ports.staging import OwnRequest, RefusalKind, StagingRefused

from .own_rules import OwnRule, iter_account_rules, iter_own_rules

_LIST_CALL, _GET_CALL = "list_replication_rules", "get_replication_rule"
_MAX_RULES = 200_000
_MAX_CONFIRMATIONS = 20
"""Rules that vanished from the list and are queried one by one; further ones are believed to be deleted."""


class AccountRules:
    """The rules with our account and our mark; one query lists them all, however many requests are active."""

    def __init__(self, queries: QueryRunner, clock: Clock) -> None:
        self._queries = queries
        self._clock = clock
        self._account = queries.settings.account
        self._seen: dict[str, tuple[datetime, OwnRule]] = {}

    @property
    def earlier_time(self) -> datetime:
        """The earlier of Rucio's time and our own: a rule has ended only if it has ended for both clocks."""
        now = self._clock()
        return min(now, self._queries.connection.server_time or now)

    def list_all(self, filters: Mapping[str, str] | None = None) -> list[OwnRule]:
        """Return all rules of ours that match *filters*, also ended ones that Rucio has not deleted yet.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """
        wanted = {"account": self._account, **(filters or {})}
        return self._queries.ask(
            lambda client: islice(client.list_replication_rules(wanted), _MAX_RULES + 1),
            lambda rows: list(iter_account_rules(_limit(rows), self._account, _LIST_CALL)),
        )

    def list_active(self) -> list[OwnRule]:
        """Return all rules of ours that have not ended; remember them for :meth:`find`.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """
        rules, now = self.list_all(), self._clock()
        self._check_against_last(rules)
        active = [rule for rule in rules if not rule.has_ended(self.earlier_time)]
        self._seen = {rule.id: (now, rule) for rule in active}
        return active

    def _check_against_last(self, rules: Sequence[OwnRule]) -> None:
        """Compare *rules* with the last answer: no rule changes its DID, and a missing rule must be deleted.

        Raises:
            CatalogueError: the answer is incomplete or about other rules, or that cannot be found out.
        """
        by_id = {rule.id: rule for rule in rules}
        last = {handle: rule for handle, (_, rule) in self._seen.items()}
        for handle in sorted(last.keys() & by_id.keys()):
            if by_id[handle].did != last[handle].did:
                reason = f"the rule {handle} of {last[handle].did} is now for {by_id[handle].did}"
                raise CatalogueGarbled(self._queries.name, f"{_LIST_CALL}: {reason}")
        for handle in sorted(last.keys() - by_id.keys())[:_MAX_CONFIRMATIONS]:
            if self._query(handle) is not None:
                raise CatalogueGarbled(self._queries.name, f"{_LIST_CALL} omits the rule {handle}")

    def find(self, request: OwnRequest, max_age: timedelta) -> OwnRule | None:
        """Return the rule of *request*, from an answer of at most *max_age*; None if it has ended.

        Raises:
            StagingRefused: the rule does not have our account and the tag of *request*.
            CatalogueError: the query failed.
        """
        read_at, rule = self._seen.get(request.handle, (None, None))
        if read_at is None or self._clock() - read_at > max_age:
            rule = self._query(request.handle)
        if rule is not None and rule.mark.tag != request.tag:
            raise self._not_ours(request.handle)
        return None if rule is None or rule.has_ended(self.earlier_time) else rule

    def forget(self, handle: str) -> None:
        """Query the rule *handle* again when it is needed."""
        self._seen.pop(handle, None)

    def _query(self, handle: str) -> OwnRule | None:
        try:
            rules = self._queries.ask(
                lambda client: client.get_replication_rule(handle),
                lambda row: list(iter_own_rules([row], self._account, _GET_CALL)),
            )
        except NotFound:
            return None
        if not rules or rules[0].id != handle:
            raise self._not_ours(handle)
        return rules[0]

    def _not_ours(self, handle: str) -> StagingRefused:
        reason = f"the rule {handle} does not have our account and our tag"
        return StagingRefused(self._queries.name, reason, RefusalKind.NOT_OURS)


def _limit(rows: Rows) -> Iterator[object]:
    """Yield *rows*; raise BadRow if there are too many: the rows after them are missing."""
    for number, row in enumerate(rows):
        if number == _MAX_RULES:
            raise BadRow(f"{_LIST_CALL}: the account has more than {_MAX_RULES} rules")
        yield row

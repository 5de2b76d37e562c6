"""Rule writer: add rules of ours, change their lifetimes and end them; each write is sent at most once."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from adapters.rucio.responses import BadRow
from adapters.rucio.session.client import RucioClient
from adapters.rucio.session.queries import QueryRunner, did_record, split_did
from adapters.rucio.session.writes import WriteRefused
from hydrator.domain.errors import CatalogueError
from hydrator.domain.ports.staging import (
    OwnRequest,
    RefusalKind,
    StagingError,
    StagingKind,
    StagingOrder,
    StagingRefused,
    StagingUnavailable,
)

from .account_rules import AccountRules
from .destinations import Destinations
from .own_rules import build_comment
from .refusals import translate_error

T = TypeVar("T")
_LAST_LIFETIME_SECONDS = 5
"""The remaining lifetime of a cancelled rule."""


class RuleWriter:
    """A writer of rules; it never locks a rule, never purges files, and changes only rules of ours."""

    def __init__(
        self, queries: QueryRunner, destinations: Destinations, account_rules: AccountRules, activity: str
    ) -> None:
        self._queries = queries
        self._destinations = destinations
        self._account_rules = account_rules
        self._activity = activity

    def send(self, call: Callable[[RucioClient], object], read: Callable[[object], T]) -> T:
        """Send one write; pass its answer to *read*; see :meth:`RucioConnection.write` for the errors."""
        return self._queries.connection.write(lambda client: read(call(client)))

    def add(self, order: StagingOrder, storage: str) -> OwnRequest | StagingError:
        """Add the rule for *order* at *storage*; if Rucio has it already, return the one it has."""
        rule: dict[str, Any] = {
            "dids": [did_record(order.did)],
            "copies": 1,
            "rse_expression": storage,
            "lifetime": _whole_seconds(order.lifetime),
            "grouping": "DATASET",
            "notify": "P",
            "activity": self._activity,
            "source_replica_expression": self._destinations.source_expression(order, storage),
            "ignore_availability": order.kind is StagingKind.PIN,
            "comment": build_comment(order),
        }
        try:
            handle = self.send(lambda client: client.add_replication_rule(**rule), _read_rule_id)
        except WriteRefused as error:
            if error.kind == "DuplicateRule":
                return self._adopt(order, storage)
            return self.translate(error, "add", order.did, storage)
        except CatalogueError as error:
            return self.translate(error, "add", order.did, storage)
        return OwnRequest(order.tag, handle, order.kind, order.site, order.did)

    def _adopt(self, order: StagingOrder, storage: str) -> OwnRequest | StagingError:
        """Return the rule of this account that made *order* a duplicate, if it has the tag of *order*.

        If it is a rule of ours that has ended and that Rucio has not deleted yet, begin it again for *order*.
        """
        name = self._queries.name
        try:
            rules = self._account_rules.list_all({"scope": split_did(order.did)[0]})
        except CatalogueError as error:
            return StagingUnavailable(name, error.reason)
        rule = next((each for each in rules if (each.did, each.storage) == (order.did, storage)), None)
        if rule is None:
            reason = f"this account has a rule for {order.did} at {storage} that is not ours"
            return StagingRefused(name, reason, RefusalKind.NOT_OURS)
        has_ended = rule.has_ended(self._account_rules.earlier_time)
        if rule.mark.tag == order.tag and not has_ended:
            return rule.request
        if not has_ended:
            return StagingRefused(name, f"the rule {rule.id} of the request {rule.mark.tag} exists already")
        try:
            self.change(
                rule.id, {"lifetime": _whole_seconds(order.lifetime), "comment": build_comment(order)}
            )
        except WriteRefused as error:
            reason = f"Rucio has not deleted the ended rule {rule.id} of an earlier request: {error.reason}"
            return StagingUnavailable(name, reason)
        except CatalogueError as error:
            return self.translate(error, "renew", order.did, storage)
        return OwnRequest(order.tag, rule.id, order.kind, order.site, order.did)

    def renew(self, rule: str, lifetime: timedelta) -> None:
        """Let *rule* end *lifetime* after now."""
        self.change(rule, {"lifetime": _whole_seconds(lifetime)})

    def end(self, rule: str) -> None:
        """End *rule*: shorten its lifetime, or delete it where this account may only do that."""
        try:
            self.change(rule, {"lifetime": _LAST_LIFETIME_SECONDS})
        except WriteRefused as error:
            if error.kind != "AccessDenied":
                raise
            self.send(lambda client: client.delete_replication_rule(rule, purge_replicas=False), bool)

    def change(self, rule: str, options: Mapping[str, object]) -> None:
        """Change *options* of *rule*."""
        self.send(lambda client: client.update_replication_rule(rule, options=dict(options)), bool)

    def translate(self, error: CatalogueError, verb: str, subject: str, storage: str = "") -> StagingError:
        """Return the error of the port for *error*; see :func:`translate_error`."""
        account, activity = self._queries.settings.account, self._activity
        return translate_error(
            error, verb=verb, subject=subject, account=account, storage=storage, activity=activity
        )


def _whole_seconds(lifetime: timedelta) -> int:
    return max(1, round(lifetime.total_seconds()))


def _read_rule_id(answer: object) -> str:
    """Return the id of the new rule.

    Raises:
        BadRow: the answer is not a list with one id, so the outcome is unknown.
    """
    if not isinstance(answer, list) or len(answer) != 1 or not isinstance(answer[0], str) or not answer[0]:
        raise BadRow(f"add_replication_rule: expected one rule id, got {str(answer)[:80]!r}")
    return answer[0]

"""Rule writer: add rules of ours, change their lifetimes and end them; each write is sent at most once.

Each refusal of Rucio becomes one sentence, with what to do about it.
"""

import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from adapters.rucio.responses import BadRow
from adapters.rucio.session.client import RucioClient
from adapters.rucio.session.queries import QueryRunner, did_record, split_did
from adapters.rucio.session.transport import WriteRefused, WriteUnconfirmed
from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueGarbled
from hydrator.domain.staging_ports import (
    OwnRequest,
    RefusalKind,
    StagingError,
    StagingKind,
    StagingOrder,
    StagingOutcomeUnknown,
    StagingPermissions,
    StagingRefused,
    StagingUnavailable,
)

from .destinations import Destinations
from .own_rules import AccountRules, build_comment

_KINDS = {
    "AccessDenied": RefusalKind.PERMISSION,
    "InsufficientAccountLimit": RefusalKind.QUOTA,
    "RSEOverQuota": RefusalKind.QUOTA,
    "InsufficientTargetRSEs": RefusalKind.CLOSED,
    "RSEWriteBlocked": RefusalKind.CLOSED,
    "RSENotFound": RefusalKind.CLOSED,
    "InvalidRSEExpression": RefusalKind.CLOSED,
    "DataIdentifierNotFound": RefusalKind.UNKNOWN_DATASET,
    "InvalidSourceReplicaExpression": RefusalKind.NO_SOURCE,
}
_TEMPORARY = frozenset({"ReplicationRuleCreationTemporaryFailed"})


def translate_error(
    error: CatalogueError, *, verb: str, subject: str, account: str, storage: str = "", activity: str = ""
) -> StagingError:
    """Return the error of the port for the *error* of a write.

    Args:
        verb: what the write was to do with rules: add, renew or cancel.
        subject: the DID or the rule.
        account: the account that sent the write.
        storage: the RSE of a new rule.
        activity: the configured activity of a new rule.
    """
    name = error.catalogue
    if isinstance(error, StagingError):
        return error
    if isinstance(error, WriteUnconfirmed):
        return StagingOutcomeUnknown(name, f"no usable answer to {verb} a rule: {error.reason}")
    if isinstance(error, CatalogueDenied):
        reason = f"Rucio refuses the login of account {account}: {error.reason}"
        return StagingRefused(name, reason, RefusalKind.PERMISSION)
    if not isinstance(error, WriteRefused) or error.kind in _TEMPORARY:
        return StagingUnavailable(name, error.reason)
    kind = _KINDS.get(error.kind, RefusalKind.OTHER)
    if error.kind == "InvalidObject" and activity and f"'{activity}' is not one of" in error.reason:
        kind = RefusalKind.ACTIVITY
    sentences = {
        RefusalKind.PERMISSION: f"account {account} may not {verb} rules; ask Rucio's administrators for it",
        RefusalKind.QUOTA: f"account {account} has no quota left at {storage}; ask for a larger limit",
        RefusalKind.ACTIVITY: f"Rucio does not have the activity {activity!r}; set activity to one it has",
        RefusalKind.CLOSED: f"{storage} takes no data now ({error.kind})",
        RefusalKind.UNKNOWN_DATASET: f"Rucio does not have {subject}",
        RefusalKind.NO_SOURCE: f"no storage element that may send {subject} exists",
    }
    sentence = sentences.get(kind, f"Rucio refuses to {verb} a rule for {subject} ({error.kind})")
    return StagingRefused(name, f"{sentence}: {error.reason}", kind)


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


_NO_RULE = "0" * 32


class PermissionProbe:
    """A probe of permissions.

    It adds a rule for a DID that does not exist, and changes a rule that does not exist. Rucio checks the
    permission first, then the quota and the RSE, and the DID or the rule last.
    """

    def __init__(
        self, name: str, account: str, activity: str, writer: RuleWriter, destinations: Destinations
    ) -> None:
        self._name = name
        self._account = account
        self._activity = activity
        self._writer = writer
        self._destinations = destinations

    def probe(self) -> StagingPermissions:
        """Return the permissions.

        Raises:
            CatalogueError: Rucio gave no answer.
        """
        can_ask, note = self._probe_add()
        can_renew = self._probe_change(
            lambda client: client.update_replication_rule(_NO_RULE, {"lifetime": 60})
        )
        can_delete = self._probe_change(lambda client: client.delete_replication_rule(_NO_RULE))
        notes = [note] if note else []
        if not can_renew:
            notes.append(
                f"account {self._account} may not renew rules:"
                " each request needs a lifetime that is long enough from its start"
            )
        if not (can_renew or can_delete):
            notes.append(f"account {self._account} may not cancel rules: each request ends by its lifetime")
        return StagingPermissions(can_ask, can_renew, can_renew or can_delete, tuple(notes))

    def _probe_add(self) -> tuple[bool | None, str]:
        storage = self._destinations.any_disk()
        if storage is None:
            return None, "no site has just one disk in Rucio, so the permission to add rules is unknown"
        rule: dict[str, Any] = {
            "dids": [{"scope": "classad-hydrator", "name": f"no-such-dataset-{uuid.uuid4().hex}"}],
            "copies": 1,
            "rse_expression": storage,
            "lifetime": 60,
            "activity": self._activity,
            "comment": "classad-hydrator: a test of permissions",
        }
        try:
            self._writer.send(lambda client: client.add_replication_rule(**rule), bool)
        except WriteRefused as error:
            if error.kind == "DataIdentifierNotFound":
                return True, ""
            return False, self._writer.translate(error, "add", "a dataset", storage).reason
        raise CatalogueGarbled(self._name, "Rucio accepted a rule for a DID that does not exist")

    def _probe_change(self, call: Callable[[RucioClient], object]) -> bool:
        """Return whether Rucio refuses *call* only because its rule does not exist."""
        try:
            self._writer.send(call, bool)
        except WriteRefused as error:
            return error.kind == "RuleNotFound"
        raise CatalogueGarbled(self._name, "Rucio changed a rule that does not exist")

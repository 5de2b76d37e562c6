"""Rucio stager: pin and stage datasets by replication rules of ours; see the port ``Stager``.

A rule of ours is on one RSE, has one copy and a finite lifetime, is never locked and never purges. Its
comment names us (:mod:`.rules`). The stager relies on these properties of Rucio:

* Rucio has one rule for each DID, account, RSE expression and number of copies, also for up to an hour after
  a deletion: it refuses a second one as a duplicate, and the stager then renews the one that exists;
* at the end of a rule Rucio may delete files that no other rule keeps, also files that were there before the
  rule. So no rule is added where files have no rule and never had one;
* a rule that is set to SUSPENDED goes on moving files, unless its transfers are cancelled. This would cancel
  them for the rules of other accounts, too. So a rule of ours ends only by its lifetime, or by a deletion.
"""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from adapters.rucio.conclusions import Sample, estimate_completion
from adapters.rucio.poll import DidErrors
from adapters.rucio.responses import BadRow
from adapters.rucio.session.client import RucioClient, RucioConnection
from adapters.rucio.session.queries import QueryRunner, did_record
from adapters.rucio.session.settings import RucioSettings
from adapters.rucio.session.transport import WriteRefused
from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.ports import Clock
from hydrator.domain.staging_ports import (
    ExistingRule,
    RefusalKind,
    RequestState,
    StagingAnswer,
    StagingError,
    StagingFailed,
    StagingKind,
    StagingOrder,
    StagingPermissions,
    StagingQuery,
    StagingRefused,
)

from .rules import RuleReader, build_comment, make_tag
from .storages import RuleOptions, Storages, measure

_MAX_SAMPLES = 60
_LAST_LIFETIME_SECONDS = 5
"""The remaining lifetime of a cancelled rule."""
_NO_RULE = "0" * 32
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
_TEMPORARY = "ReplicationRuleCreationTemporaryFailed"
T = TypeVar("T")


def translate_error(
    error: CatalogueError, *, verb: str, subject: str, account: str, storage: str = "", activity: str = ""
) -> StagingError:
    """Return the error of the port for the *error* of a write: one sentence, with what to do about it.

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
    if isinstance(error, CatalogueDenied):
        reason = f"Rucio refuses the login of account {account}: {error.reason}"
        return StagingRefused(name, reason, RefusalKind.PERMISSION)
    if not isinstance(error, WriteRefused) or error.kind == _TEMPORARY:
        return StagingFailed(name, f"no usable answer to {verb} a rule: {error.reason}")
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


class RucioStager:
    """A Stager for the Rucio server in *settings*, with a connection of its own."""

    def __init__(self, settings: RucioSettings, options: RuleOptions, clock: Clock) -> None:
        self.name = settings.name
        self.options = options
        self._clock = clock
        self._account = settings.account
        self._write_seconds = options.call_limit.total_seconds()
        self._read_seconds = settings.deadline.total_seconds()
        self._queries = queries = QueryRunner(settings, RucioConnection(settings))
        self._storages = Storages(queries, options)
        self._rules = RuleReader(queries, self._storages, options)
        self._own_rules: frozenset[str] = frozenset()
        self._samples: dict[str, deque[Sample]] = {}
        self._one_at_a_time = threading.Lock()

    def close(self) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        self._queries.connection.deadline.expire_now()
        self._queries.close()

    @contextmanager
    def _start_call(self, seconds: float) -> Iterator[datetime]:
        """Let one call at a time use the connection, for at most *seconds*; yield the time of its start."""
        started_at = time.monotonic()
        if not self._one_at_a_time.acquire(timeout=seconds):
            raise CatalogueUnreachable(self.name, f"another call to Rucio took more than {seconds:g} s")
        try:
            remaining = max(0.01, seconds - (time.monotonic() - started_at))
            with self._queries.connection.start_poll(remaining):
                now = self._clock()
                self._storages.refresh(now)
                yield now
        finally:
            self._one_at_a_time.release()

    def list(self, query: StagingQuery) -> StagingAnswer:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        with self._start_call(self._read_seconds) as now:
            rows = {row.id: row for row in (self._rules.list_own() if query.lists_all else ())}
            for rule in sorted(query.rules - rows.keys()):
                if row := self._rules.fetch(rule):
                    rows[rule] = row
            own = [each for row in rows.values() if (each := self._rules.own_at(row))]
            errors: DidErrors = {}
            found = self._rules.find(query.dids, query.sites, errors, now) if query.dids else []
            known = {each.id for each in own}
            own += [each for each in found if each.is_ours and each.id not in known]
            sizes = measure(self._queries, query.dids - errors.keys()) if query.dids else {}
            spaces = self._storages.read_spaces(query.spaces)
        self._own_rules = frozenset(each.id for each in own)
        self._samples = {key: each for key, each in self._samples.items() if key in self._own_rules}
        own = [replace(each, ready_at=self._estimate_end(each, now)) for each in own]
        others = [each for each in found if not each.is_ours]
        unread = {did: error.reason for did, error in errors.items()}
        return StagingAnswer((*own, *others), sizes, spaces, unread)

    def _estimate_end(self, rule: ExistingRule, now: datetime) -> datetime | None:
        if rule.state is not RequestState.MOVING or not rule.files:
            return None
        samples = self._samples.setdefault(rule.id, deque(maxlen=_MAX_SAMPLES))
        samples.append((now, rule.files_done / rule.files))
        estimate = estimate_completion(tuple(samples))
        return estimate[0] if estimate else None

    def request(self, order: StagingOrder) -> str:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        lifetime, storage = max(1, round(order.lifetime.total_seconds())), ""
        try:
            with self._start_call(self._write_seconds) as now:
                if order.rule:
                    self._require_ours(order.rule)
                    self._change(order.rule, {"lifetime": lifetime})
                    return order.rule
                storage = self._storages.choose(order)
                if self._rules.has_bare_files(order.did, storage, now):
                    reason = (
                        f"files of {order.did} are at {storage} without any rule, now or in the past; after a"
                        " rule of ours Rucio may delete them: ask the data manager for a rule that keeps them"
                    )
                    raise StagingRefused(self.name, reason)
                try:
                    return self._add(order, storage, lifetime)
                except WriteRefused as error:
                    if error.kind != "DuplicateRule":
                        raise
                return self._renew_duplicate(order, storage, lifetime)
        except CatalogueError as error:
            verb = "renew" if order.rule else "add"
            raise self._translate(error, verb, order.rule or order.did, storage) from None

    def _add(self, order: StagingOrder, storage: str, lifetime: int) -> str:
        rule: dict[str, Any] = {
            "dids": [did_record(order.did)],
            "copies": 1,
            "rse_expression": storage,
            "lifetime": lifetime,
            "grouping": "DATASET",
            "notify": "P",
            "activity": self.options.activity,
            "source_replica_expression": self._storages.source_expression(order, storage),
            "ignore_availability": order.kind is StagingKind.PIN,
            "comment": build_comment(order, self.options.pool, storage),
        }
        return self._send(lambda client: client.add_replication_rule(**rule), _read_rule_id)

    def _renew_duplicate(self, order: StagingOrder, storage: str, lifetime: int) -> str:
        """Renew the rule of ours that made *order* a duplicate; Rucio may have put it on an archive."""
        tag = make_tag(self.options.pool, order.did, storage)
        rows = self._rules.list_own(storage)
        row = next((row for row in rows if row.tag == tag or row.did == order.did), None)
        if row is None:
            reason = (
                f"account {self._account} has a rule for {order.did} at {storage} that is not the daemon's"
            )
            raise StagingRefused(self.name, reason, RefusalKind.NOT_OURS)
        self._change(row.id, {"lifetime": lifetime})
        return row.id

    def cancel(self, rule: str) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        try:
            with self._start_call(self._write_seconds):
                self._require_ours(rule)
                try:
                    self._change(rule, {"lifetime": _LAST_LIFETIME_SECONDS})
                except WriteRefused as error:
                    if error.kind != "AccessDenied":
                        raise
                    self._send(
                        lambda client: client.delete_replication_rule(rule, purge_replicas=False), bool
                    )
        except CatalogueError as error:
            if not (isinstance(error, WriteRefused) and error.kind == "RuleNotFound"):
                raise self._translate(error, "cancel", rule) from None

    def _require_ours(self, rule: str) -> None:
        """Raise StagingRefused unless *rule* is one of ours, or does not exist."""
        if rule in self._own_rules:
            return
        row = self._rules.fetch(rule)
        if row is not None and row.kind is None:
            reason = f"the rule {rule} does not have our account and our comment"
            raise StagingRefused(self.name, reason, RefusalKind.NOT_OURS)

    def _change(self, rule: str, options: dict[str, object]) -> None:
        self._send(lambda client: client.update_replication_rule(rule, options=options), bool)

    def _send(self, call: Callable[[RucioClient], object], read: Callable[[object], T]) -> T:
        """Send one write; pass its answer to *read*; see :meth:`RucioConnection.write` for the errors."""
        return self._queries.connection.write(lambda client: read(call(client)))

    def _translate(self, error: CatalogueError, verb: str, subject: str, storage: str = "") -> StagingError:
        return translate_error(
            error, verb=verb, subject=subject, account=self._account, storage=storage,
            activity=self.options.activity,
        )  # fmt: skip

    # -- permissions

    def probe_permissions(self) -> StagingPermissions:
        """See :class:`hydrator.domain.staging_ports.Stager`.

        Add a rule for a DID that does not exist, and change a rule that does not exist. Rucio checks the
        permission first, then the quota and the RSE, and the DID or the rule last.
        """
        with self._start_call(self._read_seconds):
            can_ask, note = self._probe_add()
            can_renew = self._probe_change(
                lambda client: client.update_replication_rule(_NO_RULE, {"lifetime": 60})
            )
            can_delete = self._probe_change(lambda client: client.delete_replication_rule(_NO_RULE))
        account, notes = self._account, [note] if note else []
        if not can_renew:
            notes.append(f"account {account} may not renew rules: each request ends by its first lifetime")
        if not (can_renew or can_delete):
            notes.append(f"account {account} may not cancel rules: each request ends by its lifetime")
        return StagingPermissions(can_ask, can_renew, can_renew or can_delete, tuple(notes))

    def _probe_add(self) -> tuple[bool | None, str]:
        storage = self._storages.any_disk()
        if storage is None:
            return None, "no site has just one disk in Rucio, so the permission to add rules is unknown"
        rule: dict[str, Any] = {
            "dids": [{"scope": "classad-hydrator", "name": f"no-such-dataset-{uuid.uuid4().hex}"}],
            "copies": 1,
            "rse_expression": storage,
            "lifetime": 60,
            "activity": self.options.activity,
            "comment": "classad-hydrator: a test of permissions",
        }
        try:
            self._send(lambda client: client.add_replication_rule(**rule), bool)
        except WriteRefused as error:
            if error.kind == "DataIdentifierNotFound":
                return True, ""
            return False, self._translate(error, "add", "a dataset", storage).reason
        raise CatalogueGarbled(self.name, "Rucio accepted a rule for a DID that does not exist")

    def _probe_change(self, call: Callable[[RucioClient], object]) -> bool:
        """Return whether Rucio refuses *call* only because its rule does not exist."""
        try:
            self._send(call, bool)
        except WriteRefused as error:
            return error.kind == "RuleNotFound"
        raise CatalogueGarbled(self.name, "Rucio changed a rule that does not exist")


def _read_rule_id(answer: object) -> str:
    """Return the id of the new rule.

    Raises:
        BadRow: the answer is not a list with one id, so the outcome is unknown.
    """
    if not isinstance(answer, list) or len(answer) != 1 or not isinstance(answer[0], str) or not answer[0]:
        raise BadRow(f"add_replication_rule: expected one rule id, got {str(answer)[:80]!r}")
    return answer[0]

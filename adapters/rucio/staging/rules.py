"""Rules of Rucio: those of every account for a dataset, and those of ours by their ids.

A query for locks shows, in bulk, which rules keep or bring a dataset to which storage element, and whether it
is whole there. It does not show rules without dataset locks: rules that wait for approval or for their
injection, and rules that spread single files (grouping NONE). So a dataset without a lock at the sites of the
search is looked up by itself: the rules on it, and the rules on the containers that it is in.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from rucio.common.exception import RuleNotFound

from adapters.rucio.dids import ContainerLister, DidResolver, ParentFinder
from adapters.rucio.poll import DidErrors, Dids
from adapters.rucio.responses import (
    NO_FILES,
    BadRow,
    Count,
    Record,
    iter_records,
    largest_counts,
    parse_deep_rows,
    read_choice,
    read_did,
    read_text,
    read_time,
)
from adapters.rucio.rule_cache import RuleCache
from adapters.rucio.session.queries import QueryRunner, split_did
from adapters.rucio.session.transport import NotFound
from adapters.rucio.states import (
    PENDING_STATES,
    RULE_STATES,
    Lock,
    parse_locks,
    read_error,
    request_state,
)
from hydrator.domain.errors import CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import ExistingRule, RequestState, StagingKind, StagingOrder

from .storages import RuleOptions, Storages

_BEGIN, _AT = "classad-hydrator ", " for jobs at "
_MAX_SITE_CHARS = 100  # a comment of Rucio has at most 250 characters
_MAX_RULES = 200_000
_MANY_RULES = 20
"""So many rules of one scope are read by one list of all its rules."""
_REASONS = {
    RequestState.UNAPPROVED: "the rule waits for approval in Rucio",
    RequestState.SUSPENDED: "the rule is suspended in Rucio",
    RequestState.STUCK: "the rule is stuck",
    RequestState.FAILED: "no storage has the missing files",
}


@dataclass(frozen=True, slots=True)
class RuleRow:
    """The row of one rule; ``kind`` and ``site`` are of the comment of a rule of ours."""

    id: str
    did: Did | None
    account: str
    expression: str
    state: str
    error: str
    expires_at: datetime | None
    stuck_since: datetime | None
    locks: tuple[int, int, int]
    bytes: int | None
    blocked: str
    kind: StagingKind | None = None
    site: Site | None = None
    tag: str = ""

    def at(self, did: Did, site: Site, storage: str, lock_state: str = "") -> ExistingRule:
        """Return the rule as it concerns *did* at *storage*, where its lock on *did* has *lock_state*."""
        done, moving, stuck = self.locks
        is_whole = lock_state == "OK" if lock_state else self.state == "OK" or (done > 0 == moving == stuck)
        state = request_state(self.state, self.error)
        reason = _REASONS.get(state, "")
        return ExistingRule(
            self.id, did, site, storage, self.account, state, self.kind is not None,
            self.kind or StagingKind.STAGE, is_whole, self.expires_at, self.stuck_since, done,
            sum(self.locks) or None, self.bytes, None,
            f"{reason}: {self.error}" if reason and self.error else reason, self.blocked,
        )  # fmt: skip


def make_tag(pool: str, did: Did, storage: str) -> str:
    """Return the tag of the rule of *pool* for *did* at *storage*, which finds it on another DID, too."""
    return f"hydrator:{pool}:{hashlib.sha256(f'{did} {storage}'.encode()).hexdigest()[:24]}"


def build_comment(order: StagingOrder, pool: str, storage: str) -> str:
    """Return the comment of the rule for *order*: a line for the data manager, with the tag at its end."""
    tag = make_tag(pool, order.did, storage)
    return f"{_BEGIN}{order.kind.value}{_AT}{order.site[:_MAX_SITE_CHARS]} [{tag}]"


def parse_rule(row: Record, call: str, pool: str, account: str) -> RuleRow:
    """Parse one rule; one of *account* with a comment of *pool* is ours.

    Raises:
        BadRow: the row is unreadable, so the answer is incomplete.
    """
    kind, site, tag = None, "", ""
    comment = row.get("comments")
    if isinstance(comment, str) and comment.startswith(_BEGIN) and row.get("account") == account:
        words, _, tag = comment[len(_BEGIN) :].removesuffix("]").rpartition(" [")
        word, _, site = words.partition(_AT)
        is_ours = word in list(StagingKind) and site and tag.startswith(f"hydrator:{pool}:")
        kind = StagingKind(word) if is_ours else None
    locks = [row.get(f"locks_{name}_cnt") for name in ("ok", "replicating", "stuck")]
    if not all(type(each) is int for each in locks):
        raise BadRow(f"{call}: expected whole numbers of locks, got {str(locks)[:80]}")
    done, moving, stuck = (max(0, each) for each in locks if each is not None)  # Rucio's can be negative
    size = row.get("bytes")
    if size is not None and not (type(size) in (int, float) and 0 <= size < 2**63):
        raise BadRow(f"{call}: expected a size, got {str(size)[:80]}")
    state, child = read_choice(RULE_STATES, row, "state", call), row.get("child_rule_id")
    begin = read_time(row, "stuck_at", call) or read_time(row, "created_at", call)
    return RuleRow(
        read_text(row, "id", call),
        read_did(row, call),
        str(row.get("account") or ""),
        read_text(row, "rse_expression", call),
        state,
        read_error(row),
        read_time(row, "expires_at", call),
        begin if state == "STUCK" else None,
        (done, moving, stuck),
        None if size is None else int(size),
        f"it has the child rule {child}" if child else "it is locked" if row.get("locked") else "",
        kind,
        Site(site) if kind else None,
        tag if kind else "",
    )


class RuleReader:
    """A reader of rules; it asks Rucio, and uses no answer older than one call."""

    def __init__(self, queries: QueryRunner, storages: Storages, options: RuleOptions) -> None:
        self._queries = queries
        self._storages = storages
        self._pool, self._account = options.pool, queries.settings.account
        self._expressions = RuleCache(queries)
        self._parents = ParentFinder(queries)
        self._resolver = DidResolver(queries)
        self._containers = ContainerLister(queries)

    def _parse(self, rows: Iterable[object], call: str) -> list[RuleRow]:
        return [parse_rule(row, call, self._pool, self._account) for row in iter_records(rows, call)]

    def fetch(self, rule: str) -> RuleRow | None:
        """Return the rule with the id *rule*; None if Rucio says that it does not exist.

        Raises:
            CatalogueError: the answer is missing, or about another rule.
        """

        def call(client: Any) -> list[object]:  # noqa: ANN401 - rucio's
            try:
                return [client.get_replication_rule(rule)]
            except RuleNotFound:
                return []

        rows = self._queries.ask(call, lambda rows: self._parse(rows, "get_replication_rule"))
        if rows and rows[0].id != rule:
            reason = f"the query was for rule {rule}, the answer is about rule {rows[0].id[:80]}"
            raise CatalogueGarbled(self._queries.name, reason)
        return rows[0] if rows else None

    def list_own(self, storage: str = "") -> list[RuleRow]:
        """Return all rules of ours, at *storage* or anywhere; Rucio has no index for this.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """
        rows = self._list({"account": self._account} | ({"rse_expression": storage} if storage else {}))
        return [row for row in rows if row.kind and row.account == self._account]

    def _list(self, filters: dict[str, str]) -> list[RuleRow]:
        return self._queries.ask(
            lambda client: islice(client.list_replication_rules(filters), _MAX_RULES),
            lambda rows: self._parse(rows, "list_replication_rules"),
        )

    def own_at(self, row: RuleRow) -> ExistingRule | None:
        """Return the rule of ours *row* at its site; None if it is not ours, or not on a valid DID."""
        if row.kind is None or row.did is None or row.site is None:
            return None
        return row.at(row.did, row.site, row.expression)

    def find(
        self, dids: Dids, sites: AbstractSet[Site], errors: DidErrors, now: datetime
    ) -> list[ExistingRule]:
        """Return the rules of every account for *dids* at *sites*, also after their ends.

        A dataset whose query fails alone is in *errors*.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """
        kinds = {did: info.kind for did, info in self._resolver.resolve_uncached(dids, errors).items()}
        locks = self._query_locks({did for did, kind in kinds.items() if kind == "DATASET"}, errors)
        if errors and dids <= errors.keys():
            raise errors[min(errors)]
        rows = self._fetch_all([lock for each in locks.values() for lock in each])
        found: dict[tuple[Did, str, str], ExistingRule] = {}

        def keep(did: Did, row: RuleRow, storage: str, lock_state: str) -> bool:
            here = self._storages.disk_sites_of(storage) & sites
            for site in here if row.kind is None else here & {row.site}:
                found[did, row.id, site] = row.at(did, site, storage, lock_state)
            return bool(here)

        for did in sorted(did for did, kind in kinds.items() if kind != "ABSENT" and did not in errors):
            known = [lock for lock in locks.get(did, ()) if lock.rule in rows]
            matches = [keep(did, rows[lock.rule], lock.storage, self._state_of(lock)) for lock in known]
            if not any(matches):
                locked = frozenset(lock.rule for lock in known)
                for row, storage in self._iter_rules_without_locks(did, locked, sites, now):
                    keep(did, row, storage, "")
        return list(found.values())

    def _query_locks(self, datasets: Dids, errors: DidErrors) -> dict[Did, list[Lock]]:
        locks: dict[Did, list[Lock]] = {did: [] for did in datasets}
        for lock in self._queries.query_in_batches(
            datasets,
            errors,
            lambda client, batch: client.get_locks_for_dids([{**did, "type": "dataset"} for did in batch]),
            lambda answer: parse_locks(answer, "get_locks_for_dids"),
        ):
            locks[lock.did].append(lock)
        return locks

    def _state_of(self, lock: Lock) -> str:
        """Return the state of *lock*; OK if all files are there, though its rule still moves others.

        All dataset locks of a container's rule have the state of the rule.
        """
        if lock.state == "OK":
            return lock.state
        self._require_time()
        is_complete = self._count_files(lock.did).get(lock.storage, NO_FILES).is_complete
        return "OK" if is_complete else lock.state

    def _fetch_all(self, locks: Sequence[Lock]) -> dict[str, RuleRow]:
        """Return the rules of *locks* by id, without those that were deleted meanwhile."""
        by_scope: dict[str, set[str]] = {}
        for lock in locks:
            by_scope.setdefault(split_did(lock.did)[0], set()).add(lock.rule)
        rows: dict[str, RuleRow] = {}
        for scope, ids in by_scope.items():
            if len(ids) >= _MANY_RULES:
                rows |= {row.id: row for row in self._list({"scope": scope}) if row.id in ids}
        for rule in sorted(set().union(*by_scope.values()) - rows.keys()):
            self._require_time()
            if row := self.fetch(rule):
                rows[rule] = row
        return rows

    def _require_time(self) -> None:
        if self._queries.is_late(0.1):
            raise CatalogueUnreachable(self._queries.name, "no time was left to query all rules")

    def _iter_rules_without_locks(
        self, did: Did, locked: AbstractSet[str], sites: AbstractSet[Site], now: datetime
    ) -> Iterator[tuple[RuleRow, str]]:
        """Yield the rules on *did* and on its containers that may be at *sites*, with a storage element.

        The locks of the rules *locked* are known, and are elsewhere. Any other rule counts, also one that
        should have locks: Rucio has not made them yet, or its answer about locks was empty.
        """
        for owner in (did, *sorted(self._parents.find(did, now))):
            self._require_time()
            rows = self._list_on(owner)
            for row in rows:
                if row.id not in locked or row.state in PENDING_STATES:
                    yield from ((row, storage) for storage in self._storages_of(row, sites, now))

    def _list_on(self, owner: Did) -> list[RuleRow]:
        try:
            return self._queries.ask(
                lambda client: client.list_did_rules(*split_did(owner)),
                lambda rows: self._parse(rows, "list_did_rules"),
            )
        except NotFound:
            return []

    def _storages_of(self, row: RuleRow, sites: AbstractSet[Site], now: datetime) -> frozenset[str]:
        """Return the storage elements of *row* at *sites*.

        If the rule had a choice, they are those with its files, and none if its files are at several sites.
        If no file of the rule is known, they are all that it could choose.
        """
        matches = self._expressions.resolve_expression(row.expression, self._storages.rses, now)
        here = frozenset(each for each in matches if self._storages.disk_sites_of(each) & sites)
        if not here or len(matches) == 1 or row.state in PENDING_STATES:
            return here
        call = "list_replica_locks"
        used = self._queries.ask(
            lambda client: client.list_replica_locks(row.id),
            lambda rows: frozenset(read_text(each, "rse", call) for each in iter_records(rows, call)),
        )
        common = frozenset(sites).intersection(*(self._storages.disk_sites_of(each) for each in used))
        return (here & used if common else frozenset()) if used else here

    def has_bare_files(self, did: Did, storage: str, now: datetime) -> bool:
        """Return whether *storage* has files of *did* that no rule keeps there, and none ever kept.

        Rucio never deletes such files by itself. But after the end of a rule on them it may.

        Raises:
            CatalogueError: Rucio did not answer.
        """
        errors: DidErrors = {}
        kind = self._resolver.resolve_uncached({did}, errors)[did].kind
        members = self._containers.list_members(did) if kind == "CONTAINER" else frozenset({did})
        locks = self._query_locks(members if kind in {"CONTAINER", "DATASET"} else frozenset(), errors)
        if errors:
            raise errors[min(errors)]
        for each in sorted(members):
            self._require_time()
            is_held = storage in {lock.storage for lock in locks.get(each, ())}
            if is_held or not self._count_files(each).get(storage, NO_FILES).available_length:
                continue
            owners = (each, did, *self._parents.find(each, now))
            if not any(self._had_rule(owner, storage, now) for owner in owners):
                return True
        return False

    def _count_files(self, did: Did) -> dict[str, Count]:
        """Return the files of *did* by storage element, as Rucio counts them now."""
        rows = self._queries.ask(
            lambda client: client.list_dataset_replicas(*split_did(did), deep=True),
            lambda answer: parse_deep_rows(did, answer),
        )
        return largest_counts(rows)

    def _had_rule(self, did: Did, storage: str, now: datetime) -> bool:
        call = "list_replication_rule_full_history"
        try:
            expressions = self._queries.ask(
                lambda client: client.list_replication_rule_full_history(*split_did(did)),
                lambda rows: {read_text(row, "rse_expression", call) for row in iter_records(rows, call)},
            )
        except NotFound:
            return False
        for expression in expressions:
            try:
                if storage in self._expressions.resolve_expression(expression, self._storages.rses, now):
                    return True
            except CatalogueGarbled:
                continue  # Rucio can no longer parse the expression
        return False

"""Staging with Rucio: rules of ours that pin and bring datasets, and the rules of everybody else.

A rule of ours is on one RSE, has one copy and a finite lifetime, is never locked and never purges. Its
comment names us. The stager (see the port ``Stager``) relies on these properties of Rucio:

* Rucio has one rule for each DID, account, RSE expression and number of copies, also for up to an hour after
  a deletion: it refuses a second one as a duplicate, and the stager then renews the one that exists;
* Rucio 41.5 cannot finish a rule on a single file that notifies of its progress: ours send no notification;
* at the end of a rule Rucio may delete files that no other rule keeps, also files that were there before the
  rule. So no rule is added where files have no rule and never had one;
* a rule that is set to SUSPENDED goes on moving files, unless its transfers are cancelled. This would cancel
  them for the rules of other accounts, too. So a rule of ours ends only by its lifetime, or by a deletion.

A query for locks shows, in bulk, which rules keep or bring a dataset to which storage element, and whether it
is whole there. It does not show rules without dataset locks: rules that wait for approval or for their
injection, and rules that spread single files (grouping NONE). So a dataset without a lock at the sites of the
search is looked up by itself: the rules on it, and the rules on the containers that it is in.
"""

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from operator import attrgetter

from adapters.rucio.dids import ContainerLister, DidResolver, ParentFinder
from adapters.rucio.locks import query_locks, query_past_rules
from adapters.rucio.poll import DidErrors, Dids
from adapters.rucio.replicas import count_files
from adapters.rucio.responses import (
    NO_FILES,
    BadRow,
    DidInfo,
    Record,
    Rses,
    describe_fault,
    read_amount,
    read_text,
    read_time,
    require_record,
)
from adapters.rucio.rse_directory import RseDirectory
from adapters.rucio.rules import fetch_rule, fetch_rules, fetch_rules_of
from adapters.rucio.session.client import RucioConnection
from adapters.rucio.session.queries import QueryRunner, did_record, split_did
from adapters.rucio.session.settings import RucioSettings
from adapters.rucio.session.transport import FAILURES_ALONE, Forbidden, InvalidRequest, NotFound, WriteRefused
from adapters.rucio.states import (
    Lock,
    available_storages,
    read_rule,
    read_states,
    request_state,
    rule_reason,
)
from adapters.untrusted_text import quote_excerpt
from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueGarbled
from hydrator.domain.model import Did, Site
from hydrator.domain.ports import Clock
from hydrator.domain.redaction import sanitize
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
from hydrator.domain.text import shorten_list

# -- storage elements


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """Options of the rules that the daemon adds to Rucio.

    Args:
        pool: the name of the pool in their comments; rules with another name are not ours.
        activity: the activity of each rule; Rucio accepts only the activities of its own list.
        storages: the RSE to which rules bring data, by each site in slots that data may come to; empty if the
            site has one disk only.
        aliases: the name of each site in slots, by its name in Rucio.
    """

    pool: str = "pool"
    activity: str = "Staging"
    storages: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[Site, Site] = field(default_factory=dict)


class Storages:
    """The storage elements by site; Rucio's list of them is read once in ``attributes_every``."""

    def __init__(self, queries: QueryRunner, options: RuleOptions) -> None:
        self._queries = queries
        self._options = options
        self.directory = RseDirectory(queries)
        self._read_at: datetime | None = None
        self.rses: Rses = {}

    def refresh(self, now: datetime) -> None:
        """Read the storage elements, unless an answer is young enough.

        Raises:
            CatalogueError: the storage elements cannot be read.
        """
        if self._read_at is None or now - self._read_at >= self._queries.settings.attributes_every:
            self.rses = self.directory.read(now)
            self._read_at = now

    def sites_of(self, storage: str) -> frozenset[Site]:
        """Return the sites, by their names in slots, that read the storage element *storage*."""
        rse = self.rses.get(storage)
        return frozenset(self._options.aliases.get(site, site) for site in (rse.sites if rse else ()))

    def disk_sites_of(self, storage: str) -> frozenset[Site]:
        """Return the sites whose jobs can read *storage*; none for a tape and for a staging area."""
        rse = self.rses.get(storage)
        is_disk = rse is not None and not (rse.is_tape or rse.is_staging_area)
        return self.sites_of(storage) if is_disk else frozenset()

    def choose(self, site: Site, storage: str = "", kind: StagingKind = StagingKind.STAGE) -> str:
        """Return *storage*, else the configured one of *site*, else its only disk that takes new data.

        Raises:
            StagingRefused: the site has none or several, or the named one cannot be used.
        """
        wanted = storage or self._options.storages.get(site, "")
        if not wanted:
            disks = [
                rse.name
                for rse in self.rses.values()
                if rse.is_writable and rse.is_readable and site in self.disk_sites_of(rse.name)
                if not (rse.is_deleted or rse.is_volatile or rse.fault)
            ]
            if len(disks) == 1:
                return disks[0]
            if not disks:
                raise self._refuse(f"Rucio has no disk at the site {site} that takes new data")
            raise self._refuse(f"set storage for the site {site}: it has the disks {shorten_list(disks)}")
        rse = self.rses.get(wanted)
        if rse is None or rse.is_deleted or rse.fault:
            raise self._refuse(f"Rucio does not have the storage element {wanted}, or its row is unreadable")
        if site not in self.disk_sites_of(wanted):
            fault = "a disk" if site in self.sites_of(wanted) else f"at the site {site}"
            raise self._refuse(f"the storage element {wanted} is not {fault}")
        if not rse.is_readable and kind is StagingKind.STAGE:
            raise self._refuse(f"jobs cannot read the storage element {wanted} now")
        return wanted

    def find_any(self) -> tuple[Site, str] | None:
        """Return a site that data may come to, with its storage element; None if no such site has one."""
        for site in map(Site, sorted(self._options.storages)):
            with suppress(StagingRefused):
                return site, self.choose(site)
        return None

    def _refuse(self, reason: str) -> StagingRefused:
        return StagingRefused(self._queries.name, reason, RefusalKind.CLOSED)

    def source_expression(self, order: StagingOrder, storage: str) -> str | None:
        """Return the RSE expression of the sources for *order*; None: every storage element.

        A pin may take files only from its own storage element, so it never moves a file. A request with a
        source on tape may read any disk, but no other tape.
        """
        if order.kind is StagingKind.PIN:
            return storage
        tapes = [
            rse.name
            for rse in self.rses.values()
            if rse.is_tape and not rse.is_deleted and order.source in self.sites_of(rse.name)
        ]
        return "|".join(["rse_type=DISK", *tapes]) if tapes else None

    def read_spaces(self, sites: AbstractSet[Site]) -> tuple[dict[Site, int | str], dict[Site, str]]:
        """Return by site the free bytes, or the reason why they are unknown; and by site its disk.

        Rucio knows the free space only from a report of the storage itself (the source *storage* of
        ``get_rse_usage``). The limit MinFreeSpace, which Rucio's deletion keeps free, is not available to
        requests. An odd number or answer, or a site without one usable disk, closes this site only.

        Raises:
            CatalogueError: the server did not answer.
        """
        spaces: dict[Site, int | str] = {}
        storages: dict[Site, str] = {}
        for site in sorted(sites):
            try:
                storage = storages[site] = self.choose(site)
                if (space := self._read_space(storage)) is not None:
                    spaces[site] = space
            except StagingRefused as error:
                spaces[site] = error.reason
            except (BadRow, *FAILURES_ALONE) as error:
                spaces[site] = f"{storage}: {describe_fault(error)}"
        return spaces, storages

    def _read_space(self, storage: str) -> int | None:
        rows = self._queries.ask_rows("get_rse_usage", storage, read=lambda row: row)
        row = next((row for row in rows if row.get("source") == "storage"), {})
        if row.get("free") is None:
            return None
        read_amount(row, "used")  # an odd number of used bytes is a reason to doubt the free ones
        limits = self._queries.ask("get_rse_limits", storage, read=require_record)
        return max(0, int(read_amount(row, "free") - read_amount(limits, "MinFreeSpace")))


# -- rules


_BEGIN, _AT = "classad-hydrator ", " for jobs at "
_MAX_SITE_CHARS = 100  # a comment of Rucio has at most 250 characters
_LockedRules = list[tuple[Lock, ExistingRule]]
"""Locks, each with its rule."""
_WITHOUT_LOCKS = frozenset({RequestState.QUEUED, RequestState.UNAPPROVED})


def make_tag(pool: str, did: Did, storage: str) -> str:
    """Return the tag of the rule of *pool* for *did* at *storage*, which finds it on another DID, too."""
    return f"[hydrator:{pool}:{hashlib.sha256(f'{did} {storage}'.encode()).hexdigest()[:24]}]"


def build_comment(order: StagingOrder, pool: str, storage: str) -> str:
    """Return the comment of the rule for *order*: a line for the data manager, with the tag at its end."""
    tag = make_tag(pool, order.did, storage)
    return f"{_BEGIN}{order.kind.value}{_AT}{order.site[:_MAX_SITE_CHARS]} {tag}"


def _read_comment(comment: object, pool: str) -> tuple[StagingKind, Site] | None:
    """Return the kind and the site of a rule of *pool* from its comment; None for any other comment."""
    words, _, tag = str(comment).rpartition(" [")
    begin, _, site = words.partition(_AT)
    kind = begin.removeprefix(_BEGIN)
    is_ours = begin != kind in list(StagingKind) and site and tag.startswith(f"hydrator:{pool}:")
    return (StagingKind(kind), Site(site)) if is_ours else None


def parse_rule(row: Record, pool: str, account: str) -> ExistingRule:
    """Parse one rule; one of *account* with a comment of *pool* is ours, at the site of the comment.

    ``storage`` is the RSE expression. A rule of others has no site: see :meth:`RucioStager._find`.

    Raises:
        BadRow: the row is unreadable, so the answer is incomplete.
    """
    rule = read_rule(row)
    if rule.fault:
        raise BadRow(rule.fault)
    locks = [row.get(f"locks_{name}_cnt") for name in ("ok", "replicating", "stuck")]
    if not all(type(each) is int for each in locks):
        raise BadRow(f"expected whole numbers of locks, got {quote_excerpt(locks)}")
    done, moving, stuck = (max(0, each) for each in locks if each is not None)  # Rucio's can be negative
    state, child = request_state(rule.state, rule.error), sanitize(str(row.get("child_rule_id") or ""), 100)
    is_halted = rule.state in {"STUCK", "WAITING_APPROVAL"}
    ours = _read_comment(row.get("comments"), pool) if rule.account == account else None
    kind, site = ours or (StagingKind.STAGE, Site(""))
    return ExistingRule(
        rule.id,
        rule.did,
        site,
        rule.expression,
        rule.account,
        state,
        is_ours=ours is not None,
        kind=kind,
        is_whole=state is RequestState.DONE or done > 0 == moving == stuck,
        expires_at=rule.expires_at,
        stuck_since=(read_time(row, "stuck_at") or read_time(row, "created_at")) if is_halted else None,
        files_done=done,
        files=done + moving + stuck or None,
        bytes=int(read_amount(row, "bytes")) or None,
        reason=rule_reason(rule),
        blocked=f"it has the child rule {child}" if child else "it is locked" if row.get("locked") else "",
    )


# -- the stager


_LAST_LIFETIME_SECONDS = 5
"""The remaining lifetime of a cancelled rule."""
_NO_RULE = "0" * 32
_CLOSED = RefusalKind.CLOSED, "{storage} takes no data now ({exception})"
_QUOTA = RefusalKind.QUOTA, "account {account} has no quota left at {storage}; ask for a larger limit"
_REFUSALS = {
    "AccessDenied": (RefusalKind.PERMISSION, "account {account} may not {verb} rules; ask Rucio's admins"),
    "InsufficientAccountLimit": _QUOTA,
    "RSEOverQuota": _QUOTA,
    "InsufficientTargetRSEs": _CLOSED,
    "RSEWriteBlocked": _CLOSED,
    "RSENotFound": _CLOSED,
    "InvalidRSEExpression": _CLOSED,
    "DataIdentifierNotFound": (RefusalKind.UNKNOWN_DATASET, "Rucio does not have {subject}"),
    "InvalidSourceReplicaExpression": (RefusalKind.NO_SOURCE, "no storage element may send {subject}"),
}
_ACTIVITY = RefusalKind.ACTIVITY, "Rucio does not have the activity {activity!r}; set activity to one it has"
_OTHER = RefusalKind.OTHER, "Rucio refuses to {verb} a rule for {subject} ({exception})"


class RucioStager:
    """A Stager for the Rucio server in *settings*, with a connection of its own; for one call at a time."""

    def __init__(self, settings: RucioSettings, options: RuleOptions, clock: Clock) -> None:
        self.name = settings.name
        self.options = options
        self._clock = clock
        self._account = settings.account
        self._queries = queries = QueryRunner(settings, RucioConnection(settings))
        self._storages = Storages(queries, options)
        self._parents = ParentFinder(queries)
        self._resolver = DidResolver(queries)
        self._containers = ContainerLister(queries)

    def close(self) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        self._queries.connection.end_poll()
        self._queries.close()

    @contextmanager
    def _start_call(self) -> Iterator[datetime]:
        """Limit the time of one call as that of a poll; yield the time of its start."""
        with self._queries.start_poll():
            now = self._clock()
            self._storages.refresh(now)
            yield now

    # -- reading

    def _parse(self, row: Record) -> ExistingRule:
        return parse_rule(row, self.options.pool, self._account)

    def _list_own(self) -> list[ExistingRule]:
        """Return all rules of ours that can be read; Rucio has no index for this.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """

        def read(row: Record) -> ExistingRule | None:
            with suppress(BadRow):
                return self._parse(row) if _read_comment(row.get("comments"), self.options.pool) else None
            return None

        rules = self._queries.ask_rows("list_replication_rules", {"account": self._account}, read=read)
        return [rule for rule in rules if rule]

    def _find(
        self, dids: Dids, sites: AbstractSet[Site], errors: DidErrors, now: datetime
    ) -> tuple[list[ExistingRule], dict[Did, int]]:
        """Return the rules of every account for *dids* at *sites*, also after their ends, and the sizes.

        A dataset whose query fails alone is in *errors*.

        Raises:
            CatalogueError: the server did not answer.
        """
        infos = self._resolver.resolve_uncached(dids, errors)
        locks = self._query_locks({did for did, info in infos.items() if info.kind == "DATASET"}, errors)
        found: dict[tuple[Did, str, str, Site], ExistingRule] = {}
        sizes: dict[Did, int] = {}
        for did in sorted(did for did, info in infos.items() if info.kind != "ABSENT" and did not in errors):
            try:
                members = self._containers.list_members(did) if infos[did].kind == "CONTAINER" else set[Did]()
                rules = self._iter_rules(did, locks.get(did, []), sites, now)
                for rule, storage, is_whole in chain(rules, self._iter_kept(members)):
                    # to a dataset, a rule of ours on its container is like one of others, and vice versa
                    is_ours = rule.is_ours and rule.did == did
                    at = self._storages.disk_sites_of(storage) & sites
                    for site in at & {rule.site} if is_ours else at:
                        found[did, rule.id, storage, site] = replace(
                            rule, did=did, site=site, storage=storage, is_whole=is_whole, is_ours=is_ours
                        )
                sizes[did] = self._measure(infos[did], members)
            except FAILURES_ALONE as error:
                errors[did] = error
        return list(found.values()), {did: size for did, size in sizes.items() if size}

    def _query_locks(self, dids: Dids, errors: DidErrors) -> dict[Did, _LockedRules]:
        """Return the locks of each of the datasets *dids*, with their rules; omit those of deleted rules.

        A dataset whose locks or rules cannot be read is in *errors*.
        """
        locks = list(chain.from_iterable(query_locks(self._queries, dids, errors).values()))
        rules = fetch_rules_of(self._queries, locks, self._parse)
        found: dict[Did, _LockedRules] = {did: [] for did in dids}
        for lock in locks:
            rule = rules[lock.rule]
            if isinstance(rule, CatalogueError):
                errors[lock.did] = rule
            elif rule:
                found[lock.did].append((lock, rule))
        return found

    def _iter_rules(
        self, did: Did, locks: _LockedRules, sites: AbstractSet[Site], now: datetime
    ) -> Iterator[tuple[ExistingRule, str, bool]]:
        """Yield the rules of *did* that may be at *sites*: rule, storage, and whether it is whole there.

        Without a lock at *sites*, they are the rules on *did* and on its containers, but for those whose
        locks are elsewhere. A rule that should have locks counts, too: Rucio has not made them yet, or its
        answer about locks was empty.
        """
        here = [(lock, rule) for lock, rule in locks if self._storages.disk_sites_of(lock.storage) & sites]
        for lock, rule in here:
            # all dataset locks of a container's rule have the state of the rule: count the files
            counts = {} if lock.state == "OK" else count_files(self._queries, did)
            is_whole = lock.state == "OK" or counts.get(lock.storage, NO_FILES).is_complete
            yield rule, lock.storage, is_whole
        locked = {rule.id for _, rule in locks}
        for owner in () if here else (did, *sorted(self._parents.find(did, now))):
            for rule in self._queries.ask_rows("list_did_rules", *split_did(owner), read=self._parse):
                if rule.id not in locked or rule.state in _WITHOUT_LOCKS:
                    yield from ((rule, each, rule.is_whole) for each in self._storages_of(rule, sites, now))

    def _iter_kept(self, members: Dids) -> Iterator[tuple[ExistingRule, str, bool]]:
        """Yield the storage elements where a rule keeps each of *members*, the datasets of a container.

        With each of them comes a rule: the first to end, of those that keep a dataset there for longest.
        """
        errors: DidErrors = {}
        last: dict[str, dict[Did, ExistingRule]] = {}
        for lock, rule in chain.from_iterable(self._query_locks(members, errors).values()):
            if lock.state == "OK":
                kept = last.setdefault(lock.storage, {})
                kept[lock.did] = max(kept.get(lock.did, rule), rule, key=attrgetter("last_moment"))
        if errors:
            raise errors[min(errors)]
        for storage, kept in last.items():
            if kept.keys() == members:
                yield min(kept.values(), key=attrgetter("last_moment")), storage, True

    def _storages_of(self, rule: ExistingRule, sites: AbstractSet[Site], now: datetime) -> frozenset[str]:
        """Return the storage elements of *rule* at *sites*.

        If the rule had a choice, they are those with its files, and none if its files are at several sites.
        If no file of the rule is known, they are all that it could choose.
        """
        matches = self._resolve(rule.storage, now)
        here = frozenset(each for each in matches if self._storages.disk_sites_of(each) & sites)
        if not here or len(matches) == 1 or rule.state in _WITHOUT_LOCKS:
            return here
        rows = self._queries.ask_rows("list_replica_locks", rule.id, read=lambda row: read_text(row, "rse"))
        used = frozenset(rows)
        common = frozenset(sites).intersection(*(self._storages.disk_sites_of(each) for each in used))
        return (here & used if common else frozenset()) if used else here

    def _measure(self, info: DidInfo, members: Dids) -> int:
        """Return the size of a DID; 0 if it is not known or not final: an open dataset may still grow.

        A container has the sum of its datasets *members*, because Rucio's own number is often missing.
        """
        infos = self._resolver.resolve_uncached(members, {})
        parts = [infos[each] for each in members] if info.kind == "CONTAINER" else [info]
        is_growing = any(each.is_open and each.kind != "FILE" for each in (info, *parts))
        sizes = [each.bytes_total for each in parts]
        return 0 if is_growing or None in sizes else sum(filter(None, sizes))

    def _has_bare_files(self, did: Did, storage: str, now: datetime) -> bool:
        """Return whether *storage* has files of *did* that no rule keeps there, and none ever kept.

        Rucio never deletes such files by itself. But after the end of a rule on them it may.

        Raises:
            CatalogueError: Rucio did not answer.
        """
        errors: DidErrors = {}
        kind = self._resolver.resolve_uncached({did}, errors)[did].kind
        members = self._containers.list_members(did) if kind == "CONTAINER" else frozenset({did})
        # a single file has no dataset locks: the history of its datasets shows present rules, too
        locks = query_locks(self._queries, members, errors) if kind != "FILE" else {}
        if errors:
            raise errors[min(errors)]
        for each in sorted(members):
            is_held = storage in {lock.storage for lock in locks.get(each, ())}
            if is_held or not self._is_any_file_at(each, kind, storage):
                continue
            owners = {each, did, *self._parents.find(each, now)}
            past = {row[1] for owner in sorted(owners) for row in query_past_rules(self._queries, owner)}
            if not any(storage in self._resolve(expression, now) for expression in sorted(past)):
                return True
        return False

    def _is_any_file_at(self, did: Did, kind: str, storage: str) -> bool:
        """Return whether *storage* has a file of *did*, a dataset or (by *kind*) a single file."""
        if kind != "FILE":
            return count_files(self._queries, did).get(storage, NO_FILES).available_length > 0
        files = [did_record(did)]
        found = self._queries.ask_rows("list_replicas", files, read=read_states, all_states=True)
        return any(storage in available_storages(states) for states in found)

    def _resolve(self, expression: str, now: datetime) -> frozenset[str]:
        """Return the storage elements of *expression*; Rucio refuses one that matches nothing any more."""
        with suppress(InvalidRequest):
            return self._storages.directory.resolve_expression(expression, now)
        return frozenset()

    # -- the port

    def list(self, query: StagingQuery) -> StagingAnswer:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        errors: DidErrors = {}
        with self._start_call() as now:
            own = {rule.id: rule for rule in (self._list_own() if query.lists_all else ())}
            fetched = fetch_rules(self._queries, query.rules - own.keys(), self._parse)
            failed = {each: one for each, one in fetched.items() if isinstance(one, CatalogueError)}
            for error in failed.values():
                if not isinstance(error, FAILURES_ALONE):
                    raise error
            own |= {one.id: one for one in fetched.values() if isinstance(one, ExistingRule) and one.is_ours}
            found, sizes = self._find(query.dids, query.sites, errors, now) if query.dids else ([], {})
            unread = dict((*failed.items(), *errors.items()))
            if unread and query.dids | query.rules <= unread.keys():
                raise unread[min(unread)]
            spaces, storages = self._storages.read_spaces(query.spaces)
        others = (rule for rule in found if not (rule.is_ours and rule.id in own))
        reasons = {each: error.reason for each, error in unread.items()}
        return StagingAnswer((*own.values(), *others), sizes, spaces, reasons, storages)

    def request(self, order: StagingOrder) -> str:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        lifetime, storage = max(1, round(order.lifetime.total_seconds())), ""
        try:
            with self._start_call() as now:
                if order.rule:
                    self._require_ours(order.rule)
                    self._change(order.rule, lifetime)
                    return order.rule
                storage = self._storages.choose(order.site, order.storage, order.kind)
                if self._has_bare_files(order.did, storage, now):
                    reason = (
                        f"files of {order.did} are at {storage} without any rule, now or in the past; after a"
                        " rule of ours Rucio may delete them: ask the data manager for a rule that keeps them"
                    )
                    raise StagingRefused(self.name, reason, RefusalKind.NOT_OURS)
                try:
                    return self._add(order, storage, lifetime)
                except WriteRefused as error:
                    if error.kind != "DuplicateRule":
                        raise
                return self._renew_duplicate(order, storage, lifetime)
        except CatalogueError as error:
            verb, subject = ("renew", order.rule) if order.rule else ("add", order.did)
            raise self._translate(error, verb, subject, storage) from None

    def _add(self, order: StagingOrder, storage: str, lifetime: int) -> str:
        return self._queries.write(
            "add_replication_rule",
            read=_read_rule_id,
            dids=[did_record(order.did)],
            copies=1,
            rse_expression=storage,
            lifetime=lifetime,
            grouping="DATASET",
            activity=self.options.activity,
            source_replica_expression=self._storages.source_expression(order, storage),
            ignore_availability=order.kind is StagingKind.PIN,
            comment=build_comment(order, self.options.pool, storage),
        )

    def _renew_duplicate(self, order: StagingOrder, storage: str, lifetime: int) -> str:
        """Renew the rule of ours that made *order* a duplicate; Rucio may have put it on an archive."""
        tag = make_tag(self.options.pool, order.did, storage)
        found = self._queries.ask_rows(
            "list_replication_rules",
            {"account": self._account, "rse_expression": storage},
            read=lambda row: (str(row.get("comments")), read_text(row, "id")),
        )
        rule = next((rule for comment, rule in found if comment.endswith(tag)), None)
        if rule is None:
            reason = f"account {self._account} has a rule for {order.did} at {storage} that is not ours"
            raise StagingRefused(self.name, reason, RefusalKind.NOT_OURS)
        self._change(rule, lifetime)
        return rule

    def cancel(self, rule: str) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        try:
            with self._start_call():
                self._require_ours(rule)
                try:
                    self._change(rule, _LAST_LIFETIME_SECONDS)
                except WriteRefused as error:
                    if error.kind != "AccessDenied":
                        raise
                    self._delete(rule)
        except CatalogueError as error:
            if not (isinstance(error, WriteRefused) and error.kind == "RuleNotFound"):
                raise self._translate(error, "cancel", rule) from None

    def _require_ours(self, rule: str) -> None:
        """Raise StagingRefused unless *rule* is one of ours, or does not exist."""
        with suppress(NotFound):
            if not fetch_rule(self._queries, rule, self._parse).is_ours:
                reason = f"the rule {rule} does not have our account and our comment"
                raise StagingRefused(self.name, reason, RefusalKind.NOT_OURS)

    def _change(self, rule: str, lifetime: int) -> None:
        self._queries.write("update_replication_rule", rule, {"lifetime": lifetime}, read=bool)

    def _delete(self, rule: str) -> None:
        self._queries.write("delete_replication_rule", rule, purge_replicas=False, read=bool)

    def _translate(self, error: CatalogueError, verb: str, subject: str, storage: str = "") -> StagingError:
        """Return the error of the port for the *error* of a write: one sentence, with what to do about it.

        Args:
            verb: what the write was to do with rules: add, renew or cancel.
            subject: the DID or the rule.
            storage: the RSE of a new rule.
        """
        if isinstance(error, StagingError):
            return error
        account, activity = self._account, self.options.activity
        if isinstance(error, CatalogueDenied):  # a forbidden query before the write is about one dataset only
            kind = RefusalKind.OTHER if isinstance(error, Forbidden) else RefusalKind.PERMISSION
            return StagingRefused(self.name, f"Rucio refuses the account {account}: {error.reason}", kind)
        if not isinstance(error, WriteRefused) or error.kind == "ReplicationRuleCreationTemporaryFailed":
            return StagingFailed(self.name, f"no usable answer to {verb} a rule: {error.reason}")
        kind, sentence = _REFUSALS.get(error.kind, _OTHER)
        if error.kind == "InvalidObject" and storage and f"'{activity}' is not one of" in error.reason:
            kind, sentence = _ACTIVITY
        about = {"account": account, "verb": verb, "subject": subject, "storage": storage}
        sentence = sentence.format(**about, activity=activity, exception=error.kind)
        return StagingRefused(self.name, f"{sentence}: {error.reason}", kind)

    # -- permissions

    def probe_permissions(self) -> StagingPermissions:
        """See :class:`hydrator.domain.staging_ports.Stager`.

        Add a rule for a DID that does not exist, and change a rule that does not exist. Rucio checks the
        permission first, then the quota and the RSE, and the DID or the rule last.
        """
        with self._start_call():
            found, can_ask = self._storages.find_any(), None
            note = "no site of [staging.sites] has one disk, so the permission to add rules is unknown"
            if found:
                site, storage = found
                did = Did(f"classad-hydrator:no-such-dataset-{uuid.uuid4().hex}")
                order = StagingOrder(StagingKind.STAGE, site, did, 1, timedelta(minutes=1))
                note = self._probe("add", lambda: self._add(order, storage, 60), storage)
                can_ask = not note
            can_renew = not self._probe("renew", lambda: self._change(_NO_RULE, 60))
            can_delete = not self._probe("cancel", lambda: self._delete(_NO_RULE))
        return StagingPermissions(can_ask, can_renew, can_renew or can_delete, (note,) if note else ())

    def _probe(self, verb: str, write: Callable[[], object], storage: str = "") -> str:
        """Return why Rucio refuses *write*; empty if it does so only because its subject does not exist."""
        try:
            write()
        except WriteRefused as error:
            if error.kind in {"RuleNotFound", "DataIdentifierNotFound"}:
                return ""
            return self._translate(error, verb, "a dataset", storage).reason
        raise CatalogueGarbled(self.name, "Rucio accepted a test of permissions for what does not exist")


def _read_rule_id(answer: object) -> str:
    """Return the id of the new rule.

    Raises:
        BadRow: the answer is not a list with one id, so the outcome is unknown.
    """
    if not isinstance(answer, list) or len(answer) != 1 or not isinstance(answer[0], str) or not answer[0]:
        raise BadRow(f"expected one rule id, got {quote_excerpt(answer)}")
    return answer[0]

"""DIDs in Rucio: look up whether a DID is a dataset, a container, a file, or absent.

Also list the datasets in a container, and the containers that a dataset is in.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from heapq import nsmallest

from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did

from .poll import DidErrors, Dids, RucioPoll
from .responses import (
    ABSENT_DID,
    UNRESOLVED,
    DidInfo,
    Record,
    read_choice,
    read_did_info,
    read_name,
    require_did,
    require_record,
)
from .session.queries import QueryRunner, SeriesGuard, split_did
from .session.transport import InvalidRequest, NotFound

_MAX_SINGLE_QUERIES = 500  # at most so many names are looked up one by one in one poll
_MAX_ABSENT_RECHECKS = 50  # at most so many absent names are looked up again in one poll


def query_did(queries: QueryRunner, did: Did, **options: object) -> DidInfo:
    """Query a single name. With ``dynamic_depth="FILE"``, Rucio counts its files and adds up their sizes.

    Raises:
        CatalogueError: the query failed, or the answer is about another DID. A 404 is NotFound.
    """

    def read(row: object) -> DidInfo:
        record = require_record(row)
        require_did(record, {did})
        return read_did_info(record)

    return queries.ask("get_did", *split_did(did), read=read, **options)


class DidResolver:
    """A resolver of names: it sends bulk queries; after the poll, single queries for names still missing.

    Names that existed before, new names and absent names are in separate batches. So a new name that makes
    its batch fail does not affect the existing names.
    """

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._dataset_infos: dict[Did, tuple[datetime, DidInfo]] = {}
        self._existing_dids: set[Did] = set()
        self._absent_at: dict[Did, datetime] = queries.create_memory()
        self._refused_dids: set[Did] = set()
        self._late_infos: dict[Did, DidInfo] = queries.create_memory()

    def resolve(self, poll: RucioPoll, dids: Dids) -> dict[Did, DidInfo]:
        """Return Rucio's information about each name; for datasets it is at most ``verify_every`` old.

        After a 404 a name stays absent until the bulk call or a single query finds it. Any other name that
        the bulk call leaves out is UNRESOLVED; :meth:`look_up_unresolved` then queries it.
        """
        errors, now, max_age = poll.errors, poll.started_at, self._queries.settings.verify_every
        cached = {
            did: info for did, info in self._dataset_infos.items() if did in dids and now - info[0] < max_age
        }
        self._refused_dids &= dids
        todo = self._reject_dotted(dids - cached.keys(), errors)
        existing, absent = todo & self._existing_dids, todo & self._absent_at.keys()
        infos: dict[Did, DidInfo] = defaultdict(lambda: UNRESOLVED)
        for group in (existing, todo - existing - absent, absent - self._refused_dids):
            infos.update(self._query_in_bulk(group, errors))
        infos.update((did, self._late_infos.pop(did)) for did in todo & self._late_infos.keys())
        for did in infos:
            self._absent_at.pop(did, None)
            self._refused_dids.discard(did)
        cached.update((did, (now, entry)) for did, entry in infos.items() if entry.kind == "DATASET")
        self._dataset_infos = cached
        self._existing_dids = {*cached, *infos, *(existing & errors.keys())}
        infos.update((did, ABSENT_DID) for did in absent - infos.keys() - errors.keys())
        infos.update((did, entry) for did, (_, entry) in cached.items())
        return infos

    def _reject_dotted(self, dids: Dids, errors: DidErrors) -> Dids:
        """Return the *dids* that a URL can contain: a scope or name ``.`` or ``..`` would change the path."""
        dotted = {did for did in dids if not {".", ".."}.isdisjoint(split_did(did))}
        for did in dotted:
            reason = f"{did}: a DID with the scope or name . or .. cannot be queried: the URL would change"
            errors[did] = CatalogueGarbled(self._queries.name, reason)
        return dids - dotted

    def _query_in_bulk(self, dids: Dids, errors: DidErrors) -> dict[Did, DidInfo]:
        """Look up *dids* by bulk calls; Rucio omits absent names and refuses batches with malformed names."""
        refused: DidErrors = {}
        rows = self._queries.query_in_batches(
            dids, refused, "get_metadata_bulk", lambda _, row: read_did_info(row)
        )
        for did, error in refused.items():
            if isinstance(error, InvalidRequest):
                self._refused_dids.add(did)
            else:
                errors[did] = error
        return {did: infos[-1] for did, infos in rows.items() if infos}

    def look_up_unresolved(self, poll: RucioPoll, dids: Dids, within_seconds: float) -> None:
        """Query the unresolved *dids* one by one: only a 404 makes a name absent.

        Query at most 500 names, the oldest attempt first, and stop after *within_seconds*. The next poll
        reads the names that are found. Up to 50 names that have been absent for ``verify_every`` are queried
        again.
        """
        errors, infos = poll.errors, poll.did_infos
        unresolved = {did for did in dids if infos[did].kind == UNRESOLVED.kind and did not in errors}
        in_order = self._queries.hold_back(poll, "name", unresolved)
        todo = [*in_order[:_MAX_SINGLE_QUERIES], *self._absent_to_recheck(poll.started_at)][::-1]
        query_count = 0
        if todo and within_seconds > 0:
            with self._queries.connection.start_poll(within_seconds):
                query_count = self._query_one_by_one(poll, todo)
        for did in in_order:
            if did not in errors and infos[did].kind == UNRESOLVED.kind:
                reason = f"its name was not looked up: {query_count} other names came first in this poll"
                errors[did] = CatalogueUnreachable(self._queries.name, reason)

    def _query_one_by_one(self, poll: RucioPoll, todo: list[Did]) -> int:
        """Query *todo*, from last to first, until a SeriesGuard ends it; return the number of queries."""
        query_count, guard = 0, SeriesGuard(self._queries)
        for did, answer in self._queries.run_series(poll, "name", todo, self.query_one, guard):
            query_count += 1
            if isinstance(answer, CatalogueError):
                if did in self._absent_at:
                    del poll.errors[did]  # it stays absent
            elif answer is ABSENT_DID:
                poll.did_infos[did] = answer
                self._absent_at[did] = poll.started_at
            else:
                self._late_infos[did] = answer
                poll.errors[did] = CatalogueUnreachable(
                    self._queries.name, "Rucio has this name now; the next poll reads its replicas"
                )
        return query_count

    def _absent_to_recheck(self, now: datetime) -> list[Did]:
        """Return up to 50 absent names to query again: Rucio's bulk call may leave out existing names."""
        every = self._queries.settings.verify_every
        due = (did for did, at in self._absent_at.items() if now - at >= every and at < now)

        def turn(did: Did) -> tuple[datetime, Did]:
            return max(self._absent_at[did], self._queries.failed.failed_at(("name", did))), did

        return nsmallest(_MAX_ABSENT_RECHECKS, due, key=turn)

    def confirm_absent(self, poll: RucioPoll, dids: Dids) -> None:
        """Mark each of *dids* as absent if its query ended with 404 and the bulk call leaves it out, too."""
        missing = {did for did in dids if isinstance(poll.errors.get(did), NotFound)}
        for did in missing:
            self._dataset_infos.pop(did, None)
        failures: DidErrors = {}
        infos = self._query_in_bulk(missing, failures)
        absent = missing - infos.keys() - failures.keys()
        self._existing_dids -= absent
        for did in absent:
            self._absent_at[did] = poll.started_at
            poll.did_infos[did] = ABSENT_DID
            del poll.errors[did]

    def resolve_uncached(self, dids: Dids, errors: DidErrors) -> dict[Did, DidInfo]:
        """Return Rucio's information about each of *dids*; use no cache. This is for a few names only."""
        infos: dict[Did, DidInfo] = defaultdict(lambda: UNRESOLVED)
        infos.update(self._query_in_bulk(self._reject_dotted(dids, errors), errors))
        for did in sorted(dids - infos.keys() - errors.keys()):
            try:
                infos[did] = self.query_one(did)
            except CatalogueError as exc:
                errors[did] = exc
        return infos

    def query_one(self, did: Did) -> DidInfo:
        """Query a single name; return ``ABSENT_DID`` after a 404.

        Raises:
            CatalogueError: the query failed for another reason than 404.
        """
        try:
            return query_did(self._queries, did)
        except NotFound:
            return ABSENT_DID

    def is_any_open(self, dids: Iterable[Did]) -> bool:
        """Return whether one of *dids* was open when it was last looked up; an open dataset may grow."""
        return any(self._dataset_infos[did][1].is_open for did in dids if did in self._dataset_infos)


_COLLECTION_TYPES = frozenset({"CONTAINER", "DATASET"})
_MAX_PARTS, _MAX_PARENTS = 10_000, 50


class ContainerLister:
    """A lister of the datasets in containers, at any depth; a container whose listing failed comes last."""

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries

    def list_all(self, poll: RucioPoll, containers: Dids) -> dict[Did, frozenset[Did]]:
        """Return the datasets in each of *containers*; store errors in ``poll.errors``."""
        members = dict.fromkeys(containers, frozenset[Did]())
        jobs = self._queries.hold_back(poll, "members", containers)[::-1]
        guard = SeriesGuard(self._queries)
        for did, answer in self._queries.run_series(poll, "members", jobs, self.list_members, guard):
            if not isinstance(answer, CatalogueError):
                members[did] = answer
        reason = "its datasets were not listed: Rucio did not answer for other containers"
        poll.errors.update(dict.fromkeys(jobs, CatalogueUnreachable(self._queries.name, reason)))
        return members

    def list_members(self, container: Did) -> frozenset[Did]:
        """Return all datasets in *container*, at any depth.

        Raises:
            CatalogueError: the datasets cannot be listed, or are more than 10,000.
        """
        visited, todo, datasets = {container}, [container], set[Did]()
        while todo:
            parent = todo.pop()
            children = self._queries.ask_rows("list_content", *split_did(parent), read=_read_child)
            for child, kind in children:
                if kind == "CONTAINER" and child not in visited:
                    visited.add(child)
                    todo.append(child)
                elif kind == "DATASET":
                    datasets.add(child)
            if len(datasets) > _MAX_PARTS:
                raise CatalogueGarbled(self._queries.name, f"{container} has more than {_MAX_PARTS} datasets")
        return frozenset(datasets)


class ParentFinder:
    """A cache of the containers of datasets: parents, parents of parents, and so on."""

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._parents: dict[Did, tuple[datetime, frozenset[Did]]] = queries.create_memory()

    def last_parents(self, did: Did) -> frozenset[Did]:
        """Return the containers of *did* from the last query, however old; none if there was no query."""
        return self._parents[did][1] if did in self._parents else frozenset()

    def find(self, did: Did, now: datetime, *, keep: bool = True) -> frozenset[Did]:
        """Return the containers of *did*; query Rucio if the last answer is older than ``verify_every``.

        If *keep* is true, store a new answer in the cache.

        Raises:
            CatalogueError: the query failed.
        """
        cached = self._parents.get(did)
        if cached and now - cached[0] < self._queries.settings.verify_every:
            return cached[1]
        parents = self._query(did)
        if keep:
            self._parents[did] = (now, parents)
        return parents

    def _query(self, did: Did) -> frozenset[Did]:
        parents: set[Did] = set()
        todo = [did]
        while todo and len(parents) < _MAX_PARENTS:
            above = self._query_direct(todo.pop())
            todo += above - parents
            parents |= above
        return frozenset(parents)

    def _query_direct(self, did: Did) -> set[Did]:
        """Return the containers that have *did* as a direct child."""
        try:
            return set(self._queries.ask_rows("list_parent_dids", *split_did(did), read=read_name))
        except NotFound:
            return set()


def _read_child(row: Record) -> tuple[Did, str]:
    """Return a child of a container and its type.

    Raises:
        BadRow: the row is unreadable. The list must be complete.
    """
    return read_name(row), read_choice(_COLLECTION_TYPES, row, "type")

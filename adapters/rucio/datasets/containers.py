"""Containers of Rucio: the datasets in a container, and the containers that a dataset is in."""

from datetime import datetime
from typing import Any

from adapters.rucio.background import BackgroundVerifier
from adapters.rucio.poll import NEVER, Dids, RucioPoll, drop_all_but
from adapters.rucio.responses import BadRow, Rows, iter_records, read_choice, read_did
from adapters.rucio.session.queries import QueryRunner, is_unanswered, split_did
from adapters.rucio.session.transport import NotFound
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did

from .dids import parse_did_info

_COLLECTION_TYPES = frozenset({"CONTAINER", "DATASET"})
_MAX_PARENTS = 50
_PARENTS_CALL = "list_parent_dids"


class ContainerLister:
    """A lister of the datasets in containers, at any depth.

    If a listing fails, the *background* retries it, and the container comes last in the next poll.
    """

    def __init__(self, queries: QueryRunner, background: BackgroundVerifier[Any, Any] | None = None) -> None:
        self._queries = queries
        self._background = background
        self._failed_at: dict[Did, datetime] = {}

    def list_all(self, poll: RucioPoll, containers: Dids) -> dict[Did, frozenset[Did]]:
        """Return the datasets in each of *containers*; store errors in ``poll.errors``."""
        drop_all_but(containers, self._failed_at)
        members: dict[Did, frozenset[Did]] = {}
        unanswered = 0
        for did in sorted(containers, key=lambda each: (self._failed_at.get(each, NEVER), each)):
            members[did] = frozenset()
            if self._background and (error := self._background.error_of(("members", did))):
                poll.errors[did] = error
            elif unanswered >= self._queries.max_unanswered:
                poll.errors[did] = CatalogueUnreachable(
                    self._queries.name,
                    "its datasets were not listed: Rucio did not answer for other containers",
                )
            else:
                try:
                    members[did] = self.list_members(did)
                except CatalogueError as error:
                    poll.errors[did] = error
                    self._failed_at[did] = poll.started_at
                    unanswered += is_unanswered(error)
                    self._retry_in_background(did, error)
        return members

    def list_members(self, container: Did) -> frozenset[Did]:
        """Return all datasets in *container*, at any depth.

        Raises:
            CatalogueError: the datasets cannot be listed, or are more than ``max_parts``.
        """
        limit = self._queries.settings.max_parts
        visited, todo, datasets = {container}, [container], set[Did]()
        while todo:
            for child, kind in self._list_children(todo.pop()):
                if kind == "CONTAINER" and child not in visited:
                    visited.add(child)
                    todo.append(child)
                elif kind == "DATASET":
                    datasets.add(child)
            if len(datasets) > limit:
                raise CatalogueGarbled(self._queries.name, f"{container} has more than {limit} datasets")
        return frozenset(datasets)

    def query_size(self, container: Did) -> int:
        """Let Rucio add up the sizes of all files in *container*; return the bytes.

        Raises:
            CatalogueError: the query failed.
        """
        return self._queries.ask(
            lambda client: client.get_did(*split_did(container), dynamic_depth="FILE"),
            lambda row: parse_did_info(row, container).bytes_total or 0,
        )

    def _list_children(self, container: Did) -> list[tuple[Did, str]]:
        return self._queries.ask(lambda client: client.list_content(*split_did(container)), _parse_content)

    def _retry_in_background(self, did: Did, error: CatalogueError) -> None:
        if self._background:
            self._background.retry_later(
                ("members", did), error, lambda queries: ContainerLister(queries).list_members(did)
            )


class ParentFinder:
    """A cache of the containers of datasets: parents, parents of parents, and so on."""

    def __init__(self, queries: QueryRunner) -> None:
        self._queries = queries
        self._parents: dict[Did, tuple[datetime, frozenset[Did]]] = {}

    def forget_all_but(self, dids: Dids) -> None:
        """Forget the containers of all datasets but *dids*."""
        drop_all_but(dids, self._parents)

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
            parents = self._queries.ask(
                lambda client: client.list_parent_dids(*split_did(did)),
                lambda rows: {read_did(row, _PARENTS_CALL) for row in iter_records(rows, _PARENTS_CALL)},
            )
        except NotFound:
            return set()
        return {each for each in parents if each}


def _parse_content(rows: Rows) -> list[tuple[Did, str]]:
    """Return the children of a container and their types.

    Raises:
        BadRow: a row is unreadable, or a child's name is not a valid DID. The list must be complete.
    """
    children = []
    for row in iter_records(rows, "list_content"):
        did = read_did(row, "list_content")
        if did is None:
            raise BadRow(f"list_content: {row['scope']}:{row['name']} is not a DID that can be queried")
        children.append((did, read_choice(_COLLECTION_TYPES, row, "type", "list_content")))
    return children

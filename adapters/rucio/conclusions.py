"""Conclusions of a poll: compute the replicas of each DID from counts, effects of rules, and RSEs.

The rules for the states are in :mod:`.states`; this module adds caches and progress.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from hydrator.domain.errors import CatalogueError, CatalogueGarbled
from hydrator.domain.model import Did, ReplicaState, Seen, Site

from .datasets.containers import ContainerLister
from .datasets.dids import DidResolver
from .eta import ProgressTracker
from .poll import Dids, Replicas, RucioPoll, drop_all_but
from .replicas import CountWithRows, DatasetCount
from .responses import BadRow, Counts, Rse, Rses
from .rse_directory import RseDirectory
from .rules.locks import LockTracker
from .rules.model import Movements
from .states import apply_did_expiry, combinable_storages, container_replicas, dataset_replicas

SiteGrouping = Callable[[AbstractSet[Site]], AbstractSet[AbstractSet[Site]]]


@dataclass(frozen=True, slots=True)
class _CachedReplicas:
    """The replicas of a dataset that is not moving, and the objects from which they were computed.

    The cache is valid only while these objects are the same (``is``). Data that changes with time alone, for
    example a rule with an end, is a new object in every poll.
    """

    counts: Counts
    movements: Movements
    rses: Rses
    replicas: Replicas

    def is_valid_for(self, counts: Counts, movements: Movements, rses: Rses) -> bool:
        return self.counts is counts and self.movements is movements and self.rses is rses


class DatasetConclusions:
    """A builder of the replicas of datasets, with a cache from poll to poll.

    *group_sites* returns groups of sites: a job at any site of a group reads the storage of all its sites.
    """

    def __init__(
        self,
        rses: RseDirectory,
        lock_tracker: LockTracker,
        group_sites: SiteGrouping,
    ) -> None:
        self._rses = rses
        self._lock_tracker = lock_tracker
        self._group_sites = group_sites
        self._progress = ProgressTracker()
        self._cached_replicas: dict[Did, _CachedReplicas] = {}
        self._site_groups: tuple[Rses, AbstractSet[AbstractSet[Site]]] | None = None
        self.shared_counts: dict[Did, Counts] = {}
        """The counts of datasets whose parts at several storage elements may be complete together."""

    def start_poll(self, dids: Dids) -> None:
        """Start a poll of *dids*; forget all other DIDs."""
        self._progress.forget_all_but(dids)
        self.shared_counts = {}
        drop_all_but(dids, self._cached_replicas)

    def storages_needing_history(
        self, poll: RucioPoll, did: Did, counts: Counts, movements: Movements
    ) -> frozenset[str]:
        """Return storage elements with usable data but no rule; the caller queries their rule histories."""
        cached = self._cached_replicas.get(did)
        if cached and cached.is_valid_for(counts, movements, poll.rses):
            return frozenset()
        complete = {
            name for name, count in counts.items() if count.is_complete and _is_on_disk_at_site(poll, name)
        }
        parts = self._combinable_storages(poll, counts, movements, poll.rses)
        return self._lock_tracker.storages_needing_history(poll, did, complete | parts, movements)

    def conclude(
        self,
        poll: RucioPoll,
        did: Did,
        count_with_rows: CountWithRows,
        movements: Movements,
    ) -> None:
        """Evaluate *did* and store its reading in *poll*."""
        dataset_count, rows = count_with_rows
        row_amounts = (row.amount for row in rows if row.amount.length > 0)
        count = next(iter(dataset_count.counts.values()), None) or next(row_amounts, None)
        did_info = poll.did_infos.get(did)
        ends_at = did_info.ends_at if did_info else None
        if count:
            size: int | None = int(count.bytes)
        elif dataset_count.is_empty:
            size = 0
        else:
            size = did_info.bytes_total if did_info else None
        poll.conclude(did, size, partial(self._build_replicas, poll, did, dataset_count, movements, ends_at))
        if dataset_count.is_empty:
            poll.empty_datasets.add(did)

    def _build_replicas(
        self,
        poll: RucioPoll,
        did: Did,
        dataset_count: DatasetCount,
        movements: Movements,
        ends_at: datetime | None,
    ) -> Replicas:
        counts = dataset_count.counts
        cached = self._cached_replicas.get(did)
        if cached and ends_at is None and cached.is_valid_for(counts, movements, poll.rses):
            return cached.replicas
        rses = self._add_unlisted_rses(poll, counts.keys() | movements.keys())
        replicas = dataset_replicas(did, counts, movements, rses, held_until=poll.held_until)
        replicas = apply_did_expiry(replicas, ends_at, poll.held_until)
        replicas = self._progress.add_estimates(replicas, poll.started_at)
        parts = self._combinable_storages(poll, counts, movements, rses)
        if parts and (ends_at is None or ends_at > poll.held_until):
            self.shared_counts[did] = {name: counts[name] for name in parts}
        is_moving = any(replica.state is ReplicaState.INCOMING for replica in replicas)
        if ends_at is None and not parts and not is_moving:
            self._cached_replicas[did] = _CachedReplicas(counts, movements, poll.rses, replicas)
        return replicas

    def _combinable_storages(
        self,
        poll: RucioPoll,
        counts: Counts,
        movements: Movements,
        rses: Rses,
    ) -> frozenset[str]:
        if self._site_groups is None or self._site_groups[0] is not poll.rses:
            sites = frozenset(site for rse in poll.rses.values() for site in rse.sites)
            self._site_groups = poll.rses, self._group_sites(sites)
        return combinable_storages(counts, movements, rses, self._site_groups[1], poll.held_until)

    def _add_unlisted_rses(self, poll: RucioPoll, names: AbstractSet[str]) -> Rses:
        """Return the storage elements of *poll*, and the elements in *names* that list_rses left out.

        Raises:
            BadRow: a storage element in *names* cannot be queried.
        """
        unlisted = dict[str, Rse]()
        for name in sorted(names - poll.rses.keys()):
            rse = self._rses.find_unlisted(name, poll.started_at)
            if rse is None:
                raise BadRow(f"there is data at {name}, which list_rses did not list")
            unlisted[name] = rse
        return {**poll.rses, **unlisted} if unlisted else poll.rses


class ContainerConclusions:
    """A builder of the replicas of containers from the replicas of their datasets."""

    def __init__(
        self, lister: ContainerLister, member_resolver: DidResolver, verify_every: timedelta
    ) -> None:
        self._lister = lister
        self._member_resolver = member_resolver
        self._verify_every = verify_every
        self._complete_lists: dict[Did, tuple[datetime, Dids]] = {}

    def conclude_all(self, poll: RucioPoll) -> None:
        """Evaluate all containers of *poll* and store their readings, after all datasets are evaluated."""
        members_by_container = poll.members_by_container
        drop_all_but(members_by_container.keys(), self._complete_lists)
        for did, members in members_by_container.items():
            self._conclude(poll, did, members, poll.did_infos[did].ends_at)

    def _conclude(self, poll: RucioPoll, container: Did, members: Dids, ends_at: datetime | None) -> None:
        unseen = sorted(did for did in members if did in poll.errors)
        if unseen:
            first: CatalogueError = poll.errors[unseen[0]]
            reason = (
                f"{len(unseen)} of its {len(members)} datasets are unseen, first {unseen[0]}: {first.reason}"
            )
            poll.errors[container] = type(first)(poll.name, reason)
        self._check_members(poll, container, members)
        if container in poll.errors:
            return
        parts = [poll.conclusions[did] for did in sorted(members) if did not in poll.empty_datasets]
        sizes = [part.bytes_total for part in parts]
        total = sum(size for size in sizes if size is not None) if None not in sizes else None
        replicas = container_replicas(container, parts) if parts else ()
        replicas = apply_did_expiry(replicas, ends_at, poll.held_until)
        poll.conclusions[container] = Seen(poll.started_at, replicas, total)

    def _check_members(self, poll: RucioPoll, container: Did, members: Dids) -> None:
        """Store an error of *container* in ``poll.errors`` if its list of datasets is incomplete.

        The list is incomplete if its datasets have fewer bytes than Rucio counts for the container. The
        check runs when the list has changed, and once in ``verify_every``. Containers with an open dataset
        are not checked: the dataset may have grown between the two queries.
        """
        if container in poll.errors or self._is_list_checked(poll, container, members):
            return
        total = sum(poll.conclusions[did].bytes_total or 0 for did in members)
        try:
            size = self._lister.query_size(container)
        except CatalogueError as exc:
            poll.errors[container] = exc
            return
        if size > total and not self._member_resolver.is_any_open(members):
            reason = f"its list has {len(members)} datasets with {total} bytes, but Rucio counts {size} bytes"
            poll.errors[container] = CatalogueGarbled(poll.name, f"{container}: {reason}")
            return
        self._complete_lists[container] = poll.started_at, members

    def _is_list_checked(self, poll: RucioPoll, container: Did, members: Dids) -> bool:
        last_check = self._complete_lists.get(container)
        return (
            last_check is not None
            and poll.started_at - last_check[0] < self._verify_every
            and last_check[1] == members
        )


def _is_on_disk_at_site(poll: RucioPoll, name: str) -> bool:
    """Return whether the storage element *name* is a disk and belongs to a site."""
    rse = poll.rses.get(name)
    return rse is not None and not rse.is_tape and bool(rse.sites)

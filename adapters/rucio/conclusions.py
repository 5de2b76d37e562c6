"""Conclusions of a poll: compute the replicas of each DID from counts, effects of rules, and RSEs.

The rules for the states are in :mod:`.states`; this module adds caches, and from the progress of moving
datasets the time of their completion.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from operator import is_
from statistics import linear_regression
from typing import Any

from hydrator.domain.errors import CatalogueError, CatalogueGarbled
from hydrator.domain.model import DatasetState, Did, Replica, Seen, Site

from .dids import DidResolver, query_did
from .locks import LockTracker
from .poll import Dids, Replicas, RucioPoll
from .replicas import DatasetCount
from .responses import Counts, Rses
from .rse_directory import RseDirectory
from .session.queries import QueryRunner
from .states import Movements, apply_did_expiry, combinable_storages, container_replicas, dataset_replicas

Sample = tuple[datetime, float]
"""The time of an observation, and the fraction (0 to 1) that had arrived."""

_MIN_SAMPLES = 3
_MAX_SAMPLES = 60
_MAX_REMAINING = timedelta(days=365)
_GROWTH_MEMORY = timedelta(hours=1)
_ROUNDING_SECONDS = 10  # rounding: small changes of an estimate do not change the ad


class ProgressTracker:
    """Samples of the fraction of each moving replica; they are deleted when the replica stops moving."""

    def __init__(self, create_memory: Callable[[], dict[Did, Any]] = dict) -> None:
        self._samples: dict[Did, dict[str, deque[Sample]]] = create_memory()
        self._lengths: dict[Did, tuple[int, datetime | None]] = create_memory()
        """The number of files of each dataset, or of datasets of each container, and the time it grew."""

    def has_grown(self, did: Did, length: int, now: datetime) -> bool:
        """Record the number of files or datasets of *did*; return whether it grew in the last hour."""
        last, grew_at = self._lengths.get(did, (length, None))
        if length > last > 0:
            grew_at = now
        self._lengths[did] = length, grew_at
        return grew_at is not None and now - grew_at < _GROWTH_MEMORY

    def add_estimates(self, replicas: Iterable[Replica], now: datetime) -> Replicas:
        """Return the *replicas* of one dataset; moving replicas get an estimate of their completion time."""
        return tuple(self._add_estimate(replica, now) for replica in replicas)

    def _add_estimate(self, replica: Replica, now: datetime) -> Replica:
        by_storage = self._samples.setdefault(replica.did, {})
        if replica.state is not DatasetState.STAGING or replica.fraction is None:
            by_storage.pop(replica.storage, None)
            return replica
        samples = by_storage.setdefault(replica.storage, deque(maxlen=_MAX_SAMPLES))
        if samples and replica.fraction < samples[-1][1]:
            samples.clear()  # files went bad, or the dataset grew: older samples are no longer valid
        samples.append((now, replica.fraction))
        ready_at = estimate_completion(tuple(samples))
        if ready_at is None:
            return replica
        rounded = ready_at - timedelta(seconds=ready_at.timestamp() % _ROUNDING_SECONDS)
        return replace(replica, provenance=replace(replica.provenance, ready_at=rounded))


def estimate_completion(samples: Sequence[Sample]) -> datetime | None:
    """Estimate the time when the fraction on disk reaches 1, by a straight line through *samples*.

    Args:
        samples: times and fractions, in order of time.

    Returns:
        None if there are fewer than three samples, if the fraction does not grow, or if the estimated time
        is more than a year after the last sample.
    """
    times = [(at - samples[0][0]).total_seconds() for at, _ in samples]
    shares = [share for _, share in samples]
    if len(samples) < _MIN_SAMPLES or shares[-1] <= shares[0] or times[-1] <= 0:
        return None
    slope, height = linear_regression(times, shares)
    if slope <= 0:
        return None
    ready = (1 - height) / slope
    if ready - times[-1] > _MAX_REMAINING.total_seconds():
        return None
    return samples[0][0] + timedelta(seconds=max(ready, times[-1]))


SiteGrouping = Callable[[AbstractSet[Site]], AbstractSet[AbstractSet[Site]]]


class DatasetConclusions:
    """A builder of the replicas of datasets, with a cache from poll to poll.

    The cache has datasets that are not moving. It is valid only while the objects from which it was computed
    are the same (``is``). Data that changes with time alone, for example a rule with an end, is a new object
    in every poll.
    *group_sites* returns groups of sites: a job at any site of a group reads the storage of all its sites.
    """

    def __init__(
        self, queries: QueryRunner, rses: RseDirectory, lock_tracker: LockTracker, group_sites: SiteGrouping
    ) -> None:
        self._rses = rses
        self._lock_tracker = lock_tracker
        self._group_sites = group_sites
        self._progress = ProgressTracker(queries.create_memory)
        self._cached_replicas: dict[Did, tuple[tuple[Counts, Movements, Rses], Replicas]]
        self._cached_replicas = queries.create_memory()
        self._site_groups: tuple[Rses, AbstractSet[AbstractSet[Site]]] | None = None

    def storages_needing_history(
        self, poll: RucioPoll, did: Did, counts: Counts, movements: Movements
    ) -> frozenset[str]:
        """Return storage elements with usable data but no rule; the caller queries their rule histories."""
        if self._find_cached(did, counts, movements, poll.rses) is not None:
            return frozenset()
        complete = {
            name for name, count in counts.items() if count.is_complete and _is_on_disk_at_site(poll, name)
        }
        parts = self._combinable_storages(poll, counts, movements)
        return self._lock_tracker.storages_needing_history(poll, did, complete | parts, movements)

    def conclude(
        self,
        poll: RucioPoll,
        did: Did,
        dataset_count: DatasetCount,
        movements: Movements,
    ) -> None:
        """Evaluate *did* and store its reading in *poll*."""
        row_amounts = (row.amount for row in dataset_count.rows if row.amount.length > 0)
        count = next(iter(dataset_count.counts.values()), None) or next(row_amounts, None)
        did_info = poll.did_infos.get(did)
        ends_at = did_info.ends_at if did_info else None
        size: int | None = int(count.bytes) if count else 0
        if not (size or dataset_count.is_empty):
            size = did_info.bytes_total if did_info else None
        storages = dataset_count.counts.keys() | movements.keys()
        build = partial(self._build_replicas, poll, did, dataset_count, movements, ends_at)
        poll.conclude(did, size, storages, build)
        if dataset_count.doubtful_storages and did in poll.conclusions:
            doubtful = (poll.rses[name].sites for name in dataset_count.doubtful_storages & poll.rses.keys())
            poll.conclusions[did] = _leave_open(poll.conclusions[did], frozenset().union(*doubtful))
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
        cached = self._find_cached(did, counts, movements, poll.rses)
        if cached is not None and ends_at is None:
            return cached
        sources = counts, movements, poll.rses
        if doubtful := dataset_count.doubtful_storages:
            movements = {name: each for name, each in movements.items() if name not in doubtful}
        self._rses.add_unlisted(counts.keys() | movements.keys(), poll.started_at)
        replicas = dataset_replicas(did, counts, movements, poll.rses, held_until=poll.held_until)
        replicas = apply_did_expiry(replicas, ends_at, poll.held_until)
        length = max((count.length for count in counts.values()), default=0)
        if self._progress.has_grown(did, length, poll.started_at):
            replicas = tuple(map(_mark_growing, replicas))
        else:
            replicas = self._progress.add_estimates(replicas, poll.started_at)
        parts = self._combinable_storages(poll, counts, movements)
        if parts and (ends_at is None or ends_at > poll.held_until):
            poll.shared_counts[did] = {name: counts[name] for name in parts}
        is_moving = any(replica.state is DatasetState.STAGING for replica in replicas)
        if ends_at is None and not parts and not is_moving:
            self._cached_replicas[did] = sources, replicas
        return replicas

    def _combinable_storages(
        self,
        poll: RucioPoll,
        counts: Counts,
        movements: Movements,
    ) -> frozenset[str]:
        if self._site_groups is None or self._site_groups[0] is not poll.rses:
            sites = frozenset(site for rse in poll.rses.values() for site in rse.sites)
            self._site_groups = poll.rses, self._group_sites(sites)
        return combinable_storages(counts, movements, poll.rses, self._site_groups[1], poll.held_until)

    def _find_cached(self, did: Did, *sources: Counts | Movements | Rses) -> Replicas | None:
        """Return the replicas that were computed from the objects *sources*."""
        last, replicas = self._cached_replicas.get(did, ((), ()))
        return replicas if last and all(map(is_, last, sources)) else None


class ContainerConclusions:
    """A builder of the replicas of containers from the replicas of their datasets."""

    def __init__(self, queries: QueryRunner, member_resolver: DidResolver) -> None:
        self._queries = queries
        self._member_resolver = member_resolver
        self._complete_lists: dict[Did, tuple[datetime, Dids]] = queries.create_memory()
        self._progress = ProgressTracker(queries.create_memory)

    def conclude_all(self, poll: RucioPoll) -> None:
        """Evaluate all containers of *poll* and store their readings, after all datasets are evaluated."""
        for did, members in poll.members_by_container.items():
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
        if self._progress.has_grown(container, len(members), poll.started_at):
            replicas = tuple(map(_mark_growing, replicas))
        replicas = apply_did_expiry(replicas, ends_at, poll.held_until)
        doubtful = frozenset[Site]().union(*(part.unreachable_sites for part in parts))
        poll.conclusions[container] = _leave_open(Seen(poll.started_at, replicas, total), doubtful)

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
            info = query_did(self._queries, container, dynamic_depth="FILE")
        except CatalogueError as exc:
            poll.errors[container] = exc
            return
        size = info.bytes_total or 0
        if size > total and not self._member_resolver.is_any_open(members):
            reason = f"its list has {len(members)} datasets with {total} bytes, but Rucio counts {size} bytes"
            poll.errors[container] = CatalogueGarbled(poll.name, f"{container}: {reason}")
            return
        self._complete_lists[container] = poll.started_at, members

    def _is_list_checked(self, poll: RucioPoll, container: Did, members: Dids) -> bool:
        last_check = self._complete_lists.get(container)
        return (
            last_check is not None
            and poll.started_at - last_check[0] < self._queries.settings.verify_every
            and last_check[1] == members
        )


def _leave_open(seen: Seen, sites: AbstractSet[Site]) -> Seen:
    """Return *seen*, which concludes nothing at *sites*."""
    replicas = tuple(replica for replica in seen.replicas if replica.site not in sites)
    sites = seen.unreachable_sites | sites
    return replace(seen, replicas=replicas, unreachable_sites=sites) if sites else seen


def _mark_growing(replica: Replica) -> Replica:
    """Return *replica* of a DID that gets more files or datasets: it has no time of completion."""
    if replica.state is not DatasetState.STAGING:
        return replica
    reason = "the dataset is open: it still grows"
    provenance = replace(replica.provenance, reason=reason, ready_at=None)
    return replace(replica, provenance=provenance)


def _is_on_disk_at_site(poll: RucioPoll, name: str) -> bool:
    """Return whether the storage element *name* is a disk and belongs to a site."""
    rse = poll.rses.get(name)
    return rse is not None and not rse.is_tape and bool(rse.sites)

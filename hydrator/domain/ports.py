"""Ports: the protocols that adapters implement. The core imports these protocols and no adapter.

They are the ports to catalogues and publishers, and those to the schedds, slots and other daemons of a pool.
:mod:`hydrator.domain.staging_ports` has the protocol of catalogues that stage data. A contract suite in
``tests/contracts`` tests every adapter of a protocol, also the in-memory adapters.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import (
    DatasetFile,
    Did,
    PublishedAd,
    ScheddDemand,
    Site,
    SiteAd,
    Survey,
    Unseen,
)

T = TypeVar("T")
Clock = Callable[[], datetime]
"""A function that returns the current time as an aware UTC datetime."""


class StepReporter(Protocol):
    """A display of the steps of a task, such as a progress bar; called from any thread."""

    def set_steps(self, count: int) -> None:
        """Set the number of all steps."""

    def advance(self) -> None:
        """Record that one step has ended."""


class Catalogue(Protocol):
    """A service that knows which replicas exist where."""

    @property
    def name(self) -> str:
        """The name in the configuration, unique among catalogues."""

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Return the location of each of *dids*.

        The survey has a reading, Seen or Unseen, for every DID of the query. A DID
        that the catalogue does not know is Seen without replicas. A DID whose
        location the catalogue could not read is Unseen. The survey never omits this
        DID, and never returns it as Seen without replicas.

        If the catalogue cannot query some or all storage of a site, the site is in
        ``unreachable_sites`` of every affected reading. The reading still has the
        replicas on other storage of the site. *dids* may be empty: the survey then
        has only the sites. If an earlier survey named a site and this survey does not, the daemon assumes
        that the catalogue did not query this site.

        Raises:
            CatalogueError: the catalogue gave no answer. The daemon concludes nothing
                from this, least of all that the catalogue is empty.
        """

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Return all datasets whose DIDs match one of *patterns* (``*``, ``?``, ``[…]``; case-sensitive).

        Raises:
            CatalogueError: the catalogue could not find all matching datasets; an incomplete result is
                never returned.
        """

    def close(self) -> None:
        """Close connections and files."""


class FileLister(Protocol):
    """A catalogue that can list the files of a dataset."""

    @property
    def name(self) -> str:
        """The name of the catalogue."""

    def list_files(
        self, dids: AbstractSet[Did], storages: AbstractSet[str], max_files: int
    ) -> Mapping[Did, tuple[DatasetFile, ...] | CatalogueError]:
        """List the files of each of *dids*, ordered by name. For the DID of a file, return only this file.

        Args:
            dids: datasets, containers and files. The result omits a DID that the catalogue does not know.
            storages: the storage elements for which the result has the address of each file.
            max_files: the limit on the files of all *dids* together. A dataset that exceeds the limit gets
                an error instead of its files.

        Raises:
            CatalogueError: the catalogue could not be queried at all.
        """

    def close(self) -> None:
        """Close connections and files."""


class Publisher(Protocol):
    """A destination for site ads, from which the daemon can read the ads back."""

    @property
    def name(self) -> str:
        """The name in the configuration: ``collector``, ``file``, ``http`` or ``sites``."""

    def published(self) -> Mapping[Site, PublishedAd]:
        """Return the ads that others can read from this publisher now, by site.

        Raises:
            PublishError: the query failed; this does not mean that the publisher has no ads.
        """

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """Send *ads*; each replaces the ad of its site.

        A return without an error does not prove that the ads arrived. Only ``published`` proves this.

        Raises:
            PublishError: the publisher could not send some or all of *ads*.
        """

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """Remove the ads of *sites*; a site without an ad is not an error.

        Raises:
            PublishError: the publisher could not remove some or all of the ads.
        """


@runtime_checkable
class RejectionReporter(Protocol):
    """A publisher that reports which published ads it read back and rejected."""

    @property
    def rejected(self) -> Mapping[str, str]:
        """Return the reason for each ad that the last call of ``published`` rejected, by the ad's name."""


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of one run of the slot merge at one collector.

    It sent attributes to ``merged_count`` slots and removed them from
    ``withdrawn_count`` slots; the collector does not acknowledge this.
    ``error`` is the reason why the run ended early.
    """

    merged_count: int = 0
    withdrawn_count: int = 0
    error: str | None = None


MergeSlots = Callable[[Mapping[Site, SiteAd], Callable[[Site], bool]], Mapping[str, MergeResult]]
"""A run of the slot merge at every collector: the site ads, and whether a site is retired."""
EndedJobsAnswer = Mapping[str, "EndedJobs | Unseen"]
"""The ended jobs by schedd, or the reason of a missing answer."""


@dataclass(frozen=True, slots=True)
class SlotAdVersion:
    """The site of one slot, and the generation of its site ad; None if it has no site ad."""

    site: str | None
    generation: int | None


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """Jobs that left the queue of one schedd, the last job first.

    ``is_complete`` is False if there may be further jobs that this answer does not have. Each job has
    attributes of its job ad. The job's owner wrote these attributes, so do not trust them.
    :func:`hydrator.diagnostics.outcomes.parse_ended_job` lists the keys.
    """

    jobs: tuple[Mapping[str, Any], ...]
    is_complete: bool


class Resources(NamedTuple):
    """Cores, memory in MiB, disk in KiB and GPUs: those that one job asks for, or those of one slot."""

    cpus: float = 1.0
    memory_mib: float = 0.0
    disk_kib: float = 0.0
    gpus: float = 0.0

    def count_in(self, slot: "Resources") -> int:
        """Return how many jobs that ask for this fit into *slot* together.

        A startd rounds requests up, and takes them as they are where the rounded ones do not fit:
        MODIFY_REQUEST_EXPR_REQUESTMEMORY and others, and MUST_MODIFY_REQUEST_EXPRS, by default.
        """
        rounded = Resources(*(ceil(want / step) * step for want, step in zip(self, _STEPS, strict=True)))
        count = rounded._count_in(slot)
        left = Resources(*(have - count * each for have, each in zip(slot, rounded, strict=True)))
        return count + self._count_in(left)

    def _count_in(self, slot: "Resources") -> int:
        return int(min((have / want for have, want in zip(slot, self, strict=True) if want > 0), default=0.0))


_STEPS: Final = (1, 128, 1024, 1)
"""The steps to which a startd rounds requests of :class:`Resources`."""
ONE_CORE: Final = Resources()


@dataclass(frozen=True, slots=True)
class SlotGroup:
    """Alike slots of one site that take jobs: not broken, draining, offline, or with a START that is false.

    ``free`` is what a partitionable slot has left; a static slot has all or, while it is claimed, nothing.
    """

    site: Site
    total: Resources
    free: Resources
    count: int = 1
    is_static: bool = False

    def count_jobs(self, request: Resources) -> int:
        """Return the jobs with *request* that the slots take now: a static slot takes one, of any size."""
        each = request.count_in(self.free)
        return self.count * (min(1, each) if self.is_static else each)


@dataclass(frozen=True, slots=True)
class IdleJobs:
    """Idle jobs of one schedd that are alike.

    Args:
        job_count: the number of jobs, 1 or more.
        key: the jobs' ``DataLocalityKey``; None if they have none.
        run: ``WorkflowRun``, the run that the jobs are steps of; None if they have none.
        request: what each job asks for; 0 where the job does not say it with a plain number.
        lane: ``DataLocalityLane``.
        is_auto: the jobs have the mode ``auto``.
    """

    job_count: int = 1
    key: str | None = None
    run: str | None = None
    request: Resources = ONE_CORE
    lane: int = 0
    is_auto: bool = True


@dataclass(frozen=True, slots=True)
class RunningJobs:
    """Running jobs of one schedd at one site that are alike; see :class:`IdleJobs` for the shared fields.

    ``started_at`` has the start of each job, in Unix seconds, sorted. ``site`` is None if it is unknown.
    ``offer`` is the slot's ``DataLocalityOffer`` at the start, such as ``read 240 s from UK``; None if the
    schedd has recorded none.
    """

    started_at: tuple[int, ...]
    site: Site | None = None
    key: str | None = None
    run: str | None = None
    offer: str | None = None


@dataclass(frozen=True, slots=True)
class ScheddLoad:
    """The jobs in the queue of one schedd that run or wait for a slot.

    ``clock_ahead`` are the seconds by which the schedd's clock, which gives the starts of jobs, is ahead of
    the daemon's.
    """

    idle: tuple[IdleJobs, ...] = ()
    running: tuple[RunningJobs, ...] = ()
    clock_ahead: int = 0


@dataclass(frozen=True, slots=True)
class ClusterJobs:
    """The jobs of one cluster in the queue of one schedd, at ``as_of``; ``held_count`` more jobs are held.

    ``is_complete`` is False if the cluster has more jobs than one answer may have.
    """

    as_of: datetime
    jobs: ScheddLoad
    held_count: int = 0
    is_complete: bool = True


MAX_LOAD_AGE: Final = timedelta(minutes=5)
"""Older jobs and slots do not count: openings would send jobs to slots that are taken by now."""


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """The jobs of all schedds of a pool, and the slots of its sites, at ``as_of``.

    ``slots`` omits slots that take no jobs: their state is Owner, Drained or Backfill, their START is
    false, they are broken or drain, or their ad is offline. ``idle_before`` has the idle jobs of the
    schedds without an answer, as of their last answer: a job does not end because its schedd is silent.
    """

    as_of: datetime
    schedds: Mapping[str, ScheddLoad | Unseen]
    slots: tuple[SlotGroup, ...]
    idle_before: tuple[IdleJobs, ...] = ()

    @property
    def answers(self) -> Mapping[str, ScheddLoad]:
        """Return the jobs of the schedds that answered."""
        return {name: load for name, load in self.schedds.items() if isinstance(load, ScheddLoad)}

    @property
    def idle(self) -> tuple[IdleJobs, ...]:
        """Return the idle jobs of all schedds; of those without an answer, the last known."""
        return (*(jobs for schedd in self.answers.values() for jobs in schedd.idle), *self.idle_before)

    @property
    def unseen_reason(self) -> str | None:
        """Return which schedds did not answer, and why; None if all answered."""
        reasons = [
            f"schedd {schedd}: {load.reason}"
            for schedd, load in sorted(self.schedds.items())
            if isinstance(load, Unseen)
        ]
        return "; ".join(reasons) or None


@dataclass(frozen=True, slots=True)
class DataNeed:
    """Jobs of one schedd that are alike: same owner, same datasets, and all idle or all running at one site.

    Args:
        datasets: the names in ``RequiredDatasets``, 1 or more, as in the job's ad.
        job_count: the number of jobs, 1 or more.
        user: the authenticated owner of the jobs, such as ``ann@example.org``.
        example: the id of the oldest of the jobs, such as ``12.0``.
        queued_since: the time since which the oldest of the jobs is idle; for running jobs, their last start.
        is_running: whether the jobs run.
        running_site: the site at which they run; None if they are idle or the site is unknown.
        matching_sites: the sites with a slot that matches the jobs, if the slot were empty and their data
            were there; None if this is unknown. Running jobs have None.
        is_data_missing: True if no slot matches the jobs, and one would if their data were there; None if
            this is unknown. Only such jobs wait for nothing else but data; held jobs do not.
        is_bound: whether the jobs start only beside their data (mode ``require``).
        dids: the datasets as DIDs, sorted; a port leaves them out, because it does not know the pool's scope.
    """

    datasets: tuple[str, ...]
    job_count: int
    user: str
    example: str
    queued_since: datetime
    is_running: bool = False
    running_site: Site | None = None
    matching_sites: frozenset[Site] | None = None
    is_data_missing: bool | None = None
    is_bound: bool = False
    dids: tuple[Did, ...] = ()


@dataclass(frozen=True, slots=True)
class ScheddQueue:
    """The queue of one schedd, as two queries of it answered.

    ``reports`` has a row for each job with the reports of its wrapper: its ``GlobalJobId``, ``User``,
    ``misses`` and ``reads``. Its owner wrote all but the first two.
    """

    demand: ScheddDemand
    load: ScheddLoad = ScheddLoad()
    needs: tuple[DataNeed, ...] = ()
    reports: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """The pool as seen once in an interval.

    ``queues`` has the last answer of each schedd that the collector lists; ``demand.as_of`` is its time.
    ``silent`` has the reason for each schedd that did not answer now. ``slots`` may be unknown, too.
    ``slot_ads`` has the slots that take jobs, also those without a site.
    """

    as_of: datetime
    queues: Mapping[str, ScheddQueue]
    silent: Mapping[str, str] = field(default_factory=dict)
    slots: tuple[SlotGroup, ...] | Unseen = ()
    slot_ads: tuple[SlotAdVersion, ...] = ()

    @property
    def answers(self) -> dict[str, ScheddQueue | Unseen]:
        """Return what each schedd answered now."""
        return {**self.queues, **{schedd: Unseen(reason) for schedd, reason in self.silent.items()}}

    @property
    def load(self) -> PoolLoad | Unseen:
        """Return the jobs and slots; a schedd that is silent has its last answer up to MAX_LOAD_AGE."""
        if isinstance(self.slots, Unseen):
            return self.slots
        oldest = self.as_of - MAX_LOAD_AGE
        new = {name: one.load for name, one in self.queues.items() if one.demand.as_of >= oldest}
        unseen = {name: Unseen(reason) for name, reason in self.silent.items() if name not in new}
        before = (jobs for name, one in self.queues.items() if name in unseen for jobs in one.load.idle)
        return PoolLoad(self.as_of, {**new, **unseen}, self.slots, tuple(before))


class PoolReader(Protocol):
    """The schedds and slots of a pool."""

    @property
    def last(self) -> PoolSnapshot | None:
        """The last snapshot; None before the first."""

    def read_snapshot(self, *, waits: bool = False) -> PoolSnapshot:
        """Query all schedds and the slots. A schedd that does not answer is silent, and delays no other.

        A later snapshot has the answer of a slow schedd. With *waits*, wait for it: a command reads only one.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def restore(self, queues: Mapping[str, ScheddQueue]) -> None:
        """Use *queues*, from before a restart, for schedds that are silent from the first snapshot on."""

    def close(self) -> None:
        """Close connections, also during a query."""


def take_turns(oldest_first: Iterable[T], find_user: Callable[[T], str]) -> list[T]:
    """Return the oldest of each user, then the second oldest: no user takes the places of all others."""
    turns: Counter[str] = Counter()
    ordered = []
    for one in oldest_first:
        user = find_user(one)
        ordered.append((turns[user], one))
        turns[user] += 1
    return [one for _, one in sorted(ordered, key=lambda row: row[0])]

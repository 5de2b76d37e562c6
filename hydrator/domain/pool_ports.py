"""Ports to the HTCondor pool: the protocols of its schedds, slots and other daemons.

:mod:`hydrator.domain.ports` has the ports to catalogues and publishers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from .model import ScheddDemand, Site, SiteAd, Unseen


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of one run of a ``Merger`` at one collector.

    ``slot_count`` counts the slots that the merger updates: those without a hook, at the daemon's
    sites. The merger sent attributes to ``merged_count`` slots and removed them from
    ``withdrawn_count`` slots; the collector does not acknowledge this. In ``confirmed_count`` slots the
    merger read back the attributes that its previous run sent. Since that run, all slots together had
    their site's attributes for ``covered_slot_seconds`` and lacked them for ``uncovered_slot_seconds``.
    ``error`` is the reason why the run ended early.
    """

    slot_count: int = 0
    merged_count: int = 0
    withdrawn_count: int = 0
    confirmed_count: int = 0
    covered_slot_seconds: float = 0.0
    uncovered_slot_seconds: float = 0.0
    error: str | None = None


class Merger(Protocol):
    """A writer of site attributes into the ads of slots without a hook.

    Each update that the startd sends to the collector removes these attributes.
    """

    def run_once(
        self, ads: Mapping[Site, SiteAd], is_retired: Callable[[Site], bool]
    ) -> Mapping[str, MergeResult]:
        """Query every collector once; update slots that differ from their site's ad.

        Remove the attributes of sites for which *is_retired* is true. Return the result by collector;
        after ``close`` the result is empty.
        """

    def close(self) -> None:
        """Close connections. A run that is in progress then ends."""


class Queues(Protocol):
    """The schedds of a pool, as a source of demand: the datasets that their jobs name."""

    def read_demand(self) -> Mapping[str, ScheddDemand | Unseen]:
        """Return, by schedd, the demand of the jobs in its queue, or the reason why this demand is unknown.

        Raises:
            PoolError: the collector could not list the schedds.
        """


@dataclass(frozen=True, slots=True)
class SlotAdVersion:
    """The site of one slot, and the generation of its site ad; None if it has no site ad."""

    site: str | None
    generation: int | None


class Slots(Protocol):
    """The slots of a pool. The daemon queries the slots to see whether the attributes of its ads arrived."""

    def read_ad_versions(self) -> Sequence[SlotAdVersion]:
        """Return one entry for each slot that is not dynamic.

        Raises:
            PoolError: the collector could not list the slots.
        """

    def close(self) -> None:
        """Close connections, also during a query."""


class MissReports(Protocol):
    """Reports of jobs that did not find their data."""

    def read_reports(self) -> Mapping[str, Sequence[Sequence[str]] | Unseen]:
        """Return, by schedd, the ChirpDataLocalityMisses of each job. A later call may return a job again.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def close(self) -> None:
        """Close connections, also during a query."""


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """Jobs that left the queue of one schedd, the last job first.

    ``is_complete`` is False if there may be further jobs that this answer does not have. Each job has
    attributes of its job ad. The job's owner wrote these attributes, so do not trust them.
    :func:`hydrator.diagnostics.outcomes.parse_ended_job` lists the keys.
    """

    jobs: tuple[Mapping[str, Any], ...]
    is_complete: bool


class JobHistory(Protocol):
    """A port that reads ended jobs from the histories of a pool's schedds."""

    def read_ended_jobs(self, ended_after: datetime) -> Mapping[str, EndedJobs | Unseen]:
        """Return, by schedd, the jobs that ended after *ended_after*, or the reason of a missing answer.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def read_newly_ended_jobs(self) -> Mapping[str, EndedJobs | Unseen]:
        """Return, by schedd, the jobs that left the queue since the last query, or since the daemon's start.

        Return each job once. If a query fails, the next query also returns the jobs that the failed query
        should have returned.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def close(self) -> None:
        """Close connections, also during a query."""


@dataclass(frozen=True, slots=True)
class IdleJobs:
    """Idle jobs of one schedd that are alike.

    Args:
        job_count: the number of jobs, 1 or more.
        key: the jobs' ``DataLocalityKey``; None if they have none.
        datasets: the names in ``RequiredDatasets`` of jobs without a key; empty if they name no datasets.
        user: the owner of the jobs, such as ``ann@example.org``.
        cpus: ``RequestCpus``, more than 0.
        expected_seconds: ``DataLocalityExpectedSeconds``; None if the jobs have none.
        run: ``RapthorRun``, the run that the jobs are steps of; None if they have none.
    """

    job_count: int = 1
    key: str | None = None
    datasets: tuple[str, ...] = ()
    user: str = ""
    cpus: float = 1.0
    expected_seconds: int | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True)
class RunningJobs:
    """Running jobs of one schedd at one site that are alike; see :class:`IdleJobs` for the shared fields.

    ``started_at`` has the start of each job, in Unix seconds, sorted. ``site`` is None if it is unknown.
    ``is_leaving`` says that their slots take no further jobs: the slots drain, or their START is false.
    """

    started_at: tuple[int, ...]
    site: Site | None = None
    key: str | None = None
    datasets: tuple[str, ...] = ()
    user: str = ""
    cpus: float = 1.0
    expected_seconds: int | None = None
    run: str | None = None
    is_leaving: bool = False


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


@dataclass(frozen=True, slots=True)
class SiteSlots:
    """Slots of one site with the same number of cores and of free cores; a static slot is free or busy."""

    site: Site
    total_cpus: float
    free_cpus: float
    slot_count: int = 1


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """The jobs of all schedds of a pool, and the slots of its sites, at ``as_of``.

    ``slots`` omits slots that take no jobs: their state is Owner, Drained or Backfill, their START is
    false, they drain, or their ad is offline.
    """

    as_of: datetime
    schedds: Mapping[str, ScheddLoad | Unseen]
    slots: tuple[SiteSlots, ...]

    @property
    def unseen_reason(self) -> str | None:
        """Return which schedds did not answer, and why; None if all answered."""
        reasons = [
            f"schedd {schedd}: {load.reason}"
            for schedd, load in sorted(self.schedds.items())
            if isinstance(load, Unseen)
        ]
        return "; ".join(reasons) or None


class PoolLoads(Protocol):
    """The load of a pool: its idle and running jobs, and its slots by site."""

    def read_load(self) -> PoolLoad:
        """Query all schedds and the slots. Each schedd that did not answer is Unseen.

        Raises:
            PoolError: the collector could not list the schedds or the slots.
        """

    def close(self) -> None:
        """Close connections, also during a query."""


class ClusterQueues(Protocol):
    """The jobs of a cluster, in the queues of a pool."""

    def read_cluster(self, cluster: int, schedd: str | None = None) -> Mapping[str, ClusterJobs | Unseen]:
        """Query all schedds, or only *schedd*; return those with jobs of *cluster*, and the silent ones.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def close(self) -> None:
        """Close connections, also during a query."""

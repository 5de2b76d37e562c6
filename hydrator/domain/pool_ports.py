"""Ports to the HTCondor pool: the protocols of its schedds, slots and other daemons.

:mod:`hydrator.domain.ports` has the ports to catalogues, publishers and events.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from .model import ScheddDemand, Site, SiteAd, Unseen


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of one run of a ``Merger`` at one collector.

    ``slot_count`` counts its slots: without a hook, at the daemon's sites.
    ``merged_count`` and ``withdrawn_count`` were sent, which the collector does not
    acknowledge; ``confirmed_count`` of the last run's were read back. ``covered_slot_seconds``
    and ``uncovered_slot_seconds`` are slot-seconds since its last run, with and without the
    site's attributes. ``error`` is the reason why the run ended early.
    """

    slot_count: int = 0
    merged_count: int = 0
    withdrawn_count: int = 0
    confirmed_count: int = 0
    covered_slot_seconds: float = 0.0
    uncovered_slot_seconds: float = 0.0
    error: str | None = None


class Merger(Protocol):
    """A writer of site ads into slots without a hook; a startd update removes what it wrote."""

    def run_once(
        self, ads: Mapping[Site, SiteAd], is_retired: Callable[[Site], bool]
    ) -> Mapping[str, MergeResult]:
        """Query every collector once and update the slots that differ; return the result by collector.

        Attributes of sites for which *is_retired* is true are removed. Empty after ``close``.
        """

    def close(self) -> None:
        """Close connections, also during a run, which then ends."""


class Queues(Protocol):
    """The schedds of a pool, as a source of demand: the datasets that their jobs name."""

    def read_demand(self) -> Mapping[str, ScheddDemand | Unseen]:
        """Return the demand of each schedd's queue, or the reason why it is unknown.

        Raises:
            PoolError: the collector could not list the schedds.
        """


@dataclass(frozen=True, slots=True)
class SavedDesiredSites:
    """The content of a job's ``DataLocalityDesiredSitesKept``: the daemon's value and the original one.

    While an edit is *pending*, ``DESIRED_Sites`` is either ``was`` or ``value``.
    """

    value: str | None
    own: str | None
    was: str | None = None
    pending: str | None = None


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Queued jobs of one schedd that are equal in all that their ``DESIRED_Sites`` depends on.

    ``datasets`` is empty if the job's are not a list of strings. ``mode``,
    ``any_after`` (Unix s) and ``max_age`` (s) are None if the job has none.
    ``odd`` means that ``DESIRED_Sites`` is not a string, or that the saved values
    beside it are not the daemon's. ``example`` is the id of one of the jobs.
    """

    datasets: tuple[str, ...]
    asks: bool
    jobs: int
    example: str
    desired: str | None = None
    kept: SavedDesiredSites | None = None
    mode: str | None = None
    any_after: int | None = None
    max_age: int | None = None
    odd: bool = False


class JobSites(Protocol):
    """``DESIRED_Sites`` of idle jobs in a pool's queues."""

    def read_job_groups(self) -> Mapping[str, Sequence[JobGroup] | Unseen]:
        """Return, by schedd, its idle jobs that request a list of sites or have one of the daemon's.

        A schedd that did not answer has the reason instead.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def set_desired_sites(
        self,
        schedd: str,
        group: JobGroup,
        value: str | None,
        original_value: str | None,
        *,
        should_keep_mark: bool,
        max_jobs: int,
    ) -> int:
        """Set ``DESIRED_Sites`` of at most *max_jobs* jobs of *group* to *value*; return the number of edits.

        A job that changed since the query is left unchanged. If *should_keep_mark*, the
        job keeps a mark with its *original_value*; otherwise the mark is removed.

        Raises:
            PoolDenied: the schedd rejects the edit, or keeps the old value.
            PoolError: the schedd could not be queried.
        """

    def close(self) -> None:
        """Close connections, also during a call."""


@dataclass(frozen=True, slots=True)
class SlotAdVersion:
    """The site of one slot and the generation of the site ad it has, if any."""

    site: str | None
    generation: int | None


class Slots(Protocol):
    """The slots of a pool, queried for whether the attributes arrived."""

    def read_ad_versions(self) -> Sequence[SlotAdVersion]:
        """Return one entry per slot, except dynamic slots.

        Raises:
            PoolError: the collector could not list the slots.
        """

    def close(self) -> None:
        """Close connections, also during a query."""


class MissReports(Protocol):
    """Reports of jobs that did not find their data."""

    def read_reports(self) -> Mapping[str, Sequence[Sequence[str]] | Unseen]:
        """Return, by schedd, the ChirpDataLocalityMisses of each job; a job may be returned again.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def close(self) -> None:
        """Close connections, also during a query."""


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """Jobs that left the queue of one schedd, the last first; not ``is_complete`` if some were left out.

    Each job has the attributes of its ad, which its owner wrote: do not trust them.
    The keys are those of :func:`hydrator.diagnostics.outcomes.parse_ended_job`.
    """

    jobs: tuple[Mapping[str, Any], ...]
    is_complete: bool


class JobHistory(Protocol):
    """Ended jobs from the histories of a pool's schedds."""

    def read_ended_jobs(self, ended_after: datetime) -> Mapping[str, EndedJobs | Unseen]:
        """Return, by schedd, the jobs that ended after *ended_after*, or the reason why they are unknown.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def read_newly_ended_jobs(self) -> Mapping[str, EndedJobs | Unseen]:
        """Return, by schedd, the jobs that left its queue since the last query, or since the start.

        Each job is returned once; after a failure it is returned by the next query.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def close(self) -> None:
        """Close connections, also during a query."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A daemon on the same pool.

    ``leads_since`` is in Unix s, 0 if it is not the leader. ``age_seconds`` is the time between its
    last heartbeat and this daemon's at the collector. ``is_name_shared`` means that another daemon
    sent a heartbeat under the name of this daemon.
    """

    name: str
    leads_since: int
    age_seconds: float
    is_name_shared: bool = False


class Peers(Protocol):
    """The daemons of one pool, as they see each other in the collector."""

    def heartbeat(self, name: str, leads_since: int) -> Sequence[Peer]:
        """Send a heartbeat with *leads_since*; return all daemons, this one included.

        Raises:
            PoolError: the heartbeat was not sent or not read back: nothing may be concluded.
        """

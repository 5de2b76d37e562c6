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

    ``slot_count`` counts the slots that the merger updates: those without a hook, at the daemon's
    sites. The merger sent attributes to ``merged_count`` slots and removed them from
    ``withdrawn_count`` slots; the collector does not acknowledge this. In ``confirmed_count`` slots
    the merger read back what the previous run sent. ``covered_slot_seconds`` is the slot time
    since the last run with the site's attributes, ``uncovered_slot_seconds`` the time without
    them. ``error`` is the reason why the run ended early.
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
        """Query every collector once and update the slots that differ; return the result by collector.

        Remove the attributes of sites for which *is_retired* is true. After ``close`` the result is empty.
        """

    def close(self) -> None:
        """Close connections. A run that is in progress then ends."""


class Queues(Protocol):
    """The schedds of a pool, as a source of demand: the datasets that their jobs name."""

    def read_demand(self) -> Mapping[str, ScheddDemand | Unseen]:
        """Return the demand of each schedd's queue, or the reason why it is unknown.

        Raises:
            PoolError: the collector could not list the schedds.
        """


@dataclass(frozen=True, slots=True)
class SavedDesiredSites:
    """The content of a job's ``DataLocalityDesiredSitesKept``, which the daemon needs to undo its edit.

    ``value`` is the ``DESIRED_Sites`` that the daemon wrote, ``own`` the user's original value.
    While an edit is ``pending``, ``DESIRED_Sites`` is either ``value`` or ``was``, the value before the edit.
    """

    value: str | None
    own: str | None
    was: str | None = None
    pending: str | None = None


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Queued jobs of one schedd for which the daemon computes the same ``DESIRED_Sites``.

    ``datasets`` is empty if the job's datasets are not a list of strings. ``mode``,
    ``any_after`` (Unix s) and ``max_age`` (s) are None if the job does not set them.
    ``odd`` means that ``DESIRED_Sites`` is not a string, or that the daemon did not write
    ``DataLocalityDesiredSitesKept``. ``example`` is the id of one of the jobs.
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
    """A port that reads and edits ``DESIRED_Sites`` of idle jobs in a pool's queues."""

    def read_job_groups(self) -> Mapping[str, Sequence[JobGroup] | Unseen]:
        """Return, by schedd, the idle jobs that request a list of sites or have a list from the daemon.

        If a schedd did not answer, return the reason instead of its jobs.

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

        Do not edit a job that changed since the query. The mark of the daemon's edit is
        ``DataLocalityDesiredSitesKept``, with *original_value*. If *should_keep_mark*, set
        the mark; otherwise remove it.

        Raises:
            PoolDenied: the schedd rejects the edit, or keeps the old value.
            PoolError: the schedd could not be queried.
        """

    def close(self) -> None:
        """Close connections, also during a call."""


@dataclass(frozen=True, slots=True)
class SlotAdVersion:
    """The site of one slot, and the generation of the site ad in the slot; None if the slot has none."""

    site: str | None
    generation: int | None


class Slots(Protocol):
    """The slots of a pool. The daemon queries them to see whether its attributes arrived."""

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
        """Return, by schedd, the ChirpDataLocalityMisses of each job. A later call may return a job again.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def close(self) -> None:
        """Close connections, also during a query."""


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """Jobs that left the queue of one schedd, the last first; ``is_complete`` is False if some are missing.

    Each job has the attributes of its ad. The job's owner wrote these, so do not trust them.
    The keys are those of :func:`hydrator.diagnostics.outcomes.parse_ended_job`.
    """

    jobs: tuple[Mapping[str, Any], ...]
    is_complete: bool


class JobHistory(Protocol):
    """A port that reads ended jobs from the histories of a pool's schedds."""

    def read_ended_jobs(self, ended_after: datetime) -> Mapping[str, EndedJobs | Unseen]:
        """Return, by schedd, the jobs that ended after *ended_after*, or the reason why they are unknown.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def read_newly_ended_jobs(self) -> Mapping[str, EndedJobs | Unseen]:
        """Return, by schedd, the jobs that left the queue since the last query, or since the daemon's start.

        Return each job once; after a failed query the next query returns it.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def close(self) -> None:
        """Close connections, also during a query."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A daemon on the same pool.

    ``leads_since`` is the Unix time in seconds when the peer became leader; 0 if it does not lead.
    ``age_seconds`` is the time by which its last heartbeat at the collector is older than that of this
    daemon. ``is_name_shared`` means that another daemon sent a heartbeat under this daemon's name.
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
            PoolError: the daemon could not send its heartbeat or read it back, so it cannot know who leads.
        """

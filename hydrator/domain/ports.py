"""Ports: the protocols that adapters implement. The core imports these and no adapter.

A contract suite in ``tests/contracts`` checks each protocol; the in-memory adapters join it too.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from .errors import CatalogueError
from .model import (
    DatasetFile,
    Did,
    PublishedAd,
    ScheddDemand,
    Seen,
    Site,
    SiteAd,
    Survey,
    Unseen,
)

Clock = Callable[[], datetime]
"""A function that returns the aware UTC time now."""


@dataclass(frozen=True, slots=True)
class ServerEndpoint:
    """The address of the daemon's HTTP server from this machine.

    *token* is the bearer token to send; *certificate* is the server's, in PEM, if *url*
    is https; *socket* is the Unix socket to connect to instead of a host.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    certificate: str | None = None
    socket: str | None = None


@dataclass(frozen=True, slots=True)
class TokenValidity:
    """The time span in which a token from a server is valid; it is renewed before it ends."""

    valid_from: datetime | None
    valid_until: datetime


class EventHandler(Protocol):
    """A receiver of events, called from any thread; its methods must not block or fail."""

    def on_event(self, source: str, body: bytes | None) -> object:
        """Handle one event of *source*; None is an event that was too large to read."""

    def on_connect(self, source: str) -> None:
        """Record that *source* is connected and sends its events."""

    def on_disconnect(self, source: str, reason: str) -> None:
        """Record that *source* is unreachable; called again after each failed attempt."""


class EventSource(Protocol):
    """A subscriber to events, in a thread of its own, that calls its :class:`EventHandler`."""

    def start(self) -> None:
        """Start; never blocks and never fails."""

    def stop(self) -> None:
        """Stop within a few seconds."""

    @property
    def name(self) -> str:
        """The name in the configuration."""

    def test_connection(self) -> str:
        """Connect once without consuming an event; return how far that went, in words.

        Raises:
            EventsError: the source is unreachable, rejected the login, or violates the protocol.
        """


class Catalogue(Protocol):
    """A service that knows which replicas exist where."""

    @property
    def name(self) -> str:
        """The name in the configuration, unique among catalogues."""

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Return the location of each of *dids*.

        The survey has a reading, Seen or Unseen, for every DID of the query. A DID
        that the catalogue does not know is Seen without replicas. If the location
        could not be read, it is Unseen: never left out and never empty.

        A site that the catalogue cannot query, in whole or in part, is among
        ``unreachable_sites`` of every affected reading; replicas on other storage of
        this site still count. An empty set is a valid query: the survey then names
        the sites. A site that an earlier survey named and this one does not counts
        as not queried.

        Raises:
            CatalogueError: no answer at all. Nothing may be concluded, least of all
                that the catalogue is empty.
        """

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Return all datasets whose DIDs match one of *patterns* (``*``, ``?``, ``[…]``; case counts).

        Raises:
            CatalogueError: the list is incomplete; a part is never returned.
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
        """List the files of each of *dids*, ordered by name; the DID of a file gives that file alone.

        Args:
            dids: datasets, containers and files. A DID that the catalogue does not know is left out.
            storages: the storage elements whose addresses of each file are returned; no others are.
            max_files: files of all *dids* together; each dataset beyond it gets an error.

        Raises:
            CatalogueError: the catalogue could not be queried at all.
        """

    def close(self) -> None:
        """Close connections and files."""


class Auditor(Protocol):
    """A catalogue that can verify one dataset by expensive queries, without delaying its polls."""

    @property
    def name(self) -> str:
        """The name of the catalogue."""

    def verify(self, did: Did) -> Seen:
        """Return the location of *did*, read again file by file, without any cache.

        Raises:
            CatalogueError: the answer is missing or incomplete; nothing may be concluded.
        """

    def close(self) -> None:
        """Close connections and files, also during a call that waits for an answer."""


class Probe(Protocol):
    """A check of the storage itself, as the operator configured it."""

    def can_check(self, catalogue: str, site: Site) -> bool:
        """Return whether the probe is configured for this storage."""

    def check_dataset(self, catalogue: str, did: Did, site: Site) -> bool | None:
        """Return whether *did*, which *catalogue* lists at *site*, is there; None if that is unknown."""


class Publisher(Protocol):
    """A destination for site ads that can be read back."""

    @property
    def name(self) -> str:
        """``collector``, ``file``, ``http``, ``sites`` or ``merge``."""

    def published(self) -> Mapping[Site, PublishedAd]:
        """Return the ads that others can read there now, by site.

        Raises:
            PublishError: the query failed; this does not mean that it has none.
        """

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """Send *ads*; each replaces the ad of its site.

        Returning does not prove that they arrived: only ``published`` does.

        Raises:
            PublishError: some or all could not be sent.
        """

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """Remove the ads of *sites*; a site without an ad is not an error.

        Raises:
            PublishError: some or all could not be withdrawn.
        """


@runtime_checkable
class RejectionReporter(Protocol):
    """A publisher that reports the ads it read and rejected."""

    @property
    def rejected(self) -> Mapping[str, str]:
        """Return the ads that the last ``published`` read and rejected, by name, with the reason."""


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
    """Jobs that left the queue of one schedd, the last first; not ``is_complete`` if there were too many.

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

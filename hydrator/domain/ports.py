"""The promises that adapters keep. The core knows these and no adapter.

Each promise is held by a contract suite in ``tests/contracts``, which the
in-memory adapters join too.
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
"""Answers the aware UTC time now."""


@dataclass(frozen=True, slots=True)
class ServerEndpoint:
    """How our own HTTP server is reached from this machine.

    *token* is what to show; *certificate* is the one it shows, in PEM, when
    *url* is https; *socket* is the file to connect to instead of a host.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    certificate: str | None = None
    socket: str | None = None


@dataclass(frozen=True, slots=True)
class TokenValidity:
    """From when to when what a server gave us is good: a token that is asked for anew before it ends."""

    valid_from: datetime | None
    valid_until: datetime


class EventHandler(Protocol):
    """Who is told of events, from any thread; what is called must not wait and must not fail."""

    def on_event(self, source: str, body: bytes | None) -> object:
        """*source* sent one event; None is one that was too large to be read."""

    def on_connect(self, source: str) -> None:
        """*source* sends its events from now on."""

    def on_disconnect(self, source: str, reason: str) -> None:
        """*source* cannot be reached, or no longer; said again each time that this was tried."""


class EventSource(Protocol):
    """Listens to somebody who sends events, from a thread of its own, and tells its :class:`EventHandler`."""

    def start(self) -> None:
        """Begin; never waits and never fails."""

    def stop(self) -> None:
        """End, within a few seconds."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""

    def test_connection(self) -> str:
        """Reach it once, without taking an event from anybody; what that went as far as, in words.

        Raises:
            EventsError: it cannot be reached, refused us, or does not speak as it should.
        """


class Catalogue(Protocol):
    """An answerer of "what is at this site?"."""

    @property
    def name(self) -> str:
        """Its name in the configuration, unique among catalogues."""

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Say where each of *dids* is.

        Every DID asked about is answered, Seen or Unseen; a DID the catalogue
        does not know is Seen without replicas. What could not be learned is
        Unseen, never left out and never empty. A site it cannot look at, in
        whole or in part, is among ``blind`` of every reading that this
        concerns; what it shows of other storage there still counts. An empty
        set is a fair question: the answer still names the sites. A site that
        it named before and names no longer counts as not looked at.

        Raises:
            CatalogueError: it could not answer at all; nothing may be
                concluded, least of all that it holds nothing.
        """

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """All datasets whose DIDs match one of *patterns* (``*``, ``?``, ``[…]``; case counts).

        Raises:
            CatalogueError: it could not list them all; a part is not given.
        """

    def close(self) -> None:
        """Let go of connections and files."""


class FileLister(Protocol):
    """A catalogue that can say of which files a dataset consists."""

    @property
    def name(self) -> str:
        """The catalogue's."""

    def list_files(
        self, dids: AbstractSet[Did], storages: AbstractSet[str], max_files: int
    ) -> Mapping[Did, tuple[DatasetFile, ...] | CatalogueError]:
        """List the files of each of *dids*, ordered by name; a file's DID stands for that file alone.

        Args:
            dids: datasets, containers and files. One that the catalogue does not know is left out.
            storages: storage elements whose addresses of each file are wanted; those of no other are given.
            most: files of all *dids* together; what is beyond it is an error of its dataset.

        Raises:
            CatalogueError: the catalogue could not be asked at all.
        """

    def close(self) -> None:
        """Close connections and files."""


class Auditor(Protocol):
    """A catalogue that can be asked the expensive way, beside its polls and without disturbing them."""

    @property
    def name(self) -> str:
        """The catalogue's."""

    def verify(self, did: Did) -> Seen:
        """Where *did* is, asked anew, file by file, past every cache and belief.

        Raises:
            CatalogueError: it could not be learned, also for a part; nothing may be concluded.
        """

    def close(self) -> None:
        """Let go of connections and files, also under a call that waits for an answer."""


class Probe(Protocol):
    """Looks at the storage itself, where the operator said how."""

    def can_check(self, catalogue: str, site: Site) -> bool:
        """Is this storage one that it can look at?"""

    def check_dataset(self, catalogue: str, did: Did, site: Site) -> bool | None:
        """Is *did*, of which *catalogue* says so, there? None when it could not be told."""


class Publisher(Protocol):
    """A place where site ads go and can be read back."""

    @property
    def name(self) -> str:
        """``collector``, ``file``, ``http``, ``sites`` or ``merge``."""

    def published(self) -> Mapping[Site, PublishedAd]:
        """What others see there now, by site.

        Raises:
            PublishError: it cannot be asked; this does not mean it is empty.
        """

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """Send *ads*, each replacing what stood there for its site.

        Returning is no promise that they arrived: only ``published`` shows that.

        Raises:
            PublishError: some or all could not be sent.
        """

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """Take the ads of *sites* away; those that have none are no error.

        Raises:
            PublishError: some or all could not be withdrawn.
        """


@runtime_checkable
class RejectionReporter(Protocol):
    """A publisher that says which ads it saw and did not adopt."""

    @property
    def rejected(self) -> Mapping[str, str]:
        """By name, the ads that the last ``published`` saw and did not adopt, with the reason."""


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What one turn of a ``Merger`` came to at one collector.

    ``slots`` are those it is there for: without a hook, at sites that we speak for. ``merged`` and
    ``withdrawn`` were sent, which nobody acknowledges; of those of the last turn so many showed,
    ``confirmed``. ``covered`` and ``missed`` are slot-seconds since its
    last turn, with the site's attributes and without. ``error`` says why the turn ended early.
    """

    slot_count: int = 0
    merged_count: int = 0
    withdrawn_count: int = 0
    confirmed_count: int = 0
    covered_slot_seconds: float = 0.0
    uncovered_slot_seconds: float = 0.0
    error: str | None = None


class Merger(Protocol):
    """Brings site ads into slots that have no hook; what it did does not last."""

    def run_once(
        self, ads: Mapping[Site, SiteAd], is_retired: Callable[[Site], bool]
    ) -> Mapping[str, MergeResult]:
        """Look once at every collector, and make slots say what differs; by collector what came of it.

        What was merged for sites that the operator *retires* is taken back. Empty after ``close``.
        """

    def close(self) -> None:
        """Let go of connections, also under a turn, which then ends."""


class Queues(Protocol):
    """The schedds of a pool, as far as we ask: which datasets their jobs name."""

    def read_demand(self) -> Mapping[str, ScheddDemand | Unseen]:
        """By schedd, what its queue wants, or why it could not be asked.

        Raises:
            PoolError: the collector could not say which schedds there are.
        """


@dataclass(frozen=True, slots=True)
class SavedDesiredSites:
    """What a job's ``DataLocalityDesiredSitesKept`` says: what we wrote, and what stood there before us.

    While an edit is *pending*, what stands there is either ``was`` or ``value``.
    """

    value: str | None
    own: str | None
    was: str | None = None
    pending: str | None = None


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Queued jobs of one schedd that are alike in all that their ``DESIRED_Sites`` depends on.

    ``datasets`` is empty where the job's are no list of texts. ``mode``,
    ``any_after`` (Unix s) and ``max_age`` (s) are None where it has none.
    ``odd`` says that ``DESIRED_Sites`` is no text, or what we keep beside it
    is none that we wrote. ``example`` is the id of one of them.
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
        """By schedd, its idle jobs that ask for a list of sites, or have one of ours; or why that is unknown.

        Raises:
            PoolError: the collector could not say which schedds there are.
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
        """Have some of *jobs*, so many at most, say *value*; answers how many.

        A job that changed since, by whomever, is left as it is. With *keep*
        it is marked as ours, beside what it had, *own*; else the mark is taken off.

        Raises:
            PoolDenied: the schedd does not let us, or keeps what it has.
            PoolError: it could not be asked.
        """

    def close(self) -> None:
        """Let go of connections, also under a call."""


@dataclass(frozen=True, slots=True)
class SlotAdVersion:
    """What one slot carries: the *site* it says it is at, and the generation of that site's ad, if any."""

    site: str | None
    generation: int | None


class Slots(Protocol):
    """The slots of a pool, as far as we ask: whether our attributes arrived."""

    def read_ad_versions(self) -> Sequence[SlotAdVersion]:
        """One for every slot that is not cut off another for a job.

        Raises:
            PoolError: the collector could not say which slots there are.
        """

    def close(self) -> None:
        """Let go of connections, also under a question."""


class MissReports(Protocol):
    """What jobs did not find where they were sent."""

    def read_reports(self) -> Mapping[str, Sequence[Sequence[str]] | Unseen]:
        """By schedd, for each job the texts of its ChirpDataLocalityMisses; jobs may be told of again.

        Raises:
            PoolError: the collector could not say which schedds there are.
        """

    def close(self) -> None:
        """Let go of connections, also under a question."""


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """Jobs that left the queue of one schedd, the last first; not *whole* where there were more than fit.

    Each has what its ad says, which is what its owner wrote: nothing in it is
    sure. The keys are those of :func:`hydrator.diagnostics.outcomes.parse_ended_job`.
    """

    jobs: tuple[Mapping[str, Any], ...]
    is_complete: bool


class JobHistory(Protocol):
    """What became of jobs: the histories of a pool's schedds."""

    def read_ended_jobs(self, ended_after: datetime) -> Mapping[str, EndedJobs | Unseen]:
        """By schedd, the jobs that ended after *since*, or why it could not be asked.

        Raises:
            PoolError: the collector could not say which schedds there are.
        """

    def read_newly_ended_jobs(self) -> Mapping[str, EndedJobs | Unseen]:
        """By schedd, the jobs that left its queue since it was asked this before, or since we began.

        Each job is told of once; after a failure it is told of the next time.

        Raises:
            PoolError: the collector could not say which schedds there are.
        """

    def close(self) -> None:
        """Let go of connections, also under a question."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A daemon on the same pool: since when it leads (Unix s, 0: it does not), and how many seconds
    before us the collector last heard it. ``shared``: another daemon has told of this name, which is ours.
    """

    name: str
    leads_since: int
    age_seconds: float
    is_name_shared: bool = False


class Peers(Protocol):
    """The daemons of one pool, as they know each other."""

    def heartbeat(self, name: str, leads_since: int) -> Sequence[Peer]:
        """Tell that we live, and since when we lead; hear of all, ourselves among them.

        Raises:
            PoolError: we could not tell it, or not hear ourselves: nothing may be concluded.
        """

"""Port to catalogues that pin and stage datasets: the values, the errors and the protocol ``Stager``.

A *pin* keeps a dataset where it is on disk. A *stage request* brings a dataset to the disk of a site, from
another site or from tape. Both end by themselves after a finite lifetime. This is the only clean-up that no
catalogue can refuse.

Each request has a *tag* of ours: unique, and written into the catalogue with the request (for Rucio into the
comment of the rule). After a crash or a lost answer the daemon finds its requests by their tags, so that it
never asks twice.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Site


class StagingKind(StrEnum):
    """The two kinds of requests."""

    PIN = "pin"  # keep a dataset where it is on disk; moves nothing
    STAGE = "stage"  # bring a dataset to the disk of a site


class RequestState(StrEnum):
    """The state of one request or rule in its catalogue; an ended request is not listed any more."""

    UNAPPROVED = "waiting for approval"  # a person must approve it in the catalogue
    QUEUED = "queued"  # accepted, nothing moves yet (Rucio: INJECT)
    MOVING = "moving"  # files are on their way (Rucio: REPLICATING)
    DONE = "done"  # all files are on disk (Rucio: OK)
    STUCK = "stuck"  # the catalogue tries again later
    SUSPENDED = "suspended"  # the catalogue does not try again
    FAILED = "failed"  # terminal, for example no source has a file; asking again is useless


class RefusalKind(StrEnum):
    """The reasons for which a catalogue refuses a request; each is a value of a metric's label."""

    PERMISSION = "permission"  # 401, 403 or AccessDenied: all asking at this catalogue stops
    QUOTA = "quota"  # an account limit or a limit of the storage
    ACTIVITY = "activity"  # the configured activity is unknown
    CLOSED = "closed"  # the storage takes no data, or does not exist
    NOT_OURS = "not ours"  # the request to renew or to cancel has another account or another tag
    UNKNOWN_DATASET = "unknown dataset"
    NO_SOURCE = "no source"  # no storage has the data: never asked again
    OTHER = "other"


class StagingError(CatalogueError):
    """A call that changes requests failed; the subclasses say whether the call had an effect."""


class StagingRefused(StagingError):
    """The catalogue refused the call, so the call had no effect; the same call would be refused again.

    ``kind`` is a :class:`RefusalKind`. The reason is one part of a sentence for people.
    """

    def __init__(self, catalogue: str, reason: str, kind: RefusalKind = RefusalKind.OTHER) -> None:
        super().__init__(catalogue, reason)
        self.kind = kind


class StagingUnavailable(StagingError):
    """The call had no effect, for example a refused connection: it may be repeated after a backoff."""


class StagingOutcomeUnknown(StagingError):
    """The call may have had an effect: a timeout, a 5xx, a cut answer.

    The caller must look for the tag before any further call for this request. Raise this error whenever
    there is a doubt.
    """


@dataclass(frozen=True, slots=True)
class StagingOrder:
    """One request to make: one dataset at one site.

    Args:
        tag: unique among all requests of all daemons, and stored with the request: 1 to 100 characters of
            letters, digits and ``. : _ -``. A call with the tag of an existing request must not make a second
            request.
        batch: the same text for all orders of one decision, which a catalogue may send as one request.
        kind: pin or stage.
        site: the site whose disk gets or keeps the data.
        did: a dataset or a container.
        bytes: the size of the dataset, 1 or more.
        lifetime: the catalogue ends the request this long after now; never infinite.
        storage: the storage element at *site*; empty if the adapter chooses the site's only writable disk.
            A pin names the storage element that has the data.
        source: the site that has the data on tape or on disk, if one is preferred.
    """

    tag: str
    batch: str
    kind: StagingKind
    site: Site
    did: Did
    bytes: int
    lifetime: timedelta
    storage: str = ""
    source: Site | None = None


@dataclass(frozen=True, slots=True)
class OwnRequest:
    """A request of ours that the catalogue accepted; ``handle`` is its id there, such as a rule id."""

    tag: str
    handle: str
    kind: StagingKind
    site: Site
    did: Did


@dataclass(frozen=True, slots=True)
class RequestProgress:
    """The progress of one request of ours, as of the time of the query.

    ``files_total``, ``bytes_done`` and ``bytes_total`` are None if the catalogue does not report them.
    ``ready_at`` is the expected end, if known. ``reason`` explains UNAPPROVED, STUCK, SUSPENDED and FAILED.
    The catalogue ends the request at ``expires_at``; None means never, which is a fault to report.
    """

    request: OwnRequest
    state: RequestState
    files_done: int = 0
    files_total: int | None = None
    bytes_done: int | None = None
    bytes_total: int | None = None
    expires_at: datetime | None = None
    ready_at: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ExistingRule:
    """A rule or request of any account that keeps or brings one dataset at one site.

    ``tag`` is empty unless the rule is ours. ``expires_at`` is None if the rule never ends.
    """

    did: Did
    site: Site
    storage: str
    state: RequestState
    account: str
    handle: str
    tag: str = ""
    expires_at: datetime | None = None
    ready_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SiteSpace:
    """The disk of one site to which requests write, or the part of it that this account may use.

    ``free_bytes`` already lacks what the catalogue itself has promised, if the catalogue subtracts that.
    """

    free_bytes: int
    total_bytes: int
    as_of: datetime


@dataclass(frozen=True, slots=True)
class StagingSize:
    """The size of one dataset; ``files`` is None if the catalogue does not count files."""

    bytes: int
    files: int | None = None


@dataclass(frozen=True, slots=True)
class StagingPermissions:
    """The calls that the catalogue allows this account: True, False, or None if this cannot be found out.

    ``notes`` has one sentence for each call that is missing and what follows from it.
    """

    can_ask: bool | None = None
    can_renew: bool | None = None
    can_cancel: bool | None = None
    notes: tuple[str, ...] = ()


class Stager(Protocol):
    """A catalogue that accepts requests to pin and to stage datasets.

    Methods that read raise CatalogueError if the answer is incomplete. A missing answer never means "not
    a rule", "not a byte of space" or "not a request".
    """

    @property
    def name(self) -> str:
        """The name of the catalogue in the configuration."""

    def ask(self, orders: Sequence[StagingOrder]) -> Mapping[str, OwnRequest | StagingError]:
        """Make the requests *orders*, all of one site, one kind and one batch; return the result by tag.

        A refused order does not stop the others. A tag that the answer omits counts as
        :class:`StagingOutcomeUnknown`. If the catalogue says that the request already exists, read it back:
        with our tag it is the result; otherwise the order is refused (a rule of another request of ours).

        Raises:
            StagingRefused: no order had an effect.
            StagingUnavailable: no order had an effect.
            StagingOutcomeUnknown: any order may have had an effect.
        """

    def renew(self, request: OwnRequest, lifetime: timedelta) -> None:
        """Let *request* end *lifetime* after now.

        Raises:
            StagingRefused: the request is not ours, has ended, or this account may not renew it.
            StagingUnavailable: the call had no effect.
            StagingOutcomeUnknown: the call may have had an effect; to repeat it does no harm.
        """

    def cancel(self, request: OwnRequest) -> None:
        """End *request* as soon as the catalogue can: suspend it where allowed, then shorten its lifetime.

        Never purge replicas. Verify first that the request has our account and our tag. A request that does
        not exist any more is not an error. The caller verifies the effect by :meth:`look`.

        Raises:
            StagingRefused: the request is not ours, or this account may not cancel it.
            StagingUnavailable: the call had no effect.
            StagingOutcomeUnknown: the call may have had an effect; to repeat it does no harm.
        """

    def look(self, tags: AbstractSet[str], prefix: str) -> Mapping[str, RequestProgress]:
        """Return the progress of our requests by tag, in as few calls as the catalogue allows.

        The answer has every request of *tags* that exists. A tag that it omits has no request: never made,
        or ended. It also has all other requests whose tags begin with *prefix*, if the catalogue can list
        these: the daemon has lost its records of them.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """

    def find_rules(self, dids: AbstractSet[Did], sites: AbstractSet[Site]) -> Sequence[ExistingRule]:
        """Return the rules of every account for *dids*, also by containers of them, at *sites*.

        Omit rules that have ended. Include rules that wait for approval, and our own.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """

    def measure(self, dids: AbstractSet[Did]) -> Mapping[Did, StagingSize]:
        """Return the sizes of *dids*; omit a DID whose size is unknown, zero, or still grows (open datasets).

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """

    def read_space(self, sites: AbstractSet[Site]) -> Mapping[Site, SiteSpace]:
        """Return the space of the disks that requests to *sites* would use; omit a site if it is unknown.

        Raises:
            CatalogueError: the answer is missing or incomplete.
        """

    def probe_permissions(self) -> StagingPermissions:
        """Find out, without making a request that moves data, which calls this account may use.

        Raises:
            CatalogueError: the catalogue gave no answer.
        """

    def close(self) -> None:
        """Close connections, also during a call."""

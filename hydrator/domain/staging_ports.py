"""Port to catalogues that pin and stage datasets: the values, the errors and the protocol ``Stager``.

A *pin* keeps a dataset where it is on disk. A *stage request* brings a dataset to the disk of a site, from
another site or from tape. Both are rules of the catalogue that end by themselves after a finite lifetime.
This is the only clean-up that no catalogue can refuse.

The rules that the catalogue lists are the truth. It has one rule of ours for each dataset and storage
element: a request for a rule that exists already is a renewal of it, so each call may be repeated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Site


class StagingKind(StrEnum):
    """The two kinds of requests."""

    PIN = "pin"  # keep a dataset where it is on disk; moves nothing
    STAGE = "stage"  # bring a dataset to the disk of a site


class RequestState(StrEnum):
    """The state of one rule: whether it still moves data; not whether its data is there."""

    UNAPPROVED = "waiting for approval"  # a person must approve it in the catalogue
    QUEUED = "queued"  # accepted, nothing moves yet (Rucio: INJECT)
    MOVING = "moving"  # files are on their way (Rucio: REPLICATING)
    DONE = "done"  # all files are on disk (Rucio: OK)
    STUCK = "stuck"  # the catalogue tries again later
    SUSPENDED = "suspended"  # the catalogue does not try again
    FAILED = "failed"  # terminal: no source has a file; asking again is useless


class RefusalKind(StrEnum):
    """The reasons for which a catalogue refuses a request; each is a value of a metric's label."""

    PERMISSION = "permission"  # 401, 403 or AccessDenied: all asking at this catalogue stops
    QUOTA = "quota"  # an account limit or a limit of the storage
    ACTIVITY = "activity"  # the configured activity is unknown
    CLOSED = "closed"  # the storage takes no data, or does not exist
    NOT_OURS = "not ours"  # the storage has files without any rule, or a rule that only the account shares
    UNKNOWN_DATASET = "unknown dataset"
    NO_SOURCE = "no source"  # no storage has the data
    OTHER = "other"


class StagingError(CatalogueError):
    """A call that changes rules failed; the subclasses say whether the call had an effect."""


class StagingRefused(StagingError):
    """The catalogue refused the call, so the call had no effect; the same call would be refused again.

    ``kind`` is a :class:`RefusalKind`. The reason is one part of a sentence for people.
    """

    def __init__(self, catalogue: str, reason: str, kind: RefusalKind = RefusalKind.OTHER) -> None:
        super().__init__(catalogue, reason)
        self.kind = kind


class StagingFailed(StagingError):
    """The call may have had an effect: a timeout, a 5xx, a cut answer, the end of a worker.

    The caller may repeat the same call, for the same storage element. It must not ask for the dataset at
    another one. Raise this error whenever there is a doubt.
    """


@dataclass(frozen=True, slots=True)
class StagingOrder:
    """One rule to make or to renew: one dataset at one site.

    Args:
        kind: pin or stage.
        site: the site whose disk gets or keeps the data.
        did: a dataset or a container.
        bytes: the size of the dataset, 1 or more.
        lifetime: the catalogue ends the rule this long after now; never infinite.
        storage: the storage element at *site*; empty if the adapter chooses the site's only writable disk.
            A pin names the storage element that has the data.
        source: the site that has the data on tape, if the tape is needed.
        rule: the id of the rule to renew; empty to make one.
    """

    kind: StagingKind
    site: Site
    did: Did
    bytes: int
    lifetime: timedelta
    storage: str = ""
    source: Site | None = None
    rule: str = ""


@dataclass(frozen=True, slots=True)
class ExistingRule:
    """A rule of any account that keeps or brings one dataset at one site, as the catalogue lists it.

    Args:
        id: the rule's name in the catalogue.
        is_ours: whether a daemon of this pool made it.
        kind: pin or stage, for a rule of ours.
        is_whole: whether it holds *did* at *storage*, and all files are there. A rule can move other datasets
            of its container, or be suspended, while this one is whole.
        expires_at: the end of the rule; None: never. A catalogue may list a rule after its end.
        stuck_since: since when it is stuck, or waits for approval, if it does.
        files_done: its files on disk.
        files: all its files; None: not known.
        bytes: the size of its data; None: not known.
        reason: why it is not done, for people.
        blocked: why the catalogue will not end it at its end, such as "locked"; empty if it will.
    """

    id: str
    did: Did
    site: Site
    storage: str
    account: str
    state: RequestState
    is_ours: bool = False
    kind: StagingKind = StagingKind.STAGE
    is_whole: bool = False
    expires_at: datetime | None = None
    stuck_since: datetime | None = None
    files_done: int = 0
    files: int | None = None
    bytes: int | None = None
    reason: str = ""
    blocked: str = ""

    @property
    def last_moment(self) -> datetime:
        """Return its end; the end of all time if it has none."""
        return self.expires_at or datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StagingQuery:
    """A question to a catalogue.

    Args:
        dids: the datasets whose rules and sizes are wanted.
        sites: the sites at which rules of *dids* count.
        spaces: the sites whose free space is wanted.
        rules: rules of ours, by their ids, whatever their dataset is.
        lists_all: whether all rules of ours are wanted. This may be a slow query.
    """

    dids: frozenset[Did] = frozenset()
    sites: frozenset[Site] = frozenset()
    spaces: frozenset[Site] = frozenset()
    rules: frozenset[str] = frozenset()
    lists_all: bool = False


@dataclass(frozen=True)
class StagingAnswer:
    """The complete answer to a query.

    ``rules`` has each rule of the query that the catalogue lists, also after its end: a rule that it omits
    does not exist. A rule whose storage element serves several sites is there once for each of them.
    ``sizes`` omits a DID whose size is unknown, zero, or still grows. ``spaces`` has the free bytes of a
    site, or a sentence on why the number cannot be used; it omits a site whose space is unknown. ``storages``
    has the storage element of these sites to which a request goes now. Nothing is known about the datasets
    and the ids of rules in ``unread``, with the reasons: they failed alone.
    """

    rules: tuple[ExistingRule, ...] = ()
    sizes: Mapping[Did, int] = field(default_factory=dict)
    spaces: Mapping[Site, int | str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    storages: Mapping[Site, str] = field(default_factory=dict)


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
    """A catalogue that accepts requests to pin and to stage datasets."""

    @property
    def name(self) -> str:
        """The name of the catalogue in the configuration."""

    def list(self, query: StagingQuery) -> StagingAnswer:
        """Answer *query* in as few calls as the catalogue allows.

        Raises:
            CatalogueError: the answer is missing or incomplete. It never means "not a rule" or "no space".
        """

    def request(self, order: StagingOrder) -> str:
        """Let one rule of ours for *order* end ``order.lifetime`` after now; make it if there is none.

        Return the id of the rule. If the catalogue has a rule of ours for the same dataset and storage
        element already, also one that has ended, this is a renewal of that rule.

        Raises:
            StagingRefused: the call had no effect.
            StagingFailed: the call may have had an effect; to repeat it does no harm.
        """

    def cancel(self, rule: str) -> None:
        """End the rule of ours *rule* as soon as the catalogue can; never purge replicas.

        A rule that does not exist any more is not an error. The caller sees the effect in the next list.

        Raises:
            StagingRefused: the rule is not ours, or this account may not end it.
            StagingFailed: the call may have had an effect; to repeat it does no harm.
        """

    def probe_permissions(self) -> StagingPermissions:
        """Find out, without making a request that moves data, which calls this account may use.

        Raises:
            CatalogueError: the catalogue gave no answer.
        """

    def close(self) -> None:
        """Close connections, also during a call."""

"""The words of this project: what is read, what is wanted, what is held true, what is published.

Frozen values and enums only; no clock, no socket, no log. Times are aware UTC datetimes.
"""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import NewType

from .errors import BadDid

Did = NewType("Did", str)
"""A data identifier, ``scope:name``; build one with :func:`parse_did`."""

Site = NewType("Site", str)
"""A site as its slots advertise it, for example in ``GLIDEIN_Site``."""

MAX_DID_CHARS = 500
_CHARACTERS = re.compile(r"[A-Za-z0-9._:/@=+~-]+\Z")


def parse_did(text: str, default_scope: str | None = None) -> Did:
    """Read *text* as ``scope:name``; a name alone gets *default_scope* where there is one.

    The characters are those that survive a ClassAd string, a submit file and a
    comma-separated list unquoted: letters, digits and ``. _ : / @ = + ~ -``.

    Raises:
        BadDid: no scope and no default, an empty part, another character, or
            more than 500 characters.
    """
    if len(text) > MAX_DID_CHARS:
        raise BadDid(text, f"it has {len(text)} characters, {MAX_DID_CHARS} are allowed")
    did = f"{default_scope}:{text}" if ":" not in text and default_scope else text
    if not _CHARACTERS.match(did):
        raise BadDid(text, "use letters, digits and . _ : / @ = + ~ - only")
    scope, colon, name = did.partition(":")
    if not colon:
        raise BadDid(text, "it has no scope (write scope:name, or set default_scope)")
    if not scope or not name:
        raise BadDid(text, "its scope or its name is empty")
    if len(did) > MAX_DID_CHARS:
        raise BadDid(text, f"it has {len(did)} characters, {MAX_DID_CHARS} are allowed")
    return Did(did)


def has_unsafe_parts(path: str) -> bool:
    """Return whether *path* could lead elsewhere than below a folder: an empty part, ``.`` or ``..``."""
    return any(part in {"", ".", ".."} for part in path.split("/"))


def is_unsafe_argument(did: str) -> bool:
    """Return whether *did* means more to a command than a name: an option, or a way to the folder above."""
    return did.startswith("-") or any(part == ".." for part in re.split("[:/]", did))


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """One file of a dataset: its own DID, its size, and its addresses by storage element where asked for.

    ``did`` is ``scope:name`` and need not be a name that the DID of a dataset could have.
    """

    did: str
    bytes: int | None = None
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class ReplicaState(StrEnum):
    """What one catalogue records of one dataset at one storage element."""

    COMPLETE = "complete"  # every file is on disk
    INCOMING = "incoming"  # a rule or transfer is bringing it to disk
    PARTIAL = "partial"  # some files are on disk, nothing moves
    ON_TAPE = "on tape"  # complete on tape, not on disk
    STUCK = "stuck"  # its rule is stuck or suspended and it is not complete


class DatasetState(StrEnum):
    """What we conclude for one dataset and site, from all catalogues; best first."""

    AVAILABLE = "AVAILABLE"
    STAGING = "STAGING"
    PARTIAL = "PARTIAL"
    NEARLINE = "NEARLINE"
    STUCK = "STUCK"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a catalogue came to a state: for people who ask why, never for ads.

    ``call`` is what it was asked, in its own words, ``reason`` one clause on the state.
    A ``rule`` of ``account`` holds the data, or brings it, until ``expires_at``.
    ``ready_at`` estimates when what moves is complete, give or take ``ready_error``.
    """

    call: str = ""
    storage: str = ""
    reason: str = ""
    rule: str = ""
    account: str = ""
    expires_at: datetime | None = None
    ready_at: datetime | None = None
    ready_error: timedelta | None = None


NO_PROVENANCE = Provenance()


@dataclass(frozen=True, slots=True)
class FilesOnDisk:
    """The files of a dataset that are on disk in one place, by numbers that all its replicas share.

    File n is there where bit n of ``mask`` is 1. ``length`` and ``bytes_total`` are of all files that the
    dataset has; ``sizes`` has the bytes of each numbered one, as an array of doubles, where they are known.
    """

    mask: int
    files_total: int
    bytes_total: float = 0
    sizes: bytes = b""

    @property
    def files_on_disk(self) -> int:
        return self.mask.bit_count()


@dataclass(frozen=True, slots=True)
class Replica:
    """One dataset at one site, as one catalogue records it.

    ``fraction`` is bytes on disk / bytes in all (files where bytes are
    unknown), 0 to 1, or None where the catalogue does not say. ``files`` are
    those that are on disk there and stay, where the catalogue named them.
    """

    did: Did
    site: Site
    state: ReplicaState
    fraction: float | None = None
    storage: str = ""
    provenance: Provenance = NO_PROVENANCE
    files: FilesOnDisk | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Seen:
    """A catalogue answered for one dataset: these replicas, and no others, existed at *at*.

    ``blind`` are sites it could not look at: there it said nothing.
    ``twins`` are other datasets it holds whose DIDs differ from this one in letter case only.
    """

    as_of: datetime
    replicas: tuple[Replica, ...] = ()
    bytes_total: int | None = None
    unreachable_sites: frozenset[Site] = frozenset()
    case_variants: frozenset[Did] = frozenset()


@dataclass(frozen=True, slots=True)
class Unseen:
    """Nothing was learned, and why. Unseen does not mean empty."""

    reason: str


@dataclass(frozen=True, slots=True)
class Pending:
    """No answer yet: the catalogue is being asked, or was not asked again. Its last answer still counts."""


Reading = Seen | Unseen


@dataclass(frozen=True, slots=True)
class Survey:
    """One catalogue's answer to one poll: a reading for every DID it was asked about.

    ``sites`` are all sites it speaks for, also those that hold nothing asked
    about; ``unmapped`` the storage elements for which no site is known.
    ``at`` is when the poll began, so no fact in it is older.
    """

    catalogue: str
    started_at: datetime
    sites: frozenset[Site]
    readings: Mapping[Did, Reading]
    unmapped_storages: frozenset[str] = frozenset()


class Origin(IntEnum):
    """Why a dataset is wanted, most wanted first."""

    PIN = 0
    JOB = 1
    PATTERN = 2


@dataclass(frozen=True, slots=True)
class QueuedJobs:
    """Jobs of one schedd that name the same datasets; the texts stand as they do in the job ads."""

    datasets: tuple[str, ...]
    job_count: int


@dataclass(frozen=True, slots=True)
class ScheddDemand:
    """A schedd's answer: what its queue wanted at *at*."""

    as_of: datetime
    job_groups: tuple[QueuedJobs, ...]


@dataclass(frozen=True, slots=True)
class DemandEntry:
    """Datasets that only help together, with how many jobs name them and when one last did."""

    dids: tuple[Did, ...]
    job_count: int
    origin: Origin
    last_demanded_at: datetime


@dataclass(frozen=True)
class Demand:
    """What jobs, pins and patterns want, most wanted first; ``refused`` are texts that are no DIDs."""

    entries: tuple[DemandEntry, ...] = ()
    rejected_texts: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def dids(self) -> frozenset[Did]:
        return frozenset(did for want in self.entries for did in want.dids)


@dataclass(frozen=True, slots=True)
class Fact:
    """What we hold true of one dataset at one site."""

    state: DatasetState
    as_of: datetime
    fraction: float | None = None
    provenance: Provenance = NO_PROVENANCE


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """Everything we hold true of one site; ``as_of`` is its last complete reading."""

    as_of: datetime
    facts: Mapping[Did, Fact]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What we hold true of every demanded dataset at every site.

    ``unseen`` has, by DID, why no catalogue could say anything new of it this
    cycle; ``clashes`` are DIDs that differ only in letter case from another
    that exists: ClassAds cannot tell them apart, so neither is advertised.
    ``misspelt`` are wanted DIDs that no catalogue has, each with those that
    catalogues have and that differ from it only in letter case.
    """

    sites: Mapping[Site, SiteFacts]
    unseen_reasons: Mapping[Did, str] = field(default_factory=dict)
    case_collisions: tuple[tuple[Did, ...], ...] = ()
    bytes_total: Mapping[Did, int] = field(default_factory=dict)
    misspelt_dids: Mapping[Did, tuple[Did, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SiteAd:
    """The attributes one site should advertise.

    ``content`` is ``(attribute, ClassAd literal)`` in the order they are
    printed, without the two that say when: generation and age stand apart.
    """

    site: Site
    as_of: datetime
    generation: int
    content: tuple[tuple[str, str], ...]

    @property
    def attributes(self) -> tuple[tuple[str, str], ...]:
        """All attributes, ``DataLocalityVersion`` last: an ad without it is torn."""
        when = (
            ("DataLocalityAsOf", str(to_unix(self.as_of))),
            ("DataLocalityGeneration", str(self.generation)),
        )
        return (*self.content[:-1], *when, self.content[-1])

    @property
    def text(self) -> str:
        """One ``Name = literal`` a line, as the hook prints it."""
        return "".join(f"{name} = {literal}\n" for name, literal in self.attributes)


@dataclass(frozen=True, slots=True)
class PublishedAd:
    """What a publisher shows when it is asked: read back, never remembered.

    ``heard`` is when the publisher last took this ad from us.
    """

    site: Site
    generation: int
    as_of: datetime
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Publish:
    """Send *ad*: it is new, or its content changed."""

    ad: SiteAd
    reason: str

    @property
    def site(self) -> Site:
        return self.ad.site


@dataclass(frozen=True, slots=True)
class Refresh:
    """Send *ad* again: the same content, read anew, before the old copy expires."""

    ad: SiteAd

    @property
    def site(self) -> Site:
        return self.ad.site


@dataclass(frozen=True, slots=True)
class Hold:
    """Let what is published stand, with the age it has; *ad*, where known, is sent again as it is."""

    site: Site
    reason: str
    ad: SiteAd | None = None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take the site's ad away: the operator retired it."""

    site: Site
    reason: str


@dataclass(frozen=True, slots=True)
class NoOp:
    """Nothing to do: what is published is what should be."""

    site: Site


Action = Publish | Refresh | Hold | Withdraw | NoOp
Plan = tuple[Action, ...]


def to_unix(moment: datetime) -> int:
    """Whole Unix seconds, rounded down: an age is never understated."""
    return int(moment.timestamp() // 1)


def from_unix(seconds: float) -> datetime:
    """The aware UTC time of *seconds* since the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


@dataclass(frozen=True, slots=True)
class DaemonKnowledge:
    """What the daemon holds true, and what it could not do.

    ``demanded`` datasets are published; ``asked`` ones were asked about besides, for this answer alone.
    ``left_out`` has, by site, the datasets that its ad has no room for; ``held``, by site, the change that
    the daemon holds back; ``near`` has, by a name that exists nowhere, those that look like it.
    """

    now: datetime
    snapshot: Snapshot
    demanded_dids: frozenset[Did] = frozenset()
    queried_dids: frozenset[Did] = frozenset()
    dids_without_room: Mapping[Site, AbstractSet[Did]] = field(default_factory=dict)
    held_reasons: Mapping[Site, str] = field(default_factory=dict)
    similar_names: Mapping[Did, tuple[Did, ...]] = field(default_factory=dict)

    @property
    def collisions_by_lower_name(self) -> dict[str, tuple[Did, ...]]:
        return {did.lower(): clash for clash in self.snapshot.case_collisions for did in clash}

"""The values of this project: readings, demand, facts, ads and plans.

Frozen values and enums only; no clock, no socket, no log. Times are aware UTC datetimes.
"""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NewType

from hydrator.domain.ads import contract
from hydrator.domain.ads.dataset_sets import SetKey

from .errors import BadDid

if TYPE_CHECKING:
    from hydrator.domain.ads.openings import Openings

Did = NewType("Did", str)
"""A data identifier, ``scope:name``; build one with :func:`parse_did`."""

Site = NewType("Site", str)
"""A site as its slots advertise it, for example in ``GLIDEIN_Site``."""

MAX_DID_CHARS = 500
_OTHER_CHARACTER = re.compile(r"[^A-Za-z0-9._:/@=+~-]")


def parse_did(text: str, default_scope: str | None = None) -> Did:
    """Parse *text* as ``scope:name``; a name without a scope gets *default_scope*, if this is set.

    The allowed characters need no quotes in a ClassAd string, a submit file or a
    comma-separated list: letters, digits and ``. _ : / @ = + ~ -``.

    Raises:
        BadDid: no scope and no default, an empty part, another character, or
            more than 500 characters.
    """
    if len(text) > MAX_DID_CHARS:
        raise BadDid(text, f"it has {len(text)} characters, {MAX_DID_CHARS} are allowed")
    did = f"{default_scope}:{text}" if ":" not in text and default_scope else text
    if other := _OTHER_CHARACTER.search(did):
        raise BadDid(text, f"use letters, digits and . _ : / @ = + ~ - only, not {other[0]!r}")
    scope, colon, name = did.partition(":")
    if not colon:
        raise BadDid(text, "it has no scope (write scope:name, or set default_scope)")
    if not scope or not name:
        raise BadDid(text, "its scope or its name is empty")
    if len(did) > MAX_DID_CHARS:
        raise BadDid(text, f"it has {len(did)} characters, {MAX_DID_CHARS} are allowed")
    return Did(did)


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """One file of a dataset: its own DID, its size and, if requested, its addresses by storage element.

    ``did`` is ``scope:name``. A file may have characters that :func:`parse_did` rejects for a dataset.
    """

    did: str
    bytes: int | None = None
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class DatasetState(StrEnum):
    """The state of one dataset at a storage element or a site; the best state is first.

    A catalogue reports any but UNKNOWN, which is the daemon's conclusion about old facts.
    """

    AVAILABLE = "AVAILABLE"  # every file is on disk
    STAGING = "STAGING"  # a rule or transfer is bringing it to disk
    PARTIAL = "PARTIAL"  # some files are on disk, and no transfer is running
    NEARLINE = "NEARLINE"  # complete on tape, not on disk
    STUCK = "STUCK"  # the dataset is incomplete, and its Rucio rule is stuck or suspended
    UNAVAILABLE = "UNAVAILABLE"  # it is there, but the storage cannot be read now
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The reasons why a catalogue reports a state. They are for people; ads never contain them.

    ``reason`` is a part of a sentence that explains the state. The Rucio rule ``rule`` of ``account`` keeps
    or transfers the data until ``expires_at``. ``ready_at`` is the estimated end of a transfer.
    """

    reason: str = ""
    rule: str = ""
    account: str = ""
    expires_at: datetime | None = None
    ready_at: datetime | None = None


NO_PROVENANCE = Provenance()


@dataclass(frozen=True, slots=True)
class FilesOnDisk:
    """The files of a dataset that one replica has on disk.

    A file has the same number in all replicas of the dataset. File n is on disk if bit n of ``mask`` is 1.
    ``files_total`` and ``bytes_total`` count all files of the dataset. ``sizes`` has the bytes of each
    file, in the order of the numbers, as an array of doubles; empty if the sizes are unknown.
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

    ``fraction``, 0 to 1, is the bytes on disk divided by all bytes of the dataset. It counts files if
    the bytes are unknown, and is None if the catalogue reports neither. ``files`` are the files on disk
    that are not about to be deleted; None if the catalogue did not list files.
    """

    did: Did
    site: Site
    state: DatasetState
    fraction: float | None = None
    storage: str = ""
    provenance: Provenance = NO_PROVENANCE
    files: FilesOnDisk | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Seen:
    """A catalogue's answer for one dataset: the complete list of its replicas at the time ``as_of``.

    The catalogue could not query ``unreachable_sites``, so the answer says nothing about these sites.
    ``case_variants`` are other datasets of the catalogue whose DIDs differ in letter case only.
    """

    as_of: datetime
    replicas: tuple[Replica, ...] = ()
    bytes_total: int | None = None
    unreachable_sites: frozenset[Site] = frozenset()
    case_variants: frozenset[Did] = frozenset()

    def is_repeat_of(self, last: "Seen | None") -> bool:
        """Return True if this answer differs from the *last* one in its time only."""
        return last is not None and self == replace(last, as_of=self.as_of)


@dataclass(frozen=True, slots=True)
class Unseen:
    """A missing answer, for example about one dataset, and the reason. The dataset may have replicas."""

    reason: str


Reading = Seen | Unseen


@dataclass(frozen=True, slots=True)
class Survey:
    """The answer of one catalogue to one poll: a reading (Seen or Unseen) for every DID of the query.

    ``sites`` are all sites of the catalogue, also sites without any of these DIDs.
    ``unmapped_storages`` are storage elements for which no site is configured or known. No fact is older
    than ``started_at``, the start of the poll.
    """

    catalogue: str
    started_at: datetime
    sites: frozenset[Site]
    readings: Mapping[Did, Reading]
    unmapped_storages: frozenset[str] = frozenset()


class Origin(IntEnum):
    """The reason why a dataset is demanded, highest priority first."""

    PIN = 0
    JOB = 1
    PATTERN = 2


@dataclass(frozen=True, slots=True)
class QueuedJobs:
    """Jobs of one schedd that name the same datasets; ``datasets`` are the names as in the job ads.

    ``key`` is the jobs' ``DataLocalityKey``; None if the jobs have none, or if it is not a literal string.
    ``is_of_cluster``: the key is that of the jobs' own cluster.
    """

    datasets: tuple[str, ...]
    job_count: int
    key: str | None = None
    is_of_cluster: bool = False


@dataclass(frozen=True, slots=True)
class ScheddDemand:
    """A schedd's answer: the datasets that the jobs in its queue named at ``as_of``."""

    as_of: datetime
    job_groups: tuple[QueuedJobs, ...]


@dataclass(frozen=True, slots=True)
class DemandEntry:
    """Datasets that the same jobs need, the number of these jobs, and the time when a job last named them.

    ``key`` is the key by which the jobs look the set up; None if it does not stand for this list alone: then
    no ad answers for the set. The same set may have several keys, each in an entry of its own.
    """

    dids: tuple[Did, ...]
    job_count: int
    origin: Origin
    last_demanded_at: datetime
    key: SetKey | None

    @property
    def is_kept(self) -> bool:
        """Return True if only jobs that are gone named the datasets."""
        return self.origin is Origin.JOB and self.job_count == 0


@dataclass(frozen=True)
class Demand:
    """The datasets that jobs, pins and patterns name, highest priority first.

    ``rejected_texts`` has the names that are not valid DIDs, each with the reason. ``wrong_keys`` has each
    ``DataLocalityKey`` of jobs for whose list it does not stand alone, and their number;
    ``lists_of_wrong_keys`` the hash of the list that it stands for, None if there is none. ``never`` has the
    patterns of names that are never published: no entry names a dataset that matches. ``waiting`` are the
    sets for which jobs waited lately; None if this is not known.
    """

    entries: tuple[DemandEntry, ...] = ()
    rejected_texts: Mapping[str, str] = field(default_factory=dict)
    wrong_keys: Mapping[str, int] = field(default_factory=dict)
    never: tuple[str, ...] = ()
    lists_of_wrong_keys: Mapping[str, SetKey | None] = field(default_factory=dict)
    waiting: frozenset[SetKey] | None = None

    def is_shared(self, entry: DemandEntry) -> bool:
        """Return True if ads have the share of the set of *entry* also where it is not whole.

        A slot that knows a set keeps its ``auto`` jobs until it is open, and the daemon opens only what jobs
        that it sees wait for. So a set for which no job waits, or that only a pin or a pattern names, must
        not be known elsewhere: another schedd may have jobs of it.
        """
        return entry.origin is Origin.JOB and (self.waiting is None or entry.key in self.waiting)

    @cached_property
    def dids(self) -> frozenset[Did]:
        return frozenset(did for want in self.entries for did in want.dids)

    @cached_property
    def kept_dids(self) -> frozenset[Did]:
        """The datasets that only jobs named which are gone: their demand is kept for some time."""
        return self.dids.difference(*(want.dids for want in self.entries if not want.is_kept))

    @cached_property
    def job_counts(self) -> Mapping[Did, int]:
        """The number of jobs that name each dataset."""
        counts: dict[Did, int] = {}
        for want in self.entries:
            for did in want.dids:
                counts[did] = counts.get(did, 0) + want.job_count
        return counts


@dataclass(frozen=True, slots=True)
class Fact:
    """The state of one dataset at one site, and the storage element that has it.

    ``as_of`` is the time when a catalogue reported this state. It is None if this is the time of the whole
    reading: of the record or of the site that the fact is in.
    """

    state: DatasetState
    as_of: datetime | None = None
    fraction: float | None = None
    provenance: Provenance = NO_PROVENANCE
    storage: str = ""


def add_time(fact: Fact, as_of: datetime | None) -> Fact:
    """Return *fact* with its time, which is *as_of* if the fact has none of its own."""
    return replace(fact, as_of=as_of) if fact.as_of is None else fact


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """All facts of one site; ``as_of`` is the time when the daemon last read all facts of this site."""

    as_of: datetime
    facts: Mapping[Did, Fact]

    def find(self, did: Did) -> Fact | None:
        """Return the fact about *did* with its time; None without one."""
        fact = self.facts.get(did)
        return fact and add_time(fact, self.as_of)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of every demanded dataset at every site.

    ``unseen_reasons`` has, by DID, the reason why no catalogue gave a new answer in this cycle.
    ``case_collisions`` are existing DIDs that differ only in letter case: ClassAds cannot distinguish
    these DIDs, so the daemon advertises none of them. ``misspelt_dids`` are demanded DIDs that no
    catalogue has, each with the existing DIDs that have the same letters in another case. For
    ``unread_dids``, demanded datasets, no catalogue has ever given an answer.
    """

    sites: Mapping[Site, SiteFacts]
    unseen_reasons: Mapping[Did, str] = field(default_factory=dict)
    case_collisions: tuple[tuple[Did, ...], ...] = ()
    bytes_total: Mapping[Did, int] = field(default_factory=dict)
    misspelt_dids: Mapping[Did, tuple[Did, ...]] = field(default_factory=dict)
    unread_dids: frozenset[Did] = frozenset()

    @property
    def present_dids(self) -> frozenset[Did]:
        """Return the datasets of which a site has at least a part."""
        return frozenset[Did]().union(*(site.facts for site in self.sites.values()))

    def sum_bytes(self, dids: Sequence[Did]) -> int | None:
        """Return the bytes of all *dids*; None if there are none, or if a size is unknown."""
        known = [size for did in dids if (size := self.bytes_total.get(did)) is not None]
        return sum(known) if known and len(known) == len(dids) else None


@dataclass(frozen=True, slots=True)
class SiteAd:
    """The attributes that one site should advertise.

    ``content`` is ``(attribute, ClassAd literal)`` in the order in which the hook prints them.
    It omits ``DataLocalityAsOf`` and ``DataLocalityGeneration``, which have fields of their own, and the
    ``openings``: attributes that are no reason for a new generation. They are void after ``open_until``.
    """

    site: Site
    as_of: datetime
    generation: int
    content: tuple[tuple[str, str], ...]
    openings: tuple[tuple[str, str], ...] = ()
    open_until: datetime | None = None

    @property
    def attributes(self) -> tuple[tuple[str, str], ...]:
        """Return all attributes. ``DataLocalityVersion`` is last: an ad without it was truncated."""
        until = self.open_until
        when = (
            *((*self.openings, (contract.OPEN_UNTIL, str(to_unix(until)))) if until else ()),
            (contract.AS_OF, str(to_unix(self.as_of))),
            (contract.GENERATION, str(self.generation)),
        )
        return (*self.content[:-1], *when, self.content[-1])

    @property
    def text(self) -> str:
        """Return the ad as the hook prints it: one ``Name = literal`` on each line."""
        return "".join(f"{name} = {literal}\n" for name, literal in self.attributes)


@dataclass(frozen=True, slots=True)
class PublishedAd:
    """One ad as the daemon read it back from a publisher.

    ``received_at`` is the time when the publisher last received this ad from the daemon. ``open_until`` is
    None if the ad has no openings.
    """

    site: Site
    generation: int
    as_of: datetime
    received_at: datetime
    open_until: datetime | None = None


class ActionKind(StrEnum):
    """The kinds of actions of a plan."""

    PUBLISH = "publish"  # send an ad that is new, or whose content changed
    REFRESH = "refresh"  # send the same content again, but newer as_of, before the published copy expires
    KEEP = "keep"  # keep the published ad and its age; if the ad is known, send it again unchanged
    WITHDRAW = "withdraw"  # remove the ad: the operator retired the site
    NOOP = "noop"  # the published ad equals the desired one


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a plan: what to do about the ad of a site. It sends *ad*, if there is one."""

    kind: ActionKind
    site: Site
    reason: str = ""
    ad: SiteAd | None = None


Plan = tuple[Action, ...]


def to_unix(moment: datetime) -> int:
    """Return whole Unix seconds, rounded down, so that a fact never looks newer than it is."""
    return int(moment.timestamp() // 1)


def from_unix(seconds: float) -> datetime:
    """Return the aware UTC time of *seconds* since the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


@dataclass(frozen=True, slots=True)
class DaemonKnowledge:
    """The daemon's facts for the answer to one client, and the reasons why some facts are missing.

    The daemon publishes ``demanded_dids``. It queried ``queried_dids`` only to answer this client.
    ``dids_without_room`` has, by site, the datasets that do not fit into the site's ad.
    ``held_reasons`` has, by site, the change that the daemon does not publish yet, and why.
    ``similar_names`` has, for a name that no catalogue has, similar names that a catalogue has.
    ``openings`` are those of the last cycle; if there are none, ``no_openings_reason`` says why.
    ``lists_of_wrong_keys`` are those of the demand. ``private_dids`` are those in a query of another host
    that match ``[publish] never``.
    """

    now: datetime
    snapshot: Snapshot
    demanded_dids: frozenset[Did] = frozenset()
    queried_dids: frozenset[Did] = frozenset()
    dids_without_room: Mapping[Site, AbstractSet[Did]] = field(default_factory=dict)
    held_reasons: Mapping[Site, str] = field(default_factory=dict)
    similar_names: Mapping[Did, tuple[Did, ...]] = field(default_factory=dict)
    openings: "Openings | None" = None
    no_openings_reason: str | None = None
    lists_of_wrong_keys: Mapping[str, SetKey | None] = field(default_factory=dict)
    private_dids: frozenset[Did] = frozenset()

    @property
    def collisions_by_lower_name(self) -> dict[str, tuple[Did, ...]]:
        return {did.lower(): clash for clash in self.snapshot.case_collisions for did in clash}

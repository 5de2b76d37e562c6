"""Ledger of staging: every request of ours, written before the catalogue is asked, with its bytes reserved.

The ledger is the truth for the limits: a catalogue's own account limits may lag, be switched off or belong to
another account. A tag is a function of the pool, the kind, the dataset and the site, so two daemons, or one
daemon before and after a crash, use the same tag for the same request. Pure.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import OwnRequest, RefusalKind, RequestState, StagingKind, StagingOrder

MAX_ENDED = 200
"""Ended requests that the ledger keeps for people."""
HOUR = timedelta(hours=1)


class EntryState(StrEnum):
    """The state of a ledger entry."""

    ASKING = "asking"  # the call was about to be made; its effect is not known yet
    OPEN = "open"  # the catalogue has the request
    CANCELLING = "cancelling"  # the daemon asked for its end, and has not yet seen that it ended


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One request of ours: one dataset at one site.

    Args:
        user: the owner of the jobs because of which the daemon asked; empty if unknown.
        source: the site from whose tape the data comes; None if the data is on disk somewhere.
        request_state: the last state in the catalogue; None before the first answer.
        is_complete: whether all files were on disk once; the entry is then no longer in flight.
        demanded_at: the last time at which a schedd listed a job that needs the dataset.
        unwanted_since: since when no job needs the dataset, as seen in all its schedds.
        schedds: the schedds whose jobs needed the dataset.
        is_used: whether a job that needs the dataset ran at the site.
        called_at: the last call to renew or to cancel.
        problem: the last failure of a renewal or cancellation.
    """

    tag: str
    batch: str
    catalogue: str
    kind: StagingKind
    site: Site
    did: Did
    bytes: int
    files: int | None
    state: EntryState
    asked_at: datetime
    lifetime: timedelta
    user: str = ""
    source: Site | None = None
    storage: str = ""
    handle: str = ""
    request_state: RequestState | None = None
    is_complete: bool = False
    files_done: int = 0
    bytes_done: int = 0
    expires_at: datetime | None = None
    ready_at: datetime | None = None
    reason: str = ""
    stuck_since: datetime | None = None
    unwanted_since: datetime | None = None
    demanded_at: datetime | None = None
    schedds: frozenset[str] = frozenset()
    job_count: int = 0
    is_used: bool = False
    called_at: datetime | None = None
    problem: str = ""

    @property
    def is_in_flight(self) -> bool:
        """Return whether the bytes of this entry count as in flight."""
        return self.kind is StagingKind.STAGE and not self.is_complete

    @property
    def order(self) -> StagingOrder:
        """Return the order to send to the catalogue."""
        return StagingOrder(
            self.tag, self.batch, self.kind, self.site, self.did, self.bytes, self.lifetime, self.storage,
            self.source,
        )  # fmt: skip

    @property
    def request(self) -> OwnRequest:
        """Return the request as the catalogue knows it."""
        return OwnRequest(self.tag, self.handle, self.kind, self.site, self.did)


@dataclass(frozen=True, slots=True)
class EndedEntry:
    """A request that has ended, for people.

    Attributes:
        tag: its name.
        catalogue: catalogue that had it.
        kind: pin or stage.
        site: its site.
        did: its dataset.
        bytes: size of the dataset.
        asked_at: time of the request.
        ended_at: its end.
        is_complete: all files were on disk.
        was_used: a job that needs the dataset ran at the site.
        reason: reason of the end.
    """

    tag: str
    catalogue: str
    kind: StagingKind
    site: Site
    did: Did
    bytes: int
    asked_at: datetime
    ended_at: datetime
    is_complete: bool
    was_used: bool
    reason: str


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """The failed attempts to bring one dataset to one site; no attempt is made before ``retry_at``.

    While the pause lasts, no attempt is made at another site either: requests must not bounce between sites.
    If ``is_final``, none is made at this site until the operator resumes staging; with ``is_everywhere`` none
    at any site.
    """

    attempts: int
    failed_at: datetime
    retry_at: datetime
    kind: RefusalKind
    reason: str
    is_final: bool = False
    is_everywhere: bool = False


@dataclass(frozen=True, slots=True)
class AskedBatch:
    """Datasets that were asked for together at ``asked_at``."""

    batch: str
    asked_at: datetime
    bytes: int


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's answer to a request above the size for approval: its time, and whether it is granted."""

    batch: str
    given_at: datetime
    is_granted: bool


@dataclass(frozen=True, slots=True)
class StagingTotals:
    """Counts since the state was made.

    Attributes:
        asked: requests that the daemon made.
        asked_bytes: their bytes.
        joined: rules of others that served the jobs.
        pinned: pins that the daemon made.
        renewed: renewals.
        cancelled: requests that the daemon cancelled.
        failed: requests that failed.
        ended: requests that ended.
        staged_bytes: bytes that were staged completely.
        unused_bytes: those of them that ended before a job that needs them ran beside them.
        refused: refusals, by kind.
    """

    asked: int = 0
    asked_bytes: int = 0
    joined: int = 0
    pinned: int = 0
    renewed: int = 0
    cancelled: int = 0
    failed: int = 0
    ended: int = 0
    staged_bytes: int = 0
    unused_bytes: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Everything that staging remembers over a restart.

    ``failures`` are by dataset and site. ``site_failures`` has the times of recent failures by site. At a
    catalogue in ``halts`` nothing is asked, with the reason, until the operator resumes staging or changes
    the configuration. ``tape_asked_at`` has the last request by site of the tape. ``joined`` has the rules
    of others that serve our jobs, by dataset and site, as ``account handle``.
    """

    entries: Mapping[str, LedgerEntry] = field(default_factory=dict)
    failures: Mapping[tuple[Did, Site], FailureRecord] = field(default_factory=dict)
    site_failures: Mapping[Site, tuple[datetime, ...]] = field(default_factory=dict)
    halts: Mapping[str, str] = field(default_factory=dict)
    tape_asked_at: Mapping[Site, datetime] = field(default_factory=dict)
    batches: tuple[AskedBatch, ...] = ()
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    joined: Mapping[tuple[Did, Site], str] = field(default_factory=dict)
    totals: StagingTotals = StagingTotals()
    ended: tuple[EndedEntry, ...] = ()

    def with_entries(self, entries: Iterable[LedgerEntry]) -> "Ledger":
        """Return the ledger with *entries* added or replaced."""
        return replace(self, entries={**self.entries, **{entry.tag: entry for entry in entries}})

    def find(self, did: Did) -> tuple[LedgerEntry, ...]:
        """Return the entries of *did*."""
        return tuple(entry for entry in self.entries.values() if entry.did == did)

    def group_entries(self) -> dict[Did, list[LedgerEntry]]:
        """Return the entries by dataset."""
        groups: dict[Did, list[LedgerEntry]] = {}
        for entry in self.entries.values():
            groups.setdefault(entry.did, []).append(entry)
        return groups


def make_tag(prefix: str, kind: StagingKind, did: Did, site: Site) -> str:
    """Return the tag of the request of *kind* for *did* at *site*: the same in each daemon of a pool."""
    digest = hashlib.sha256(f"{kind}\n{did}\n{site}".encode()).hexdigest()
    return f"{prefix}{kind}:{digest[:24]}"


def make_batch(site: Site, sizes: Mapping[Did, int]) -> str:
    """Return the id of a request for datasets of *sizes* (bytes) at *site*; other sizes give another id."""
    rows = "\n".join(f"{did} {size}" for did, size in sorted(sizes.items()))
    return hashlib.sha256(f"{site}\n{rows}".encode()).hexdigest()[:10]


def end_entry(ledger: Ledger, tag: str, now: datetime, reason: str) -> Ledger:
    """Return *ledger* without the entry *tag*, which has ended in the catalogue at *now*."""
    entry = ledger.entries[tag]
    is_stage = entry.kind is StagingKind.STAGE
    is_unused = is_stage and entry.is_complete and not entry.is_used
    row = EndedEntry(
        tag, entry.catalogue, entry.kind, entry.site, entry.did, entry.bytes, entry.asked_at, now,
        entry.is_complete, entry.is_used, reason,
    )  # fmt: skip
    totals = replace(
        ledger.totals,
        ended=ledger.totals.ended + 1,
        unused_bytes=ledger.totals.unused_bytes + (entry.bytes if is_unused else 0),
    )
    entries = {key: each for key, each in ledger.entries.items() if key != tag}
    return replace(ledger, entries=entries, totals=totals, ended=(*ledger.ended, row)[-MAX_ENDED:])


def forget_old(ledger: Ledger, now: datetime, keep_failures: timedelta) -> Ledger:
    """Return *ledger* without times that no decision needs any more."""
    return replace(
        ledger,
        batches=tuple(each for each in ledger.batches if now - each.asked_at < HOUR),
        approvals={
            name: each for name, each in ledger.approvals.items() if now - each.given_at < keep_failures
        },
        failures={
            key: failure
            for key, failure in ledger.failures.items()
            if failure.is_final or now - failure.failed_at < keep_failures
        },
        site_failures={
            site: recent
            for site, times in ledger.site_failures.items()
            if (recent := tuple(at for at in times if now - at < HOUR))
        },
    )

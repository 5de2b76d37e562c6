"""Usage: what our requests take of each limit, and which limit one more request would exceed. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hydrator.domain.model import Did, Site
from hydrator.domain.ports.staging import SiteSpace, StagingKind
from hydrator.domain.text import format_bytes, format_count

from .ledger import HOUR, Ledger
from .policy import StagingLimits


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """One dataset of a planned request; see :class:`hydrator.domain.ports.staging.StagingOrder`."""

    did: Did
    bytes: int
    files: int | None
    source: Site | None = None
    storage: str = ""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """Datasets to ask for together, at one site, because of the jobs of ``user`` and others.

    ``expected_seconds`` is the estimated time of the transfer; None if no rate is known.
    """

    batch: str
    catalogue: str
    kind: StagingKind
    site: Site
    items: tuple[PlannedItem, ...]
    user: str
    job_count: int
    queued_since: datetime
    example: str
    schedds: frozenset[str]
    lifetime: timedelta
    expected_seconds: float | None = None

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items)

    @property
    def files(self) -> int | None:
        """Return the number of files; None if it is unknown for one of the datasets."""
        counts = [item.files for item in self.items]
        return None if None in counts else sum(count or 0 for count in counts)


@dataclass
class Usage:
    """The bytes and numbers that our requests take of the limits; :meth:`add` reserves more.

    The fields are named like the limits in :class:`StagingLimits`.
    """

    user_bytes: Counter[str] = field(default_factory=Counter)
    site_bytes: Counter[Site] = field(default_factory=Counter)
    site_files: Counter[Site] = field(default_factory=Counter)
    source_bytes: Counter[Site] = field(default_factory=Counter)
    source_files: Counter[Site] = field(default_factory=Counter)
    total_bytes: int = 0
    hour_requests: int = 0
    hour_bytes: int = 0
    pin_bytes: int = 0
    pin_count: int = 0

    def add(self, batch: PlannedBatch) -> None:
        """Reserve the bytes and files of *batch*."""
        for item in batch.items:
            if batch.kind is StagingKind.PIN:
                self.pin_bytes += item.bytes
                self.pin_count += 1
            else:
                self._add_in_flight(batch.user, batch.site, item.source, item.bytes, item.files)
                self.total_bytes += item.bytes
        if batch.kind is StagingKind.STAGE:
            self.hour_requests += 1
            self.hour_bytes += batch.bytes

    def _add_in_flight(
        self, user: str, site: Site, source: Site | None, size: int, files: int | None
    ) -> None:
        self.user_bytes[user] += size
        self.site_bytes[site] += size
        self.site_files[site] += files or 0
        if source is not None:
            self.source_bytes[source] += size
            self.source_files[source] += files or 0

    @classmethod
    def of(cls, ledger: Ledger, now: datetime) -> "Usage":
        """Return the usage by all entries of *ledger* and by the requests of the last hour."""
        usage = cls()
        for entry in ledger.entries.values():
            if entry.kind is StagingKind.PIN:
                usage.pin_bytes += entry.bytes
                usage.pin_count += 1
                continue
            usage.total_bytes += entry.bytes
            if entry.is_in_flight:
                usage._add_in_flight(entry.user, entry.site, entry.source, entry.bytes, entry.files)
        recent = [batch for batch in ledger.batches if now - batch.asked_at < HOUR]
        usage.hour_requests = len(recent)
        usage.hour_bytes = sum(batch.bytes for batch in recent)
        return usage

    def explain_excess(self, batch: PlannedBatch, limits: StagingLimits) -> str | None:
        """Return which limit *batch* would exceed, in one sentence; None if it fits into all limits."""
        return self._explain_bytes(batch, limits) or self._explain_files(batch, limits)

    def _explain_bytes(self, batch: PlannedBatch, limits: StagingLimits) -> str | None:
        size, text = batch.bytes, format_bytes(batch.bytes)
        if size > limits.request_bytes:
            return f"{text} exceeds the limit of {format_bytes(limits.request_bytes)} for one request"
        from_tape = Counter[Site]()
        for item in batch.items:
            if item.source is not None:
                from_tape[item.source] += item.bytes
        rows: list[tuple[str, int, int, int]] = [
            (f"in flight for {batch.user}", self.user_bytes[batch.user], size, limits.user_bytes),
            (f"in flight to {batch.site}", self.site_bytes[batch.site], size, limits.site_bytes),
            ("of all requests", self.total_bytes, size, limits.total_bytes),
            ("asked for in one hour", self.hour_bytes, size, limits.hour_bytes),
            *(
                (f"in flight from the tape of {source}", self.source_bytes[source], part, limits.source_bytes)
                for source, part in sorted(from_tape.items())
            ),
        ]
        for what, taken, more, limit in rows:
            if taken + more > limit:
                return (
                    f"{text} would exceed the limit of {format_bytes(limit)} {what}:"
                    f" {format_bytes(taken)} are taken"
                )
        if self.hour_requests >= limits.hour_requests:
            return f"{format_count(self.hour_requests, 'request')} were made in the last hour, the limit"
        return None

    def _explain_files(self, batch: PlannedBatch, limits: StagingLimits) -> str | None:
        files = batch.files
        sources = sorted({item.source for item in batch.items if item.source is not None})
        tape = [
            (f"in flight from the tape of {each}", self.source_files[each], limits.source_files)
            for each in sources
        ]
        rows: Iterable[tuple[str, int, int | None]] = [
            ("for one request", 0, limits.request_files),
            (f"in flight to {batch.site}", self.site_files[batch.site], limits.site_files),
            *tape,
        ]
        for what, taken, limit in rows:
            if limit is None:
                continue
            if files is None:
                return f"its number of files is unknown, and there is a limit of {limit:,} files {what}"
            if taken + files > limit:
                return (
                    f"{files:,} files would exceed the limit of {limit:,} files {what}: {taken:,} are taken"
                )
        return None

    def explain_lack_of_space(
        self, batch: PlannedBatch, space: SiteSpace | None, limits: StagingLimits
    ) -> str | None:
        """Return why *batch* does not fit into the free *space* of its site; None if it fits.

        All bytes in flight count as if none of them had arrived: the free space may be an old figure.
        """
        if space is None:
            return f"the free space of {batch.site} is unknown"
        floor = max(limits.floor_bytes, round(space.total_bytes * limits.floor_fraction))
        left = space.free_bytes - self.site_bytes[batch.site] - batch.bytes
        if left >= floor:
            return None
        return (
            f"{format_bytes(batch.bytes)} would leave less than {format_bytes(floor)} free at {batch.site}:"
            f" {format_bytes(max(0, space.free_bytes))} are free,"
            f" {format_bytes(self.site_bytes[batch.site])} are reserved"
        )

    def explain_excess_of_pins(self, size: int, limits: StagingLimits) -> str | None:
        """Return which limit one more pin of *size* bytes would exceed; None if it fits."""
        if self.pin_count >= limits.pin_count:
            return f"{format_count(self.pin_count, 'dataset')} are pinned, the limit"
        if self.pin_bytes + size > limits.pin_bytes:
            return (
                f"{format_bytes(size)} would exceed the limit of {format_bytes(limits.pin_bytes)} for pins:"
                f" {format_bytes(self.pin_bytes)} are taken"
            )
        return None


def needs_approval(batch: PlannedBatch, space: SiteSpace, limits: StagingLimits) -> bool:
    """Return whether a person must approve *batch*: it is large, or takes much of the free *space*."""
    return batch.bytes > min(limits.approval_bytes, limits.approval_fraction * space.free_bytes)

"""Usage: what our requests take of each limit, and which limit one more request would exceed. Pure."""

from collections import Counter
from collections.abc import Iterator
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

    The fields are named like the limits in :class:`StagingLimits`. ``reserve`` has what :meth:`keep_for`
    keeps, by limit and subject.
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
    reserve: Counter[tuple[str, str]] = field(default_factory=Counter)

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
        if batch.bytes > limits.request_bytes:
            limit = format_bytes(limits.request_bytes)
            return f"{format_bytes(batch.bytes)} exceeds the limit of {limit} for one request"
        for share in _shares_of(batch, limits):
            if share.amount is None:
                limit = share.text(share.limit)
                return f"its number of files is unknown, and there is a limit of {limit} {share.what}"
            if self._usage_of(share) + self.reserve[share.key] + share.amount > share.limit:
                return self._explain(share)
        return None

    def keep_for(self, batch: PlannedBatch, limits: StagingLimits) -> None:
        """Keep the first limit that *batch* exceeds for it: later requests must leave room for it.

        So small requests cannot take again and again what a large one waits for. Nothing is kept for a
        request that exceeds a limit by itself.
        """
        for share in _shares_of(batch, limits):
            if share.amount is None or share.amount > share.limit:
                return
            if self._usage_of(share) + self.reserve[share.key] + share.amount > share.limit:
                self.reserve[share.key] += share.amount
                return

    def _usage_of(self, share: "_Share") -> int:
        name, subject = share.key
        value: int | Counter[str] = getattr(self, name, 0)
        return value[subject] if isinstance(value, Counter) else value

    def _explain(self, share: "_Share") -> str:
        taken, reserve, text = self._usage_of(share), self.reserve[share.key], share.text
        taken_text = text(taken) if share.key[0].endswith("bytes") else f"{taken:,}"
        if share.key[0] == "hour_requests" and not reserve:
            return f"{format_count(taken, 'request')} were made in the last hour, the limit"
        rest = f", and {text(reserve)} are kept for a request that has waited for longer" if reserve else ""
        return (
            f"{text(share.amount or 0)} would exceed the limit of {text(share.limit)} {share.what}:"
            f" {taken_text} are taken{rest}"
        )

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

    def explain_excess_of_pins(self, count: int, size: int, limits: StagingLimits) -> str | None:
        """Return which limit *count* more pins of *size* bytes in all would exceed; None if they fit."""
        if self.pin_count >= limits.pin_count:
            return f"{format_count(self.pin_count, 'dataset')} are pinned, the limit"
        if self.pin_count + count > limits.pin_count:
            limit = format_count(limits.pin_count, "pinned dataset")
            return (
                f"{format_count(count, 'dataset')} would exceed the limit of {limit}:"
                f" {self.pin_count} {'is' if self.pin_count == 1 else 'are'} pinned"
            )
        if self.pin_bytes + size > limits.pin_bytes:
            return (
                f"{format_bytes(size)} would exceed the limit of {format_bytes(limits.pin_bytes)} for pins:"
                f" {format_bytes(self.pin_bytes)} are taken"
            )
        return None


@dataclass(frozen=True, slots=True)
class _Share:
    """The share of one limit that one request takes.

    ``key`` is the name of the limit, and the site, tape or user. Other requests take from the same limit if
    :class:`Usage` has a field of this name. ``amount`` is None if the number of files is unknown.
    """

    key: tuple[str, str]
    what: str
    amount: int | None
    limit: int

    def text(self, amount: int) -> str:
        if self.key[0].endswith("bytes"):
            return format_bytes(amount)
        noun = "request" if self.key[0] == "hour_requests" else "file"
        return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def _shares_of(batch: PlannedBatch, limits: StagingLimits) -> Iterator[_Share]:
    """Yield what *batch* takes of each limit, but the bytes of one request."""
    size, files, user, site = batch.bytes, batch.files, batch.user, batch.site
    from_tape = Counter[Site]()
    for item in batch.items:
        if item.source is not None:
            from_tape[item.source] += item.bytes
    yield _Share(("user_bytes", user), f"in flight for {user}", size, limits.user_bytes)
    yield _Share(("site_bytes", site), f"in flight to {site}", size, limits.site_bytes)
    yield _Share(("total_bytes", ""), "of all requests", size, limits.total_bytes)
    yield _Share(("hour_bytes", ""), "asked for in one hour", size, limits.hour_bytes)
    for source, part in sorted(from_tape.items()):
        what = f"in flight from the tape of {source}"
        yield _Share(("source_bytes", source), what, part, limits.source_bytes)
    yield _Share(("hour_requests", ""), "in one hour", 1, limits.hour_requests)
    if limits.request_files is not None:
        yield _Share(("request_files", ""), "for one request", files, limits.request_files)
    if limits.site_files is not None:
        yield _Share(("site_files", site), f"in flight to {site}", files, limits.site_files)
    for source in sorted(from_tape) if limits.source_files is not None else ():
        what = f"in flight from the tape of {source}"
        yield _Share(("source_files", source), what, files, limits.source_files or 0)


def needs_approval(batch: PlannedBatch, space: SiteSpace, limits: StagingLimits) -> bool:
    """Return whether a person must approve *batch*: it is large, or takes much of the free *space*."""
    return batch.bytes > min(limits.approval_bytes, limits.approval_fraction * space.free_bytes)

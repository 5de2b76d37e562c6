"""Usage: what our requests take of each limit, and which limit one more request would exceed. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import SiteSpace, StagingKind
from hydrator.domain.text import format_bytes, format_count

from .ledger import HOUR, Ledger
from .policy import StagingLimits


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """One dataset of a planned request; see :class:`hydrator.domain.staging_ports.StagingOrder`."""

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
    source_bytes: Counter[Site] = field(default_factory=Counter)
    total_bytes: int = 0
    hour_requests: int = 0
    pin_bytes: int = 0
    reserve: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, batch: PlannedBatch) -> None:
        """Reserve the bytes of *batch*."""
        for item in batch.items:
            if batch.kind is StagingKind.PIN:
                self.pin_bytes += item.bytes
            else:
                self._add_in_flight(batch.user, batch.site, item.source, item.bytes)
                self.total_bytes += item.bytes
        if batch.kind is StagingKind.STAGE:
            self.hour_requests += 1

    def _add_in_flight(self, user: str, site: Site, source: Site | None, size: int) -> None:
        self.user_bytes[user] += size
        self.site_bytes[site] += size
        if source is not None:
            self.source_bytes[source] += size

    @classmethod
    def of(cls, ledger: Ledger, now: datetime) -> "Usage":
        """Return the usage by all entries of *ledger* and by the requests of the last hour."""
        usage = cls()
        for entry in ledger.entries.values():
            if entry.kind is StagingKind.PIN:
                usage.pin_bytes += entry.bytes
                continue
            usage.total_bytes += entry.bytes
            if entry.is_in_flight:
                usage._add_in_flight(entry.user, entry.site, entry.source, entry.bytes)
        usage.hour_requests = sum(now - batch.asked_at < HOUR for batch in ledger.batches)
        return usage

    def explain_excess(self, batch: PlannedBatch, limits: StagingLimits) -> str | None:
        """Return which limit *batch* would exceed, in one sentence; None if it fits into all limits."""
        if batch.bytes > limits.request_bytes:
            limit = format_bytes(limits.request_bytes)
            return f"{format_bytes(batch.bytes)} exceeds the limit of {limit} for one request"
        for share in _shares_of(batch, limits):
            if self._usage_of(share) + self.reserve[share.key] + share.amount > share.limit:
                return self._explain(share)
        return None

    def keep_for(self, batch: PlannedBatch, limits: StagingLimits) -> None:
        """Keep the first limit that *batch* exceeds for it: later requests must leave room for it.

        So small requests cannot take again and again what a large one waits for. Nothing is kept for a
        request that exceeds a limit by itself.
        """
        for share in _shares_of(batch, limits):
            if share.amount > share.limit:
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
            f"{text(share.amount)} would exceed the limit of {text(share.limit)} {share.what}:"
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
        left = space.free_bytes - self.site_bytes[batch.site] - batch.bytes
        if left >= limits.floor_bytes:
            return None
        floor = format_bytes(limits.floor_bytes)
        return (
            f"{format_bytes(batch.bytes)} would leave less than {floor} free at {batch.site}:"
            f" {format_bytes(max(0, space.free_bytes))} are free,"
            f" {format_bytes(self.site_bytes[batch.site])} are reserved"
        )

    def explain_excess_of_pins(self, size: int, limits: StagingLimits) -> str | None:
        """Return which limit more pins of *size* bytes in all would exceed; None if they fit."""
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
    :class:`Usage` has a field of this name.
    """

    key: tuple[str, str]
    what: str
    amount: int
    limit: int

    def text(self, amount: int) -> str:
        return format_bytes(amount) if self.key[0].endswith("bytes") else format_count(amount, "request")


def _shares_of(batch: PlannedBatch, limits: StagingLimits) -> Iterator[_Share]:
    """Yield what *batch* takes of each limit, but the bytes of one request."""
    size, user, site = batch.bytes, batch.user, batch.site
    from_tape = Counter[Site]()
    for item in batch.items:
        if item.source is not None:
            from_tape[item.source] += item.bytes
    yield _Share(("user_bytes", user), f"in flight for {user}", size, limits.user_bytes)
    yield _Share(("site_bytes", site), f"in flight to {site}", size, limits.site_bytes)
    yield _Share(("total_bytes", ""), "of all requests", size, limits.total_bytes)
    for source, part in sorted(from_tape.items()):
        what = f"in flight from the tape of {source}"
        yield _Share(("source_bytes", source), what, part, limits.source_bytes)
    yield _Share(("hour_requests", ""), "in one hour", 1, limits.hour_requests)

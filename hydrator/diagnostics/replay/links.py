"""Shared links: all readers of a site's data share the rate of its uplink equally (processor sharing)."""

import heapq
from dataclasses import dataclass, field

from .model import PoolSite


@dataclass(slots=True)
class SharedLink:
    """The uplink of one site.

    Each of n readers gets 1/n of its own rate at any time. ``_progress`` counts the bytes that a reader with
    the link's rate would have got since the start of the replay. A read of b bytes that begins at progress p
    ends at progress p + b, however many readers come and go, so an event costs O(log n). The b bytes of a
    reader with half the link's rate count as 2 b bytes.

    Attributes:
        bytes_per_second: the rate of the link, above 0.
        bytes_read: bytes of completed reads.
        busy_seconds: time with at least one reader.
    """

    bytes_per_second: float
    bytes_read: int = 0
    busy_seconds: float = 0.0
    _progress: float = 0.0
    _updated_at: float = 0.0
    _readers: list[tuple[float, int, int]] = field(default_factory=list)

    @property
    def reader_count(self) -> int:
        return len(self._readers)

    def add_reader(self, job: int, byte_count: int, now: float, rate: float | None = None) -> None:
        """Begin the read of *byte_count* bytes by *job* at *now*, alone at *rate* (default: the link's)."""
        self._advance(now)
        amount = byte_count if rate is None else byte_count * self.bytes_per_second / rate
        heapq.heappush(self._readers, (self._progress + amount, job, byte_count))

    def next_end(self) -> float | None:
        """Return the time when the next read ends if no reader comes before; None without a reader."""
        if not self._readers:
            return None
        left = max(0.0, self._readers[0][0] - self._progress)
        return self._updated_at + left * len(self._readers) / self.bytes_per_second

    def end_read(self, now: float) -> int:
        """End the read that is complete at *now*, the time that :meth:`next_end` gave; return its job."""
        self._advance(now)
        end, job, byte_count = heapq.heappop(self._readers)
        self._progress = max(self._progress, end)
        self.bytes_read += byte_count
        return job

    def _advance(self, now: float) -> None:
        if self._readers:
            elapsed = now - self._updated_at
            self._progress += elapsed * self.bytes_per_second / len(self._readers)
            self.busy_seconds += elapsed
        self._updated_at = now


def build_link(site: PoolSite) -> SharedLink | None:
    """Return the link of *site*; None if no rate from there is known."""
    rates = [*site.rates_to.values(), *([site.bytes_per_second] if site.bytes_per_second else [])]
    return SharedLink(max(rates)) if rates else None

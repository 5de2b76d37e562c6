"""Rates between sites: how many bytes a second all jobs at one site can together read from another.

The table takes the first of these that has an answer for a pair of sites:

1. samples of this pair: of the last hour, else of the last day, else of the last week;
2. samples of the source to all sites together, from the same three periods;
3. ``[[network.links]]``, then ``[network.uplinks]`` of the source;
4. the default rate, divided by 2 for each class of the cost in ``[sites.reads]``;
5. the default rate.

A period needs MIN_SAMPLES samples. Its rate is the median over the users of each user's median, so that one
user moves the rate by one rank at most; of two middle values the lower one is taken. A sample has the rate of
one reader. The table multiplies it by the number of readers meanwhile, because the rate is of the link for
all readers together. Without that number, the sample counts as the only reader, and the rate is a lower
bound.

This module is pure: no socket, no clock.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median_low

from hydrator.domain.ads.estimates import Rate, TransferSample
from hydrator.domain.model import Site

from .samples import MAX_CLOCK_SKEW, MIN_BYTES, count_readers

MIN_SAMPLES = 3
WINDOWS = (timedelta(hours=1), timedelta(days=1), timedelta(days=7))
BYTES_PER_GBIT = 125e6
MAX_COST_CLASS = 4
"""Classes of cost: from the default rate (0) down to a sixteenth of it (4)."""

Pair = tuple[Site, Site]
"""Source and destination."""


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The operator's rates in bytes/s, and the costs (0 to 1) of ``[sites.reads]``: reader, then storage."""

    links: Mapping[Pair, float] = field(default_factory=dict)
    uplinks: Mapping[Site, float] = field(default_factory=dict)
    default: float | None = None
    read_costs: Mapping[Site, Mapping[Site, float]] = field(default_factory=dict)

    @property
    def sites(self) -> frozenset[Site]:
        """The sites with a rate: such a site may have no ad, because no job wants its data now."""
        return frozenset(site for pair in self.links for site in pair) | self.uplinks.keys()


class RateTable:
    """The rates of all pairs of sites at one moment; every thread may read it.

    Args:
        samples: samples of at least 100 MB count; their order does not matter.
        now: the time from which the three periods count back.
        policy: the operator's rates.
    """

    def __init__(
        self,
        samples: Iterable[TransferSample] = (),
        *,
        now: datetime,
        policy: NetworkPolicy = NetworkPolicy(),
    ) -> None:
        counted = count_readers(
            [each for each in samples if each.bytes >= MIN_BYTES and each.ended_at <= now + MAX_CLOCK_SKEW]
        )
        by_pair: defaultdict[Pair, list[TransferSample]] = defaultdict(list)
        by_source: defaultdict[Site, list[TransferSample]] = defaultdict(list)
        for sample in counted:
            by_pair[sample.source, sample.destination].append(sample)
            by_source[sample.source].append(sample)
        self._policy = policy
        self._pairs = {pair: measure(found, now) for pair, found in by_pair.items()}
        self._sources = {source: measure(found, now, "all sites") for source, found in by_source.items()}
        self._sample_counts = {pair: len(found) for pair, found in by_pair.items()}
        self.samples: Sequence[TransferSample] = counted

    def rate(self, source: Site, destination: Site) -> Rate | None:
        """Return the rate from *source* to *destination*; None within one site, and where it is unknown."""
        if source == destination:
            return None
        return (
            self._pairs.get((source, destination))
            or self._sources.get(source)
            or self._configured_rate(source, destination)
            or self._default_rate(source, destination)
        )

    def why_unknown(self, source: Site, destination: Site) -> str:
        """Return why the rate from *source* to *destination* is unknown; empty if it is known."""
        if source == destination or self.rate(source, destination):
            return ""
        found = self._sample_counts.get((source, destination), 0)
        if found:
            return f"{found} of {MIN_SAMPLES} samples, and nothing configured"
        return "no sample, and nothing configured"

    def _configured_rate(self, source: Site, destination: Site) -> Rate | None:
        if link := self._policy.links.get((source, destination)):
            return Rate(link, "[[network.links]]")
        uplink = self._policy.uplinks.get(source)
        return Rate(uplink, "[network.uplinks]") if uplink else None

    def _default_rate(self, source: Site, destination: Site) -> Rate | None:
        default = self._policy.default
        if not default:
            return None
        cost = self._policy.read_costs.get(destination, {}).get(source)
        if cost is not None:
            return Rate(default / 2 ** cost_class(cost), f"[sites.reads] {cost:g}")
        return Rate(default, "[network] default")


def cost_class(cost: float) -> int:
    """Return the class, 0 to 4, of a cost in ``[sites.reads]`` from 0 (as if local) to 1 (useless)."""
    return round(min(max(cost, 0.0), 1.0) * MAX_COST_CLASS)


def measure(samples: Sequence[TransferSample], now: datetime, destination: str = "") -> Rate | None:
    """Return the rate of the shortest period that has MIN_SAMPLES of *samples*; None if none has.

    *destination* describes where the samples went, if not to a single site.
    """
    for window in WINDOWS:
        found = [each for each in samples if now - each.ended_at <= window]
        if len(found) >= MIN_SAMPLES:
            origin = " + ".join(sorted({each.origin.value for each in found}))
            return Rate(
                _median_over_users(found),
                f"{origin} to {destination}" if destination else origin,
                max(each.ended_at for each in found),
                len(found),
            )
    return None


def link_rate(sample: TransferSample) -> float:
    """Return the bytes/s of the link for all its readers together, by *sample*."""
    return sample.bytes / sample.seconds * max(1.0, sample.readers or 1.0)


def _median_over_users(samples: Sequence[TransferSample]) -> float:
    rates: defaultdict[str, list[float]] = defaultdict(list)
    for sample in samples:
        rates[sample.user].append(link_rate(sample))
    return median_low(median_low(each) for each in rates.values())


class RateSource:
    """The present table of rates: a background worker replaces it, and each cycle reads it. Thread-safe."""

    def __init__(self, table: RateTable) -> None:
        self._lock = threading.Lock()
        self._table = table

    def current(self) -> RateTable:
        """Return the newest table."""
        with self._lock:
            return self._table

    def replace(self, table: RateTable) -> None:
        """Replace the table."""
        with self._lock:
            self._table = table

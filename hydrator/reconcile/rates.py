"""Rates between sites, and the samples of transfers that they come from.

Any user can invent samples in the ads of his jobs. So a sample must be plausible, a user has only a few
samples for each link and hour, and his samples count only his own readers (see :func:`count_readers`).

Rates between sites: how many bytes a second all jobs at one site can together read from another.

The table takes the first of these that has an answer for a pair of sites:

1. samples of this pair: of the last hour, else of the last day, else of the last week;
2. samples of the source to all sites together, from the same three periods;
3. ``[[network.links]]`` of the pair, then of the source to all sites;
4. the default rate.

A period needs MIN_SAMPLES samples. Its rate is the median over the users of each user's median, so that one
user moves the rate by one rank at most; of two middle values the lower one is taken. A sample has the rate of
one reader. The table multiplies it by the number of readers meanwhile, because the rate is of the link for
all readers together. Without that number, the sample counts as the only reader, and the rate is a lower
bound.

This module is pure: no socket, no clock.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import accumulate
from statistics import median_low

from hydrator.config.network import NetworkSettings
from hydrator.domain.model import Site
from hydrator.domain.network import Rate, TransferOrigin, TransferSample
from hydrator.domain.text import group_pairs
from hydrator.domain.untrusted import MAX_CLOCK_SKEW

MIN_BYTES = 100_000_000
"""Smallest transfer that says something about a link; smaller ones measure delays."""
MAX_BYTES = 10**15
MAX_AGE = timedelta(days=7)
MAX_BYTES_PER_SECOND = 125e9
"""1 Tb/s for one reader: above this a sample is not plausible."""
MAX_SAMPLES_OF_USER = 12
"""Samples that are kept of one user for one link and hour."""
MAX_SAMPLES_OF_LINK = 200
"""Samples that are kept of one link, so that a busy link does not displace the others."""
MAX_SAMPLES = 10_000
"""Samples that are kept in all: 1 to 2 MB on disk."""
MAX_READERS = 10_000.0
Pair = tuple[Site, Site]
"""Source and destination."""


def is_plausible(sample: TransferSample, sites: AbstractSet[Site], now: datetime) -> bool:
    """Return whether *sample* is between two different ones of *sites*, large, recent and possible."""
    return (
        sample.source in sites
        and sample.destination in sites
        and sample.source != sample.destination
        and MIN_BYTES <= sample.bytes <= MAX_BYTES
        and 0 < sample.seconds <= MAX_AGE.total_seconds()
        and sample.bytes / sample.seconds <= MAX_BYTES_PER_SECOND
        and now - MAX_AGE <= sample.ended_at <= now + MAX_CLOCK_SKEW
    )


def select_samples(
    samples: Iterable[TransferSample], sites: AbstractSet[Site], now: datetime
) -> tuple[TransferSample, ...]:
    """Return the samples to keep, oldest first: plausible, each once, and few of each user and link.

    The result does not depend on the order of *samples*. Of too many samples the newest are kept.
    """
    of_user, of_link = Counter[tuple[str, Site, Site, int]](), Counter[Pair]()
    selection: list[TransferSample] = []
    for sample in sorted({each for each in samples if is_plausible(each, sites, now)}, key=_newest_first):
        link = (sample.source, sample.destination)
        group = (sample.user, *link, int(sample.ended_at.timestamp() // 3600))
        if (
            of_user[group] < MAX_SAMPLES_OF_USER
            and of_link[link] < MAX_SAMPLES_OF_LINK
            and len(selection) < MAX_SAMPLES
        ):
            of_user[group] += 1
            of_link[link] += 1
            selection.append(sample)
    return tuple(reversed(selection))


def _newest_first(sample: TransferSample) -> tuple[object, ...]:
    names = (sample.source, sample.destination, sample.origin, sample.user, sample.job)
    return (-sample.ended_at.timestamp(), *names, sample.bytes, sample.seconds, sample.readers or 0.0)


def count_readers(samples: Sequence[TransferSample]) -> list[TransferSample]:
    """Return *samples* with the number of readers for each that has none.

    The number is the mean over the sample's time, at the same source: this sample, the other samples of
    the same user, and the transfer records of all users. Other users' reports from the job wrapper do not
    count, because their owners may have invented them. Reads that no sample shows are not counted, so the
    number is a lower bound.
    """
    readers: dict[TransferSample, float] = {}
    for others in group_pairs((each.source, each) for each in samples).values():
        records = _Load([each for each in others if each.origin is TransferOrigin.SCHEDD])
        reports = group_pairs((one.user, one) for one in others if one.origin is not TransferOrigin.SCHEDD)
        own = {user: _Load(reported) for user, reported in reports.items()}
        for each in others:
            mean = records.mean_during(each) + (own[each.user].mean_during(each) if each.user in own else 0.0)
            readers[each] = min(MAX_READERS, max(1.0, mean))
    return [each if each.readers is not None else replace(each, readers=readers[each]) for each in samples]


class _Load:
    """The number of concurrent transfers over time; ``mean_during`` takes O(log n)."""

    def __init__(self, samples: Sequence[TransferSample]) -> None:
        self._zero = min(map(_begin, samples), default=0.0)  # sums of Unix times would not be exact
        begins = sorted(_begin(each) - self._zero for each in samples)
        ends = sorted(each.ended_at.timestamp() - self._zero for each in samples)
        self._times = [(times, (0.0, *accumulate(times))) for times in (begins, ends)]

    def mean_during(self, sample: TransferSample) -> float:
        begin = _begin(sample) - self._zero
        return (self._sum_until(begin + sample.seconds) - self._sum_until(begin)) / sample.seconds

    def _sum_until(self, until: float) -> float:
        """Return the seconds of all transfers until then: those since begins less those since ends."""
        since_begins, since_ends = (
            (count := bisect_right(times, until)) * until - sums[count] for times, sums in self._times
        )
        return since_begins - since_ends


def _begin(sample: TransferSample) -> float:
    return sample.ended_at.timestamp() - sample.seconds


MIN_SAMPLES = 3
WINDOWS = (timedelta(hours=1), timedelta(days=1), timedelta(days=7))
BYTES_PER_GBIT = 125e6


class RateTable:
    """The rates of all pairs of sites at one moment; every thread may read it.

    ``default`` is the rate of the links without another figure.

    Args:
        samples: those that :func:`select_samples` keeps; their order does not matter.
        now: the time from which the three periods count back.
        network: the operator's rates.
    """

    def __init__(
        self, samples: Sequence[TransferSample] = (), *, now: datetime, network: NetworkSettings
    ) -> None:
        self.samples = count_readers(samples)
        by_pair = group_pairs(((each.source, each.destination), each) for each in self.samples)
        by_source = group_pairs((each.source, each) for each in self.samples)
        self.default = Rate(network.default_gbit_per_second * BYTES_PER_GBIT, "[network] default")
        self._links = {
            (link.source, link.destination): Rate(link.gbit_per_second * BYTES_PER_GBIT, "[[network.links]]")
            for link in network.links
        }
        self._pairs = {pair: measure(found, now) for pair, found in by_pair.items()}
        self._sources = {source: measure(found, now, "all sites") for source, found in by_source.items()}

    def rate(self, source: Site, destination: Site) -> Rate | None:
        """Return the rate from *source* to *destination*; None within one site."""
        if source == destination:
            return None
        return (
            self._pairs.get((source, destination))
            or self._sources.get(source)
            or self._links.get((source, destination))
            or self._links.get((source, None))
            or self.default
        )

    def bytes_per_second(self, source: Site, destination: Site) -> float:
        """Return the rate from *source* to *destination* in bytes/s; 0 within one site."""
        rate = self.rate(source, destination)
        return rate.bytes_per_second if rate else 0.0


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
    rates = group_pairs((sample.user, link_rate(sample)) for sample in samples)
    return median_low(median_low(each) for each in rates.values())

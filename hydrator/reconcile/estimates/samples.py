"""Samples of transfers between sites: which ones the daemon keeps, and how many readers each had.

Any user can invent samples in the ads of his jobs. So a sample must be plausible, a user has only a few
samples for each link and hour, and his samples count only his own readers (see :func:`count_readers`).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta

from hydrator.domain.ads.estimates import TransferOrigin, TransferSample
from hydrator.domain.model import Site

MIN_BYTES = 100_000_000
"""Smallest transfer that says something about a link; smaller ones measure delays."""
MAX_BYTES = 10**15
MAX_AGE = timedelta(days=7)
MAX_BYTES_PER_SECOND = 125e9
"""1 Tb/s for one reader: above this a sample is not plausible."""
MAX_CLOCK_SKEW = timedelta(minutes=5)
MAX_SAMPLES_OF_USER = 12
"""Samples that are kept of one user for one link and hour."""
MAX_SAMPLES_OF_LINK = 200
"""Samples that are kept of one link, so that a busy link does not displace the others."""
MAX_SAMPLES = 10_000
"""Samples that are kept in all: 1 to 2 MB on disk."""
MAX_READERS = 10_000.0


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
    samples: Iterable[TransferSample],
    sites: AbstractSet[Site],
    now: datetime,
    *,
    max_samples: int = MAX_SAMPLES,
) -> tuple[TransferSample, ...]:
    """Return the samples to keep, oldest first: plausible, each once, and few of each user and link.

    The result does not depend on the order of *samples*. Of too many samples the newest are kept.
    """
    of_user: defaultdict[tuple[str, Site, Site, int], int] = defaultdict(int)
    of_link: defaultdict[tuple[Site, Site], int] = defaultdict(int)
    selection: list[TransferSample] = []
    for sample in sorted({each for each in samples if is_plausible(each, sites, now)}, key=_newest_first):
        link = (sample.source, sample.destination)
        group = (sample.user, *link, int(sample.ended_at.timestamp() // 3600))
        if (
            of_user[group] < MAX_SAMPLES_OF_USER
            and of_link[link] < MAX_SAMPLES_OF_LINK
            and len(selection) < max_samples
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
    by_source: defaultdict[Site, list[TransferSample]] = defaultdict(list)
    for sample in samples:
        by_source[sample.source].append(sample)
    readers: dict[TransferSample, float] = {}
    for others in by_source.values():
        records = _Load([each for each in others if each.origin is TransferOrigin.SCHEDD])
        reports: defaultdict[str, list[TransferSample]] = defaultdict(list)
        for each in others:
            if each.origin is not TransferOrigin.SCHEDD:
                reports[each.user].append(each)
        own = {user: _Load(reported) for user, reported in reports.items()}
        for each in others:
            mean = records.mean_during(each) + (own[each.user].mean_during(each) if each.user in own else 0.0)
            readers[each] = min(MAX_READERS, max(1.0, mean))
    return [each if each.readers is not None else replace(each, readers=readers[each]) for each in samples]


class _Load:
    """The number of concurrent transfers over time; ``mean_during`` takes O(log n)."""

    def __init__(self, samples: Sequence[TransferSample]) -> None:
        ends = [(each.ended_at.timestamp(), -1) for each in samples]
        changes = [(_begin(each), 1) for each in samples] + ends
        self._times: list[float] = []
        self._counts: list[int] = []
        self._areas: list[float] = []
        count, area, last = 0, 0.0, 0.0
        for time, change in sorted(changes):
            area += count * (time - last)
            count, last = count + change, time
            self._times.append(time)
            self._counts.append(count)
            self._areas.append(area)

    def mean_during(self, sample: TransferSample) -> float:
        end = sample.ended_at.timestamp()
        return (self._area_until(end) - self._area_until(_begin(sample))) / sample.seconds

    def _area_until(self, time: float) -> float:
        at = bisect_right(self._times, time) - 1
        return self._areas[at] + self._counts[at] * (time - self._times[at]) if at >= 0 else 0.0


def _begin(sample: TransferSample) -> float:
    return sample.ended_at.timestamp() - sample.seconds

"""Readers: the running jobs that still read their data from a source, by source."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.model import Site

from .holdings import DatasetSet
from .run_times import PlacedJobs

Source = tuple[Site, float]
"""A source, and the seconds of a lone read from it."""
OPEN_SHARE: Final = 0.5
"""A source that was closed opens again when its readers are at most this share of the limit."""

QUIET: Final = timedelta(minutes=10)
"""After this time without readers, a source is quiet: a read that is published too long is shortened."""
WEIGHT: Final = 0.02
"""The weight of the last cycle in the smoothed number of readers: about the mean of 50 cycles."""


def smooth_readers(
    counts: Mapping[Site, int], previous: Mapping[Site, float], busy: AbstractSet[Site]
) -> dict[Site, float]:
    """Return, by source, the mean number of readers of the last cycles; recent cycles count more.

    Args:
        counts: the readers now.
        previous: the result of the last cycle. A source without a value begins with its readers now.
        busy: the sources that had a reader in the last minutes. The mean of any other source is 0.
    """
    means = {source: float(count) for source, count in counts.items()}
    for source, before in previous.items():
        means[source] = before + WEIGHT * (counts.get(source, 0) - before) if source in busy else 0.0
    return means


def update_last_reads(
    counts: Mapping[Site, int], previous: Mapping[Site, datetime], now: datetime
) -> dict[Site, datetime]:
    """Return, by source, the time of the last cycle in which it had readers, if that was less than QUIET ago.

    Args:
        counts: the readers now.
        previous: the result of the last cycle.
        now: aware UTC time of this cycle.
    """
    recent = {source: at for source, at in previous.items() if now - at < QUIET}
    return recent | dict.fromkeys(counts, now)


def find_closed_sources(
    counts: Mapping[Site, int], previous: AbstractSet[Site], max_readers: int
) -> frozenset[Site]:
    """Return the sources that take no further readers: those with *max_readers* or more.

    A source that was closed in the last cycle (*previous*) stays closed until OPEN_SHARE of them are left, so
    that the end of one read does not rewrite the ads.
    """
    return frozenset(
        source
        for source, count in counts.items()
        if count >= max_readers or (source in previous and count > max_readers * OPEN_SHARE)
    )


def count_readers(
    placed: Iterable[PlacedJobs],
    sets: Mapping[SetKey, DatasetSet],
    find_source: Callable[[DatasetSet, Site], Source | None],
    now: int,
) -> dict[Site, int]:
    """Return the jobs that read from each source now; sources without readers are left out.

    Readers share the rate of a source. So a job without its data at its site reads for the seconds of a lone
    read, times the readers of its source and one more. The result is the smallest number that fits this.

    Args:
        placed: the running jobs.
        sets: the demanded sets.
        find_source: returns the source of a set for jobs at a site, and the seconds of a lone read.
        now: the time of the query of the running jobs, in Unix seconds.
    """
    ages: dict[Site, list[float]] = {}
    for each in placed:
        site, one = each.jobs.site, sets.get(SetKey(each.key or ""))
        if one is None or site is None or site in one.homes:
            continue
        source = find_source(one, site)
        if source is not None and source[1] > 0:
            lone_seconds = source[1]
            ages.setdefault(source[0], []).extend(
                (now - start) / lone_seconds for start in each.jobs.started_at
            )
    counts = {source: _count_readers(sorted(shares)) for source, shares in ages.items()}
    return {source: count for source, count in counts.items() if count}


def _count_readers(ages: Sequence[float]) -> int:
    """Return the smallest number n of jobs with an age below n + 1; *ages* are sorted, in lone reads."""
    count = 0
    while (count_now := bisect_left(ages, count + 1)) > count:
        count = count_now
    return count

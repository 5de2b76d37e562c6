"""Readers: the running jobs that still read their data from a source, by source."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.estimates import Estimates
from hydrator.domain.model import Site

from .holdings import DatasetSet
from .run_times import PlacedJobs

MAX_CHANGES_OF_SOURCE: Final = 8
"""Changes of the source of one set at one site that are remembered, for the jobs that started before."""
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


@dataclass(frozen=True, slots=True)
class NamedSources:
    """The sources that the ads have named, by site and set of datasets, where they changed.

    ``changes`` has the times of the changes, in Unix seconds, each with the source from then on; the first
    entry is the source before the first change.
    """

    changes: Mapping[tuple[Site, SetKey], tuple[tuple[int, Site], ...]] = field(default_factory=dict)

    def find(self, site: Site, key: SetKey, started_at: int) -> Site | None:
        """Return the source that the ad of *site* named at *started_at*; None if it never changed."""
        changes = self.changes.get((site, key), ())
        return next((source for at, source in reversed(changes) if at <= started_at), None)

    def update(self, made: Estimates, previous: Estimates | None, now: int) -> "NamedSources":
        """Return the sources after a cycle at *now*, whose ads have *made* instead of *previous*."""
        changes = {}
        for site, one in made.sites.items():
            before = previous.sites.get(site) if previous else None
            for key, each in one.by_key.items():
                known, old = self.changes.get((site, key), ()), before.by_key.get(key) if before else None
                last = known[-1][1] if known else old.source if old else None
                if last is not None and each.source is not None and each.source != last:
                    known = (*(known or ((0, last),)), (now, each.source))
                if known:
                    oldest, *newer = known[-MAX_CHANGES_OF_SOURCE:]
                    changes[site, key] = ((0, oldest[1]), *newer)
        return NamedSources(changes)


def build_source_finder(
    named: NamedSources,
    last: Estimates | None,
    find_source: Callable[[DatasetSet, Site, Site | None], Source | None],
) -> Callable[[DatasetSet, Site, int], Source | None]:
    """Return a function that finds the source of a job that started at a site at a time (Unix s).

    It is the source that the site's ad named at this time.

    Args:
        named: the sources of the ads, where they changed.
        last: the estimates in the last ads, for sources that never changed.
        find_source: returns the source of a set at a site, and the seconds of a lone read, if the ad names
            this source; None if it names none.
    """
    found: dict[tuple[SetKey, Site, Site | None], Source | None] = {}

    def find(one: DatasetSet, site: Site, started_at: int) -> Source | None:
        source = named.find(site, one.key, started_at)
        if source is None and last is not None and site in last.sites:
            old = last.sites[site].by_key.get(one.key)
            source = old.source if old else None
        question = one.key, site, source
        if question not in found:
            found[question] = find_source(one, site, source)
        return found[question]

    return find


def count_readers(
    placed: Iterable[PlacedJobs],
    sets: Mapping[SetKey, DatasetSet],
    find_source: Callable[[DatasetSet, Site, int], Source | None],
) -> dict[Site, int]:
    """Return the jobs that read from each source now; sources without readers are left out.

    Readers share the rate of a source. So a job without its data at its site reads for the seconds of a lone
    read, times the readers of its source and one more. The result is the smallest number that fits this.

    Args:
        placed: the running jobs.
        sets: the demanded sets.
        find_source: returns the source of a set for a job that started at a site at a time (Unix s), and the
            seconds of a lone read.
    """
    shares: dict[Site, list[float]] = {}
    for each in placed:
        site, one = each.jobs.site, sets.get(SetKey(each.key or ""))
        if one is None or site is None or site in one.homes:
            continue
        for age in each.ages:
            source = find_source(one, site, each.now - age)
            if source is not None and source[1] > 0:
                shares.setdefault(source[0], []).append(age / source[1])
    counts = {source: _count_readers(sorted(each)) for source, each in shares.items()}
    return {source: count for source, count in counts.items() if count}


def _count_readers(ages: Sequence[float]) -> int:
    """Return the smallest number n of jobs with an age below n + 1; *ages* are sorted, in lone reads."""
    count = 0
    while (count_now := bisect_left(ages, count + 1)) > count:
        count = count_now
    return count

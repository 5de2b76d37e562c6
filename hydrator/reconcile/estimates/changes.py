"""Changes of estimates: classes of seconds, which changes an ad has at once, and who reads now.

Classes of seconds: 0, 4, 8, 16 and so on; a small change neither rewrites an ad nor splits an autocluster.

Each class has the values that are nearest to it by ratio. A class that was published before stays until
the value has left it by a quarter.

Changes of read seconds: which ones a site's ad has at once, and which ones wait.

Readers come and go, so the read seconds at a site always go up and down. Each such change would rewrite the
ad. So each site has a stock of changes: a change takes one, and each cycle adds a small part. A pool that
begins to work takes its changes from the stock. A pool that works steadily has an empty stock: its reads then
follow the mean number of readers, and change only by a large factor.

Only readers need the stock. Another rate or other bytes change the read seconds at once. So do readers that
are gone for some minutes, but such a change takes one from the stock, too.

Readers: the running jobs that still read their data from a source, by source.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS, Estimates, SetEstimate, SiteEstimates
from hydrator.domain.model import Site

from .run_times import DatasetSet, PlacedJobs

UNIT_SECONDS = 4
"""The smallest class above 0. Values below half of it have the class 0."""
HYSTERESIS = 1.25
"""A published class stays for values up to this factor beyond its bounds."""


def to_class(seconds: float, previous: int | None = None) -> int:
    """Return the class of *seconds*, 0 or more; infinity has the largest class, ``NO_QUEUE_SECONDS``.

    Return *previous*, the class that was published before, if *seconds* is near this class.
    """
    if previous is not None and _is_near(seconds, previous):
        return previous
    if seconds < UNIT_SECONDS / 2:
        return 0
    if seconds >= NO_QUEUE_SECONDS:
        return NO_QUEUE_SECONDS
    return int(UNIT_SECONDS * 2 ** max(0, round(math.log2(seconds / UNIT_SECONDS))))


def _is_near(seconds: float, one_class: int) -> bool:
    if one_class == 0:
        return seconds < UNIT_SECONDS / 2 * HYSTERESIS
    lower = UNIT_SECONDS / 2 if one_class == UNIT_SECONDS else one_class / math.sqrt(2)
    is_low = seconds < lower / HYSTERESIS
    is_high = one_class < NO_QUEUE_SECONDS and seconds > one_class * math.sqrt(2) * HYSTERESIS
    return not (is_low or is_high)


MAX_CHANGES: Final = 3.0
"""Changes in a full stock."""
CHANGES_PER_CYCLE: Final = 0.003
"""Changes that each cycle adds to the stock: one in 333 cycles."""
LARGE_CHANGE: Final = 4
"""With an empty stock, reads change only by this factor or more; below UNIT_SECONDS they do not differ."""
LINK_CHANGE: Final = 1.5
"""A lone read that changed by this factor or more has another rate or other bytes.

Rates at rest differ by 10 % up and down, so by a factor of 1.22 at most.
"""


@dataclass(frozen=True, slots=True)
class ReadTrend:
    """The reasons for which the read of one set at one site may change.

    ``calm_seconds`` are the seconds of the read with the mean number of readers, and ``calm_read`` is their
    class. ``link_seconds`` are the seconds of a lone read from the fastest source, which no reader changes;
    None if there is none. ``is_quiet`` if for some minutes no job read from the sources.
    """

    calm_read: int | None
    calm_seconds: float | None
    link_seconds: float | None = None
    is_quiet: bool = False


@dataclass(frozen=True, slots=True)
class ReadStock:
    """The stock of changes that is left at one site, -MAX_CHANGES to MAX_CHANGES.

    ``link_seconds`` has, by set, the lone read at the time when the published read was right.
    """

    changes_left: float = MAX_CHANGES
    link_seconds: Mapping[SetKey, float | None] = field(default_factory=dict)


def limit_read_changes(
    new: SiteEstimates,
    trends: Mapping[SetKey, ReadTrend],
    published: SiteEstimates | None,
    stock: ReadStock,
) -> tuple[SiteEstimates, ReadStock]:
    """Return the estimates to publish at a site, and the stock that is then left.

    All changes are published if the ad is rewritten anyway: because a queue changed, a source opened or
    closed, or a set came or went. Large changes are published even if the stock is empty.

    Args:
        new: the new estimates.
        trends: the trend of each set of *new*.
        published: the estimates that the site's ad has; None if it has none.
        stock: the site's stock after the last cycle.
    """
    left = min(MAX_CHANGES, stock.changes_left + CHANGES_PER_CYCLE)
    links = {key: trends[key].link_seconds for key in new.by_key}
    if published is None or _is_rewritten(new, published):
        return new, ReadStock(left, links)
    old = published.by_key
    changes = {key for key, each in new.by_key.items() if each.read_seconds != old[key].read_seconds}
    links_before = stock.link_seconds
    due = {key for key in changes if _is_due(new.by_key[key], old[key], trends[key], links_before.get(key))}
    if any(trends[key].is_quiet for key in due):
        left = max(-MAX_CHANGES, left - 1)
    if changes == due:
        return new, ReadStock(left, links)
    if left >= 1:
        return new, ReadStock(left - 1, links)
    is_large = any(_is_large(trends[key].calm_seconds, old[key]) for key in new.by_key)
    if is_large:
        left = max(-MAX_CHANGES, left - 1)
    else:
        links |= {key: links_before.get(key, links[key]) for key in changes - due}
    return _hold_reads(new, old, trends, due, is_large=is_large), ReadStock(left, links)


def _hold_reads(
    new: SiteEstimates,
    old: Mapping[SetKey, SetEstimate],
    trends: Mapping[SetKey, ReadTrend],
    due: AbstractSet[SetKey],
    *,
    is_large: bool,
) -> SiteEstimates:
    """Return *new* with the reads of *old*, except those that are *due*; if *is_large*, with calm reads."""
    reads = {
        key: trends[key].calm_read if is_large else (each if key in due else old[key]).read_seconds
        for key, each in new.by_key.items()
    }
    held = {key: replace(each, read_seconds=reads[key]) for key, each in new.by_key.items()}
    return replace(new, by_key=held)


def _is_rewritten(new: SiteEstimates, published: SiteEstimates) -> bool:
    old = published.by_key
    if new.own_queue_seconds != published.own_queue_seconds or new.by_key.keys() != old.keys():
        return True
    return any(
        each.queue_seconds != old[key].queue_seconds
        or (each.read_seconds is None) != (old[key].read_seconds is None)
        for key, each in new.by_key.items()
    )


def _is_due(new: SetEstimate, old: SetEstimate, trend: ReadTrend, link_seconds: float | None) -> bool:
    """Return whether the read changes for another reason than readers, or since they are gone for long.

    *link_seconds* is the lone read at the time when *old* was right; None if it is unknown.
    """
    if trend.is_quiet and (new.read_seconds or 0) < (old.read_seconds or 0):
        return True
    if not trend.link_seconds or not link_seconds:
        return trend.link_seconds != link_seconds
    less, more = sorted((trend.link_seconds, link_seconds))
    return more >= LINK_CHANGE * less


def _is_large(seconds: float | None, old: SetEstimate) -> bool:
    if seconds is None or old.read_seconds is None:
        return (seconds is None) != (old.read_seconds is None)
    return _factor(seconds, old.read_seconds) >= LARGE_CHANGE


def _factor(one: float, other: float) -> float:
    less, more = sorted((max(one, UNIT_SECONDS), max(other, UNIT_SECONDS)))
    return more / less


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

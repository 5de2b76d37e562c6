"""Changes of read seconds: which ones a site's ad has at once, and which ones wait.

Readers come and go, so the read seconds at a site always go up and down. Each such change would rewrite the
ad. So each site has a stock of changes: a change takes one, and each cycle adds a small part. A pool that
begins to work takes its changes from the stock. A pool that works steadily has an empty stock: its reads then
follow the mean number of readers, and change only by a large factor.

Only readers need the stock. Another rate or other bytes change the read seconds at once. So do readers that
are gone for some minutes, but such a change takes one from the stock, too.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.estimates import SetEstimate, SiteEstimates

from .classes import UNIT_SECONDS

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

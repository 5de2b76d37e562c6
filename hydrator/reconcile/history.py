"""Changes of a site's ad: the datasets that each generation added, removed or changed, and the reasons.

This module is pure: it builds an entry from the ads before and after a cycle. ``state/store``
stores the entry.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

from hydrator.domain.model import DatasetState, Did, Fact, SiteAd, to_unix
from hydrator.domain.text import matches_any
from hydrator.domain.units import UnixTime


@dataclass(frozen=True, slots=True)
class DatasetChange:
    """One change of a dataset in a site's ad.

    Attributes:
        at: time of the decision.
        did: the dataset.
        before: its state before; null: not listed.
        after: its state after; null: not listed.
        why: one sentence.
    """

    at: UnixTime
    did: Did
    before: str | None
    after: str | None
    why: str


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One generation of a site's ad, with its changes.

    ``decided_at`` is the time of the cycle.
    """

    decided_at: datetime
    ad: SiteAd
    changes: tuple[DatasetChange, ...]

    @property
    def text(self) -> str:
        """Return a text with the numbers of added, removed and changed datasets: ``2 came, 1 left``."""
        came = sum(change.before is None for change in self.changes)
        left = sum(change.after is None for change in self.changes)
        other = len(self.changes) - came - left
        parts = [(came, "came"), (left, "left"), (other, "changed")]
        counts = [f"{number} {word}" for number, word in parts if number]
        return ", ".join(counts) or "only ages or fractions changed"


@dataclass(frozen=True, slots=True)
class ChangeContext:
    """The values that explain a change of an ad.

    ``released`` has the datasets that the removal guard no longer keeps in the ad, each with the reason.
    ``colliding_dids`` are the datasets whose DIDs differ only in letter case. ``never`` has the patterns of
    names that are never published: an earlier ad may still have such a name.
    """

    demanded_dids: AbstractSet[Did]
    colliding_dids: AbstractSet[Did]
    facts: Mapping[Did, Fact]
    released: Mapping[Did, str]
    never: tuple[str, ...] = ()


def build_entry(
    previous: SiteAd | None, current: SiteAd, context: ChangeContext, *, now: datetime
) -> HistoryEntry:
    """Build the entry of the ad *current*, with its changes since the ad *previous*."""
    from hydrator.reconcile.ads.site_ads import facts_of  # readers of the history need no ads

    old, new = (facts_of(previous) if previous else {}), facts_of(current)
    return HistoryEntry(now, current, tuple(_changes(old, new, context, to_unix(now))))


def _changes(
    old: Mapping[Did, Fact], new: Mapping[Did, Fact], context: ChangeContext, at: UnixTime
) -> Iterable[DatasetChange]:
    for did in sorted(old.keys() | new.keys()):
        one, other = old.get(did), new.get(did)
        if (one and other and one.state is other.state) or matches_any(did, context.never):
            continue
        why = _change_reason(did, other, context)
        before, after = (each.state.value if each else None for each in (one, other))
        yield DatasetChange(at, did, before, after, why)


def _change_reason(did: Did, fact: Fact | None, context: ChangeContext) -> str:
    """Return the reason why *did* changed."""
    if fact and fact.state is DatasetState.UNKNOWN:
        return "no catalogue has answered about it for longer than the age bound"
    if fact:
        return "its catalogue says so"
    if did in context.released:
        return context.released[did]
    if did not in context.demanded_dids:
        return "no longer demanded"
    if did in context.colliding_dids:
        return "only letter case tells it from another"
    if did in context.facts:
        return "no room in the ad"
    return "its catalogue says that it is gone"

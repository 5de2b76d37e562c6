"""History of a site's ad: which datasets came and left with each generation, and why.

Pure: an entry is built from the ad before and the ad after; ``state/history_table.py`` stores it.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

from hydrator.domain.model import DatasetState, Did, Fact, SiteAd
from hydrator.reconcile.ads.site_ads import facts_of


@dataclass(frozen=True, slots=True)
class DatasetChange:
    """One changed dataset: its state before and after (None: not listed), and the reason."""

    did: Did
    state_before: str | None
    state_after: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One generation of a site's ad: when it was decided, and when each publisher first showed it."""

    decided_at: datetime
    ad: SiteAd
    changes: tuple[DatasetChange, ...]
    published_at: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return how many datasets came, left and changed, in words."""
        came = sum(change.state_before is None for change in self.changes)
        left = sum(change.state_after is None for change in self.changes)
        other = len(self.changes) - came - left
        parts = [(came, "came"), (left, "left"), (other, "changed")]
        counts = [f"{number} {word}" for number, word in parts if number]
        return ", ".join(counts) or "only ages or fractions"


@dataclass(frozen=True, slots=True)
class ChangeContext:
    """The possible reasons for a change: demand, collisions, facts, released datasets, a rollback."""

    demanded_dids: AbstractSet[Did]
    colliding_dids: AbstractSet[Did]
    facts: Mapping[Did, Fact]
    released: Mapping[Did, str]
    rollback: str | None = None


def build_entry(
    previous: SiteAd | None, current: SiteAd, context: ChangeContext, *, now: datetime
) -> HistoryEntry:
    """Build the entry of *current*, with its changes from *previous*."""
    old, new = (facts_of(previous) if previous else {}), facts_of(current)
    return HistoryEntry(now, current, tuple(_changes(old, new, context)))


def _changes(
    old: Mapping[Did, Fact], new: Mapping[Did, Fact], context: ChangeContext
) -> Iterable[DatasetChange]:
    for did in sorted(old.keys() | new.keys()):
        one, other = old.get(did), new.get(did)
        if one and other and one.state is other.state:
            continue
        why = context.rollback or _change_reason(did, other, context)
        yield DatasetChange(did, one.state.value if one else None, other.state.value if other else None, why)


def _change_reason(did: Did, fact: Fact | None, context: ChangeContext) -> str:
    """Return the reason. The state file stores it: with new words, old and new rows would differ."""
    if fact and fact.state is DatasetState.UNKNOWN:
        return "nobody could be asked about it for longer than the age bound"
    if fact:
        return "its catalogue says so"
    if did in context.released:
        return context.released[did]
    if did not in context.demanded_dids:
        return "no longer wanted"
    if did in context.colliding_dids:
        return "only letter case tells it from another"
    if did in context.facts:
        return "no room in the ad"
    return "its catalogue says that it is gone"

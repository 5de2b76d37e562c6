"""What was decided for a site, generation by generation: which datasets came and left, and why.

Pure: an entry is made from the ad before and the ad after; ``archive.py`` keeps them.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

from hydrator.domain.model import DatasetState, Did, Fact, SiteAd
from hydrator.reconcile.ads.site_ads import facts_of


@dataclass(frozen=True, slots=True)
class DatasetChange:
    """One dataset whose entry changed: its state before and after (None: not listed), and why."""

    did: Did
    state_before: str | None
    state_after: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One generation of a site's ad: decided *at*, and when each publisher first showed it."""

    decided_at: datetime
    ad: SiteAd
    changes: tuple[DatasetChange, ...]
    published_at: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """How many came, left and changed, in words."""
        came = sum(change.state_before is None for change in self.changes)
        left = sum(change.state_after is None for change in self.changes)
        other = len(self.changes) - came - left
        parts = [(came, "came"), (left, "left"), (other, "changed")]
        told = [f"{number} {word}" for number, word in parts if number]
        return ", ".join(told) or "only ages or fractions"


@dataclass(frozen=True, slots=True)
class ChangeContext:
    """Why datasets may have left: what is wanted, what clashes, what is known there, what was let go."""

    demanded_dids: AbstractSet[Did]
    colliding_dids: AbstractSet[Did]
    facts: Mapping[Did, Fact]
    released: Mapping[Did, str]
    rollback: str | None = None


def build_entry(
    previous: SiteAd | None, current: SiteAd, context: ChangeContext, *, now: datetime
) -> HistoryEntry:
    """What changed from *before* to *after*, dataset by dataset."""
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

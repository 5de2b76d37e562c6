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
class Change:
    """One dataset whose entry changed: its state before and after (None: not listed), and why."""

    did: Did
    before: str | None
    after: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One generation of a site's ad: decided *at*, and when each publisher first showed it."""

    at: datetime
    ad: SiteAd
    changes: tuple[Change, ...]
    published: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """How many came, left and changed, in words."""
        came = sum(change.before is None for change in self.changes)
        left = sum(change.after is None for change in self.changes)
        other = len(self.changes) - came - left
        parts = [(came, "came"), (left, "left"), (other, "changed")]
        told = [f"{number} {word}" for number, word in parts if number]
        return ", ".join(told) or "only ages or fractions"


@dataclass(frozen=True, slots=True)
class Rollback:
    """A site whose ad of an earlier generation is published again, with the ages it had, since then."""

    since: datetime
    ad: SiteAd

    @property
    def text(self) -> str:
        return (
            f"rolled back to generation {self.ad.generation}, read {self.ad.as_of:%Y-%m-%d %H:%M:%S} UTC, "
            f"since {self.since:%Y-%m-%d %H:%M:%S} UTC"
        )


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why datasets may have left: what is wanted, what clashes, what is known there, what was let go."""

    wanted: AbstractSet[Did]
    clashing: AbstractSet[Did]
    known: Mapping[Did, Fact]
    released: Mapping[Did, str]
    rollback: str | None = None


def entry(before: SiteAd | None, after: SiteAd, grounds: Grounds, *, now: datetime) -> Entry:
    """What changed from *before* to *after*, dataset by dataset."""
    old, new = (facts_of(before) if before else {}), facts_of(after)
    return Entry(now, after, tuple(_changes(old, new, grounds)))


def _changes(old: Mapping[Did, Fact], new: Mapping[Did, Fact], grounds: Grounds) -> Iterable[Change]:
    for did in sorted(old.keys() | new.keys()):
        one, other = old.get(did), new.get(did)
        if one and other and one.state is other.state:
            continue
        why = grounds.rollback or _why(did, other, grounds)
        yield Change(did, one.state.value if one else None, other.state.value if other else None, why)


def _why(did: Did, after: Fact | None, grounds: Grounds) -> str:
    if after and after.state is DatasetState.UNKNOWN:
        return "nobody could be asked about it for longer than the age bound"
    if after:
        return "its catalogue says so"
    if did in grounds.released:
        return grounds.released[did]
    if did not in grounds.wanted:
        return "no longer wanted"
    if did in grounds.clashing:
        return "only letter case tells it from another"
    if did in grounds.known:
        return "no room in the ad"
    return "its catalogue says that it is gone"

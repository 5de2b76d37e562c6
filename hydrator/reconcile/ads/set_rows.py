"""Rows of the demanded sets at one site: the share of the bytes on disk, and the time of the oldest fact."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, NamedTuple

from hydrator.domain.model import DatasetState, Did, Fact
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL

from .demand_index import DatasetSet

WHOLE: Final = 100
"""The share, in hundredths, of a set whose datasets are all usable."""
_FRACTION_BITS = 53


class SetRow(NamedTuple):
    """A set at one site.

    ``hundredths`` is the share of the bytes on disk, rounded down, 0 to 100; None if the daemon does not
    know the state of one of the datasets. It is 100 only if all datasets are AVAILABLE. ``oldest`` is the
    time of the oldest fact that does not have the time of the last poll; None without such a fact.
    """

    hundredths: int | None
    oldest: datetime | None


ABSENT: Final = SetRow(0, None)
UNKNOWN: Final = SetRow(None, None)


class SetFacts(NamedTuple):
    """The inputs of the rows of one site.

    ``facts`` has the facts of the site, without datasets that collide in letter case. ``sizes`` has the
    bytes of each dataset, if known. ``unread_dids`` are datasets that no catalogue has ever answered for.
    """

    facts: Mapping[Did, Fact]
    sizes: Mapping[Did, int]
    unread_dids: AbstractSet[Did]

    def absent_row(self, dids: DatasetSet) -> SetRow:
        """Return the row of a set of which the site has no dataset."""
        return ABSENT if self.unread_dids.isdisjoint(dids) else UNKNOWN

    def build_row(self, dids: DatasetSet) -> SetRow:
        """Return the row of the set *dids*.

        If the size of a dataset is unknown, or all sizes are 0, each dataset has the same weight.
        """
        facts = self.facts
        here = {did: fact for did in dids if (fact := facts.get(did)) is not None}
        if not here:
            return self.absent_row(dids)
        if not self.unread_dids.isdisjoint(dids):
            return UNKNOWN
        if any(fact.state is DatasetState.UNKNOWN for fact in here.values()):
            return UNKNOWN
        times = [fact.as_of for fact in here.values() if fact.as_of is not AT_LAST_POLL]
        oldest = min(times) if times else None
        if len(here) == len(dids) and all(f.state is DatasetState.AVAILABLE for f in here.values()):
            return SetRow(WHOLE, oldest)
        return SetRow(min(self._hundredths(dids, here), WHOLE - 1), oldest)

    def _hundredths(self, dids: DatasetSet, here: Mapping[Did, Fact]) -> int:
        """Return the share on disk in hundredths, rounded down; computed exactly, with integers."""
        weights: Mapping[Did, int] = {did: self.sizes.get(did, 0) for did in dids}
        if not all(did in self.sizes for did in dids) or not any(weights.values()):
            weights = dict.fromkeys(dids, 1)
        on_disk = sum(weights[did] * _scaled_fraction(fact) for did, fact in here.items())
        return (on_disk * WHOLE) // (sum(weights.values()) << _FRACTION_BITS)


def _scaled_fraction(fact: Fact) -> int:
    """Return the fraction of the dataset on disk times 2**53, rounded down."""
    if fact.state is DatasetState.AVAILABLE:
        return 1 << _FRACTION_BITS
    return int(min(max(fact.fraction or 0.0, 0.0), 1.0) * (1 << _FRACTION_BITS))

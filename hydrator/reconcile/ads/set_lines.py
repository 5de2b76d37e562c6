"""Sets in a site's ad: which demanded sets have room, and what the ad says about each.

The ad has a line with the share of each set's bytes on disk, and a line with the time of the oldest fact of
each set that has an older fact than the site. The sets with a dataset at the site come first, the most
demanded first. Then come the other sets of jobs and pins: their share 0.0 says that the daemon knows the set
and that nothing is here. A set has its parts in all lines, or in none. A set with a wrong key has none.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import NamedTuple

from hydrator.domain.ads import contract
from hydrator.domain.ads.dataset_sets import SetKey, quote_key
from hydrator.domain.model import DatasetState, Demand, DemandEntry, Did, Fact, Origin, to_unix

from .drafts import STATE_LINES_BYTES, Budget

_WHOLE = 100
"""Hundredths in a share of 1.0, which only a set has whose datasets are all AVAILABLE."""
_FRACTION_BITS = 53


class SetFacts(NamedTuple):
    """What the shares of sets at one site are computed from.

    ``facts`` has the facts of the site, without datasets that collide in letter case. ``sizes`` has the
    bytes of each dataset, if known. ``unread_dids`` are datasets that no catalogue has ever answered for.
    """

    facts: Mapping[Did, Fact]
    sizes: Mapping[Did, int]
    unread_dids: AbstractSet[Did]

    def find_share(self, dids: Sequence[Did]) -> tuple[float | None, datetime | None]:
        """Return the share (0 to 1) of the set *dids* on disk, and the time of its oldest fact.

        The share is rounded down to hundredths; None if the daemon does not know the state of a dataset.
        The time is None if all facts have the time of the site.
        """
        found = [self.facts.get(did) for did in dids]
        states = {fact and fact.state for fact in found}
        if DatasetState.UNKNOWN in states or not self.unread_dids.isdisjoint(dids):
            return None, None
        oldest = min([fact.as_of for fact in found if fact and fact.as_of], default=None)
        if states == {DatasetState.AVAILABLE}:
            return 1.0, oldest
        return min(self._count_hundredths(dids, found), _WHOLE - 1) / _WHOLE, oldest

    def _count_hundredths(self, dids: Sequence[Did], found: Sequence[Fact | None]) -> int:
        """Return the hundredths on disk, rounded down; computed exactly, with integers.

        If the size of a dataset is unknown, or all sizes are 0, each dataset has the same weight.
        """
        weights = [self.sizes.get(did) for did in dids]
        known = [size for size in weights if size is not None]
        if len(known) < len(weights) or not any(known):
            known = [1] * len(dids)
        on_disk = sum(size * _scale_fraction(fact) for size, fact in zip(known, found, strict=True) if fact)
        return (on_disk * _WHOLE) // (sum(known) << _FRACTION_BITS)


def _scale_fraction(fact: Fact) -> int:
    """Return the fraction of the dataset on disk times 2**53, rounded down."""
    if fact.state is DatasetState.AVAILABLE:
        return 1 << _FRACTION_BITS
    return int(min(max(fact.fraction or 0.0, 0.0), 1.0) * (1 << _FRACTION_BITS))


_LINES = (contract.SETS, contract.SETS_AS_OF)
_MIN_ENTRY_BYTES = len("=0.0;")


class SetLines(NamedTuple):
    """The lines of the sets in a site's ad, with their bytes, and the sets that have no room.

    ``here`` are the demand entries with a dataset at the site, ``omitted`` those of them without room.
    ``is_complete`` is True if the sets of which the site has nothing have room, too.
    """

    lines: Sequence[tuple[str, str]]
    size_bytes: int
    here: Sequence[DemandEntry]
    omitted: Sequence[DemandEntry]
    is_complete: bool


def quote_keys(demand: Demand) -> dict[SetKey, str]:
    """Return the key of each demanded set, with its form in the lines of all sites."""
    return {one.key: quote_key(one.key) for one in demand.entries if one.key is not None}


def write_set_lines(
    facts: SetFacts, demand: Demand, names: Mapping[SetKey, str], budget: Budget, as_of: datetime
) -> SetLines:
    """Choose the sets that fit into the ad of a site, and write their lines.

    The choice of sets of which the site has nothing ends with the first that has no room. One that only
    matches a pattern has no entry.

    Args:
        facts: the facts of the site.
        demand: the demanded sets, most demanded first.
        names: the result of :func:`quote_keys`.
        budget: the maximum bytes of a line and of an ad.
        as_of: the time of the site's facts.
    """
    writer = _SetWriter(facts, names, budget, to_unix(as_of))
    here = [one for one in demand.entries if not facts.facts.keys().isdisjoint(one.dids)]
    keys_here = {one.key for one in here}
    omitted = [one for one in here if not writer.add(one)]
    is_complete = all(
        writer.add(one)
        for one in demand.entries
        if one.origin is not Origin.PATTERN and one.key not in keys_here
    )
    return SetLines(writer.lines(), sum(writer.sizes), here, omitted, is_complete)


class _SetWriter:
    """A writer of the entries of sets, which counts the bytes of each line."""

    def __init__(self, facts: SetFacts, names: Mapping[SetKey, str], budget: Budget, as_of: int) -> None:
        self._facts = facts
        self._names = names
        self._as_of = as_of
        self._line_limit = budget.line_bytes
        self._limit = budget.ad_bytes - STATE_LINES_BYTES
        self._texts: dict[SetKey, tuple[str, str]] = {}
        self.sizes = [len(f"{name} = []") for name in _LINES]

    def add(self, entry: DemandEntry) -> bool:
        """Add the set of *entry*, if its key is right; return False without room."""
        key = entry.key
        if key is None or key in self._texts:
            return True
        name = self._names[key]
        if not self._fits(self.sizes[0] + len(name) + _MIN_ENTRY_BYTES, self.sizes[1]):
            return False  # its share would be computed for nothing
        share, oldest = self._facts.find_share(entry.dids)
        at = self._as_of if oldest is None else to_unix(oldest)
        texts = (
            "" if share is None else f"{name}={share};",
            "" if share is None or at >= self._as_of else f"{name}={at};",
        )
        sizes = [size + len(text) for size, text in zip(self.sizes, texts, strict=True)]
        if not self._fits(*sizes):
            return False
        self._texts[key], self.sizes = texts, sizes
        return True

    def _fits(self, shares_bytes: int, times_bytes: int) -> bool:
        return (
            max(shares_bytes, times_bytes) <= self._line_limit and shares_bytes + times_bytes <= self._limit
        )

    def lines(self) -> Sequence[tuple[str, str]]:
        """Return the attributes with their literals, with the entries sorted by key."""
        columns = zip(*(texts for _, texts in sorted(self._texts.items())), strict=True)
        literals = [f"[{''.join(column).removesuffix(';')}]" for column in columns] or ["[]", "[]"]
        return tuple(zip(_LINES, literals, strict=True))

"""Sets in a site's ad: which demanded sets have room, and what the ad says about each.

Index of the demand: by dataset, the demand entries that name it. Each entry has one key, and one entry in
the ad.

Rows of the demanded sets at one site: the share of the bytes on disk, and the time of the oldest fact.

Lines of the demanded sets in a site's ad: choose the sets that have room, and write their entries.

The sets with a dataset at the site come first, the most demanded first. Then come the other sets of jobs
and pins: their entry 0.0 says that the daemon knows the set and that nothing is here. A set has its parts in
all lines of the ad, or in none. A set with a wrong key has no entry.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, overload

from hydrator.domain.ads import contract
from hydrator.domain.ads.dataset_sets import SetKey, quote_key
from hydrator.domain.model import DatasetState, DemandEntry, Did, Fact, Origin, to_unix

from .drafts import STATE_LINES_BYTES, Budget


@dataclass(frozen=True, slots=True)
class DemandIndex:
    """The demand entries, most demanded first.

    ``positions_by_did`` has, by dataset, the positions of the entries that name the dataset.
    """

    entries: Sequence[DemandEntry]
    positions_by_did: Mapping[Did, Sequence[int]]
    shortest_key_chars: int

    @classmethod
    def build(cls, entries: Sequence[DemandEntry]) -> "DemandIndex":
        """Build the index of *entries*."""
        naming: dict[Did, list[int]] = {}
        for place, want in enumerate(entries):
            for did in want.dids:
                if did in naming:
                    naming[did].append(place)
                else:
                    naming[did] = [place]
        shortest = min((len(want.key) for want in entries if want.key is not None), default=0)
        return cls(entries, naming, shortest)

    def positions_of(self, facts: Mapping[Did, Fact]) -> list[int]:
        """Return the positions of the entries that name a dataset of *facts*, most demanded first."""
        return sorted({place for did in facts for place in self.positions_by_did.get(did, ())})


class OmittedEntries(Sequence[DemandEntry]):
    """The demand entries that do not fit into an ad: those at *positions* but not at *fitting_positions*.

    Each read of the sequence computes the entries again.
    """

    __slots__ = ("_entries", "_fitting_positions", "_positions")

    def __init__(
        self, entries: Sequence[DemandEntry], positions: Sequence[int], fitting_positions: AbstractSet[int]
    ) -> None:
        self._entries = entries
        self._positions = positions
        self._fitting_positions = fitting_positions

    def __len__(self) -> int:
        return len(self._positions) - len(self._fitting_positions)

    def __iter__(self) -> Iterator[DemandEntry]:
        return (self._entries[place] for place in self._positions if place not in self._fitting_positions)

    @overload
    def __getitem__(self, index: int) -> DemandEntry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[DemandEntry, ...]: ...
    def __getitem__(self, index: int | slice) -> DemandEntry | tuple[DemandEntry, ...]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))


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

    def build_row(self, dids: Sequence[Did]) -> SetRow:
        """Return the row of the set *dids*.

        If the size of a dataset is unknown, or all sizes are 0, each dataset has the same weight.
        """
        facts = self.facts
        here = {did: fact for did in dids if (fact := facts.get(did)) is not None}
        if not here:
            return _absent_row(dids, self.unread_dids)
        if not self.unread_dids.isdisjoint(dids):
            return UNKNOWN
        if any(fact.state is DatasetState.UNKNOWN for fact in here.values()):
            return UNKNOWN
        times = [fact.as_of for fact in here.values() if fact.as_of is not None]
        oldest = min(times) if times else None
        if len(here) == len(dids) and all(f.state is DatasetState.AVAILABLE for f in here.values()):
            return SetRow(WHOLE, oldest)
        return SetRow(min(self._hundredths(dids, here), WHOLE - 1), oldest)

    def _hundredths(self, dids: Sequence[Did], here: Mapping[Did, Fact]) -> int:
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


Lines = tuple[tuple[str, str], ...]
"""Attributes with their ClassAd literals, in the order of the ad."""

_ROW_LINES = (contract.SETS, contract.SETS_AS_OF)
_MIN_ENTRY_BYTES = len("=0.0;")


class SetEntry(NamedTuple):
    """A set in an ad: its key, its text in each line (empty without an entry), and their bytes."""

    key: SetKey
    texts: tuple[str, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SetLines:
    """The lines of the sets, and what they leave out.

    ``positions`` are the entries with a dataset at the site whose set is in the ad, or whose key is wrong.
    ``size_bytes`` is the size of the long lines.
    """

    lines: Lines
    positions: AbstractSet[int]
    is_complete: bool
    size_bytes: int


def _absent_row(dids: Sequence[Did], unread_dids: AbstractSet[Did]) -> SetRow:
    """Return the row of a set of which a site has no dataset."""
    return ABSENT if unread_dids.isdisjoint(dids) else UNKNOWN


class DemandedSets:
    """The entries of absent sets, shared by all sites of a cycle.

    It computes them at the first use, because a site reads only the sets that its ad has room for.
    """

    def __init__(self, demand_index: DemandIndex, unread_dids: AbstractSet[Did]) -> None:
        self.index = demand_index
        self._unread_dids = unread_dids
        self._absent: dict[SetKey, SetEntry] = {}

    def absent_entry(self, key: SetKey, dids: Sequence[Did]) -> SetEntry:
        """Return the entry of a set of which a site has nothing."""
        if (entry := self._absent.get(key)) is None:
            entry = self._absent[key] = write_entry(key, _absent_row(dids, self._unread_dids))
        return entry


def write_entry(key: SetKey, row: SetRow, as_of: int = 0) -> SetEntry:
    """Return the entry of the set with this *key* and *row*.

    *as_of* is the time of the site's facts, in Unix seconds.
    """
    name = quote_key(key)
    share = "" if row.hundredths is None else f"{name}={row.hundredths / WHOLE}"
    at = as_of if row.oldest is None else to_unix(row.oldest)
    texts = (share, f"{name}={at}" if share and at < as_of else "")
    return SetEntry(key, texts, tuple([len(text.encode()) + 1 if text else 0 for text in texts]))


def write_set_lines(
    facts: SetFacts,
    demanded: DemandedSets,
    positions: Sequence[int],
    budget: Budget,
    as_of: datetime,
) -> SetLines:
    """Choose the sets that fit into the ad of a site, and write their lines.

    Args:
        facts: the facts of the site.
        demanded: the demanded sets, most demanded first.
        positions: the entries with a dataset at the site.
        budget: the maximum bytes of a line and of an ad.
        as_of: the time of the site's facts.
    """
    writer = _SetWriter(facts, to_unix(as_of), demanded, budget)
    inside = {place for place in positions if writer.add_local(place)}
    is_complete = writer.add_absent(frozenset(positions)) and len(inside) == len(positions)
    return SetLines(writer.lines(), inside, is_complete, writer.size_bytes)


class _SetWriter:
    """A writer of the entries of sets, which counts the bytes of each line."""

    def __init__(self, facts: SetFacts, as_of: int, demanded: DemandedSets, budget: Budget) -> None:
        self._facts = facts
        self._as_of = as_of
        self._demanded = demanded
        self._line_limit = budget.line_bytes
        self._limit = budget.ad_bytes - STATE_LINES_BYTES
        self._line_bytes = [len(f"{name} = []") for name in _ROW_LINES]
        self._entries: dict[SetKey, SetEntry] = {}

    @property
    def size_bytes(self) -> int:
        return sum(self._line_bytes)

    def add_local(self, position: int) -> bool:
        """Add the set of the entry at *position*, which has a dataset at the site; False without room."""
        want = self._demanded.index.entries[position]
        if want.key is None or want.key in self._entries:
            return True
        if not self._has_room(_MIN_ENTRY_BYTES + len(want.key)):
            return False
        return self._try_add(write_entry(want.key, self._facts.build_row(want.dids), self._as_of))

    def add_absent(self, local_positions: AbstractSet[int]) -> bool:
        """Add the sets of jobs and pins of which the site has nothing; return False if some have no room.

        A set that only matches a pattern has an entry only where some of it is.
        """
        is_complete, demanded, entries = True, self._demanded, self._entries
        shortest = demanded.index.shortest_key_chars + _MIN_ENTRY_BYTES
        for place, want in enumerate(demanded.index.entries):
            if place in local_positions or want.origin is Origin.PATTERN or want.key is None:
                continue
            if want.key in entries:
                continue
            is_added = self._has_room(_MIN_ENTRY_BYTES + len(want.key)) and self._try_add(
                demanded.absent_entry(want.key, want.dids)
            )
            if not is_added:
                is_complete = False
                if not self._has_room(shortest):
                    break
        return is_complete

    def lines(self) -> Lines:
        """Return the lines, with the entries sorted by key."""
        ordered = sorted((entry.key, entry.texts) for entry in self._entries.values())
        texts = [
            f"[{';'.join([each[line] for _, each in ordered if each[line]])}]"
            for line in range(len(_ROW_LINES))
        ]
        return tuple(zip(_ROW_LINES, texts, strict=True))

    def _has_room(self, more: int) -> bool:
        """Return True if the first line has room for *more* bytes."""
        return self._line_bytes[0] + more <= self._line_limit and self.size_bytes + more <= self._limit

    def _try_add(self, entry: SetEntry) -> bool:
        sizes = [size + extra for size, extra in zip(self._line_bytes, entry.sizes, strict=False)]
        if max(sizes) > self._line_limit or sum(sizes) > self._limit:
            return False
        self._line_bytes = sizes
        self._entries[entry.key] = entry
        return True

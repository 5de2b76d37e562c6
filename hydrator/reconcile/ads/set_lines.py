"""Sets in a site's ad: which demanded sets have room, and what the ad says about each.

Index of the demand: by dataset, the demand entries that name it; and the keys of the demanded sets.

Rows of the demanded sets at one site: the share of the bytes on disk, and the time of the oldest fact.

Lines of the demanded sets in a site's ad: choose the sets that have room, and write their entries.

The sets with a dataset at the site come first, the most demanded first. Then come the other sets of jobs
and pins: their entry 0.0 says that the daemon knows the set and that nothing is here. A set has all its
entries in the ad, or none.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple, overload

from hydrator.domain.ads import contract
from hydrator.domain.ads.classad import classad_string
from hydrator.domain.ads.dataset_sets import HASHED_KEY_CHARS, SetKey, set_key
from hydrator.domain.ads.estimates import SiteEstimates
from hydrator.domain.model import DatasetState, DemandEntry, Did, Fact, Origin, Site, to_unix
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL

from .drafts import STATE_LINES_BYTES, Budget

DatasetSet = tuple[Did, ...]
"""The datasets that the same jobs need, sorted."""


@dataclass(frozen=True, slots=True)
class DemandIndex:
    """The demand entries, most demanded first.

    ``positions_by_did`` has, by dataset, the positions of the entries that name the dataset. ``keys`` has
    the keys of the sets of several datasets: two sets never have the same key, since a key has 100 bits of a
    hash. ``unsettled_sets`` are the sets that jobs named for the first time a short time ago; see
    :class:`hydrator.domain.model.DemandEntry`.
    """

    entries: Sequence[DemandEntry]
    positions_by_did: Mapping[Did, Sequence[int]]
    shortest_did_chars: int
    keys: Mapping[DatasetSet, SetKey] = field(default_factory=dict)
    unsettled_sets: frozenset[DatasetSet] = frozenset()

    @classmethod
    def build(
        cls, entries: Sequence[DemandEntry], known_keys: Mapping[DatasetSet, SetKey] | None = None
    ) -> "DemandIndex":
        """Build the index of *entries*; *known_keys* are keys from an earlier index."""
        naming: dict[Did, list[int]] = {}
        for place, want in enumerate(entries):
            for did in want.dids:
                if did in naming:
                    naming[did].append(place)
                else:
                    naming[did] = [place]
        known = known_keys or {}
        keys = {
            want.dids: known.get(want.dids) or set_key(want.dids) for want in entries if len(want.dids) > 1
        }
        shortest = min(map(len, naming), default=0)
        unsettled_sets = _find_unsettled_sets(entries)
        return cls(entries, naming, shortest, keys, unsettled_sets)

    def with_entries(self, entries: Sequence[DemandEntry]) -> "DemandIndex":
        """Return the index of *entries*, which have the same datasets in the same order as the old ones."""
        return replace(self, entries=entries, unsettled_sets=_find_unsettled_sets(entries))

    def positions_of(self, facts: Mapping[Did, Fact]) -> list[int]:
        """Return the positions of the entries that name a dataset of *facts*, most demanded first."""
        return sorted({place for did in facts for place in self.positions_by_did.get(did, ())})

    def sets_at(self, position: int) -> list[DatasetSet]:
        """Return the sets that the jobs of the entry at *position* look up.

        Jobs without a key of the whole set look up each single dataset.
        """
        want = self.entries[position]
        if len(want.dids) == 1:
            return [want.dids]
        return _looked_up_sets(want)

    def key_of(self, dids: DatasetSet) -> SetKey:
        return self.keys[dids] if len(dids) > 1 else set_key(dids)

    def sets_with(self, dids: Iterable[Did]) -> set[DatasetSet]:
        """Return the sets that contain one of *dids*, and each of *dids* as a set of its own."""
        dids = frozenset(dids)
        places = {place for did in dids for place in self.positions_by_did.get(did, ())}
        return {*((did,) for did in dids), *(self.entries[place].dids for place in places)}


def _find_unsettled_sets(entries: Sequence[DemandEntry]) -> frozenset[DatasetSet]:
    """Return the sets that only unsettled entries have, also the single datasets of jobs without a key."""
    new = [want for want in entries if not want.is_settled]
    if not new:
        return frozenset()
    settled = {dids for want in entries if want.is_settled for dids in _looked_up_sets(want)}
    return frozenset(dids for want in new for dids in _looked_up_sets(want) if dids not in settled)


def _looked_up_sets(want: DemandEntry) -> list[DatasetSet]:
    return [want.dids, *((did,) for did in want.dids if want.has_unkeyed_jobs)]


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


Lines = tuple[tuple[str, str], ...]
"""Attributes with their ClassAd literals, in the order of the ad."""

_ROW_LINES = (contract.SETS, contract.SETS_AS_OF)
_ESTIMATE_LINES = (contract.READ_SECONDS, contract.QUEUE_SECONDS, contract.READ_FROM)
_MIN_ENTRY_BYTES = len("=0.0;")
_HOOK_SOURCE = re.compile(r"[ !#-[\]-~]{1,200}\Z")
"""The names of sources that a hook accepts: up to 200 printable ASCII characters without ``"`` and backslash.

A hook that reads another name rejects the whole ad, so the ad omits such a source.
"""


class SetSeconds(NamedTuple):
    """The estimates of one set that the ad has; see :class:`hydrator.domain.ads.estimates.SetEstimate`."""

    read_seconds: int | None
    queue_seconds: int
    source: Site | None


@dataclass(frozen=True, slots=True)
class SiteSeconds:
    """The estimates of one site that the ad has. Equal values give equal lines."""

    by_key: Mapping[SetKey, SetSeconds] = field(default_factory=dict)
    own_queue_seconds: int = 0

    @classmethod
    def of(cls, estimates: SiteEstimates | None) -> "SiteSeconds | None":
        """Return the values that the ad has of *estimates*; None without estimates."""
        if estimates is None or not (estimates.by_key or estimates.own_queue_seconds):
            return None
        by_key = {
            key: SetSeconds(one.read_seconds, one.queue_seconds, _printable(one.source))
            for key, one in estimates.by_key.items()
        }
        return cls(by_key, estimates.own_queue_seconds)


def _printable(source: Site | None) -> Site | None:
    return source if source is not None and _HOOK_SOURCE.match(source) else None


class SetEntry(NamedTuple):
    """A set in an ad: its row, its key, its text in each line (empty without an entry), and their bytes."""

    row: SetRow
    key: SetKey
    texts: tuple[str, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SetLines:
    """The lines of the sets, and what they leave out.

    ``positions`` are the demand entries with a dataset at the site whose sets are all in the ad.
    ``entries`` are the sets of these entries, also those without room. ``size_bytes`` is the size of the
    long lines.
    """

    lines: Lines
    positions: AbstractSet[int]
    entries: Mapping[DatasetSet, SetEntry]
    is_complete: bool
    size_bytes: int


class DemandedSets:
    """The sets of each demand entry, and the entries of absent sets, shared by all sites of a cycle.

    It computes them at the first use, because a site reads only the sets that its ad has room for.
    """

    def __init__(self, demand_index: DemandIndex, unread_dids: AbstractSet[Did]) -> None:
        self.index = demand_index
        self._unread_dids = unread_dids
        self._sets: dict[int, list[DatasetSet]] = {}
        self._absent: dict[DatasetSet, SetEntry] = {}

    def sets_at(self, position: int) -> list[DatasetSet]:
        """See :meth:`DemandIndex.sets_at`."""
        if (sets := self._sets.get(position)) is None:
            sets = self._sets[position] = self.index.sets_at(position)
        return sets

    def absent_entry(self, dids: DatasetSet) -> SetEntry:
        """Return the entry, without estimates, of a set of which a site has nothing."""
        if (entry := self._absent.get(dids)) is None:
            row = ABSENT if self._unread_dids.isdisjoint(dids) else UNKNOWN
            entry = self._absent[dids] = write_entry(dids, self.index.key_of(dids), row)
        return entry


def write_entry(
    dids: DatasetSet, key: SetKey, row: SetRow, as_of: int = 0, one: SetSeconds | None = None
) -> SetEntry:
    """Return the entry of the set *dids* with this *key* and *row*, with the estimates of *one*.

    *as_of* is the time of the site's facts, in Unix seconds.
    """
    name = key if len(dids) > 1 else f"'{key}'"
    share = "" if row.hundredths is None else f"{name}={row.hundredths / WHOLE}"
    at = as_of if row.oldest is None else to_unix(row.oldest)
    read = queue = source = ""
    if one is not None and row.hundredths != WHOLE:
        read = "" if one.read_seconds is None else f"{name}={one.read_seconds}"
        queue = f"{name}={one.queue_seconds}"
        source = f"{name}={classad_string(one.source)}" if read and one.source is not None else ""
    texts = (share, f"{name}={at}" if share and at < as_of else "", read, queue, source)
    return SetEntry(row, key, texts, tuple([len(text.encode()) + 1 if text else 0 for text in texts]))


def write_set_lines(
    facts: SetFacts,
    demanded: DemandedSets,
    positions: Sequence[int],
    budget: Budget,
    as_of: datetime,
    seconds: SiteSeconds | None,
    known_entries: Mapping[DatasetSet, SetEntry],
    *,
    has_same_seconds: bool,
) -> SetLines:
    """Choose the sets that fit into the ad of a site, and write their lines.

    Args:
        facts: the facts of the site.
        demanded: the demanded sets, most demanded first.
        positions: the entries with a dataset at the site.
        budget: the maximum bytes of a line and of an ad.
        as_of: the time of the site's facts.
        seconds: the estimates for the site.
        known_entries: entries of the last cycle whose rows are still valid.
        has_same_seconds: *seconds* are equal to those of the last cycle.
    """
    site = _Site(facts, demanded.index, to_unix(as_of), seconds, known_entries, has_same_seconds)
    writer = _SetWriter(site, demanded, budget)
    inside = {place for place in positions if writer.add_local(place)}
    is_complete = writer.add_absent(frozenset(positions)) and len(inside) == len(positions)
    return SetLines(writer.lines(), inside, writer.local_entries, is_complete, writer.size_bytes)


@dataclass(frozen=True, slots=True)
class _Site:
    """The inputs of the entries of one site."""

    facts: SetFacts
    index: DemandIndex
    as_of: int
    seconds: SiteSeconds | None
    known_entries: Mapping[DatasetSet, SetEntry]
    has_same_seconds: bool

    def local_entry(self, dids: DatasetSet) -> SetEntry:
        known = self.known_entries.get(dids)
        if known is not None and self.has_same_seconds and known.row.oldest is None:
            return known
        key = known.key if known is not None else self.index.key_of(dids)
        row = known.row if known is not None else self.facts.build_row(dids)
        return write_entry(dids, key, row, self.as_of, self.seconds_of(key))

    def absent_entry(self, dids: DatasetSet, plain: SetEntry) -> SetEntry:
        one = self.seconds_of(plain.key)
        return plain if one is None else write_entry(dids, plain.key, plain.row, self.as_of, one)

    def seconds_of(self, key: SetKey) -> SetSeconds | None:
        return None if self.seconds is None else self.seconds.by_key.get(key)


class _SetWriter:
    """A writer of the entries of sets, which counts the bytes of each line."""

    def __init__(self, site: _Site, demanded: DemandedSets, budget: Budget) -> None:
        self.local_entries: dict[DatasetSet, SetEntry] = {}
        self._site = site
        self._demanded = demanded
        self._line_limit = budget.line_bytes
        self._limit = budget.ad_bytes - STATE_LINES_BYTES
        self._names = (*_ROW_LINES, *(_ESTIMATE_LINES if site.seconds else ()))
        self._line_bytes = [len(f"{name} = []") for name in self._names]
        self._entries: dict[DatasetSet, SetEntry] = {}

    @property
    def size_bytes(self) -> int:
        return sum(self._line_bytes)

    def add_local(self, position: int) -> bool:
        """Add the sets of the entry at *position*, which has a dataset at the site; False without room."""
        new = [dids for dids in self._demanded.sets_at(position) if dids not in self._entries]
        if not self._may_fit(new):
            return not new
        entries = {dids: self._site.local_entry(dids) for dids in new}
        self.local_entries.update(entries)
        return self._try_add(entries)

    def add_absent(self, local_positions: AbstractSet[int]) -> bool:
        """Add the sets of jobs and pins of which the site has nothing; return False if some have no room.

        A set that only matches a pattern has an entry only where some of it is.
        """
        is_complete, demanded, entries = True, self._demanded, self._entries
        shortest = demanded.index.shortest_did_chars + _MIN_ENTRY_BYTES
        for place in range(len(demanded.index.entries)):
            if place in local_positions or demanded.index.entries[place].origin is Origin.PATTERN:
                continue
            new = [dids for dids in demanded.sets_at(place) if dids not in entries]
            if not new:
                continue
            absent = (
                {dids: self._site.absent_entry(dids, demanded.absent_entry(dids)) for dids in new}
                if self._may_fit(new)
                else None
            )
            if absent is None or not self._try_add(absent):
                is_complete = False
                if not self._has_room(shortest):
                    break
        return is_complete

    def lines(self) -> Lines:
        """Return the lines, with the entries sorted by key."""
        ordered = sorted(self._visible_texts(dids, entry) for dids, entry in self._entries.items())
        texts = [
            f"[{';'.join([each[line] for _, each in ordered if each[line]])}]"
            for line in range(len(self._names))
        ]
        lines = tuple(zip(self._names, texts, strict=True))
        seconds = self._site.seconds
        if seconds is None:
            return lines
        return (*lines, (contract.OWN_QUEUE_SECONDS, str(seconds.own_queue_seconds)))

    def _visible_texts(self, dids: DatasetSet, entry: SetEntry) -> tuple[SetKey, tuple[str, ...]]:
        """Return key and texts of *entry*, without the share of an unsettled set that is not whole."""
        is_hidden = dids in self._demanded.index.unsettled_sets and entry.row.hundredths != WHOLE
        return entry.key, ("", "", *entry.texts[2:]) if is_hidden else entry.texts

    def _may_fit(self, sets: Sequence[DatasetSet]) -> bool:
        """Return False if the ad has no room for *sets*, or without sets; a test before reading the facts."""
        least = 0
        for dids in sets:
            least += _MIN_ENTRY_BYTES + (len(dids[0]) if len(dids) == 1 else HASHED_KEY_CHARS)
        return least > 0 and self._has_room(least)

    def _has_room(self, more: int) -> bool:
        """Return True if the first line has room for *more* bytes."""
        return self._line_bytes[0] + more <= self._line_limit and self.size_bytes + more <= self._limit

    def _try_add(self, entries: Mapping[DatasetSet, SetEntry]) -> bool:
        sizes = self._line_bytes
        for entry in entries.values():
            sizes = [size + extra for size, extra in zip(sizes, entry.sizes, strict=False)]
        if max(sizes) > self._line_limit or sum(sizes) > self._limit:
            return False
        self._line_bytes = sizes
        self._entries.update(entries)
        return True

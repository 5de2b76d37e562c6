"""Index of the demand: by dataset, the demand entries that name it; and the keys of the demanded sets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import overload

from hydrator.domain.ads.dataset_sets import SetKey, set_key
from hydrator.domain.model import DemandEntry, Did, Fact

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

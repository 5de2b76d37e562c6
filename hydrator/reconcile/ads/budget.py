"""Size budget of a site's ad: choose the demand entries that fit into the ad, most demanded first.

An entry fits if all its datasets at the site fit. The choice ends soon after the ad is full, so it does not
read all demand entries. The daemon repeats the choice only for sites with changed datasets; see
docs/explanation/incremental-evaluation.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import overload

from hydrator.domain.model import DatasetState, DemandEntry, Did, Fact, to_unix
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL

FRACTION_DIGITS = 2
_ENTRY_BYTES = 4
"""The bytes of an entry without its key and value: two quotes, the equals sign and the separator."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The maximum bytes of one attribute's line, and of the four long attributes together.

    The four are ``AvailableDatasets``, ``DatasetStates``, ``DatasetFractions`` and ``DatasetAsOf``.
    """

    line_bytes: int = 60_000
    ad_bytes: int = 240_000


@dataclass(frozen=True, slots=True)
class DemandIndex:
    """The demand entries, most demanded first.

    ``positions_by_did`` has, by dataset, the positions of the entries that name the dataset.
    """

    entries: Sequence[DemandEntry]
    positions_by_did: Mapping[Did, Sequence[int]]
    shortest_did_chars: int

    @classmethod
    def build(cls, entries: Sequence[DemandEntry]) -> "DemandIndex":
        naming: dict[Did, tuple[int, ...]] = {}
        for place, want in enumerate(entries):
            for did in want.dids:
                naming[did] = (*naming[did], place) if did in naming else (place,)
        return cls(entries, naming, min(map(len, naming), default=0))

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


@dataclass(frozen=True, slots=True)
class BudgetFit:
    """The datasets that fit into a site's ad, and the positions of the demand entries that fit.

    ``has_list`` is True if the attribute ``AvailableDatasets`` fits too.
    """

    dids: AbstractSet[Did]
    positions: AbstractSet[int]
    has_list: bool


def fit_to_budget(
    facts: Mapping[Did, Fact],
    demand_index: DemandIndex,
    positions: Sequence[int],
    budget: Budget,
    as_of: datetime,
) -> BudgetFit:
    """Choose the demand entries at *positions* that fit into the ad of a site.

    If not all entries fit, first omit the attribute ``AvailableDatasets``. Job expressions do not
    need this attribute: they read the states in ``DatasetStates``.
    """
    room = _SizeCounter(facts, demand_index, budget, as_of, has_list=True)
    choice = room.fill(positions)
    if not room.is_list_too_long:
        return choice
    return _SizeCounter(facts, demand_index, budget, as_of, has_list=False).fill(positions)


class _SizeCounter:
    """A counter of the bytes of the four long attributes while datasets are added."""

    def __init__(
        self,
        facts: Mapping[Did, Fact],
        demand_index: DemandIndex,
        budget: Budget,
        as_of: datetime,
        *,
        has_list: bool,
    ) -> None:
        self.is_list_too_long = False
        self._facts = facts
        self._demand_index = demand_index
        self._budget = budget
        self._as_of = to_unix(as_of)
        self._has_list = has_list
        self._dids: set[Did] = set()
        self._list_bytes = len("AvailableDatasets = {}")
        self._states_bytes = len("DatasetStates = []")
        self._fractions_bytes = len("DatasetFractions = []")
        self._ages_bytes = len("DatasetAsOf = []")
        self._min_entry_bytes = (
            demand_index.shortest_did_chars + _ENTRY_BYTES + min(len(state) for state in DatasetState) + 2
        )

    def fill(self, positions: Sequence[int]) -> BudgetFit:
        inside: set[int] = set()
        facts, fitting_dids = self._facts, self._dids
        for place in positions:
            if self._is_full:
                inside |= self._find_covered_positions(place)
                break
            new = [
                did
                for did in self._demand_index.entries[place].dids
                if did in facts and did not in fitting_dids
            ]
            if not new or self._try_add(new):
                inside.add(place)
            elif self.is_list_too_long:
                break
        return BudgetFit(fitting_dids, inside, self._has_list)

    @property
    def _is_full(self) -> bool:
        """Return True if the ad has no room for another dataset, not even for one with the shortest name."""
        if self._states_bytes + self._min_entry_bytes > self._budget.line_bytes:
            return True
        return not self._has_list and self._total_bytes + self._min_entry_bytes > self._budget.ad_bytes

    @property
    def _total_bytes(self) -> int:
        return self._list_bytes + self._states_bytes + self._fractions_bytes + self._ages_bytes

    def _try_add(self, new_dids: Sequence[Did]) -> bool:
        list_bytes, states_bytes, fractions_bytes, ages_bytes = (
            self._list_bytes,
            self._states_bytes,
            self._fractions_bytes,
            self._ages_bytes,
        )
        for did in new_dids:
            fact, key = self._facts[did], len(did) + _ENTRY_BYTES
            states_bytes += key + len(fact.state) + 2
            if self._has_list and fact.state is DatasetState.AVAILABLE:
                list_bytes += key - 1
            if is_partial(fact):
                fractions_bytes += key + 2 + FRACTION_DIGITS
            if fact.as_of is not AT_LAST_POLL and to_unix(fact.as_of) < self._as_of:
                ages_bytes += key + 10
        records = max(states_bytes, fractions_bytes, ages_bytes)
        total = list_bytes + states_bytes + fractions_bytes + ages_bytes
        if max(records, list_bytes) > self._budget.line_bytes or total > self._budget.ad_bytes:
            fits = records <= self._budget.line_bytes and total - list_bytes <= self._budget.ad_bytes
            self.is_list_too_long = self._has_list and fits
            return False
        self._list_bytes, self._states_bytes, self._fractions_bytes, self._ages_bytes = (
            list_bytes,
            states_bytes,
            fractions_bytes,
            ages_bytes,
        )
        self._dids.update(new_dids)
        return True

    def _find_covered_positions(self, first_position: int) -> set[int]:
        """Return the positions of entries whose datasets at the site are all in the ad already.

        The positions begin at *first_position*.
        """
        entries, facts, fitting_dids = self._demand_index.entries, self._facts, self._dids
        positions = {
            place
            for did in fitting_dids
            for place in self._demand_index.positions_by_did[did]
            if place >= first_position
        }
        return {
            p for p in positions if all(did in fitting_dids or did not in facts for did in entries[p].dids)
        }


def is_partial(fact: Fact) -> bool:
    """Return True if a part of the dataset is on disk, but not all."""
    return fact.fraction is not None and 0.0 < round_down(fact.fraction) < 1.0


def round_down(fraction: float) -> float:
    """Round *fraction* down, so that an ad never claims too much and small changes do not change the ad."""
    scale: int = 10**FRACTION_DIGITS
    return int(fraction * scale) / scale

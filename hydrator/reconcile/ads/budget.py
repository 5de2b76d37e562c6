"""Which jobs' datasets find room in a site's ad: the most wanted first, each job as a whole.

Nothing here looks at many more wants than fit.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import overload

from hydrator.domain.model import DatasetState, Did, Fact, Want, unix
from hydrator.reconcile.snapshot.memory import THEN

FRACTION_DIGITS = 2
_ENTRY_BYTES = 4
"""Of an entry beside its key and value: two quotes, the sign between them, the separator."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most bytes in one attribute's line, and in all three records and the list together."""

    line_bytes: int = 60_000
    ad_bytes: int = 240_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """All wants, most wanted first; ``naming`` has, by dataset, the places among them that name it."""

    wants: Sequence[Want]
    naming: Mapping[Did, Sequence[int]]
    shortest: int

    @classmethod
    def of(cls, wants: Sequence[Want]) -> "Wanted":
        naming: dict[Did, tuple[int, ...]] = {}
        for place, want in enumerate(wants):
            for did in want.dids:
                naming[did] = (*naming[did], place) if did in naming else (place,)
        return cls(wants, naming, min(map(len, naming), default=0))

    def places(self, here: Mapping[Did, Fact]) -> list[int]:
        """The wants that name something *here*, most wanted first."""
        return sorted({place for did in here for place in self.naming.get(did, ())})


class LeftOut(Sequence[Want]):
    """The wants at *places* but those *inside*; made when somebody looks."""

    __slots__ = ("_inside", "_places", "_wants")

    def __init__(self, wants: Sequence[Want], places: Sequence[int], inside: AbstractSet[int]) -> None:
        self._wants = wants
        self._places = places
        self._inside = inside

    def __len__(self) -> int:
        return len(self._places) - len(self._inside)

    def __iter__(self) -> Iterator[Want]:
        return (self._wants[place] for place in self._places if place not in self._inside)

    @overload
    def __getitem__(self, index: int) -> Want: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Want, ...]: ...
    def __getitem__(self, index: int | slice) -> Want | tuple[Want, ...]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, slots=True)
class Choice:
    """The datasets that fit, the wants (by place) that are inside, and whether the plain list fits too."""

    taken: AbstractSet[Did]
    inside: AbstractSet[int]
    with_list: bool


def choose(
    here: Mapping[Did, Fact], wanted: Wanted, places: Sequence[int], budget: Budget, as_of: datetime
) -> Choice:
    """Let in what fits of the wants at *places*.

    The plain list goes first: expressions look states up in the record.
    """
    room = _Room(here, wanted, budget, as_of, with_list=True)
    choice = room.filled(places)
    if not room.list_to_blame:
        return choice
    return _Room(here, wanted, budget, as_of, with_list=False).filled(places)


class _Room:
    """Counts the bytes of the four long lines while jobs are let in."""

    def __init__(
        self, here: Mapping[Did, Fact], wanted: Wanted, budget: Budget, as_of: datetime, *, with_list: bool
    ) -> None:
        self.list_to_blame = False
        self._here = here
        self._wanted = wanted
        self._budget = budget
        self._as_of = unix(as_of)
        self._with_list = with_list
        self._taken: set[Did] = set()
        self._listed = len("AvailableDatasets = {}")
        self._states = len("DatasetStates = []")
        self._fractions = len("DatasetFractions = []")
        self._ages = len("DatasetAsOf = []")
        self._least = wanted.shortest + _ENTRY_BYTES + min(len(state) for state in DatasetState) + 2

    def filled(self, places: Sequence[int]) -> Choice:
        inside: set[int] = set()
        here, taken = self._here, self._taken
        for place in places:
            if self._full:
                inside |= self._wholly_taken(place)
                break
            new = [did for did in self._wanted.wants[place].dids if did in here and did not in taken]
            if not new or self._take(new):
                inside.add(place)
            elif self.list_to_blame:
                break
        return Choice(taken, inside, self._with_list)

    @property
    def _full(self) -> bool:
        """Can nothing more enter, however short, and is the list not to blame for it?"""
        if self._states + self._least > self._budget.line_bytes:
            return True
        return not self._with_list and self._total + self._least > self._budget.ad_bytes

    @property
    def _total(self) -> int:
        return self._listed + self._states + self._fractions + self._ages

    def _take(self, new: Sequence[Did]) -> bool:
        listed, states, fractions, ages = self._listed, self._states, self._fractions, self._ages
        for did in new:
            fact, key = self._here[did], len(did) + _ENTRY_BYTES
            states += key + len(fact.state) + 2
            if self._with_list and fact.state is DatasetState.AVAILABLE:
                listed += key - 1
            if between(fact):
                fractions += key + 2 + FRACTION_DIGITS
            if fact.as_of is not THEN and unix(fact.as_of) < self._as_of:
                ages += key + 10
        records = max(states, fractions, ages)
        total = listed + states + fractions + ages
        if max(records, listed) > self._budget.line_bytes or total > self._budget.ad_bytes:
            fits = records <= self._budget.line_bytes and total - listed <= self._budget.ad_bytes
            self.list_to_blame = self._with_list and fits
            return False
        self._listed, self._states, self._fractions, self._ages = listed, states, fractions, ages
        self._taken.update(new)
        return True

    def _wholly_taken(self, first: int) -> set[int]:
        """Of the wants from the *first* on those for which everything here is taken already."""
        wants, here, taken = self._wanted.wants, self._here, self._taken
        some = {place for did in taken for place in self._wanted.naming[did] if place >= first}
        return {p for p in some if all(did in taken or did not in here for did in wants[p].dids)}


def between(fact: Fact) -> bool:
    """Is a part of it there, but not all?"""
    return fact.fraction is not None and 0.0 < floored(fact.fraction) < 1.0


def floored(fraction: float) -> float:
    """Rounded down, so that it never says more than is there, and small steps change no ad."""
    scale: int = 10**FRACTION_DIGITS
    return int(fraction * scale) / scale

"""What to look at next, when there is time for one thing at a time: everything gets its turn, doubts first.

No clock and no chance: which thing comes next follows from the seed, from what
was handed out before and from what there is. A turn is one thing handed out.
"""

import hashlib
import heapq
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from hydrator.domain.model import Site

OLD_EVERY = 4
OLD_TURNS = 3600
"""Of four turns of a site one goes to what was looked at longest ago, if that is so many turns ago."""
RECHECK_TURNS = 600
"""After so many turns what is in doubt is looked at again."""
RETRY_TURNS = 60
"""After so many turns what somebody complained of, and nothing was learned of, comes up again."""
LYING_WEIGHT = 4.0
"""How much more often a site comes up while it is known to have said something false."""
NEW_WEIGHT = 2.0
"""The same while something there was never looked at."""
SMALL_SITE = 100
"""A site with fewer things comes up less often, in proportion."""


class Thing(Protocol):
    """What a rota hands out; its text tells it from others and decides its place."""

    def __hash__(self) -> int: ...
    def __str__(self) -> str: ...


T = TypeVar("T", bound=Thing)


@dataclass(frozen=True, slots=True)
class Turn(Generic[T]):
    """*thing* is to be looked at; *again* when only a doubt brings it up once more, *asked* when somebody."""

    thing: T
    again: bool = False
    asked: bool = False


@dataclass
class _AtSite(Generic[T]):
    """The queue of one site: what was never handed out, and the rest, oldest first; stale entries stay."""

    new: list[tuple[int, T]] = field(default_factory=list)
    old: list[tuple[int, int, T]] = field(default_factory=list)
    things: int = 0
    turns: int = 0
    passed: float = 0.0


class Rota(Generic[T]):
    """Hands out things one by one.

    Sites take turns (each thing counts for all the sites it is at), so that a
    small share of what a site says is found equally soon at a large site and
    at a small one. Within a site what was never looked at comes first, in an
    order that only *seed* decides, then what was looked at longest ago.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._turn = 0
        self._sites: dict[Site, _AtSite[T]] = {}
        self._where: dict[T, frozenset[Site]] = {}
        self._last: dict[T, int] = {}
        self._doubted: dict[T, int] = {}
        self._suspects: dict[T, int] = {}
        self._lying: AbstractSet[Site] = frozenset()

    def look(
        self,
        things: Mapping[T, frozenset[Site]],
        *,
        doubted: Collection[T] = (),
        lying: AbstractSet[Site] = frozenset(),
    ) -> None:
        """Bring it up to date.

        Args:
            things: all there are, with the sites each is at.
            doubted: those that were found false, and so are looked at again from time to time.
            lying: the sites that lately said something false.
        """
        for gone in [thing for thing in self._where if thing not in things]:
            self._forget(gone)
        for thing, sites in things.items():
            if self._where.get(thing) != sites:
                self._place(thing, sites)
        for site in [site for site, here in self._sites.items() if not here.things]:
            del self._sites[site]
        self._doubted = {
            thing: self._doubted.get(thing, self._last.get(thing, self._turn) + RECHECK_TURNS)
            for thing in doubted
            if thing in self._where
        }
        self._lying = lying

    def suspect(self, thing: T) -> None:
        """Somebody complained of *thing*: it comes up soon, unless it is not among the things at all."""
        if thing in self._where:
            self._suspects[thing] = min(self._suspects.get(thing, self._turn), self._turn)

    def next(self) -> Turn[T] | None:
        """Hand out one thing, or None when there is nothing.

        At most every other turn goes to suspects and doubts: whoever complains
        of everything takes no more than half.
        """
        turn = self._doubtful() if self._turn % 2 == 0 else None
        if turn is None:
            thing = self._by_turn()
            turn = Turn(thing, asked=thing in self._suspects) if thing is not None else None
        if turn is None:
            return None
        self._done(turn.thing)
        return turn

    def failed(self, thing: T, *, asked: bool = False) -> None:
        """Nothing was learned of *thing*: it comes up again before what was looked at.

        Args:
            thing: what was handed out.
            asked: as its turn said; who complained of it is answered later.
        """
        if thing not in self._where:
            return
        if asked:
            self._suspects.setdefault(thing, self._turn + RETRY_TURNS)
        self._last[thing] = 0
        self._queue(thing, self._where[thing])

    def _doubtful(self) -> Turn[T] | None:
        waiting = [thing for thing, when in self._suspects.items() if when <= self._turn]
        if waiting:
            thing = min(waiting, key=lambda each: (self._suspects[each], self._order(each)))
            return Turn(thing, asked=True)
        due = [thing for thing, when in self._doubted.items() if when <= self._turn]
        if not due:
            return None
        return Turn(min(due, key=lambda each: (self._doubted[each], self._order(each))), again=True)

    def _by_turn(self) -> T | None:
        if not self._sites:
            return None
        here = self._sites[min(self._sites, key=lambda site: (self._sites[site].passed, site))]
        here.turns += 1
        new, old = self._first_new(here), self._first_old(here)
        if new is None or old is None:
            return old if new is None else new
        overdue = self._turn - self._last[old] >= OLD_TURNS and here.turns % OLD_EVERY == 0
        return old if overdue else new

    def _first_new(self, here: _AtSite[T]) -> T | None:
        while here.new:
            thing = here.new[0][-1]
            if thing not in self._last and self._is_at(thing, here):
                return thing
            heapq.heappop(here.new)
        return None

    def _first_old(self, here: _AtSite[T]) -> T | None:
        while here.old:
            turn, _, thing = here.old[0]
            if self._last.get(thing) == turn and self._is_at(thing, here):
                return thing
            heapq.heappop(here.old)
        return None

    def _is_at(self, thing: T, here: _AtSite[T]) -> bool:
        return any(self._sites.get(site) is here for site in self._where.get(thing, ()))

    def _done(self, thing: T) -> None:
        self._turn += 1
        self._last[thing] = self._turn
        self._suspects.pop(thing, None)
        if thing in self._doubted:
            self._doubted[thing] = self._turn + RECHECK_TURNS
        for site in self._where[thing]:
            here = self._sites[site]
            heapq.heappush(here.old, (self._turn, self._order(thing), thing))
            here.passed += 1 / self._weight(site, here)

    def _weight(self, site: Site, here: _AtSite[T]) -> float:
        size = min(1.0, here.things / SMALL_SITE)
        new = NEW_WEIGHT if self._first_new(here) is not None else 1.0
        return size * new * (LYING_WEIGHT if site in self._lying else 1.0)

    def _place(self, thing: T, sites: frozenset[Site]) -> None:
        if thing in self._where:
            for site in self._where[thing] - sites:
                self._sites[site].things -= 1
        fresh = sites - self._where.get(thing, frozenset())
        self._where[thing] = sites
        for site in sorted(fresh):
            if site not in self._sites:
                behind = min((here.passed for here in self._sites.values()), default=0.0)
                self._sites[site] = _AtSite(passed=behind)
            self._sites[site].things += 1
        self._queue(thing, fresh)

    def _queue(self, thing: T, sites: AbstractSet[Site]) -> None:
        order, last = self._order(thing), self._last.get(thing)
        for site in sites:
            if last is None:
                heapq.heappush(self._sites[site].new, (order, thing))
            else:
                heapq.heappush(self._sites[site].old, (last, order, thing))

    def _forget(self, thing: T) -> None:
        for site in self._where.pop(thing):
            self._sites[site].things -= 1
        self._last.pop(thing, None)
        self._suspects.pop(thing, None)

    def _order(self, thing: T) -> int:
        """A place that the seed alone decides."""
        digest = hashlib.blake2b(f"{self._seed}\0{thing}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big")

"""Queue of the audit: return one item at a time to verify. Every item has its turn, doubtful items first.

The queue uses no clock and no random numbers: the order depends only on the seed, the previous turns and
the items. In a turn the queue returns one item.
"""

import hashlib
import heapq
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from hydrator.domain.model import Site

OLDEST_EVERY_TURNS = 4
OLDEST_MIN_TURNS = 3600
"""Turns after which an item is overdue. Every fourth turn of a site is for its longest overdue item."""
RECHECK_TURNS = 600
"""An item that was found false is verified again after this many turns."""
RETRY_TURNS = 60
"""An item that a job reported, and whose verification failed, is verified again after this many turns."""
FALSE_CLAIMS_WEIGHT = 4.0
"""A site with a recent false claim has its number of turns multiplied by this."""
NEW_ITEMS_WEIGHT = 2.0
"""A site with an item that was never verified has its number of turns multiplied by this."""
SMALL_SITE_ITEMS = 100
"""A site with fewer items than this has fewer turns, in proportion to its items."""


class AuditItem(Protocol):
    """An item to verify. The queue sorts items of equal priority by a hash of ``str(item)`` and the seed."""

    def __hash__(self) -> int: ...
    def __str__(self) -> str: ...


T = TypeVar("T", bound=AuditItem)


@dataclass(frozen=True, slots=True)
class NextItem(Generic[T]):
    """The item to verify now, and the reason.

    ``is_recheck`` means that the audit found the item false before, and ``is_reported`` that a job reported
    that it could not find the item's dataset.
    """

    item: T
    is_recheck: bool = False
    is_reported: bool = False


@dataclass
class _SiteQueue(Generic[T]):
    """The queue of one site.

    ``new_items`` were never verified. ``old_items`` were verified before; the item that was verified longest
    ago is first. An entry is outdated if its item had a later turn or left the site. The queue drops an
    outdated entry when the entry is first in its list.
    """

    new_items: list[tuple[int, T]] = field(default_factory=list)
    old_items: list[tuple[int, int, T]] = field(default_factory=list)
    item_count: int = 0
    turn_count: int = 0
    virtual_time: float = 0.0


class AuditQueue(Generic[T]):
    """A queue that is fair to all sites.

    The sites take turns. The verification of an item is a turn for all sites of the item. So the audit finds
    a small share of false claims equally soon at a large and at a small site. Within a site, new items come
    first, in an order that only *seed* decides. Then come the items that were verified longest ago.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._turn = 0
        self._sites: dict[Site, _SiteQueue[T]] = {}
        self._item_sites: dict[T, frozenset[Site]] = {}
        self._last_turns: dict[T, int] = {}
        self._disputed_items: dict[T, int] = {}
        self._reported_items: dict[T, int] = {}
        self._sites_with_false_claims: AbstractSet[Site] = frozenset()

    def update(
        self,
        items: Mapping[T, frozenset[Site]],
        *,
        disputed_items: Collection[T] = (),
        sites_with_false_claims: AbstractSet[Site] = frozenset(),
    ) -> None:
        """Replace the items of the queue. The queue still knows when it last returned each item.

        Args:
            items: all items, with the sites of each.
            disputed_items: items that the audit found false and verifies again from time to time.
            sites_with_false_claims: the sites with a recent false claim.
        """
        for item in [item for item in self._item_sites if item not in items]:
            self._forget(item)
        for item, sites in items.items():
            if self._item_sites.get(item) != sites:
                self._assign_sites(item, sites)
        for site in [site for site, site_queue in self._sites.items() if not site_queue.item_count]:
            del self._sites[site]
        self._disputed_items = {
            item: self._disputed_items.get(item, self._last_turns.get(item, self._turn) + RECHECK_TURNS)
            for item in disputed_items
            if item in self._item_sites
        }
        self._sites_with_false_claims = sites_with_false_claims

    def prioritize(self, item: T) -> None:
        """Schedule *item* for one of the next turns, because a job could not find the item's dataset.

        Ignore an item that is not in the queue.
        """
        if item in self._item_sites:
            self._reported_items[item] = min(self._reported_items.get(item, self._turn), self._turn)

    def take_next(self) -> NextItem[T] | None:
        """Return the next item to verify, or None if the queue is empty.

        At most every second turn is reserved for items that jobs reported or that the audit found false.
        So the other items have turns even if jobs report all datasets.
        """
        turn = self._next_disputed() if self._turn % 2 == 0 else None
        if turn is None:
            item = self._next_in_turn()
            turn = NextItem(item, is_reported=item in self._reported_items) if item is not None else None
        if turn is None:
            return None
        self._mark_handed_out(turn.item)
        return turn

    def mark_failed(self, item: T, *, is_reported: bool = False) -> None:
        """Record that the verification of *item* failed; the item comes before all verified items.

        Args:
            item: the item that :meth:`take_next` returned.
            is_reported: a job reported the item; the item then has another turn after RETRY_TURNS turns.
        """
        if item not in self._item_sites:
            return
        if is_reported:
            self._reported_items.setdefault(item, self._turn + RETRY_TURNS)
        self._last_turns[item] = 0
        self._enqueue(item, self._item_sites[item])

    def _next_disputed(self) -> NextItem[T] | None:
        waiting = [item for item, when in self._reported_items.items() if when <= self._turn]
        if waiting:
            item = min(waiting, key=lambda each: (self._reported_items[each], _tie_break(self._seed, each)))
            return NextItem(item, is_reported=True)
        due = [item for item, when in self._disputed_items.items() if when <= self._turn]
        if not due:
            return None
        return NextItem(
            min(due, key=lambda each: (self._disputed_items[each], _tie_break(self._seed, each))),
            is_recheck=True,
        )

    def _next_in_turn(self) -> T | None:
        if not self._sites:
            return None
        site_queue = self._sites[min(self._sites, key=lambda site: (self._sites[site].virtual_time, site))]
        site_queue.turn_count += 1
        new, old = self._first_new(site_queue), self._first_old(site_queue)
        if new is None or old is None:
            return old if new is None else new
        overdue = (
            self._turn - self._last_turns[old] >= OLDEST_MIN_TURNS
            and site_queue.turn_count % OLDEST_EVERY_TURNS == 0
        )
        return old if overdue else new

    def _first_new(self, site_queue: _SiteQueue[T]) -> T | None:
        while site_queue.new_items:
            item = site_queue.new_items[0][-1]
            if item not in self._last_turns and self._is_at(item, site_queue):
                return item
            heapq.heappop(site_queue.new_items)
        return None

    def _first_old(self, site_queue: _SiteQueue[T]) -> T | None:
        while site_queue.old_items:
            turn, _, item = site_queue.old_items[0]
            if self._last_turns.get(item) == turn and self._is_at(item, site_queue):
                return item
            heapq.heappop(site_queue.old_items)
        return None

    def _is_at(self, item: T, site_queue: _SiteQueue[T]) -> bool:
        return any(self._sites.get(site) is site_queue for site in self._item_sites.get(item, ()))

    def _mark_handed_out(self, item: T) -> None:
        self._turn += 1
        self._last_turns[item] = self._turn
        self._reported_items.pop(item, None)
        if item in self._disputed_items:
            self._disputed_items[item] = self._turn + RECHECK_TURNS
        for site in self._item_sites[item]:
            site_queue = self._sites[site]
            heapq.heappush(site_queue.old_items, (self._turn, _tie_break(self._seed, item), item))
            site_queue.virtual_time += 1 / self._weight(site, site_queue)

    def _weight(self, site: Site, site_queue: _SiteQueue[T]) -> float:
        size = min(1.0, site_queue.item_count / SMALL_SITE_ITEMS)
        new = NEW_ITEMS_WEIGHT if self._first_new(site_queue) is not None else 1.0
        return size * new * (FALSE_CLAIMS_WEIGHT if site in self._sites_with_false_claims else 1.0)

    def _assign_sites(self, item: T, sites: frozenset[Site]) -> None:
        if item in self._item_sites:
            for site in self._item_sites[item] - sites:
                self._sites[site].item_count -= 1
        new_sites = sites - self._item_sites.get(item, frozenset())
        self._item_sites[item] = sites
        for site in sorted(new_sites):
            if site not in self._sites:
                behind = min((site_queue.virtual_time for site_queue in self._sites.values()), default=0.0)
                self._sites[site] = _SiteQueue(virtual_time=behind)
            self._sites[site].item_count += 1
        self._enqueue(item, new_sites)

    def _enqueue(self, item: T, sites: AbstractSet[Site]) -> None:
        order, last = _tie_break(self._seed, item), self._last_turns.get(item)
        for site in sites:
            if last is None:
                heapq.heappush(self._sites[site].new_items, (order, item))
            else:
                heapq.heappush(self._sites[site].old_items, (last, order, item))

    def _forget(self, item: T) -> None:
        for site in self._item_sites.pop(item):
            self._sites[site].item_count -= 1
        self._last_turns.pop(item, None)
        self._reported_items.pop(item, None)


def _tie_break(seed: int, item: AuditItem) -> int:
    """Return a pseudo-random number that depends only on *seed* and *item*."""
    digest = hashlib.blake2b(f"{seed}\0{item}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")

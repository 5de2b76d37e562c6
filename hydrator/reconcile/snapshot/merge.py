"""What all catalogues said, folded into one fact per dataset and site; what did not change stays.

A fold starts from the one before it and looks only at datasets that something
changed for. That is the same computation as a whole one, which looks at all of
them: so long as the frame (the few values that every dataset depends on) is
the same, what was folded of the others holds.
"""

from collections.abc import Collection, Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hydrator.domain.model import DatasetState, Did, Fact, Site, SiteFacts, Snapshot

from .memory import THEN, Datasets, Known, Memory, Rows

_GOODNESS = {state: -place for place, state in enumerate(DatasetState)}
_RECENT = timedelta(seconds=2)
"""A time so near to the present may be the same second for one ad and an older one for the next."""


class Facts(Rows[Fact]):
    """The facts of one site: a row that says THEN is of *now*."""

    __slots__ = ("now",)

    def __init__(self, rows: Mapping[Did, Fact], now: datetime) -> None:
        super().__init__(rows)
        self.now = now

    def dated(self, row: Fact) -> Fact:
        return replace(row, as_of=self.now) if row.as_of is THEN else row


@dataclass(frozen=True, slots=True)
class Names:
    """The datasets that exist, each with its twins, and those of them that only letter case tells apart.

    ``absent`` are wanted datasets that no catalogue has, with their twins; ``misspelt`` those of them that
    another one differs from in letter case only.
    """

    there: Mapping[Did, frozenset[Did]] = field(default_factory=dict)
    clashes: tuple[tuple[Did, ...], ...] = ()
    absent: Mapping[Did, frozenset[Did]] = field(default_factory=dict)
    misspelt: Mapping[Did, tuple[Did, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Folded:
    """A snapshot, and what the next one can start from.

    ``rows`` are the facts by site, as :class:`Facts` reads them; ``altered``
    has, by site, the datasets whose row is another one than before.
    ``restless`` are datasets that are folded again whatever happens, because
    they were not read with the rest and age by themselves; ``recent`` the sites
    with a fact that is about as old as the site's last whole reading.
    """

    snapshot: Snapshot
    now: datetime
    frame: Hashable
    rows: Mapping[Site, dict[Did, Fact]]
    names: Names
    restless: frozenset[Did]
    recent: frozenset[Site]
    altered: Mapping[Site, AbstractSet[Did]] | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """One catalogue's rows; ``moving`` when it answered just now."""

    rows: Mapping[Did, Known]
    at: datetime
    moving: bool
    apart: AbstractSet[Did]


def fold_memories(
    memories: Mapping[str, Memory],
    wanted: AbstractSet[Did],
    *,
    now: datetime,
    bound: timedelta,
    last: Folded | None = None,
    changed: AbstractSet[Did] | None = None,
) -> Folded:
    """What follows from *memories* for the *wanted* datasets; see :func:`hydrator.reconcile.snapshot.update.snapshot`.

    Args:
        memories: by catalogue, what it said last.
        wanted: the demanded datasets.
        now: aware UTC time of this cycle.
        bound: a fact older than this reads UNKNOWN.
        last: the fold before this one.
        changed: the datasets that the memories say something else of than those
            that *last* was made of; None: that is not known.
    """
    sources = [
        _Source(known.rows, memory.at, memory.at == now, known.apart)
        for memory in memories.values()
        if memory.at is not None and (known := Datasets.of(memory.known)) is not None
    ]
    frame = _frame(memories, now, bound)
    restless = frozenset[Did]().union(*(source.apart for source in sources))
    look: Collection[Did]
    if last is None or changed is None or frame != last.frame or now < last.now:
        last = None
        look = dict.fromkeys(did for source in sources for did in source.rows if did in wanted)
    else:
        look = changed | restless | last.restless
    found = {did: _folded(did, sources, now, bound) if did in wanted else {} for did in look}
    rows, altered = _placed(found, last.rows if last else {})
    recent = frozenset(
        site
        for did in restless
        for site, fact in found.get(did, {}).items()
        if fact.as_of is not THEN and now - fact.as_of < _RECENT
    )
    names = _named(look, memories, wanted, last.names if last else Names())
    ages = _ages(memories, rows)
    whole = Snapshot(
        sites={site: SiteFacts(ages[site], Facts(rows.get(site, {}), now)) for site in sorted(ages)},
        unseen=_unseen(memories),
        clashes=names.clashes,
        misspelt=names.misspelt,
        bytes_total=_sizes(look, memories, last.snapshot.bytes_total) if last else sizes_of(memories),
    )
    if last is None:
        return Folded(whole, now, frame, rows, names, restless, recent)
    uncertain = dict.fromkeys(recent | last.recent, restless)
    return Folded(whole, now, frame, rows, names, restless, recent, {**uncertain, **altered})


def better(one: Fact, other: Fact, now: datetime = THEN) -> Fact:
    """The better state, of equals the newer; the larger fraction goes with it unless it is complete.

    What says THEN is of *now*: two that were read at one time are equals, however their rows say it.
    """
    ages = (now if fact.as_of is THEN else fact.as_of for fact in (one, other))
    goodness, others = zip((_GOODNESS[one.state], _GOODNESS[other.state]), ages, strict=True)
    best = other if others > goodness else one
    if best.state is DatasetState.AVAILABLE:
        return best
    fractions = [fact.fraction for fact in (one, other) if fact.fraction is not None]
    return replace(best, fraction=max(fractions, default=None))


def sizes_of(memories: Mapping[str, Memory]) -> dict[Did, int]:
    """Bytes of each dataset, where a catalogue told them: the most that one did."""
    sizes: dict[Did, int] = {}
    for memory in memories.values():
        for did, known in Datasets.of(memory.known).rows.items():
            if known.bytes_total is not None:
                sizes[did] = max(sizes.get(did, 0), known.bytes_total)
    return sizes


def _frame(memories: Mapping[str, Memory], now: datetime, bound: timedelta) -> Hashable:
    """What every fact depends on, beside what was said of it; while it is the same, the others hold.

    The time of an answer given just now moves on with the cycles and changes nothing.
    """
    return tuple(
        (
            name,
            memory.sites,
            tuple(sorted(memory.ages.items())),
            memory.at and memory.at == now,
            None if memory.at is None or memory.at == now else _age(memory.at, now, bound),
        )
        for name, memory in memories.items()
    )


def _age(at: datetime, now: datetime, bound: timedelta) -> Hashable:
    """What of the age of an older answer matters for its facts."""
    return at, now - at > bound, now if now - at < _RECENT else None


def _folded(did: Did, sources: Collection[_Source], now: datetime, bound: timedelta) -> Mapping[Site, Fact]:
    """Where *did* is: the best that any catalogue says of each site."""
    found: Mapping[Site, Fact] | None = None
    for source in sources:
        known = source.rows.get(did)
        if known is None:
            continue
        if known.at is THEN and source.moving:
            said: Mapping[Site, Fact] = known.here
        else:
            said = {site: _judged(fact, source.at, now, bound) for site, fact in known.here.items()}
        if found is None and not known.before:
            found = said
            continue
        both = dict(found or {})
        for site, fact in (*said.items(), *known.before.items()):
            judged = _judged(fact, source.at, now, bound) if fact is known.before.get(site) else fact
            both[site] = better(both[site], judged, now) if site in both else judged
        found = both
    return found or {}


def _judged(fact: Fact, at: datetime, now: datetime, bound: timedelta) -> Fact:
    """*fact* with its time, which is *at* where it says THEN, as it reads *now*."""
    as_of = at if fact.as_of is THEN else fact.as_of
    if now - as_of > bound:
        return Fact(DatasetState.UNKNOWN, as_of, told=fact.told)
    return fact if as_of is fact.as_of else Fact(fact.state, as_of, fact.fraction, fact.told)


def _placed(
    found: Mapping[Did, Mapping[Site, Fact]], last: Mapping[Site, dict[Did, Fact]]
) -> tuple[Mapping[Site, dict[Did, Fact]], Mapping[Site, AbstractSet[Did]]]:
    """The rows by site, made of the *last* ones and of what was *found*; and what of them is new."""
    if not last:
        first = _first(found)
        return first, {site: mine.keys() for site, mine in first.items()}
    altered = _altered(found, last)
    rows = dict(last)
    for site, dids in altered.items():
        mine = dict(last.get(site, {}))
        for did in dids:
            fact = found[did].get(site)
            if fact is not None:
                mine[did] = fact
            else:
                del mine[did]
        rows[site] = mine
    return {site: mine for site, mine in rows.items() if mine}, altered


def _first(found: Mapping[Did, Mapping[Site, Fact]]) -> dict[Site, dict[Did, Fact]]:
    rows: dict[Site, dict[Did, Fact]] = {}
    for did, here in found.items():
        for site, fact in here.items():
            if site in rows:
                rows[site][did] = fact
            else:
                rows[site] = {did: fact}
    return rows


def _altered(
    found: Mapping[Did, Mapping[Site, Fact]], last: Mapping[Site, Mapping[Did, Fact]]
) -> dict[Site, set[Did]]:
    altered: dict[Site, set[Did]] = {}
    for did, here in found.items():
        for site, mine in last.items():
            fact, old = here.get(site), mine.get(did)
            if fact is not old and fact != old:
                altered.setdefault(site, set()).add(did)
        for site in here.keys() - last.keys():
            altered.setdefault(site, set()).add(did)
    return altered


def _ages(memories: Mapping[str, Memory], rows: Mapping[Site, Mapping[Did, Fact]]) -> dict[Site, datetime]:
    ages: dict[Site, datetime] = {}
    for memory in memories.values():
        if memory.at is None:
            continue
        for site in memory.sites:
            read = memory.ages.get(site, memory.at)
            ages[site] = max(ages.get(site, read), read)
    for site in rows.keys() - ages.keys():  # a site its catalogue no longer names keeps its facts, and ages
        ages[site] = max(fact.as_of for fact in rows[site].values())
    return ages


def _unseen(memories: Mapping[str, Memory]) -> dict[Did, str]:
    reasons: dict[Did, list[str]] = {}
    for catalogue, memory in sorted(memories.items()):
        for did, reason in memory.unseen.items():
            reasons.setdefault(did, []).append(f"{catalogue}: {reason}")
    return {did: "; ".join(texts) for did, texts in sorted(reasons.items())}


def _sizes(
    look: Collection[Did], memories: Mapping[str, Memory], last: Mapping[Did, int]
) -> Mapping[Did, int]:
    sizes: dict[Did, int] | None = None
    told = [Datasets.of(memory.known).rows for memory in memories.values()]
    for did in look:
        known = [rows[did].bytes_total for rows in told if did in rows]
        size = max((each for each in known if each is not None), default=None)
        if size != last.get(did):
            sizes = dict(last) if sizes is None else sizes
            if size is None:
                del sizes[did]
            else:
                sizes[did] = size
    return last if sizes is None else sizes


def _named(
    look: Collection[Did], memories: Mapping[str, Memory], wanted: AbstractSet[Did], last: Names
) -> Names:
    """Which of the datasets to *look* at exist now; and the DIDs that only letter case tells apart."""
    there: dict[Did, frozenset[Did]] = {}
    absent: dict[Did, frozenset[Did]] = {}
    for memory in memories.values():
        rows = Datasets.of(memory.known).rows
        for did in look:
            if (known := rows.get(did)) is not None and did in wanted:
                found = there if known.here else absent
                found[did] = found[did] | known.twins if did in found else known.twins
    for did in there.keys() & absent.keys():
        del absent[did]
    if last.there or last.absent:
        if all(
            there.get(did) == last.there.get(did) and absent.get(did) == last.absent.get(did) for did in look
        ):
            return last
        there = {did: twins for did, twins in last.there.items() if did not in look} | there
        absent = {did: twins for did, twins in last.absent.items() if did not in look} | absent
    return Names(there, _clashes(there), absent, _misspelt(there, absent))


def _misspelt(
    there: Mapping[Did, frozenset[Did]], absent: Mapping[Did, frozenset[Did]]
) -> dict[Did, tuple[Did, ...]]:
    """Those of the *absent* datasets that one which exists differs from in letter case only."""
    others: dict[str, set[Did]] = {did.lower(): set() for did in absent}
    for did in there if others else ():
        if (alike := others.get(did.lower())) is not None:
            alike.add(did)
    found = {did: tuple(sorted(others[did.lower()] | twins)) for did, twins in sorted(absent.items())}
    return {did: held for did, held in found.items() if held}


def _clashes(there: Mapping[Did, frozenset[Did]]) -> tuple[tuple[Did, ...], ...]:
    names = there.keys() | frozenset[Did]().union(*there.values())
    alike: dict[str, list[Did]] = {}
    if len({did.lower() for did in names}) < len(names):  # rarely so
        for did in sorted(names):
            alike.setdefault(did.lower(), []).append(did)
    return tuple(tuple(dids) for _, dids in sorted(alike.items()) if len(dids) > 1)

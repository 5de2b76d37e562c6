"""Readings of several catalogues, and what they said before, into one Snapshot.

Each catalogue keeps a memory of its own. A reading replaces what the same
catalogue said of the same dataset; what it could not say (Unseen) leaves the
older reading standing, with its age. So an error never empties anything, and
one dataset that cannot be asked never ages its site.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from .model import (
    DatasetState,
    Did,
    Fact,
    Replica,
    ReplicaState,
    Seen,
    Site,
    SiteFacts,
    Snapshot,
    Survey,
    Unseen,
)

_CONCLUDED = {
    ReplicaState.COMPLETE: DatasetState.AVAILABLE,
    ReplicaState.INCOMING: DatasetState.STAGING,
    ReplicaState.PARTIAL: DatasetState.PARTIAL,
    ReplicaState.ON_TAPE: DatasetState.NEARLINE,
    ReplicaState.STUCK: DatasetState.STUCK,
}
_GOODNESS = {state: -place for place, state in enumerate(DatasetState)}
_LEFT_OUT = Unseen("the catalogue left it out of its answer")


@dataclass(frozen=True, slots=True)
class Known:
    """The last thing one catalogue said of one dataset: its state at each site that has it.

    ``before`` is the last whole reading at sites that since were looked at in
    part only, where that part says something too: both stand, each with its age.
    """

    at: datetime
    here: Mapping[Site, Fact]
    bytes_total: int | None = None
    twins: frozenset[Did] = frozenset()
    before: Mapping[Site, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Memory:
    """What one catalogue said last: ``at`` of its last whole answer, ``unseen`` since then and why.

    ``ages`` are the sites that this answer named and did not speak of, with
    when they were last read.
    """

    at: datetime | None = None
    sites: frozenset[Site] = frozenset()
    known: Mapping[Did, Known] = field(default_factory=dict)
    unseen: Mapping[Did, str] = field(default_factory=dict)
    unmapped: frozenset[str] = frozenset()
    failure: str | None = None
    ages: Mapping[Site, datetime] = field(default_factory=dict)

    def age(self, site: Site) -> datetime | None:
        """When *site* was last read as a whole; None when it never was."""
        return self.ages.get(site, self.at if site in self.sites else None)


def remember(memory: Memory, answer: Survey | Unseen, wanted: AbstractSet[Did], *, now: datetime) -> Memory:
    """Bring one catalogue's *memory* up to date with its *answer* about the *wanted* datasets.

    What is no longer wanted is forgotten. A reading dated later than *now*
    counts as read now: an age is never negative. A site that the catalogue no
    longer names was not looked at: its facts stand, and age. Neither was one
    at which it was blind for every dataset; one that it never looked at is
    not among its sites.
    """
    kept = {did: known for did, known in memory.known.items() if did in wanted}
    if isinstance(answer, Unseen):
        unseen = dict.fromkeys(wanted, answer.reason)
        return replace(memory, known=kept, unseen=unseen, failure=answer.reason)
    unseen = {}
    for did in wanted:
        reading = answer.readings.get(did, _LEFT_OUT)
        if isinstance(reading, Seen):
            kept[did] = _known(reading, kept.get(did), answer.sites, now)
        else:
            unseen[did] = reading.reason
    blind = _unread(answer, wanted)
    ages = {site: age for site in sorted(blind) if (age := memory.age(site)) is not None}
    sites = answer.sites - (blind - ages.keys())
    return Memory(min(answer.at, now), sites, kept, unseen, answer.unmapped, ages=ages)


def snapshot(
    memories: Mapping[str, Memory], wanted: AbstractSet[Did], *, now: datetime, bound: timedelta
) -> Snapshot:
    """Fold what all catalogues said into one state per dataset and site, best first.

    Args:
        memories: by catalogue, what it said last.
        wanted: the demanded datasets.
        now: aware UTC time of this cycle.
        bound: a fact older than this reads UNKNOWN.

    Returns:
        Every site that some catalogue speaks for, also those that hold nothing
        wanted; its ``as_of`` is the newest whole answer about it.
    """
    ages: dict[Site, datetime] = {}
    facts: dict[Site, dict[Did, Fact]] = {}
    for memory in memories.values():
        if memory.at is None:
            continue
        for site in memory.sites:
            read = memory.ages.get(site, memory.at)
            ages[site] = max(ages.get(site, read), read)
        for did, known in memory.known.items():
            if did in wanted:
                for site, fact in (*known.here.items(), *known.before.items()):
                    _fold(facts.setdefault(site, {}), did, _judged(fact, now, bound))
    for site in facts.keys() - ages.keys():  # a site its catalogue no longer names keeps its facts, and ages
        ages[site] = max(fact.as_of for fact in facts[site].values())
    return Snapshot(
        sites={site: SiteFacts(ages[site], facts.get(site, {})) for site in sorted(ages)},
        unseen=_unseen(memories),
        clashes=_clashes(memories, wanted),
        bytes_total=sizes_of(memories),
    )


def _known(seen: Seen, last: Known | None, named: AbstractSet[Site], now: datetime) -> Known:
    at = min(seen.at, now)
    here: dict[Site, Fact] = {}
    for replica in seen.replicas:
        here[replica.site] = _better(here.get(replica.site), _fact(replica, at))
    if last is None:
        return Known(at, here, seen.bytes_total, seen.twins)
    stands = {
        s: last.before.get(s, fact) for s, fact in last.here.items() if s in seen.blind or s not in named
    }
    before = {site: fact for site, fact in stands.items() if site in here}
    return Known(at, {**stands, **here}, seen.bytes_total, seen.twins, before)


def _unread(answer: Survey, wanted: AbstractSet[Did]) -> AbstractSet[Site]:
    """The sites at which *answer* was blind for all that it speaks of."""
    seen = [reading.blind for did in wanted if isinstance(reading := answer.readings.get(did), Seen)]
    return frozenset[Site]().union(*seen[:1]).intersection(*seen)


def _fact(replica: Replica, at: datetime) -> Fact:
    told = replace(replica.told, storage=replica.storage) if replica.storage else replica.told
    return Fact(_CONCLUDED[replica.state], at, replica.fraction, told)


def _better(one: Fact | None, other: Fact) -> Fact:
    """The better state, of equals the newer; the larger fraction goes with it unless it is complete."""
    if one is None:
        return other
    best = max(one, other, key=lambda fact: (_GOODNESS[fact.state], fact.as_of))
    if best.state is DatasetState.AVAILABLE:
        return best
    fractions = [fact.fraction for fact in (one, other) if fact.fraction is not None]
    return replace(best, fraction=max(fractions, default=None))


def _fold(here: dict[Did, Fact], did: Did, fact: Fact) -> None:
    here[did] = _better(here.get(did), fact)


def _judged(fact: Fact, now: datetime, bound: timedelta) -> Fact:
    return fact if now - fact.as_of <= bound else Fact(DatasetState.UNKNOWN, fact.as_of, told=fact.told)


def _unseen(memories: Mapping[str, Memory]) -> dict[Did, str]:
    reasons: dict[Did, list[str]] = {}
    for catalogue, memory in sorted(memories.items()):
        for did, reason in memory.unseen.items():
            reasons.setdefault(did, []).append(f"{catalogue}: {reason}")
    return {did: "; ".join(texts) for did, texts in sorted(reasons.items())}


def _clashes(memories: Mapping[str, Memory], wanted: AbstractSet[Did]) -> tuple[tuple[Did, ...], ...]:
    """DIDs that exist and that only letter case tells apart."""
    there: set[Did] = set()
    for memory in memories.values():
        for did, known in memory.known.items():
            if known.here and did in wanted:
                there.add(did)
                there |= known.twins
    alike: dict[str, list[Did]] = {}
    if len({did.lower() for did in there}) < len(there):  # rarely so
        for did in sorted(there):
            alike.setdefault(did.lower(), []).append(did)
    return tuple(tuple(dids) for _, dids in sorted(alike.items()) if len(dids) > 1)


def sizes_of(memories: Mapping[str, Memory]) -> dict[Did, int]:
    """Bytes of each dataset, where a catalogue told them: the most that one did."""
    sizes: dict[Did, int] = {}
    for memory in memories.values():
        for did, known in memory.known.items():
            if known.bytes_total is not None:
                sizes[did] = max(sizes.get(did, 0), known.bytes_total)
    return sizes

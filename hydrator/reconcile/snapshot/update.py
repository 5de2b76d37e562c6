"""Readings of several catalogues, and what they said before, into one Snapshot.

Each catalogue keeps a memory of its own. A reading replaces what the same
catalogue said of the same dataset; what it could not say (Unseen) leaves the
older reading standing, with its age. So an error never empties anything, and
one dataset that cannot be asked never ages its site.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache

from hydrator.domain.model import (
    UNTOLD,
    DatasetState,
    Did,
    Fact,
    Pending,
    Replica,
    ReplicaState,
    Seen,
    Site,
    Snapshot,
    Survey,
    Told,
    Unseen,
)

from .memory import THEN, Datasets, Known, Memory
from .merge import better, fold_memories, sizes_of

__all__ = ["Known", "Memory", "remember", "sizes_of", "snapshot"]

_CONCLUDED = {
    ReplicaState.COMPLETE: DatasetState.AVAILABLE,
    ReplicaState.INCOMING: DatasetState.STAGING,
    ReplicaState.PARTIAL: DatasetState.PARTIAL,
    ReplicaState.ON_TAPE: DatasetState.NEARLINE,
    ReplicaState.STUCK: DatasetState.STUCK,
}
_LEFT_OUT = Unseen("the catalogue left it out of its answer")
_NOT_YET = "its catalogue is being asked"


def remember(
    memory: Memory, answer: Survey | Unseen | Pending, wanted: AbstractSet[Did], *, now: datetime
) -> Memory:
    """Bring one catalogue's *memory* up to date with its *answer* about the *wanted* datasets.

    What is no longer wanted is forgotten; nothing else changes while the answer
    is pending. A reading dated later than *now* counts as read now: an age is
    never negative. A site that the catalogue no
    longer names was not looked at: its facts stand, and age. Neither was one
    at which it was blind for every dataset; one that it never looked at is
    not among its sites.
    """
    old = Datasets.of(memory.known)
    gone = [] if old.keys() <= wanted else [did for did in old.rows if did not in wanted]
    if isinstance(answer, Pending):
        unseen = {
            did: memory.unseen.get(did, _NOT_YET)
            for did in wanted
            if did in memory.unseen or did not in old.rows
        }
        return replace(memory, known=old.after(old.at, {}, gone), unseen=unseen)
    if isinstance(answer, Unseen):
        unseen = dict.fromkeys(wanted, answer.reason)
        return replace(memory, known=old.after(old.at, {}, gone), unseen=unseen, failure=answer.reason)
    at = min(answer.at, now)
    repeats = answer.sites == memory.sites and not memory.ages
    fresh: dict[Did, Known] = {}
    unseen = {}
    for did in wanted:
        reading, row = answer.readings.get(did, _LEFT_OUT), old.rows.get(did)
        together = row is not None and row.at is THEN
        if isinstance(reading, Unseen):
            unseen[did] = reading.reason
            if row is not None and together:  # it is as old as the answer that it came with
                fresh[did] = old.dated(row)
            continue
        read = min(now, reading.at)
        if repeats and row is not None and together and read == at and _repeats(reading, row.said):
            continue
        fresh[did] = _known(reading, old.dated(row) if row else None, answer.sites, read, at)
    blind = _unread(answer, wanted)
    ages = {site: age for site in sorted(blind) if (age := memory.age(site)) is not None}
    sites = answer.sites - (blind - ages.keys()) if blind else answer.sites
    return Memory(at, sites, old.after(at, fresh, gone), unseen, answer.unmapped, ages=ages)


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
    return fold_memories(memories, wanted, now=now, bound=bound).snapshot


def _repeats(reading: Seen, last: Seen | None) -> bool:
    """Does *reading* say what was said *last*, but for the time?"""
    return last is not None and (
        (reading.replicas is last.replicas or reading.replicas == last.replicas)
        and reading.bytes_total == last.bytes_total
        and reading.blind == last.blind
        and reading.twins == last.twins
    )


def _known(seen: Seen, last: Known | None, named: AbstractSet[Site], read: datetime, at: datetime) -> Known:
    """What follows from a reading, which was *read* then, of an answer *at* that time."""
    stands = _standing(seen, last, named) if last and last.here else {}
    plain = read == at and not stands
    moment = THEN if plain else read
    here: dict[Site, Fact] = {}
    for replica in seen.replicas:
        site, fact = replica.site, _fact(replica, moment)
        here[site] = better(here[site], fact) if site in here else fact
    if plain and here.keys() <= named:
        return Known(moment, here, seen.bytes_total, seen.twins, said=seen)
    here = {site: replace(fact, as_of=read) if plain else fact for site, fact in here.items()}
    before = {site: fact for site, fact in stands.items() if site in here}
    return Known(read, {**stands, **here}, seen.bytes_total, seen.twins, before, seen)


def _standing(seen: Seen, last: Known, named: AbstractSet[Site]) -> dict[Site, Fact]:
    """What was known *last* of sites that were not looked at now."""
    return {
        site: last.before.get(site, fact)
        for site, fact in last.here.items()
        if site in seen.blind or site not in named
    }


def _unread(answer: Survey, wanted: AbstractSet[Did]) -> AbstractSet[Site]:
    """The sites at which *answer* was blind for all that it speaks of."""
    blind: AbstractSet[Site] | None = None
    for did in wanted:
        reading = answer.readings.get(did)
        if isinstance(reading, Seen):
            if not reading.blind:
                return frozenset()
            blind = reading.blind if blind is None else blind & reading.blind
    return blind or frozenset()


_PLAIN = {state: Fact(concluded, THEN) for state, concluded in _CONCLUDED.items()}
"""Most facts are alike, and are kept once."""


def _fact(replica: Replica, at: datetime) -> Fact:
    told = replica.told
    if replica.storage:
        told = _at_storage(replica.storage) if told is UNTOLD else replace(told, storage=replica.storage)
    elif at is THEN and told is UNTOLD and replica.fraction is None:
        return _PLAIN[replica.state]
    return Fact(_CONCLUDED[replica.state], at, replica.fraction, told)


@lru_cache(maxsize=4096)
def _at_storage(storage: str) -> Told:
    return Told(storage=storage)

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
    NO_PROVENANCE,
    DatasetState,
    Did,
    Fact,
    Pending,
    Provenance,
    Replica,
    ReplicaState,
    Seen,
    Site,
    Snapshot,
    Survey,
    Unseen,
)

from .memory import AT_LAST_POLL, CatalogueMemory, DatasetRecord, DatasetRows
from .merge import merge_catalogues, pick_better, sizes_of

__all__ = ["CatalogueMemory", "DatasetRecord", "apply_survey", "build_snapshot", "sizes_of"]

_STATE_OF_REPLICA = {
    ReplicaState.COMPLETE: DatasetState.AVAILABLE,
    ReplicaState.INCOMING: DatasetState.STAGING,
    ReplicaState.PARTIAL: DatasetState.PARTIAL,
    ReplicaState.ON_TAPE: DatasetState.NEARLINE,
    ReplicaState.STUCK: DatasetState.STUCK,
}
_MISSING_READING = Unseen("the catalogue left it out of its answer")
_PENDING_REASON = "its catalogue is being asked"


def apply_survey(
    memory: CatalogueMemory,
    answer: Survey | Unseen | Pending,
    demanded_dids: AbstractSet[Did],
    *,
    now: datetime,
) -> CatalogueMemory:
    """Bring one catalogue's *memory* up to date with its *answer* about the *wanted* datasets.

    What is no longer wanted is forgotten; nothing else changes while the answer
    is pending. A reading dated later than *now* counts as read now: an age is
    never negative. A site that the catalogue no
    longer names was not looked at: its facts stand, and age. Neither was one
    at which it was blind for every dataset; one that it never looked at is
    not among its sites.
    """
    old = DatasetRows.wrap(memory.records)
    gone = [] if old.keys() <= demanded_dids else [did for did in old.rows if did not in demanded_dids]
    if isinstance(answer, Pending):
        unseen = {
            did: memory.unseen_reasons.get(did, _PENDING_REASON)
            for did in demanded_dids
            if did in memory.unseen_reasons or did not in old.rows
        }
        return replace(memory, records=old.apply_answer(old.polled_at, {}, gone), unseen_reasons=unseen)
    if isinstance(answer, Unseen):
        unseen = dict.fromkeys(demanded_dids, answer.reason)
        return replace(
            memory,
            records=old.apply_answer(old.polled_at, {}, gone),
            unseen_reasons=unseen,
            failure=answer.reason,
        )
    at = min(answer.started_at, now)
    repeats = answer.sites == memory.sites and not memory.last_read_at
    fresh: dict[Did, DatasetRecord] = {}
    unseen = {}
    for did in demanded_dids:
        reading, row = answer.readings.get(did, _MISSING_READING), old.rows.get(did)
        together = row is not None and row.read_at is AT_LAST_POLL
        if isinstance(reading, Unseen):
            unseen[did] = reading.reason
            if row is not None and together:  # it is as old as the answer that it came with
                fresh[did] = old.with_timestamp(row)
            continue
        read = min(now, reading.as_of)
        if repeats and row is not None and together and read == at and _is_repeat(reading, row.reading):
            continue
        fresh[did] = _build_record(reading, old.with_timestamp(row) if row else None, answer.sites, read, at)
    blind = _find_unread_sites(answer, demanded_dids)
    ages = {site: age for site in sorted(blind) if (age := memory.read_at(site)) is not None}
    sites = answer.sites - (blind - ages.keys()) if blind else answer.sites
    return CatalogueMemory(
        at, sites, old.apply_answer(at, fresh, gone), unseen, answer.unmapped_storages, last_read_at=ages
    )


def build_snapshot(
    memories: Mapping[str, CatalogueMemory],
    demanded_dids: AbstractSet[Did],
    *,
    now: datetime,
    max_age: timedelta,
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
    return merge_catalogues(memories, demanded_dids, now=now, max_age=max_age).snapshot


def _is_repeat(reading: Seen, previous: Seen | None) -> bool:
    """Does *reading* say what was said *last*, but for the time?"""
    return previous is not None and (
        (reading.replicas is previous.replicas or reading.replicas == previous.replicas)
        and reading.bytes_total == previous.bytes_total
        and reading.unreachable_sites == previous.unreachable_sites
        and reading.case_variants == previous.case_variants
    )


def _build_record(
    seen: Seen,
    previous: DatasetRecord | None,
    named_sites: AbstractSet[Site],
    read_at: datetime,
    answered_at: datetime,
) -> DatasetRecord:
    """What follows from a reading, which was *read* then, of an answer *at* that time."""
    stands = _unread_facts(seen, previous, named_sites) if previous and previous.facts else {}
    plain = read_at == answered_at and not stands
    moment = AT_LAST_POLL if plain else read_at
    here: dict[Site, Fact] = {}
    for replica in seen.replicas:
        site, fact = replica.site, _fact(replica, moment)
        here[site] = pick_better(here[site], fact) if site in here else fact
    if plain and here.keys() <= named_sites:
        return DatasetRecord(moment, here, seen.bytes_total, seen.case_variants, reading=seen)
    here = {site: replace(fact, as_of=read_at) if plain else fact for site, fact in here.items()}
    before = {site: fact for site, fact in stands.items() if site in here}
    return DatasetRecord(read_at, {**stands, **here}, seen.bytes_total, seen.case_variants, before, seen)


def _unread_facts(seen: Seen, previous: DatasetRecord, named_sites: AbstractSet[Site]) -> dict[Site, Fact]:
    """What was known *last* of sites that were not looked at now."""
    return {
        site: previous.previous_facts.get(site, fact)
        for site, fact in previous.facts.items()
        if site in seen.unreachable_sites or site not in named_sites
    }


def _find_unread_sites(answer: Survey, demanded_dids: AbstractSet[Did]) -> AbstractSet[Site]:
    """The sites at which *answer* was blind for all that it speaks of."""
    blind: AbstractSet[Site] | None = None
    for did in demanded_dids:
        reading = answer.readings.get(did)
        if isinstance(reading, Seen):
            if not reading.unreachable_sites:
                return frozenset()
            blind = reading.unreachable_sites if blind is None else blind & reading.unreachable_sites
    return blind or frozenset()


_PLAIN_FACTS = {state: Fact(concluded, AT_LAST_POLL) for state, concluded in _STATE_OF_REPLICA.items()}
"""Most facts are alike, and are kept once."""


def _fact(replica: Replica, read_at: datetime) -> Fact:
    told = replica.provenance
    if replica.storage:
        told = (
            _storage_provenance(replica.storage)
            if told is NO_PROVENANCE
            else replace(told, storage=replica.storage)
        )
    elif read_at is AT_LAST_POLL and told is NO_PROVENANCE and replica.fraction is None:
        return _PLAIN_FACTS[replica.state]
    return Fact(_STATE_OF_REPLICA[replica.state], read_at, replica.fraction, told)


@lru_cache(maxsize=4096)
def _storage_provenance(storage: str) -> Provenance:
    return Provenance(storage=storage)

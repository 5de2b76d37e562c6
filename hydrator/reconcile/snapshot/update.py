"""Update of a catalogue's memory with its answer, and the snapshot of all catalogues.

Each catalogue has its own memory. A new reading replaces the catalogue's older reading of the same dataset.
If the new reading is Unseen, the memory keeps the older reading and its age. So an error never removes
facts, and one dataset that cannot be read does not make the whole site look old.
"""

from collections.abc import Collection, Mapping
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
_MISSING_READING = Unseen("the catalogue's answer does not have this dataset")
_PENDING_REASON = "the query of the catalogue is still running"


def apply_survey(
    memory: CatalogueMemory,
    answer: Survey | Unseen | Pending,
    demanded_dids: AbstractSet[Did],
    *,
    now: datetime,
) -> CatalogueMemory:
    """Return one catalogue's *memory* updated with its *answer* about the demanded datasets.

    Drop datasets that are no longer demanded. If the answer is pending, change nothing else. A reading with
    a time after *now* gets the time *now*, so that no age is negative. A site keeps its facts and their times
    if the catalogue no longer lists the site, or could not query the site for any of the datasets. The
    memory's sites do not include a site that the catalogue could never query.
    """
    rows = DatasetRows.wrap(memory.records)
    dropped = [] if rows.keys() <= demanded_dids else [did for did in rows.rows if did not in demanded_dids]
    if isinstance(answer, Survey):
        return _apply_readings(memory, answer, demanded_dids, dropped, now)
    records = rows.apply_answer(rows.polled_at, {}, dropped)
    if isinstance(answer, Unseen):
        reasons = dict.fromkeys(demanded_dids, answer.reason)
        return replace(memory, records=records, unseen_reasons=reasons, failure=answer.reason)
    reasons = {
        did: memory.unseen_reasons.get(did, _PENDING_REASON)
        for did in demanded_dids
        if did in memory.unseen_reasons or did not in rows.rows
    }
    return replace(memory, records=records, unseen_reasons=reasons)


def _apply_readings(
    memory: CatalogueMemory,
    survey: Survey,
    demanded_dids: AbstractSet[Did],
    dropped_dids: Collection[Did],
    now: datetime,
) -> CatalogueMemory:
    """Return *memory* with the readings of *survey*; a reading without changes leaves its row unchanged."""
    rows = DatasetRows.wrap(memory.records)
    answered_at = min(survey.started_at, now)
    can_repeat = survey.sites == memory.sites and not memory.last_read_at
    new_records: dict[Did, DatasetRecord] = {}
    unseen_reasons = {}
    for did in demanded_dids:
        reading, row = survey.readings.get(did, _MISSING_READING), rows.rows.get(did)
        is_of_last_poll = row is not None and row.read_at is AT_LAST_POLL
        if isinstance(reading, Unseen):
            unseen_reasons[did] = reading.reason
            if row is not None and is_of_last_poll:  # keep the row of the earlier answer
                new_records[did] = rows.with_timestamp(row)
            continue
        read_at = min(now, reading.as_of)
        if (
            can_repeat
            and row is not None
            and is_of_last_poll
            and read_at == answered_at
            and _is_repeat(reading, row.reading)
        ):
            continue
        previous = rows.with_timestamp(row) if row else None
        new_records[did] = _build_record(reading, previous, survey.sites, read_at, answered_at)
    unread_sites = _find_unread_sites(survey, demanded_dids)
    last_read_at = {site: at for site in sorted(unread_sites) if (at := memory.read_at(site)) is not None}
    sites = survey.sites - (unread_sites - last_read_at.keys()) if unread_sites else survey.sites
    records = rows.apply_answer(answered_at, new_records, dropped_dids)
    return CatalogueMemory(
        answered_at, sites, records, unseen_reasons, survey.unmapped_storages, last_read_at=last_read_at
    )


def build_snapshot(
    memories: Mapping[str, CatalogueMemory],
    demanded_dids: AbstractSet[Did],
    *,
    now: datetime,
    max_age: timedelta,
    never: tuple[str, ...] = (),
) -> Snapshot:
    """Build the snapshot of all catalogues: one state per dataset and site, best first.

    Args:
        memories: by catalogue, its last answers.
        demanded_dids: the demanded datasets.
        now: aware UTC time of this cycle.
        max_age: a fact older than this becomes UNKNOWN.
        never: patterns of names that are never published.

    Returns:
        A snapshot with every site that a catalogue lists, also sites without a demanded dataset. The
        ``as_of`` of a site is the time of the newest complete answer about the site.
    """
    return merge_catalogues(memories, demanded_dids, now=now, max_age=max_age, never=never).snapshot


def _is_repeat(reading: Seen, previous: Seen | None) -> bool:
    """Return True if *reading* equals the *previous* one except for its time."""
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
    """Build the record of the reading *seen*.

    *read_at* is the time of this reading, *answered_at* the time of the complete answer.
    """
    unread_facts = _unread_facts(seen, previous, named_sites) if previous and previous.facts else {}
    is_plain = read_at == answered_at and not unread_facts
    moment = AT_LAST_POLL if is_plain else read_at
    facts: dict[Site, Fact] = {}
    for replica in seen.replicas:
        site, fact = replica.site, _fact(replica, moment)
        facts[site] = pick_better(facts[site], fact) if site in facts else fact
    if is_plain and facts.keys() <= named_sites:
        return DatasetRecord(moment, facts, seen.bytes_total, seen.case_variants, reading=seen)
    facts = {site: replace(fact, as_of=read_at) if is_plain else fact for site, fact in facts.items()}
    previous_facts = {site: fact for site, fact in unread_facts.items() if site in facts}
    return DatasetRecord(
        read_at, {**unread_facts, **facts}, seen.bytes_total, seen.case_variants, previous_facts, seen
    )


def _unread_facts(seen: Seen, previous: DatasetRecord, named_sites: AbstractSet[Site]) -> dict[Site, Fact]:
    """Return the *previous* facts at sites for which *seen* has no answer."""
    return {
        site: previous.previous_facts.get(site, fact)
        for site, fact in previous.facts.items()
        if site in seen.unreachable_sites or site not in named_sites
    }


def _find_unread_sites(answer: Survey, demanded_dids: AbstractSet[Did]) -> AbstractSet[Site]:
    """Return the sites that were unreachable for every dataset of *answer*."""
    unread_sites: AbstractSet[Site] | None = None
    for did in demanded_dids:
        reading = answer.readings.get(did)
        if isinstance(reading, Seen):
            if not reading.unreachable_sites:
                return frozenset()
            unread_sites = (
                reading.unreachable_sites
                if unread_sites is None
                else unread_sites & reading.unreachable_sites
            )
    return unread_sites or frozenset()


_PLAIN_FACTS = {state: Fact(concluded, AT_LAST_POLL) for state, concluded in _STATE_OF_REPLICA.items()}
"""By state, the fact of a replica without details. Most facts equal one of these; store these only once."""


def _fact(replica: Replica, read_at: datetime) -> Fact:
    provenance = replica.provenance
    if replica.storage:
        provenance = (
            _storage_provenance(replica.storage)
            if provenance is NO_PROVENANCE
            else replace(provenance, storage=replica.storage)
        )
    elif read_at is AT_LAST_POLL and provenance is NO_PROVENANCE and replica.fraction is None:
        return _PLAIN_FACTS[replica.state]
    return Fact(_STATE_OF_REPLICA[replica.state], read_at, replica.fraction, provenance)


@lru_cache(maxsize=4096)
def _storage_provenance(storage: str) -> Provenance:
    return Provenance(storage=storage)

"""Merge of the catalogues' answers: update the memory of each, then make one snapshot of all memories.

:func:`apply_survey` puts one catalogue's answer into its memory. A new reading replaces the older reading of
the same dataset. If the new reading is Unseen, the memory keeps the older reading and its age. So an error
never removes facts, and one dataset that cannot be read does not make the whole site look old.

:func:`build_snapshot` takes, for each dataset and site, the best fact of all memories. A fact that is older
than the age limit becomes UNKNOWN.
"""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache

from hydrator.domain.model import (
    DatasetState,
    Did,
    Fact,
    Seen,
    Site,
    SiteFacts,
    Snapshot,
    Survey,
    Unseen,
    add_time,
)
from hydrator.domain.text import group_pairs, hide_names, matches_any


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """One catalogue's last record of one dataset: its state at each site that has it.

    The last reading may have a replica at a site although the catalogue could not query the whole site. Then
    ``facts`` has the fact from this replica, and ``previous_facts`` the fact from the last complete reading.
    ``reading`` is the reading from which the record was built; None if it was not built from a reading.

    ``read_at`` is the time of the reading, and of each fact without a time of its own; None stands for the
    time of the catalogue's last complete answer, ``CatalogueMemory.answered_at``.
    """

    read_at: datetime | None
    facts: Mapping[Site, Fact]
    bytes_total: int | None = None
    case_variants: frozenset[Did] = frozenset()
    previous_facts: Mapping[Site, Fact] = field(default_factory=dict)
    reading: Seen | None = field(default=None, compare=False, repr=False)

    def with_time(self, answered_at: datetime | None) -> "DatasetRecord":
        """Return the record with its time, which is *answered_at* for one of the last complete answer."""
        return replace(self, read_at=answered_at) if self.read_at is None else self


@dataclass(frozen=True, slots=True)
class CatalogueMemory:
    """The last answers of one catalogue.

    From poll to poll, nearly all facts are unchanged except for their age, and each record that changed is
    written to the disk. So a record of the last complete answer has no time of its own (``read_at`` is None):
    ``answered_at`` is the time of all these records. Only a record that the last answer did not renew has a
    time. For example, a catalogue answers at 12:00 about L1 and L2: no record has a time, and ``answered_at``
    is 12:00. At 12:01 it answers about L1 alone: ``answered_at`` is 12:01, the record of L1 is unchanged, and
    that of L2 gets the time 12:00.

    ``answered_at`` is the time of the last complete answer. ``unseen_reasons`` has the datasets that the
    last poll did not answer for, each with the reason. ``last_read_at`` has the sites that the catalogue
    could not query for its last answer, each with the time of the last reading of the site.
    """

    answered_at: datetime | None = None
    sites: frozenset[Site] = frozenset()
    records: Mapping[Did, DatasetRecord] = field(default_factory=dict)
    unseen_reasons: Mapping[Did, str] = field(default_factory=dict)
    unmapped_storages: frozenset[str] = frozenset()
    failure: str | None = None
    last_read_at: Mapping[Site, datetime] = field(default_factory=dict)

    def read_at(self, site: Site) -> datetime | None:
        """Return the time when the catalogue last answered for the whole *site*; None if it never did."""
        return self.last_read_at.get(site, self.answered_at if site in self.sites else None)

    def find_fact(self, did: Did, site: Site) -> Fact | None:
        """Return the last fact about *did* at *site*, with its time; None without one."""
        record = self.records.get(did)
        fact = record.facts.get(site) if record else None
        return add_time(fact, record.read_at or self.answered_at) if record and fact else None


_STATE_RANK = {state: -place for place, state in enumerate(DatasetState)}


def pick_better(one: Fact, other: Fact, read_at: datetime) -> Fact:
    """Return the fact with the better state; if the states are equal, the newer fact.

    Unless the dataset is complete, use the larger of both fractions. *read_at* is the time of a fact without
    one.
    """
    keys = [(_STATE_RANK[fact.state], fact.as_of or read_at) for fact in (one, other)]
    best = other if keys[1] > keys[0] else one
    if best.state is DatasetState.AVAILABLE:
        return best
    fractions = [fact.fraction for fact in (one, other) if fact.fraction is not None]
    return replace(best, fraction=max(fractions, default=None))


def sizes_of(memories: Mapping[str, CatalogueMemory]) -> dict[Did, int]:
    """Return the bytes of each dataset; the largest value if catalogues report several."""
    sizes: dict[Did, int] = {}
    for memory in memories.values():
        for did, record in memory.records.items():
            if record.bytes_total is not None:
                sizes[did] = max(sizes.get(did, 0), record.bytes_total)
    return sizes


@dataclass(frozen=True, slots=True)
class _Source:
    """One catalogue's records.

    ``is_newest``: a fact of the last complete answer, at ``answered_at``, has the time of its site.
    """

    records: Mapping[Did, DatasetRecord]
    answered_at: datetime
    is_newest: bool


def _sources(memories: Mapping[str, CatalogueMemory], now: datetime, max_age: timedelta) -> list[_Source]:
    """Return the records of each catalogue that has answered at least once."""
    newest = max((one.answered_at for one in memories.values() if one.answered_at), default=now)
    is_fresh = now - newest <= max_age
    return [
        _Source(one.records, at, is_fresh and at == newest)
        for one in memories.values()
        if (at := one.answered_at) is not None
    ]


def _merge_dataset(
    did: Did, sources: Collection[_Source], now: datetime, max_age: timedelta
) -> Mapping[Site, Fact]:
    """Return, by site, the best fact that any catalogue has about *did*."""
    best: Mapping[Site, Fact] | None = None
    for source in sources:
        record = source.records.get(did)
        if record is None:
            continue
        facts, read_at = record.facts, record.read_at or source.answered_at
        if record.read_at is not None or not source.is_newest:
            facts = {site: limit_age(fact, read_at, now, max_age) for site, fact in facts.items()}
        if best is None and not record.previous_facts:
            best = facts
            continue
        both = dict(best or {})
        previous = (
            (site, limit_age(one, read_at, now, max_age)) for site, one in record.previous_facts.items()
        )
        for site, fact in (*facts.items(), *previous):
            both[site] = pick_better(both[site], fact, now) if site in both else fact
        best = both
    return best or {}


def limit_age(fact: Fact, read_at: datetime, now: datetime, max_age: timedelta) -> Fact:
    """Return *fact* with its time, or *read_at*; its state becomes UNKNOWN if it is older than *max_age*."""
    as_of = fact.as_of or read_at
    if now - as_of > max_age:
        return Fact(DatasetState.UNKNOWN, as_of, None, fact.provenance, fact.storage)
    return add_time(fact, as_of)


def _group_by_site(facts_by_did: Mapping[Did, Mapping[Site, Fact]]) -> dict[Site, dict[Did, Fact]]:
    rows: dict[Site, dict[Did, Fact]] = {}
    for did, facts in facts_by_did.items():
        for site, fact in facts.items():
            if site in rows:
                rows[site][did] = fact
            else:
                rows[site] = {did: fact}
    return rows


def find_read_times(memories: Mapping[str, CatalogueMemory]) -> dict[Site, datetime]:
    """Return, by site, also one that a catalogue no longer lists, the time of its newest complete reading."""
    times: dict[Site, datetime] = {}
    for memory in memories.values():
        if memory.answered_at is None:
            continue
        for site in memory.sites:
            read_at = memory.last_read_at.get(site, memory.answered_at)
            times[site] = max(times.get(site, read_at), read_at)
        # A site that the catalogue no longer lists, or could never query, keeps its facts and their times.
        for record in memory.records.values():
            for site, fact in record.facts.items() if record.read_at else ():
                if site not in memory.sites:
                    at = fact.as_of or record.read_at or memory.answered_at
                    times[site] = max(times.get(site, at), at)
    return times


def _unseen_reasons(memories: Mapping[str, CatalogueMemory]) -> dict[Did, str]:
    reasons = group_pairs(
        (did, f"{catalogue}: {reason}")
        for catalogue, memory in sorted(memories.items())
        for did, reason in memory.unseen_reasons.items()
    )
    return {did: "; ".join(texts) for did, texts in sorted(reasons.items())}


def _find_variants(
    memories: Mapping[str, CatalogueMemory], demanded_dids: AbstractSet[Did]
) -> tuple[dict[Did, frozenset[Did]], dict[Did, frozenset[Did]]]:
    """Return the demanded datasets that exist, and those that are absent, each with its case variants."""
    existing: dict[Did, frozenset[Did]] = {}
    absent: dict[Did, frozenset[Did]] = {}
    for memory in memories.values():
        for did, record in memory.records.items():
            if did in demanded_dids:
                index = existing if record.facts else absent
                index[did] = index[did] | record.case_variants if did in index else record.case_variants
    for did in existing.keys() & absent.keys():
        del absent[did]
    return existing, absent


def _find_misspellings(
    existing_dids: Mapping[Did, frozenset[Did]], absent_dids: Mapping[Did, frozenset[Did]]
) -> dict[Did, tuple[Did, ...]]:
    """Return, for each absent dataset, the existing datasets whose DIDs differ only in letter case."""
    others: dict[str, set[Did]] = {did.lower(): set() for did in absent_dids}
    for did in existing_dids if others else ():
        if (alike := others.get(did.lower())) is not None:
            alike.add(did)
    matches = {
        did: tuple(sorted(others[did.lower()] | variants)) for did, variants in sorted(absent_dids.items())
    }
    return {did: dids for did, dids in matches.items() if dids}


def _find_case_collisions(existing_dids: Mapping[Did, frozenset[Did]]) -> tuple[tuple[Did, ...], ...]:
    names = existing_dids.keys() | frozenset[Did]().union(*existing_dids.values())
    has_alike = len({did.lower() for did in names}) < len(names)  # rare
    alike = group_pairs((did.lower(), did) for did in sorted(names)) if has_alike else {}
    return tuple(tuple(dids) for _, dids in sorted(alike.items()) if len(dids) > 1)


_MISSING_READING = Unseen("the catalogue's answer does not have this dataset")
_PENDING_REASON = "the query of the catalogue is still running"


def apply_survey(
    memory: CatalogueMemory,
    answer: Survey | Unseen | None,
    demanded_dids: AbstractSet[Did],
    *,
    now: datetime,
) -> CatalogueMemory:
    """Return one catalogue's *memory* updated with its *answer* about the demanded datasets.

    Drop datasets that are no longer demanded. Without an answer, change nothing else. A reading with
    a time after the start of the survey, or after *now*, gets the earlier of these, so that no fact looks
    newer than it is, and no age is negative. A site keeps its facts and their times
    if the catalogue no longer lists the site, or could not query the site for any of the datasets. The
    memory's sites do not include a site that the catalogue could never query.
    """
    dropped = memory.records.keys() - demanded_dids
    if isinstance(answer, Survey):
        return _apply_readings(memory, answer, demanded_dids, dropped, now)
    records = update_records(memory.records, {}, dropped)
    if isinstance(answer, Unseen):
        reasons = dict.fromkeys(demanded_dids, answer.reason)
        return replace(memory, records=records, unseen_reasons=reasons, failure=answer.reason)
    reasons = {
        did: memory.unseen_reasons.get(did, _PENDING_REASON)
        for did in demanded_dids
        if did in memory.unseen_reasons or did not in records
    }
    return replace(memory, records=records, unseen_reasons=reasons)


def update_records(
    records: Mapping[Did, DatasetRecord],
    new_records: Mapping[Did, DatasetRecord],
    dropped_dids: AbstractSet[Did] = frozenset(),
) -> Mapping[Did, DatasetRecord]:
    """Return *records* with *new_records* and without *dropped_dids*."""
    if dropped_dids:
        records = {did: record for did, record in records.items() if did not in dropped_dids}
    return {**records, **new_records} if new_records else records


def _apply_readings(
    memory: CatalogueMemory,
    survey: Survey,
    demanded_dids: AbstractSet[Did],
    dropped_dids: AbstractSet[Did],
    now: datetime,
) -> CatalogueMemory:
    """Return *memory* with the readings of *survey*; one without changes leaves its record unchanged."""
    answered_at = min(survey.started_at, now)
    can_repeat = survey.sites == memory.sites and not memory.last_read_at
    new_records: dict[Did, DatasetRecord] = {}
    unseen_reasons = {}
    for did in demanded_dids:
        reading, record = survey.readings.get(did, _MISSING_READING), memory.records.get(did)
        is_of_last_answer = record is not None and record.read_at is None
        if isinstance(reading, Unseen):
            unseen_reasons[did] = reading.reason
            if record and is_of_last_answer:
                new_records[did] = record.with_time(memory.answered_at)
            continue
        read_at = min(answered_at, reading.as_of)
        if (
            can_repeat
            and record is not None
            and is_of_last_answer
            and read_at == answered_at
            and reading.is_repeat_of(record.reading)
        ):
            continue
        previous = record.with_time(memory.answered_at) if record else None
        new_records[did] = _build_record(reading, previous, survey.sites, read_at, answered_at)
    unread_sites = _find_unread_sites(survey, demanded_dids)
    last_read_at = {site: at for site in sorted(unread_sites) if (at := memory.read_at(site)) is not None}
    sites = survey.sites - (unread_sites - last_read_at.keys()) if unread_sites else survey.sites
    records = update_records(memory.records, new_records, dropped_dids)
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
    sources = _sources(memories, now, max_age)
    dids = dict.fromkeys(did for source in sources for did in source.records if did in demanded_dids)
    rows = _group_by_site({did: _merge_dataset(did, sources, now, max_age) for did in dids})
    if never:
        rows = {
            site: {did: _hide_names(one, never) for did, one in row.items()} for site, row in rows.items()
        }
    existing, absent = _find_variants(memories, demanded_dids)

    def list_public(dids: tuple[Did, ...]) -> tuple[Did, ...]:
        return tuple(did for did in dids if not matches_any(did, never))

    misspellings = _find_misspellings(existing, absent).items()
    read_at = find_read_times(memories)
    return Snapshot(
        sites={site: SiteFacts(read_at[site], rows.get(site, {})) for site in sorted(read_at)},
        unseen_reasons={did: hide_names(why, never) for did, why in _unseen_reasons(memories).items()},
        case_collisions=tuple(filter(None, map(list_public, _find_case_collisions(existing)))),
        misspelt_dids={did: alike for did, dids in misspellings if (alike := list_public(dids))},
        bytes_total=sizes_of(memories),
        unread_dids=frozenset(demanded_dids).difference(existing, absent),
    )


def _hide_names(fact: Fact, never: tuple[str, ...]) -> Fact:
    source = fact.provenance
    reason = hide_names(source.reason, never)
    return fact if reason == source.reason else replace(fact, provenance=replace(source, reason=reason))


def _build_record(
    seen: Seen,
    previous: DatasetRecord | None,
    named_sites: AbstractSet[Site],
    read_at: datetime,
    answered_at: datetime,
) -> DatasetRecord:
    """Build the record of the reading *seen*.

    *read_at* is the time of this reading, *answered_at* the time of the complete answer. The record has no
    time of its own if the reading has the time of the answer, and is complete at all its sites.
    """
    unread_facts = _unread_facts(seen, previous, named_sites) if previous and previous.facts else {}
    facts: dict[Site, Fact] = {}
    for replica in seen.replicas:
        site = replica.site
        fact = _share_fact(replica.state, None, replica.fraction, replica.provenance, replica.storage)
        facts[site] = pick_better(facts[site], fact, read_at) if site in facts else fact
    is_complete = facts.keys() <= named_sites and facts.keys().isdisjoint(seen.unreachable_sites)
    if read_at == answered_at and is_complete and not unread_facts:
        return DatasetRecord(None, facts, seen.bytes_total, seen.case_variants, reading=seen)
    previous_facts = {site: fact for site, fact in unread_facts.items() if site in facts}
    return DatasetRecord(
        read_at, {**unread_facts, **facts}, seen.bytes_total, seen.case_variants, previous_facts, seen
    )


def _unread_facts(seen: Seen, previous: DatasetRecord, named_sites: AbstractSet[Site]) -> dict[Site, Fact]:
    """Return the *previous* facts at sites for which *seen* has no answer, each with its time."""
    return {
        site: add_time(previous.previous_facts.get(site, fact), previous.read_at)
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


_share_fact = lru_cache(4096)(Fact)
"""Most facts of a catalogue are equal to some others, and share one object."""

"""States: the words of Rucio for replicas, rules and locks, and the states that follow from them.

A dataset has one state per storage element, a container one per site. A state says what a job at the site can
do with the data. This module is pure: no socket, no clock.
docs/operators/catalogue-rucio.md has the rules of this module as a table.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from typing import NamedTuple

from adapters.untrusted_text import quote_excerpt
from hydrator.domain.model import NO_PROVENANCE, DatasetState, Did, Provenance, Replica, Seen, Site
from hydrator.domain.redaction import sanitize
from hydrator.domain.staging_ports import RequestState
from hydrator.domain.text import group_pairs

from .poll import Replicas
from .responses import (
    NO_FILES,
    BadRow,
    Count,
    Counts,
    Record,
    Rse,
    Rses,
    read_choice,
    read_name,
    read_text,
    read_time,
    require_record,
)

_REPLICA_STATES = frozenset(
    {"AVAILABLE", "UNAVAILABLE", "COPYING", "BEING_DELETED", "BAD", "TEMPORARY_UNAVAILABLE"}
)
LOCK_STATES = frozenset({"OK", "REPLICATING", "STUCK"})
_REQUEST_STATES = {
    "OK": RequestState.DONE,
    "REPLICATING": RequestState.MOVING,
    "STUCK": RequestState.STUCK,
    "SUSPENDED": RequestState.SUSPENDED,
    "WAITING_APPROVAL": RequestState.UNAPPROVED,
    "INJECT": RequestState.QUEUED,
}
_RULE_REASONS = {
    "STUCK": "its rule is stuck",
    "SUSPENDED": "its rule is suspended",
    "WAITING_APPROVAL": "its rule waits for approval",
    "INJECT": "its rule is about to be taken up",
}
_GROUPINGS = frozenset({"ALL", "DATASET", "NONE"})
PENDING_STATES = {"INJECT": "I", "WAITING_APPROVAL": "W"}
UNFINISHED_STATES = frozenset({"REPLICATING", "STUCK", "SUSPENDED"})
_NO_SOURCES = ("NO_SOURCES", "MissingSourceReplica")
"""Rucio's errors for a file that no storage element can send; Rucio then creates no further transfer."""
_NOT_READABLE_NOW = frozenset({DatasetState.NEARLINE, DatasetState.UNAVAILABLE})
_REASON_CHARS, _NAME_CHARS = 200, 100
_sanitize_name = lru_cache(1024)(partial(sanitize, max_chars=_NAME_CHARS))
"""Many rules are of one account."""


class Rule(NamedTuple):
    """A replication rule on *did*, a dataset or a container.

    *state* is OK, REPLICATING, STUCK, SUSPENDED, WAITING_APPROVAL or INJECT; in the last two states the rule
    has no locks yet. *error* is Rucio's reason for STUCK. *expires_at* is the end of the rule; None: no end.
    *fault* says why the row is unreadable; then only the id and the DID are valid.
    """

    id: str
    did: Did
    state: str
    expression: str
    grouping: str = "DATASET"
    account: str = ""
    error: str = ""
    expires_at: datetime | None = None
    fault: str = ""


class Lock(NamedTuple):
    """A lock: one rule requires one dataset at one storage element."""

    did: Did
    storage: str
    state: str
    rule: str


@dataclass(frozen=True, slots=True)
class Movement:
    """The effect of all rules on one dataset at one storage element.

    *ends_at* is the time when the last rule that holds the dataset ends; None if a rule has no end, or if no
    rule holds the dataset. *provenance* describes the rule that decides the state; *fault* describes an
    unreadable rule.
    """

    is_moving: bool = False
    is_stuck: bool = False
    ends_at: datetime | None = None
    provenance: Provenance = NO_PROVENANCE
    fault: str = ""


NO_MOVEMENT = Movement()
_FILE_MOVEMENTS = {
    "COPYING": Movement(is_moving=True),
    "UNAVAILABLE": Movement(is_stuck=True, provenance=Provenance(reason="no transfer brings the file")),
}
"""The movement of one file that a state of its replica implies."""
Movements = Mapping[str, Movement]
"""The movements of one dataset, by storage element."""


def read_states(row: Record) -> Mapping[str, str]:
    """Return the states of one file's replicas by storage element, from a row of list_replicas."""
    states = require_record(row.get("states") or {})
    return {storage: read_choice(_REPLICA_STATES, states, storage) for storage in states}


def available_storages(states: Mapping[str, str]) -> frozenset[str]:
    """Return the storage elements where a file with these *states* of its replicas can be read."""
    return frozenset(storage for storage, state in states.items() if state == "AVAILABLE")


def read_lock(did: Did, row: Record) -> Lock:
    """Return the lock of *did* in a row of get_locks_for_dids."""
    state = read_choice(LOCK_STATES, row, "state")
    return Lock(did, read_text(row, "rse"), state, read_text(row, "rule_id"))


def read_rule(row: Record) -> Rule:
    """Return the rule in *row*; if a column is unreadable, return a rule with the id and a fault.

    Raises:
        BadRow: the id is unreadable, or is not a short printable text.
    """
    rule_id, did = read_text(row, "id"), read_name(row)
    if not rule_id.isprintable() or len(rule_id) > _NAME_CHARS:
        raise BadRow(f"{quote_excerpt(rule_id)} cannot be the id of a rule")
    try:
        return Rule(
            id=rule_id,
            did=did,
            state=read_choice(_REQUEST_STATES, row, "state"),
            expression=read_text(row, "rse_expression"),
            grouping="DATASET" if row.get("grouping") is None else read_choice(_GROUPINGS, row, "grouping"),
            account=_sanitize_name(str(row.get("account") or "")),
            error=sanitize(str(row.get("error") or ""), _REASON_CHARS),
            expires_at=read_time(row, "expires_at"),
        )
    except BadRow as exc:
        return Rule(rule_id, did, "", "", fault=f"rule {rule_id}: {exc}")


def request_state(rule_state: str, error: str = "") -> RequestState:
    """Return the state of a request from the state and the error of a rule, or from the state of a lock."""
    state = _REQUEST_STATES[rule_state]
    is_hopeless = state is RequestState.STUCK and any(word in error for word in _NO_SOURCES)
    return RequestState.FAILED if is_hopeless else state


def movements(
    rows: Iterable[Lock], rules: Mapping[str, Rule], *, held_until: datetime
) -> dict[str, Movement]:
    """Return the movements of one dataset by storage element, from its locks *rows* and their *rules*.

    A suspended rule is stuck, whatever the states of its locks: it brings no file. Data whose rule ends
    before *held_until* does not count as moving either.
    """
    by_storage = group_pairs((lock.storage, (lock, rules[lock.rule])) for lock in rows if lock.rule in rules)
    return {storage: _movement(pairs, held_until) for storage, pairs in by_storage.items()}


def _movement(pairs: list[tuple[Lock, Rule]], held_until: datetime) -> Movement:
    if fault := next((rule.fault for _, rule in pairs if rule.fault), ""):
        return Movement(fault=fault)
    moving, stuck = None, None
    for lock, rule in sorted(pairs, key=lambda pair: pair[1].id):
        soon_gone = rule.expires_at is not None and rule.expires_at <= held_until
        if lock.state == "REPLICATING" and rule.state != "SUSPENDED":
            moving = moving or (None if soon_gone else rule)
        elif lock.state in UNFINISHED_STATES or rule.state == "SUSPENDED":
            stuck = stuck or rule
    ends = [rule.expires_at for _, rule in pairs]
    ends_at = max((end for end in ends if end), default=None) if None not in ends else None
    longest = max(pairs, key=lambda pair: (pair[1].expires_at is None, pair[1].expires_at or held_until))
    decisive = moving or stuck or longest[1]
    return Movement(moving is not None, stuck is not None, ends_at, provenance_of(decisive))


def provenance_of(rule: Rule) -> Provenance:
    """Return the provenance of *rule*: its id, account, end and reason."""
    return Provenance(
        reason=rule_reason(rule), rule=rule.id, account=rule.account, expires_at=rule.expires_at
    )


def rule_reason(rule: Rule) -> str:
    """Return why *rule* does not hold its data, or not yet; empty: nothing to say."""
    is_hopeless = request_state(rule.state, rule.error) is RequestState.FAILED
    text = "no storage has the missing files" if is_hopeless else _RULE_REASONS.get(rule.state, "")
    return f"{text}: {rule.error}" if text and rule.error else text


def movement_without_locks(rule: Rule, *, held_until: datetime) -> Movement:
    """Return the movement of a rule without locks: INJECT is moving, WAITING_APPROVAL is stuck."""
    soon_gone = rule.expires_at is not None and rule.expires_at <= held_until
    moving = rule.state == "INJECT" and not soon_gone
    return Movement(moving, rule.state == "WAITING_APPROVAL", rule.expires_at, provenance_of(rule))


def _state_at(
    rse: Rse, count: Count, movement: Movement, held_until: datetime
) -> tuple[DatasetState, str] | None:
    """Return the state of one dataset at one storage element, with its reason; None if it is not at *rse*.

    A rule only promises data, so a complete count has priority over rules. A dataset that is partly on tape,
    or moving to tape, counts as absent. A complete copy is PARTIAL if it is in a cache, or if its rules
    end before *held_until*: Rucio may delete the copy before a long job ends.
    """
    reason = movement.provenance.reason
    if rse.is_tape and not count.is_complete:
        return None
    if not rse.is_readable:
        is_there = count.available_length > 0 or movement.is_moving or movement.is_stuck
        reason = f"{rse.name} cannot be read (availability_read, or a downtime)"
        return (DatasetState.UNAVAILABLE, reason) if is_there else None
    if rse.is_tape:
        return DatasetState.NEARLINE, reason
    if count.is_complete:
        return _complete_state(rse, movement, held_until)
    if movement.is_moving and not rse.is_writable:
        reason = f"{rse.name} cannot be written (availability_write), so nothing arrives"
        return DatasetState.STUCK, reason
    if movement.is_moving:
        return DatasetState.STAGING, reason
    if movement.is_stuck:
        return DatasetState.STUCK, reason
    return (DatasetState.PARTIAL, reason) if count.available_length > 0 else None


def _complete_state(rse: Rse, movement: Movement, held_until: datetime) -> tuple[DatasetState, str]:
    provenance = movement.provenance
    if rse.is_volatile:
        reason = f"whole, but {rse.name} is a cache (volatile) that may drop it at any time"
        return DatasetState.PARTIAL, reason
    if movement.ends_at is not None and movement.ends_at <= held_until:
        ended = "" if provenance.rule else provenance.reason
        return DatasetState.PARTIAL, f"whole, but {ended or 'no rule holds it for long enough'}"
    return DatasetState.AVAILABLE, ""


def dataset_replicas(
    did: Did,
    counts: Counts,
    movements: Movements,
    rses: Rses,
    *,
    held_until: datetime,
) -> Replicas:
    """Return the replicas of one dataset, ordered by site and storage; omit elements without a site.

    Omit elements whose row is unreadable: ``RucioPoll.conclude`` concludes nothing at their sites.

    Raises:
        BadRow: a row about a rule is unreadable, or the row of each element with data is.
    """
    replicas, faults = [], []
    for name in sorted(counts.keys() | movements.keys()):
        storage, movement = rses[name], movements.get(name, NO_MOVEMENT)
        if movement.fault:
            raise BadRow(f"{did} is at {name}: {movement.fault}")
        if storage.fault:
            faults.append(f"{did} is at {name}: {storage.fault}")
            continue
        count, provenance = counts.get(name, NO_FILES), movement.provenance
        if found := _state_at(storage, count, movement, held_until):
            state, reason = found
            fraction = 0.0 if state in _NOT_READABLE_NOW else count.fraction
            if reason != provenance.reason:  # equal provenances share one object
                provenance = replace(provenance, reason=reason)
            replicas += [Replica(did, site, state, fraction, name, provenance) for site in storage.sites]
    if faults and not replicas:
        raise BadRow(faults[0])
    return tuple(sorted(replicas, key=lambda replica: (replica.site, replica.storage)))


def combinable_storages(
    counts: Counts,
    movements: Movements,
    rses: Rses,
    site_groups: Iterable[AbstractSet[Site]],
    held_until: datetime,
) -> frozenset[str]:
    """Return the storage elements whose parts of a dataset may be complete together.

    A job reads the storage of all sites in its group (*site_groups*). A part counts only if it is on a
    readable disk and its rules do not end before *held_until*. A group with a complete copy needs no union.
    """
    if sum(0 < count.available_length < count.length for count in counts.values()) < 2:
        return frozenset()
    durable = {
        name
        for name, count in counts.items()
        if count.available_length > 0
        and _is_usable_until(rses.get(name), movements.get(name, NO_MOVEMENT), held_until)
    }
    if len(durable) < 2:
        return frozenset()
    combinable = set[str]()
    for sites in site_groups:
        at_sites = {name for name in durable if not sites.isdisjoint(rses[name].sites)}
        files = sum(counts[name].available_length for name in at_sites)
        has_complete = any(counts[name].is_complete for name in at_sites)
        if len(at_sites) > 1 and not has_complete and files >= max(counts[name].length for name in at_sites):
            combinable |= at_sites
    return frozenset(combinable)


def _is_usable_until(rse: Rse | None, movement: Movement, held_until: datetime) -> bool:
    """Return whether files at *rse* are readable on disk, and rules hold them until *held_until*."""
    if rse is None or rse.fault or rse.is_tape or rse.is_volatile or not rse.is_readable or not rse.sites:
        return False
    return movement.ends_at is None or movement.ends_at > held_until


def apply_did_expiry(replicas: Iterable[Replica], ends_at: datetime | None, held_until: datetime) -> Replicas:
    """Return the *replicas* of a DID, adjusted to the end of the DID's own lifetime (*ends_at*).

    *held_until* is the end of the time for which a job that starts now needs its data. If the lifetime
    ends before *held_until*, no replica counts as complete or incoming: at *ends_at* Rucio
    deletes the DID and its rules, even if a rule has a later end.
    """
    if ends_at is None or ends_at > held_until:
        return tuple(replicas)
    adjusted = []
    for each in replicas:
        provenance = replace(
            each.provenance, expires_at=min(filter(None, (each.provenance.expires_at, ends_at)))
        )
        if each.state is DatasetState.AVAILABLE:
            reason = "whole, but its own lifetime ends before a job could use it"
            provenance = replace(provenance, reason=reason, ready_at=None)
            adjusted.append(replace(each, state=DatasetState.PARTIAL, provenance=provenance))
        elif each.state is not DatasetState.STAGING:
            adjusted.append(replace(each, provenance=provenance))
        elif each.fraction:
            adjusted.append(replace(each, state=DatasetState.PARTIAL, provenance=provenance))
    return tuple(adjusted)


def file_replicas(did: Did, states: Mapping[str, str], rses: Rses, *, held_until: datetime) -> Replicas:
    """Return the replicas of one file; *states* has its state at each storage element (``list_replicas``).

    Rucio makes a replica UNAVAILABLE if its transfer failed for good or cannot begin: its locks are STUCK. A
    deleted rule leaves such a replica, too, until the reaper removes it. A downtime changes no replica.

    Raises:
        BadRow: see :func:`dataset_replicas`.
    """
    available = available_storages(states)
    counts = {name: Count(1, int(name in available), 0, 0) for name in states}
    moves = {name: _FILE_MOVEMENTS.get(state, NO_MOVEMENT) for name, state in states.items()}
    return dataset_replicas(did, counts, moves, rses, held_until=held_until)


def container_replicas(did: Did, parts: Iterable[Seen]) -> Replicas:
    """Return the replicas of a container, which is complete at a site if all its datasets are complete there.

    The datasets of one site may be at different storage elements. *parts* are the readings of the datasets;
    they must not include datasets without files, which have no replicas.
    """
    parts = list(parts)
    sites = sorted({replica.site for part in parts for replica in part.replicas})
    return tuple(replica for site in sites for replica in _container_replicas_at(did, site, parts))


def _container_replicas_at(did: Did, site: Site, parts: list[Seen]) -> list[Replica]:
    """Return up to two replicas at *site*: one on disk or moving to disk, and a complete one on tape."""
    by_part = [[replica for replica in part.replicas if replica.site == site] for part in parts]
    states = [{replica.state for replica in replicas} for replicas in by_part]
    storage = ",".join(sorted({replica.storage for replicas in by_part for replica in replicas}))
    shares = [max((r.fraction or 0.0 for r in replicas), default=0.0) for replicas in by_part]
    fraction = _mean_by_size(shares, [part.bytes_total for part in parts])
    container = []
    state = _container_state(states)
    if state:
        container.append(Replica(did, site, state, fraction, storage, _container_provenance(by_part, state)))
    if state is not DatasetState.AVAILABLE and all(DatasetState.NEARLINE in each for each in states):
        provenance = _container_provenance(by_part, DatasetState.NEARLINE)
        container.append(Replica(did, site, DatasetState.NEARLINE, 0.0, storage, provenance))
    return container


def _container_state(states: list[set[DatasetState]]) -> DatasetState | None:
    if all(DatasetState.AVAILABLE in each for each in states):
        return DatasetState.AVAILABLE
    missing = [each for each in states if DatasetState.AVAILABLE not in each]
    for state in (DatasetState.STAGING, DatasetState.STUCK, DatasetState.UNAVAILABLE):
        if any(state in each for each in missing):
            return state
    on_disk = any(each & {DatasetState.AVAILABLE, DatasetState.PARTIAL} for each in states)
    return DatasetState.PARTIAL if on_disk else None


def _container_provenance(replicas_by_part: list[list[Replica]], state: DatasetState) -> Provenance:
    """Return the provenance of a container with *state*, made from its datasets that have this state.

    The reason comes from the first dataset, the end of the rules from the dataset whose rules end
    first, the time of completion from the dataset that is completed last. If one dataset has no time of
    completion, the container has none.
    """
    deciding = [r for replicas in replicas_by_part for r in replicas if r.state is state]
    if not deciding:
        return NO_PROVENANCE
    first = min(deciding, key=lambda r: (not r.provenance.reason, r.did))
    ends = [r.provenance.expires_at for r in deciding if r.provenance.expires_at]
    reason = f"{first.did}: {first.provenance.reason}" if first.provenance.reason else ""
    provenance = replace(first.provenance, reason=reason, expires_at=min(ends, default=None))
    if any(r.provenance.ready_at is None for r in deciding):
        return replace(provenance, ready_at=None)
    last = max(deciding, key=lambda r: (r.provenance.ready_at, r.did)).provenance
    return replace(provenance, ready_at=last.ready_at)


def _mean_by_size(shares: list[float], sizes: list[int | None]) -> float:
    """Return the mean of *shares*; if all sizes are known, weight each share by its size."""
    known_sizes = [size for size in sizes if size is not None]
    weights = known_sizes if len(known_sizes) == len(shares) and sum(known_sizes) > 0 else [1] * len(shares)
    return sum(share * weight for share, weight in zip(shares, weights, strict=True)) / sum(weights)

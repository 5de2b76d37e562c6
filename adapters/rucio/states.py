"""From counts and rules to one state per dataset and storage element, and per container and site.

Decided by what a job can do there: values in, values out; no socket, no clock.
docs/rucio.md has the same as a table, for people.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime

from adapters.rucio.rules.model import NO_MOVEMENT, Movement
from hydrator.domain.model import NO_PROVENANCE, Did, Provenance, Replica, ReplicaState, Seen, Site

from .responses import NO_FILES, BadRow, Count, Rse

_COUNT_CALL = "list_dataset_replicas(deep=True)"
_LOCK_CALL = "get_locks_for_dids"
_FILE_CALL = "list_replicas"
_PROVENANCE_BY_CALL: dict[str, Provenance] = {}


@dataclass(frozen=True, slots=True)
class RseState:
    """What is at one storage element: the state, the fraction on disk, and how it came to that."""

    state: ReplicaState
    fraction: float
    provenance: Provenance = NO_PROVENANCE


def state_at(rse: Rse, count: Count, movement: Movement, held_until: datetime) -> RseState | None:
    """The state of one dataset at one storage element, or None: not there.

    A rule promises data, it is not data: a complete count decides first. Of
    a dataset that is only partly on tape, or on its way to tape, nothing is on disk.
    A whole copy that is in a cache, or that rules let go before *held_until*, is none to start
    a long job on: PARTIAL.
    """
    told = movement.provenance
    if rse.is_tape and not count.is_complete:
        return None
    if not rse.is_readable:
        there = count.available_length > 0 or movement.is_moving or movement.is_stuck
        reason = f"{rse.name} cannot be read (availability_read, or a downtime)"
        return RseState(ReplicaState.STUCK, 0.0, replace(told, reason=reason)) if there else None
    if rse.is_tape:
        return RseState(ReplicaState.ON_TAPE, 0.0, told)
    if count.is_complete:
        return _complete_state(rse, movement, held_until)
    if movement.is_moving and not rse.is_writable:
        reason = f"{rse.name} cannot be written (availability_write), so nothing arrives"
        return RseState(ReplicaState.STUCK, count.fraction, replace(told, reason=reason))
    if movement.is_moving:
        return RseState(ReplicaState.INCOMING, count.fraction, told)
    if movement.is_stuck:
        return RseState(ReplicaState.STUCK, count.fraction, told)
    return RseState(ReplicaState.PARTIAL, count.fraction, told) if count.available_length > 0 else None


def _complete_state(rse: Rse, movement: Movement, held_until: datetime) -> RseState:
    told = movement.provenance
    if rse.is_volatile:
        reason = f"whole, but {rse.name} is a cache (volatile) that may drop it at any time"
        return RseState(ReplicaState.PARTIAL, 1.0, replace(told, reason=reason))
    if movement.ends_at is not None and movement.ends_at <= held_until:
        ended = "" if told.rule else told.reason
        reason = ended or "whole, but no rule holds it for long enough"
        return RseState(ReplicaState.PARTIAL, 1.0, replace(told, reason=reason))
    return RseState(ReplicaState.COMPLETE, 1.0, replace(told, reason="") if told.reason else told)


def dataset_replicas(
    did: Did,
    counts: Mapping[str, Count],
    movements: Mapping[str, Movement],
    rses: Mapping[str, Rse],
    *,
    held_until: datetime,
    call: str = _COUNT_CALL,
) -> tuple[Replica, ...]:
    """The replicas of one dataset, ordered by site and storage; elements without a site are left out.

    Raises:
        BadRow: one of *counts* is at an element that is not among *storages* (was that list cut short?),
            or at one of which Rucio says what cannot be read, as it may of a rule.
    """
    found = []
    for name in sorted(counts.keys() | (movements.keys() & rses.keys())):
        storage = rses.get(name)
        if storage is None:
            raise BadRow(f"{did} is at {name}, which list_rses did not list")
        movement = movements.get(name, NO_MOVEMENT)
        if fault := storage.fault or movement.fault:
            raise BadRow(f"{did} is at {name}: {fault}")
        at = state_at(storage, counts.get(name, NO_FILES), movement, held_until)
        if at:
            told = _with_call(at.provenance, call if name in counts else _LOCK_CALL)
            found += [
                Replica(did, site, at.state, at.fraction, storage=name, provenance=told)
                for site in storage.sites
            ]
    return tuple(sorted(found, key=lambda replica: (replica.site, replica.storage)))


def combinable_storages(
    counts: Mapping[str, Count],
    movements: Mapping[str, Movement],
    rses: Mapping[str, Rse],
    site_groups: Iterable[AbstractSet[Site]],
    held_until: datetime,
) -> frozenset[str]:
    """The elements where parts of a dataset stay that may be whole together.

    *together* are the sites whose storage is read as one; of those with a whole copy that stays, none.
    """
    if sum(0 < count.available_length < count.length for count in counts.values()) < 2:
        return frozenset()
    staying = {
        name
        for name, count in counts.items()
        if count.available_length > 0
        and _is_usable_until(rses.get(name), movements.get(name, NO_MOVEMENT), held_until)
    }
    if len(staying) < 2:
        return frozenset()
    found = set[str]()
    for sites in site_groups:
        here = {name for name in staying if not sites.isdisjoint(rses[name].sites)}
        files = sum(counts[name].available_length for name in here)
        whole = any(counts[name].is_complete for name in here)
        if len(here) > 1 and not whole and files >= max(counts[name].length for name in here):
            found |= here
    return frozenset(found)


def _is_usable_until(rse: Rse | None, movement: Movement, held_until: datetime) -> bool:
    """Return whether files at *storage* can be read, and are not about to go."""
    if rse is None or rse.is_tape or rse.is_volatile or not rse.is_readable or not rse.sites:
        return False
    return movement.ends_at is None or movement.ends_at > held_until


def apply_did_expiry(
    replicas: Iterable[Replica], ends_at: datetime | None, held_until: datetime
) -> tuple[Replica, ...]:
    """*replicas* of a DID that itself ends at *ends_at*: before *held_until* none is whole, and none arrives.

    Rucio then takes its rules away and the DID with them, however long its rules would last.
    """
    if ends_at is None or ends_at > held_until:
        return tuple(replicas)
    found = []
    for each in replicas:
        told = replace(each.provenance, expires_at=min(filter(None, (each.provenance.expires_at, ends_at))))
        if each.state is ReplicaState.COMPLETE:
            reason = "whole, but its own lifetime ends before a job could use it"
            told = replace(told, reason=reason, ready_at=None, ready_error=None)
            found.append(replace(each, state=ReplicaState.PARTIAL, provenance=told))
        elif each.state is not ReplicaState.INCOMING:
            found.append(replace(each, provenance=told))
        elif each.fraction:
            found.append(replace(each, state=ReplicaState.PARTIAL, provenance=told))
    return tuple(found)


def _with_call(provenance: Provenance, call: str) -> Provenance:
    """*told*, as learned by *call*."""
    return (
        _PROVENANCE_BY_CALL.setdefault(call, Provenance(call=call))
        if provenance is NO_PROVENANCE
        else replace(provenance, call=call)
    )


def file_replicas(
    did: Did, states: Mapping[str, str], rses: Mapping[str, Rse], *, held_until: datetime
) -> tuple[Replica, ...]:
    """The replicas of one file, from the states list_replicas gives by storage element.

    Raises:
        BadRow: as :func:`dataset_replicas`.
    """
    counts = {name: Count(1, int(state == "AVAILABLE"), 0, 0) for name, state in states.items()}
    moves = {name: Movement(is_moving=state == "COPYING") for name, state in states.items()}
    return dataset_replicas(did, counts, moves, rses, held_until=held_until, call=_FILE_CALL)


def container_replicas(did: Did, parts: Iterable[Seen]) -> tuple[Replica, ...]:
    """The replicas of a container: complete at a *site* when each of its datasets is, at any storage there.

    Datasets without files are not to be among *parts*: there is nothing of them to be anywhere.
    """
    parts = list(parts)
    sites = sorted({replica.site for part in parts for replica in part.replicas})
    return tuple(replica for site in sites for replica in _container_replicas_at(did, site, parts))


def _container_replicas_at(did: Did, site: Site, parts: list[Seen]) -> list[Replica]:
    """Up to two: what is on disk or on its way there, and a whole copy on tape."""
    here = [[replica for replica in part.replicas if replica.site == site] for part in parts]
    states = [{replica.state for replica in replicas} for replicas in here]
    storage = ",".join(sorted({replica.storage for replicas in here for replica in replicas}))
    shares = [max((r.fraction or 0.0 for r in replicas), default=0.0) for replicas in here]
    fraction = _mean_by_size(shares, [part.bytes_total for part in parts])
    found = []
    state = _container_state(states)
    if state:
        found.append(Replica(did, site, state, fraction, storage, _container_provenance(here, state)))
    if state is not ReplicaState.COMPLETE and all(ReplicaState.ON_TAPE in each for each in states):
        told = _container_provenance(here, ReplicaState.ON_TAPE)
        found.append(Replica(did, site, ReplicaState.ON_TAPE, 0.0, storage, told))
    return found


def _container_state(states: list[set[ReplicaState]]) -> ReplicaState | None:
    if all(ReplicaState.COMPLETE in each for each in states):
        return ReplicaState.COMPLETE
    missing = [each for each in states if ReplicaState.COMPLETE not in each]
    for state in (ReplicaState.INCOMING, ReplicaState.STUCK):
        if any(state in each for each in missing):
            return state
    on_disk = any(each & {ReplicaState.COMPLETE, ReplicaState.PARTIAL} for each in states)
    return ReplicaState.PARTIAL if on_disk else None


def _container_provenance(replicas_by_part: list[list[Replica]], state: ReplicaState) -> Provenance:
    """What the first dataset that makes the container's *state* told; its end is the earliest of all.

    The time it is ready is that of the last dataset, known when it is known of all that move.
    """
    deciding = [r for replicas in replicas_by_part for r in replicas if r.state is state]
    if not deciding:
        return Provenance(
            call=next((r.provenance.call for replicas in replicas_by_part for r in replicas), "")
        )
    first = min(deciding, key=lambda r: (not r.provenance.reason, r.did))
    ends = [r.provenance.expires_at for r in deciding if r.provenance.expires_at]
    reason = f"{first.did}: {first.provenance.reason}" if first.provenance.reason else ""
    told = replace(first.provenance, reason=reason, expires_at=min(ends, default=None))
    if any(r.provenance.ready_at is None for r in deciding):
        return replace(told, ready_at=None, ready_error=None)
    last = max(deciding, key=lambda r: (r.provenance.ready_at, r.did)).provenance
    return replace(told, ready_at=last.ready_at, ready_error=last.ready_error)


def _mean_by_size(shares: list[float], sizes: list[int | None]) -> float:
    """The mean of *shares*, by size where all sizes are known."""
    known = [size for size in sizes if size is not None]
    weights = known if len(known) == len(shares) and sum(known) > 0 else [1] * len(shares)
    return sum(share * weight for share, weight in zip(shares, weights, strict=True)) / sum(weights)

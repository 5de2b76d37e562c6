"""Rules, locks and the movements that they cause. This module is pure: no socket, no clock."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from adapters.rucio.responses import (
    BadRow,
    GarbledRow,
    Record,
    Rows,
    iter_records,
    parse_rows,
    read_choice,
    read_did,
    read_text,
    read_time,
)
from hydrator.domain.model import NO_PROVENANCE, Did, Provenance

LOCK_STATES = frozenset({"OK", "REPLICATING", "STUCK"})
RULE_STATES = LOCK_STATES | {"SUSPENDED", "WAITING_APPROVAL", "INJECT"}
_GROUPINGS = frozenset({"ALL", "DATASET", "NONE"})
PENDING_STATES = {"INJECT": "I", "WAITING_APPROVAL": "W"}
UNFINISHED_STATES = frozenset({"REPLICATING", "STUCK", "SUSPENDED"})
_REASON_CHARS = 200


class Rule(NamedTuple):
    """A replication rule on *did*, a dataset or a container.

    *state* is OK, REPLICATING, STUCK, SUSPENDED, WAITING_APPROVAL or INJECT; in the last two states the rule
    has no locks yet. *error* is Rucio's reason for STUCK. *expires_at* is the end of the rule; None: no end.
    *fault* says why the row is unreadable; then only the id is valid, and perhaps the DID.
    """

    id: str
    did: Did | None
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
Movements = Mapping[str, Movement]
"""The movements of one dataset, by storage element."""


def parse_locks(rows: Rows, call: str) -> list[Lock | GarbledRow]:
    """Parse rows of get_locks_for_dids; see :func:`parse_rows`.

    Raises:
        BadRow: the DID of a row is unreadable.
    """

    def read(did: Did, row: Record) -> Lock:
        state = read_choice(LOCK_STATES, row, "state", call)
        return Lock(did, read_text(row, "rse", call), state, read_text(row, "rule_id", call))

    return list(parse_rows(rows, call, read))


def parse_rules(rows: Rows, call: str) -> list[Rule]:
    """Parse rows of list_replication_rules, list_did_rules and get_replication_rule.

    Raises:
        BadRow: a row is not a record, or has no id.
    """
    return list(iter_rules(rows, call))


def iter_rules(rows: Rows, call: str) -> Iterator[Rule]:
    """Yield the rules of *rows* as they arrive; see :func:`parse_rules`."""
    return (_parse_rule(row, call) for row in iter_records(rows, call))


def _parse_rule(row: Record, call: str) -> Rule:
    """Parse one rule; if a column is unreadable, return a rule with the id and a fault.

    Raises:
        BadRow: the id is unreadable.
    """
    rule_id, did = read_text(row, "id", call), read_did(row, call)
    try:
        return Rule(
            id=rule_id,
            did=did,
            state=read_choice(RULE_STATES, row, "state", call),
            expression=read_text(row, "rse_expression", call),
            grouping="DATASET"
            if row.get("grouping") is None
            else read_choice(_GROUPINGS, row, "grouping", call),
            account=str(row.get("account") or ""),
            error=" ".join(str(row.get("error") or "").split())[:_REASON_CHARS],
            expires_at=read_time(row, "expires_at", call),
        )
    except BadRow as exc:
        return Rule(rule_id, did, "", "", fault=f"rule {rule_id[:80]}: {exc}")


def movements(
    rows: Iterable[Lock], rules: Mapping[str, Rule], *, held_until: datetime
) -> dict[str, Movement]:
    """Return the movements of one dataset by storage element, from its locks *rows* and their *rules*.

    The locks of a suspended rule stay REPLICATING, but its data is not moving. Data whose rule ends before
    *held_until* does not count as moving either.
    """
    by_storage: dict[str, list[tuple[Lock, Rule]]] = {}
    for lock in rows:
        rule = rules.get(lock.rule)
        if rule:
            by_storage.setdefault(lock.storage, []).append((lock, rule))
    return {storage: _movement(pairs, held_until) for storage, pairs in by_storage.items()}


def _movement(pairs: list[tuple[Lock, Rule]], held_until: datetime) -> Movement:
    if fault := next((rule.fault for _, rule in pairs if rule.fault), ""):
        return Movement(fault=fault)
    moving, stuck = None, None
    for lock, rule in sorted(pairs, key=lambda pair: pair[1].id):
        soon_gone = rule.expires_at is not None and rule.expires_at <= held_until
        if lock.state == "REPLICATING" and rule.state != "SUSPENDED":
            moving = moving or (None if soon_gone else rule)
        elif lock.state in UNFINISHED_STATES:
            stuck = stuck or rule
    ends = [rule.expires_at for _, rule in pairs]
    ends_at = max((end for end in ends if end), default=None) if None not in ends else None
    longest = max(pairs, key=lambda pair: (pair[1].expires_at is None, pair[1].expires_at or held_until))
    decisive = moving or stuck or longest[1]
    return Movement(moving is not None, stuck is not None, ends_at, provenance_of(decisive))


def provenance_of(rule: Rule) -> Provenance:
    """Return the provenance of *rule*: its id, account, end and reason."""
    return Provenance(
        reason=_rule_reason(rule), rule=rule.id, account=rule.account, expires_at=rule.expires_at
    )


def _rule_reason(rule: Rule) -> str:
    if rule.state == "SUSPENDED":
        return "its rule is suspended"
    if rule.state == "WAITING_APPROVAL":
        return "its rule waits for approval"
    if rule.state == "INJECT":
        return "its rule is about to be taken up"
    if rule.state == "STUCK":
        return f"its rule is stuck: {rule.error}" if rule.error else "its rule is stuck"
    return ""


def movement_without_locks(rule: Rule, *, held_until: datetime) -> Movement:
    """Return the movement of a rule without locks: INJECT is moving, WAITING_APPROVAL is stuck."""
    soon_gone = rule.expires_at is not None and rule.expires_at <= held_until
    moving = rule.state == "INJECT" and not soon_gone
    return Movement(moving, rule.state == "WAITING_APPROVAL", rule.expires_at, provenance_of(rule))

"""What Rucio's rules want and what they do about it: values in, values out; no socket, no clock."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from adapters.rucio.responses import (
    BadRow,
    GarbledRow,
    parse_rows,
    read_choice,
    read_did,
    read_text,
    read_time,
    require_record,
)
from hydrator.domain.model import NO_PROVENANCE, Did, Provenance

LOCK_STATES = frozenset({"OK", "REPLICATING", "STUCK"})
RULE_STATES = LOCK_STATES | {"SUSPENDED", "WAITING_APPROVAL", "INJECT"}
_GROUPINGS = frozenset({"ALL", "DATASET", "NONE"})
PENDING_STATES = {"INJECT": "I", "WAITING_APPROVAL": "W"}
UNFINISHED_STATES = frozenset({"REPLICATING", "STUCK", "SUSPENDED"})
_REASON_CHARS = 200


class Rule(NamedTuple):
    """One replication rule: *did* is what it was made for, a dataset or a container of many.

    *state* is OK, REPLICATING, STUCK, SUSPENDED, WAITING_APPROVAL or INJECT; the last two have
    no locks yet. *error* is why it is stuck. *expires_at* is when it lets go, None: never.
    Of one with a *fault* only its id and perhaps its DID can be read.
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
    """What one rule wants of one dataset at one storage element."""

    did: Did
    storage: str
    state: str
    rule: str


@dataclass(frozen=True, slots=True)
class Movement:
    """What rules do about one dataset at one storage element.

    *ends_at* is when the last of the rules that hold it lets go, None when one never does
    (or none holds it: then nobody promised anything). *told* is of the rule that decides.
    *fault* is what cannot be read of one of the rules.
    """

    is_moving: bool = False
    is_stuck: bool = False
    ends_at: datetime | None = None
    provenance: Provenance = NO_PROVENANCE
    fault: str = ""


NO_MOVEMENT = Movement()


def parse_locks(rows: Iterable[object], call: str) -> list[Lock | GarbledRow]:
    """Rows of get_locks_for_dids; see :func:`parse_rows`.

    Raises:
        BadRow: one is not such a row, and its dataset cannot be told.
    """

    def read(did: Did, row: Mapping[str, Any]) -> Lock:
        state = read_choice(LOCK_STATES, row, "state", call)
        return Lock(did, read_text(row, "rse", call), state, read_text(row, "rule_id", call))

    return list(parse_rows(rows, call, read))


def parse_rules(rows: Iterable[object], call: str) -> list[Rule]:
    """Rows of list_replication_rules, list_did_rules and get_replication_rule.

    Raises:
        BadRow: one is not such a row.
    """
    return list(iter_rules(rows, call))


def iter_rules(rows: Iterable[object], call: str) -> Iterator[Rule]:
    """The same one by one, as *rows* come."""
    return (_parse_rule(require_record(row, call), call) for row in rows)


def _parse_rule(row: Mapping[str, object], call: str) -> Rule:
    """Return what a row says of a rule; where not all of it can be read, which rule it is, and the fault.

    Raises:
        BadRow: it cannot even be told which rule it is.
    """
    which, did = read_text(row, "id", call), read_did(row, call)
    try:
        return Rule(
            id=which,
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
        return Rule(which, did, "", "", fault=f"rule {which[:80]}: {exc}")


def movements(
    rows: Iterable[Lock], rules: Mapping[str, Rule], *, held_until: datetime
) -> dict[str, Movement]:
    """By storage element, what *rules* do with the locks *rows* of one dataset.

    Locks of a suspended rule stay REPLICATING but move nothing; neither does it help
    anybody that a rule moves what it lets go before *held_until*.
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
    """What *rule* says of itself."""
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
    """What a rule without locks yet does where it wants the data: nothing before it is approved."""
    soon_gone = rule.expires_at is not None and rule.expires_at <= held_until
    moving = rule.state == "INJECT" and not soon_gone
    return Movement(moving, rule.state == "WAITING_APPROVAL", rule.expires_at, provenance_of(rule))

"""What Rucio's rules want and what they do about it: values in, values out; no socket, no clock."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from adapters.rucio.responses import (
    BadRow,
    Garbled,
    did_of,
    each_about,
    moment,
    one_of,
    record,
    text,
)
from hydrator.domain.model import UNTOLD, Did, Told

LOCK_STATES = frozenset({"OK", "REPLICATING", "STUCK"})
RULE_STATES = LOCK_STATES | {"SUSPENDED", "WAITING_APPROVAL", "INJECT"}
_GROUPINGS = frozenset({"ALL", "DATASET", "NONE"})
PENDING = {"INJECT": "I", "WAITING_APPROVAL": "W"}
UNDONE = frozenset({"REPLICATING", "STUCK", "SUSPENDED"})
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

    moving: bool = False
    stuck: bool = False
    ends_at: datetime | None = None
    told: Told = UNTOLD
    fault: str = ""


STILL = Movement()


def locks(rows: Iterable[object], what: str) -> list[Lock | Garbled]:
    """Rows of get_locks_for_dids; see :func:`each_about`.

    Raises:
        BadRow: one is not such a row, and its dataset cannot be told.
    """

    def read(did: Did, row: Mapping[str, Any]) -> Lock:
        state = one_of(LOCK_STATES, row, "state", what)
        return Lock(did, text(row, "rse", what), state, text(row, "rule_id", what))

    return list(each_about(rows, what, read))


def rules(rows: Iterable[object], what: str) -> list[Rule]:
    """Rows of list_replication_rules, list_did_rules and get_replication_rule.

    Raises:
        BadRow: one is not such a row.
    """
    return list(each_rule(rows, what))


def each_rule(rows: Iterable[object], what: str) -> Iterator[Rule]:
    """The same one by one, as *rows* come."""
    return (_rule(record(row, what), what) for row in rows)


def _rule(row: Mapping[str, object], what: str) -> Rule:
    """Return what a row says of a rule; where not all of it can be read, which rule it is, and the fault.

    Raises:
        BadRow: it cannot even be told which rule it is.
    """
    which, did = text(row, "id", what), did_of(row, what)
    try:
        return Rule(
            id=which,
            did=did,
            state=one_of(RULE_STATES, row, "state", what),
            expression=text(row, "rse_expression", what),
            grouping="DATASET" if row.get("grouping") is None else one_of(_GROUPINGS, row, "grouping", what),
            account=str(row.get("account") or ""),
            error=" ".join(str(row.get("error") or "").split())[:_REASON_CHARS],
            expires_at=moment(row, "expires_at", what),
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
        elif lock.state in UNDONE:
            stuck = stuck or rule
    ends = [rule.expires_at for _, rule in pairs]
    ends_at = max((end for end in ends if end), default=None) if None not in ends else None
    longest = max(pairs, key=lambda pair: (pair[1].expires_at is None, pair[1].expires_at or held_until))
    decisive = moving or stuck or longest[1]
    return Movement(moving is not None, stuck is not None, ends_at, told_of(decisive))


def told_of(rule: Rule) -> Told:
    """What *rule* says of itself."""
    return Told(reason=_reason(rule), rule=rule.id, account=rule.account, expires_at=rule.expires_at)


def _reason(rule: Rule) -> str:
    if rule.state == "SUSPENDED":
        return "its rule is suspended"
    if rule.state == "WAITING_APPROVAL":
        return "its rule waits for approval"
    if rule.state == "INJECT":
        return "its rule is about to be taken up"
    if rule.state == "STUCK":
        return f"its rule is stuck: {rule.error}" if rule.error else "its rule is stuck"
    return ""


def promised(rule: Rule, *, held_until: datetime) -> Movement:
    """What a rule without locks yet does where it wants the data: nothing before it is approved."""
    soon_gone = rule.expires_at is not None and rule.expires_at <= held_until
    moving = rule.state == "INJECT" and not soon_gone
    return Movement(moving, rule.state == "WAITING_APPROVAL", rule.expires_at, told_of(rule))

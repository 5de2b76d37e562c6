"""Cost of a Rucio poll: queries that it need not send, and those that it must (on a stand-in)."""

from datetime import datetime, timedelta

import pytest

from adapters.rucio.catalogue import RucioCatalogue
from hydrator.domain.model import DatasetState, Did
from testbed.rucio_standin import RucioStandIn
from tests.factories import NOON

pytestmark = pytest.mark.outside

SOON = "Sat, 21 Nov 2026 13:00:00 UTC"


class StandIn(RucioStandIn):
    """A stand-in whose datasets have the given rules and locks."""

    def __init__(self) -> None:
        super().__init__({"UK-DISK": "UK"}, {did: {"UK-DISK": "available"} for did in DIDS})
        self.rules = {did: rule_on(did) for did in DIDS}
        self.locked: list[str] = []
        self.instead: dict[str, tuple[int, object]] = {}
        """Other answers, by a path or by a key of a query."""

    def answer(self, path, query, body):
        for key, other in self.instead.items():
            if key == path.rstrip("/") or key in query:
                return other
        if path == "/rules/" and "scope" in query:
            return 200, list(self.rules.values())
        if path.startswith("/rules/rule-"):
            return 200, next(rule for rule in self.rules.values() if path.endswith(rule["id"]))
        return super().answer(path, query, body)

    def _locks(self, did):
        self.locked.append(did)
        lock = {"rse": "UK-DISK", "state": "OK", "rule_id": f"rule-{did.split(':')[1]}"}
        return [{**dict(zip(("scope", "name"), did.split(":"), strict=True)), **lock}]


def rule_on(did: str, **more) -> dict:
    scope, name = did.split(":")
    ours = {"state": "OK", "rse_expression": "UK-DISK", "account": "somebody", "expires_at": None}
    return {"id": f"rule-{name}", "scope": scope, "name": name, **ours, **more}


DIDS = [Did(f"lofar:L{n:02}") for n in range(20)]
FIRST = DIDS[0]


@pytest.fixture
def now() -> list[datetime]:
    return [NOON]


@pytest.fixture(params=[1000, 5], ids=["in one batch", "in batches of five"])
def catalogue(request, asking, now) -> RucioCatalogue:
    return asking(lambda: now[0], verify_every=timedelta(minutes=10), batch=request.param)


def states(catalogue, dids=DIDS) -> dict[Did, DatasetState | None]:
    readings = catalogue.read(frozenset(dids)).readings
    return {did: reading.replicas[0].state if reading.replicas else None for did, reading in readings.items()}


def test_the_type_of_a_dataset_is_queried_once_in_verify_every(catalogue, stand_in, now):
    for minutes, asked in [(0, 1), (9, 1), (11, 2)]:
        now[0] = NOON + timedelta(minutes=minutes)
        assert states(catalogue)[FIRST] is DatasetState.AVAILABLE
        assert stand_in.asked.count("/dids/bulkmeta") in {asked, asked * 4}, "one for each batch"


def test_an_erased_dataset_has_no_replica_in_the_next_poll(catalogue, stand_in):
    states(catalogue)
    stand_in.holdings = {did: where for did, where in stand_in.holdings.items() if did != FIRST}
    assert states(catalogue) == {did: None if did == FIRST else DatasetState.AVAILABLE for did in DIDS}


def test_locks_are_not_queried_where_permanent_rules_imply_them(catalogue, stand_in, now):
    readings = catalogue.read(frozenset(DIDS)).readings
    told = readings[FIRST].replicas[0].provenance
    assert (told.rule, told.account) == ("rule-L00", "somebody")
    assert stand_in.locked == []
    now[0] += timedelta(minutes=5)
    states(catalogue)
    assert stand_in.asked.count("/rules/") == 2 + 1 + 1, (
        "those that wait by their two states, the scope, what changed"
    )


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"expires_at": SOON}, DatasetState.PARTIAL),
        ({"rse_expression": "country=UK"}, DatasetState.AVAILABLE),
        ({"state": "SUSPENDED"}, DatasetState.AVAILABLE),
        ({"name": "a-container"}, DatasetState.AVAILABLE),
    ],
)
def test_locks_are_queried_where_a_rule_does_not_imply_them(catalogue, stand_in, changes, state):
    stand_in.rules[FIRST] = rule_on(FIRST, **changes) | {"id": "rule-L00"}
    assert states(catalogue)[FIRST] is state
    assert stand_in.locked == [FIRST]


def test_for_a_few_datasets_a_scope_is_not_listed(catalogue, stand_in):
    states(catalogue, DIDS[:19])
    assert sorted(stand_in.locked) == DIDS[:19]


def test_locks_are_queried_if_rules_cannot_be_listed(catalogue, stand_in):
    stand_in.instead["scope"] = (500, {"ExceptionClass": "DatabaseException"})
    assert set(states(catalogue).values()) == {DatasetState.AVAILABLE}
    assert sorted(stand_in.locked) == DIDS


def test_a_rule_whose_end_moves_forward_is_noticed(catalogue, stand_in, now):
    assert states(catalogue)[FIRST] is DatasetState.AVAILABLE
    now[0] += timedelta(minutes=1)
    stand_in.rules[FIRST] = rule_on(FIRST, expires_at=SOON)
    stand_in.instead["updated_after"] = (200, [stand_in.rules[FIRST]])
    assert states(catalogue)[FIRST] is DatasetState.PARTIAL


def test_a_cached_conclusion_is_renewed_when_its_storage_closes_or_opens(catalogue, stand_in):
    for readable, state in [(True, "AVAILABLE"), (False, "UNAVAILABLE"), (True, "AVAILABLE")]:
        row = {"rse": "UK-DISK", "rse_type": "DISK", "deleted": False, "availability_read": readable}
        stand_in.instead["/rses"] = (200, [row])
        assert {each.name for each in states(catalogue).values()} == {state}


def test_a_rule_that_nears_its_end_is_noticed_without_a_change(catalogue, stand_in, now):
    stand_in.rules[FIRST] = rule_on(FIRST, expires_at="Sat, 21 Nov 2026 18:02:00 UTC")
    for minutes, state in [
        (0, DatasetState.AVAILABLE),
        (1, DatasetState.AVAILABLE),
        (3, DatasetState.PARTIAL),
    ]:
        now[0] = NOON + timedelta(minutes=minutes)
        assert states(catalogue)[FIRST] is state


def test_a_rule_end_is_kept_when_all_rules_are_read_again(catalogue, stand_in, now):
    states(catalogue)
    stand_in.rules[FIRST] = rule_on(FIRST, expires_at=SOON)
    for minutes, changed in [(5, [stand_in.rules[FIRST]]), (11, [])]:
        now[0] = NOON + timedelta(minutes=minutes)
        stand_in.instead["updated_after"] = (200, changed)
        told = catalogue.read(frozenset(DIDS)).readings[FIRST].replicas[0].provenance
        assert (told.rule, told.reason) == ("rule-L00", "whole, but no rule holds it for long enough")

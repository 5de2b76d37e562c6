"""Counts that polls verify in turn, and failed queries that wait (on a stand-in, on a clock of the test)."""

from datetime import timedelta
from email.utils import format_datetime
from functools import partial

import pytest

from adapters.rucio.catalogue import RucioCatalogue
from hydrator.domain.model import DatasetState, Did, Seen
from testbed.rucio_standin import FILES, RucioStandIn
from tests.factories import HOUR, MINUTE, NOON

pytestmark = pytest.mark.outside

DIDS = [Did(f"lofar:L{n:02}") for n in range(40)]
USUAL = {"verify_every": 10 * MINUTE}


class StandIn(RucioStandIn):
    """A stand-in whose files go bad without a recount, and that fails for paths with ``sick`` in them."""

    def __init__(self) -> None:
        super().__init__({"UK-DISK": "UK"}, {did: {"UK-DISK": "available"} for did in DIDS})
        self.bad: set[str] = set()
        self.sick = "nothing"

    def answer(self, path, query, body):
        status, rows = super().answer(path, query, body)
        if self.sick in path:
            return 500, rows
        if path.endswith("/datasets") and path.split("/")[3] in self.bad:
            rows = [{**row, "available_length": FILES - 1} for row in rows]
        return status, rows

    def take_counted(self) -> list[str]:
        """Return the datasets that were counted since the last call."""
        asked, self.asked = self.asked, []
        return [path.split("/")[3] for path in asked if path.endswith("/datasets")]


class Turned:
    """A catalogue, whose clock goes on by a minute each poll."""

    def __init__(self, make, **settings) -> None:
        self.now = NOON
        self.catalogue: RucioCatalogue = make(lambda: self.now, **settings)

    def states(self) -> dict[Did, DatasetState | None]:
        """Return the state of each dataset; None where it is unseen."""
        self.now += MINUTE
        readings = self.catalogue.read(frozenset(DIDS)).readings
        assert {one.as_of for one in readings.values() if isinstance(one, Seen)} == {self.now}
        return {
            did: one.replicas[0].state if isinstance(one, Seen) else None for did, one in readings.items()
        }


@pytest.fixture
def turned(asking):
    return partial(Turned, asking)


def test_polls_at_rest_verify_a_part_of_all_counts_once_in_the_time(turned, stand_in):
    catalogue = turned()
    catalogue.states()
    assert len(stand_in.take_counted()) == len(DIDS)
    counted = []
    for _ in range(12):
        catalogue.states()
        counted.append(stand_in.take_counted())
    assert [len(each) for each in counted] == [0] * 9 + [20, 20, 0]
    assert {*counted[9], *counted[10]} == {did[6:] for did in DIDS}


def test_file_that_went_bad_without_a_recount_is_found_by_verifying(turned, stand_in):
    catalogue = turned()
    catalogue.states()
    stand_in.bad = {"L07"}
    found = [catalogue.states()[DIDS[7]] for _ in range(12)]
    assert found.index(DatasetState.PARTIAL) == 9
    stand_in.bad = set()
    assert set(catalogue.states().values()) == {DatasetState.AVAILABLE}, (
        "what disagrees is counted in each poll"
    )


def test_poll_counts_all_if_verify_every_is_zero(turned, stand_in):
    catalogue = turned(verify_every=timedelta(0))
    for _ in range(3):
        catalogue.states()
        assert len(stand_in.take_counted()) == len(DIDS)


def test_dataset_whose_count_fails_is_asked_less_and_less_and_is_back_when_another_is(turned, stand_in):
    stand_in.sick = "/L07/datasets"
    catalogue, counted = turned(), []
    for _ in range(12):
        assert [did for did, state in catalogue.states().items() if state is None] == ["lofar:L07"]
        counted.append(stand_in.take_counted().count("L07"))
    assert counted == [1, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0]
    stand_in.sick = "nothing"
    assert any(catalogue.states()[DIDS[7]] for _ in range(6))


def remembered(part: object) -> set[object]:
    """Return the keys of all dictionaries and sets in *part* of the catalogue and in its parts."""
    found: set[object] = set()
    for each in vars(part).values():
        if isinstance(each, dict | set):
            found |= {key[1] if isinstance(key, tuple) else key for key in each}
        elif type(each).__module__.startswith("adapters.rucio") and hasattr(each, "__dict__"):
            found |= remembered(each)
    return found


def test_dataset_that_no_job_needs_any_longer_is_forgotten_everywhere(turned, stand_in):
    catalogue, left = turned(twins_every=HOUR), DIDS[8]
    stand_in.sick = "L09"
    catalogue.states()
    assert set(DIDS) <= remembered(catalogue.catalogue)
    catalogue.catalogue.read({left})
    assert set(DIDS) & remembered(catalogue.catalogue) == {left}


def test_rules_of_datasets_that_no_job_needs_any_longer_are_forgotten(turned, stand_in):
    stand_in.holdings = {did: {"UK-DISK": "staging"} for did in DIDS}
    catalogue = turned()
    catalogue.states()
    assert "rule-L07" in remembered(catalogue.catalogue)
    for _ in range(3):
        catalogue.now += 10 * MINUTE
        catalogue.catalogue.read({DIDS[8]})
    assert {key for key in remembered(catalogue.catalogue) if "rule-L" in str(key)} == {"rule-L08"}


class Ending(StandIn):
    """A stand-in with a rule for each dataset; from the sixth poll it ends too soon for a job."""

    def answer(self, path, query, body):
        status, rows = super().answer(path, query, body)
        if status == 200 and path.startswith("/rules/rule-"):
            rows = [{**rows[0], "state": "OK", "expires_at": format_datetime(NOON + 6 * HOUR + 5.5 * MINUTE)}]
        return status, rows[0] if path.startswith("/rules/rule-") else rows

    def _locks(self, did):
        name = did.split(":")[1]
        return [{"scope": "lofar", "name": name, "rse": "UK-DISK", "state": "OK", "rule_id": f"rule-{name}"}]


def test_rules_that_cannot_be_read_for_a_while_count_as_they_were_last_read(turned):
    with Ending() as stand_in:
        catalogue = turned(url=stand_in.url)
        for poll in range(1, 13):
            found = set(catalogue.states().values())
            assert found == {DatasetState.AVAILABLE if poll <= 5 else DatasetState.PARTIAL}
            stand_in.sick = "/rules"
